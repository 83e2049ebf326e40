//! Which connections may be open: nobody without a token keeps others out.
//!
//! A connection is *unidentified* until a request of it was let in by a token, or,
//! where maru needs none, until a whole request has arrived. Unidentified ones have
//! a share of their own; when it is full, the oldest makes room for the newest,
//! first of all the oldest from the same address. So whoever opens connections and
//! sends slowly loses those, and a client that shows its token at once gets in.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv6Addr},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, Ordering::Relaxed},
    },
};

use tokio_util::sync::CancellationToken;

/// Unidentified connections may be this part of all.
const UNIDENTIFIED_DIVISOR: usize = 4;
/// From one address, this part of the unidentified ones.
const PER_ADDRESS_DIVISOR: usize = 16;
/// Callers without a token leave this part of the rest to tokens.
const TOKEN_RESERVE_DIVISOR: usize = 10;

/// Counts the connections of a listener.
#[derive(Debug)]
pub struct ConnectionAdmission {
    /// Whether the address of a connection tells clients apart: not behind a proxy.
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

/// The place of one connection; dropping it makes room.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    admission: Arc<ConnectionAdmission>,
    id: u64,
    kind: AtomicU8,
    /// Whether every request that began has arrived whole.
    between_requests: AtomicBool,
    /// It is to become local when its request has arrived whole.
    local_pending: AtomicBool,
    /// Cancelled when the connection has to make room for another.
    pub(super) evicted: CancellationToken,
}

const KIND_UNIDENTIFIED: u8 = 0;
const KIND_LOCAL: u8 = 1;
const KIND_TOKEN: u8 = 2;

/// As many connections as may be are open.
#[derive(Debug)]
pub(super) struct TooManyConnections;

impl ConnectionAdmission {
    /// At most `max` connections. `by_address`: whether an address tells clients apart.
    pub fn new(max: usize, by_address: bool) -> Arc<Self> {
        Arc::new(Self {
            limits_per_address: by_address,
            counts: Mutex::new(ConnectionCounts {
                max,
                next_id: 0,
                unidentified: BTreeMap::new(),
                local: 0,
                by_token: 0,
            }),
        })
    }

    /// Changes how many connections may be open; those that are stay.
    pub fn set_max(&self, max: usize) {
        self.lock().max = max;
    }

    /// A new connection, for which an older unidentified one may have to go.
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

    fn evict_oldest(&mut self, address: IpAddr, is_bounded: bool) {
        let most = self.max_unidentified();
        let here = |it: &(&u64, &UnidentifiedConnection)| it.1.address == address;
        let of_address = self.unidentified.iter().filter(here).count();
        let too_many = is_bounded && of_address >= (most / PER_ADDRESS_DIVISOR).max(1);
        let oldest = if too_many {
            self.unidentified.iter().find(here).map(|it| *it.0)
        } else if self.unidentified.len() >= most {
            self.unidentified.keys().next().copied()
        } else {
            None
        };
        if let Some(entry) = oldest.and_then(|id| self.unidentified.remove(&id)) {
            entry.evicted.cancel();
        }
    }
}

impl ConnectionSlot {
    /// A request of the connection was let in, by a token or, where none is needed,
    /// without. Identified connections are not evicted.
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

    /// Says whether every request that began has arrived whole.
    pub(super) fn set_between_requests(&self, whole: bool) {
        self.between_requests.store(whole, Relaxed);
        if whole && !self.is_identified() && self.local_pending.load(Relaxed) {
            // Full: it stays unidentified, and may have to make room.
            let _ = self.change_kind(KIND_LOCAL);
        }
    }

    fn change_kind(&self, kind: u8) -> Result<(), TooManyConnections> {
        let mut counts = self.admission.lock();
        let most = counts.max_identified();
        let was = self.kind.load(Relaxed);
        let identified = counts.local + counts.by_token - usize::from(was != KIND_UNIDENTIFIED);
        let is_full = match kind {
            KIND_LOCAL => counts.local >= (most - most / TOKEN_RESERVE_DIVISOR).max(1),
            _ => false,
        };
        if is_full || identified >= most {
            return Err(TooManyConnections);
        }
        counts.release(was, self.id);
        match kind {
            KIND_LOCAL => counts.local += 1,
            _ => counts.by_token += 1,
        }
        self.kind.store(kind, Relaxed);
        Ok(())
    }
}

impl ConnectionCounts {
    fn release(&mut self, kind: u8, id: u64) {
        match kind {
            KIND_LOCAL => self.local -= 1,
            KIND_TOKEN => self.by_token -= 1,
            _ => drop(self.unidentified.remove(&id)),
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let kind = self.kind.load(Relaxed);
        self.admission.lock().release(kind, self.id);
    }
}

/// One client has a whole /64 network of IPv6 to itself.
fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(six) if !six.is_loopback() => {
            Ipv6Addr::from_bits(six.to_bits() >> 64 << 64).into()
        }
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
    fn oldest_unidentified_connection_makes_room_and_identified_ones_stay() {
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
    fn an_address_with_too_many_loses_its_own() {
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
    fn callers_without_a_token_leave_room_for_tokens() {
        let admission = ConnectionAdmission::new(40, false);
        let enter = || admission.open_slot(address(1));
        let mut local = Vec::new();
        let full = loop {
            let slot = enter();
            match slot.identify(false) {
                Ok(()) => local.push(slot),
                Err(TooManyConnections) => break slot,
            }
        };
        assert_eq!(local.len(), 27);
        assert!(!full.is_identified());
        let tokens: Vec<_> = (0..3).map(|_| enter()).collect();
        assert!(tokens.iter().all(|it| it.identify(true).is_ok()));
        assert!(enter().identify(true).is_err());
        drop(local);
        assert!(full.identify(false).is_ok());
    }

    #[test]
    fn without_a_token_only_a_whole_request_counts() {
        let admission = ConnectionAdmission::new(8, false);
        let slot = admission.open_slot(address(1));
        slot.set_between_requests(false);
        slot.identify(false).unwrap();
        assert!(!slot.is_identified());
        slot.set_between_requests(true);
        assert!(slot.is_identified());
    }
}
