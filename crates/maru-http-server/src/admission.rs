//! Limits open connections so that callers without a token cannot keep others out.
//!
//! A connection is *unidentified* until one of its requests is admitted with a token or,
//! where no token is needed, until a complete request has arrived. Unidentified connections
//! have their own share. When it is full, the oldest one is closed for a new one, first of
//! all the oldest from the same address. A client that opens connections and sends slowly
//! loses them, while a client that sends its token at once is served.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, Ordering::Relaxed},
    },
};

use tokio_util::sync::CancellationToken;

/// A quarter of all connections may be unidentified.
const UNIDENTIFIED_DIVISOR: usize = 4;
/// A sixteenth of the unidentified connections may come from one address.
const PER_ADDRESS_DIVISOR: usize = 16;
/// A tenth of the identified connections is reserved for callers with a token.
const TOKEN_RESERVE_DIVISOR: usize = 10;

/// Counts and limits the connections of a listener.
#[derive(Debug)]
pub struct ConnectionAdmission {
    /// False behind a proxy, where all clients have the same address.
    limits_per_address: bool,
    counts: Mutex<ConnectionCounts>,
}

#[derive(Debug)]
struct ConnectionCounts {
    max: usize,
    next_id: u64,
    unidentified: BTreeMap<u64, UnidentifiedConnection>,
    local: usize,
    by_token: usize,
}

#[derive(Debug)]
struct UnidentifiedConnection {
    address: IpAddr,
    evicted: CancellationToken,
}

/// The slot of one connection, which is released on drop.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    admission: Arc<ConnectionAdmission>,
    id: u64,
    kind: AtomicU8,
    /// Whether every request that started has arrived completely.
    between_requests: AtomicBool,
    /// Whether it becomes local once its request has arrived completely.
    local_pending: AtomicBool,
    /// Cancelled when the connection has to be closed for another one.
    pub(super) evicted: CancellationToken,
}

const KIND_UNIDENTIFIED: u8 = 0;
const KIND_LOCAL: u8 = 1;
const KIND_TOKEN: u8 = 2;

/// The maximum number of connections is open.
#[derive(Debug)]
pub(super) struct TooManyConnections;

impl ConnectionAdmission {
    /// Allows at most `max` connections, with a share per address if `limits_per_address`.
    pub fn new(max: usize, limits_per_address: bool) -> Arc<Self> {
        Arc::new(Self {
            limits_per_address,
            counts: Mutex::new(ConnectionCounts {
                max,
                next_id: 0,
                unidentified: BTreeMap::new(),
                local: 0,
                by_token: 0,
            }),
        })
    }

    /// Changes the maximum; open connections stay open.
    pub fn set_max(&self, max: usize) {
        self.lock().max = max;
    }

    /// Opens the slot of a new connection, and evicts an older unidentified one if needed.
    pub(super) fn open_slot(self: &Arc<Self>, address: IpAddr) -> Arc<ConnectionSlot> {
        let address = client_network(address);
        let evicted = CancellationToken::new();
        let mut counts = self.lock();
        counts.evict_oldest(address, self.limits_per_address && !address.is_loopback());
        let id = counts.next_id;
        counts.next_id += 1;
        let entry = UnidentifiedConnection {
            address,
            evicted: evicted.clone(),
        };
        counts.unidentified.insert(id, entry);
        drop(counts);
        Arc::new(ConnectionSlot {
            admission: Arc::clone(self),
            id,
            kind: AtomicU8::new(KIND_UNIDENTIFIED),
            between_requests: AtomicBool::new(true),
            local_pending: AtomicBool::new(false),
            evicted,
        })
    }

    fn lock(&self) -> MutexGuard<'_, ConnectionCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionCounts {
    fn max_unidentified(&self) -> usize {
        (self.max / UNIDENTIFIED_DIVISOR).max(1)
    }

    fn max_identified(&self) -> usize {
        self.max.saturating_sub(self.max_unidentified()).max(1)
    }

    /// Evicts the oldest unidentified connection if the share, or the share of `address`, is
    /// full.
    fn evict_oldest(&mut self, address: IpAddr, limits_address: bool) {
        let max = self.max_unidentified();
        let has_address = |it: &(&u64, &UnidentifiedConnection)| it.1.address == address;
        let from_address = self.unidentified.iter().filter(has_address).count();
        let oldest = if limits_address && from_address >= (max / PER_ADDRESS_DIVISOR).max(1) {
            self.unidentified.iter().find(has_address).map(|it| *it.0)
        } else if self.unidentified.len() >= max {
            self.unidentified.keys().next().copied()
        } else {
            None
        };
        if let Some(entry) = oldest.and_then(|id| self.unidentified.remove(&id)) {
            entry.evicted.cancel();
        }
    }

    fn release(&mut self, kind: u8, id: u64) {
        match kind {
            KIND_LOCAL => self.local -= 1,
            KIND_TOKEN => self.by_token -= 1,
            _ => drop(self.unidentified.remove(&id)),
        }
    }
}

impl ConnectionSlot {
    /// Marks the connection as identified, because one of its requests was admitted with a
    /// token or, where none is needed, without. Identified connections are not evicted.
    pub(super) fn identify(&self, by_token: bool) -> Result<(), TooManyConnections> {
        let kind = self.kind.load(Relaxed);
        if kind == KIND_TOKEN || (kind == KIND_LOCAL && !by_token) {
            return Ok(());
        }
        if by_token {
            return self.change_kind(KIND_TOKEN);
        }
        self.local_pending.store(true, Relaxed);
        if self.between_requests.load(Relaxed) {
            return self.change_kind(KIND_LOCAL);
        }
        Ok(())
    }

    pub(super) fn is_identified(&self) -> bool {
        self.kind.load(Relaxed) != KIND_UNIDENTIFIED
    }

    /// Records whether every request that started has arrived completely.
    pub(super) fn set_between_requests(&self, is_between: bool) {
        self.between_requests.store(is_between, Relaxed);
        if is_between && !self.is_identified() && self.local_pending.load(Relaxed) {
            // If the share is full, it stays unidentified and may be evicted.
            let _ = self.change_kind(KIND_LOCAL);
        }
    }

    fn change_kind(&self, kind: u8) -> Result<(), TooManyConnections> {
        let mut counts = self.admission.lock();
        let max = counts.max_identified();
        let old_kind = self.kind.load(Relaxed);
        let was_identified = old_kind != KIND_UNIDENTIFIED;
        let others = counts.local + counts.by_token - usize::from(was_identified);
        let is_local_full = counts.local >= (max - max / TOKEN_RESERVE_DIVISOR).max(1);
        if others >= max || (kind == KIND_LOCAL && is_local_full) {
            return Err(TooManyConnections);
        }
        counts.release(old_kind, self.id);
        if kind == KIND_LOCAL {
            counts.local += 1;
        } else {
            counts.by_token += 1;
        }
        self.kind.store(kind, Relaxed);
        Ok(())
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let kind = self.kind.load(Relaxed);
        self.admission.lock().release(kind, self.id);
    }
}

/// The address that counts as one client: an IPv4 address, or an IPv6 /64 network.
fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(ip) if !ip.is_loopback() => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        [192, 0, 2, last].into()
    }

    #[test]
    fn oldest_unidentified_connection_is_evicted_and_identified_ones_stay() {
        let admission = ConnectionAdmission::new(8, false);
        let first = admission.open_slot(address(1));
        let known = admission.open_slot(address(1));
        known.identify(true).unwrap();
        let second = admission.open_slot(address(2));
        assert!(!first.evicted.is_cancelled());
        let third = admission.open_slot(address(3));
        assert!(first.evicted.is_cancelled());
        assert!(!known.evicted.is_cancelled() && !second.evicted.is_cancelled());
        drop(third);
        let _fourth = admission.open_slot(address(4));
        assert!(!second.evicted.is_cancelled());
    }

    #[test]
    fn address_with_too_many_connections_loses_its_own() {
        let admission = ConnectionAdmission::new(128, true);
        let other = admission.open_slot(address(9));
        let own: Vec<_> = (0..3).map(|_| admission.open_slot(address(1))).collect();
        let gone: Vec<bool> = own.iter().map(|it| it.evicted.is_cancelled()).collect();
        assert_eq!(gone, [true, false, false]);
        assert!(!other.evicted.is_cancelled());
        let six = |text: &str| client_network(text.parse().unwrap());
        assert_eq!(six("2001:db8::1"), six("2001:db8::ffff:2"));
        assert_ne!(six("2001:db8::1"), six("2001:db8:0:1::1"));
        assert_eq!(six("::ffff:192.0.2.1"), address(1));
    }

    #[test]
    fn callers_without_a_token_leave_a_reserve_for_tokens() {
        let admission = ConnectionAdmission::new(40, false);
        let open_slot = || admission.open_slot(address(1));
        let mut local = Vec::new();
        let full = loop {
            let slot = open_slot();
            match slot.identify(false) {
                Ok(()) => local.push(slot),
                Err(TooManyConnections) => break slot,
            }
        };
        assert_eq!(local.len(), 27);
        assert!(!full.is_identified());
        let tokens: Vec<_> = (0..3).map(|_| open_slot()).collect();
        assert!(tokens.iter().all(|it| it.identify(true).is_ok()));
        assert!(open_slot().identify(true).is_err());
        drop(local);
        assert!(full.identify(false).is_ok());
    }

    #[test]
    fn without_a_token_only_a_complete_request_identifies() {
        let admission = ConnectionAdmission::new(8, false);
        let slot = admission.open_slot(address(1));
        slot.set_between_requests(false);
        slot.identify(false).unwrap();
        assert!(!slot.is_identified());
        slot.set_between_requests(true);
        assert!(slot.is_identified());
    }
}
