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
const UNIDENTIFIED_PART: usize = 4;
/// From one address, this part of the unidentified ones.
const ADDRESS_PART: usize = 16;
/// Callers without a token leave this part of the rest to tokens.
const TOKEN_PART: usize = 10;

/// Counts the connections of a listener.
#[derive(Debug)]
pub struct Admission {
    /// Whether the address of a connection tells clients apart: not behind a proxy.
    by_address: bool,
    counts: Mutex<Counts>,
}

#[derive(Debug)]
struct Counts {
    max: usize,
    next_id: u64,
    unidentified: BTreeMap<u64, Unidentified>,
    local: usize,
    by_token: usize,
}

#[derive(Debug)]
struct Unidentified {
    address: IpAddr,
    evicted: CancellationToken,
}

/// The place of one connection; dropping it makes room.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    admission: Arc<Admission>,
    id: u64,
    kind: AtomicU8,
    /// Whether every request that began has arrived whole.
    whole: AtomicBool,
    /// It is to become local when its request has arrived whole.
    is_local: AtomicBool,
    /// Cancelled when the connection has to make room for another.
    pub(super) evicted: CancellationToken,
}

const UNIDENTIFIED: u8 = 0;
const LOCAL: u8 = 1;
const BY_TOKEN: u8 = 2;

/// As many connections as may be are open.
#[derive(Debug)]
pub(super) struct Full;

impl Admission {
    /// At most `max` connections. `by_address`: whether an address tells clients apart.
    pub fn new(max: usize, by_address: bool) -> Arc<Self> {
        Arc::new(Self {
            by_address,
            counts: Mutex::new(Counts {
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
    pub(super) fn enter(self: &Arc<Self>, address: IpAddr) -> Arc<ConnectionSlot> {
        let address = network(address);
        let evicted = CancellationToken::new();
        let mut counts = self.lock();
        counts.make_room(address, self.by_address && !address.is_loopback());
        let id = counts.next_id;
        counts.next_id += 1;
        let entry = Unidentified {
            address,
            evicted: evicted.clone(),
        };
        counts.unidentified.insert(id, entry);
        drop(counts);
        Arc::new(ConnectionSlot {
            admission: Arc::clone(self),
            id,
            kind: AtomicU8::new(UNIDENTIFIED),
            whole: AtomicBool::new(true),
            is_local: AtomicBool::new(false),
            evicted,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counts {
    fn max_unidentified(&self) -> usize {
        (self.max / UNIDENTIFIED_PART).max(1)
    }

    fn max_identified(&self) -> usize {
        self.max.saturating_sub(self.max_unidentified()).max(1)
    }

    fn make_room(&mut self, address: IpAddr, is_bounded: bool) {
        let most = self.max_unidentified();
        let here = |it: &(&u64, &Unidentified)| it.1.address == address;
        let of_address = self.unidentified.iter().filter(here).count();
        let too_many = is_bounded && of_address >= (most / ADDRESS_PART).max(1);
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
    pub(super) fn identify(&self, by_token: bool) -> Result<(), Full> {
        let kind = self.kind.load(Relaxed);
        if kind == BY_TOKEN || (kind == LOCAL && !by_token) {
            return Ok(());
        }
        if by_token {
            return self.become_kind(BY_TOKEN);
        }
        self.is_local.store(true, Relaxed);
        if self.whole.load(Relaxed) {
            return self.become_kind(LOCAL);
        }
        Ok(())
    }

    pub(super) fn is_identified(&self) -> bool {
        self.kind.load(Relaxed) != UNIDENTIFIED
    }

    /// Says whether every request that began has arrived whole.
    pub(super) fn set_whole(&self, whole: bool) {
        self.whole.store(whole, Relaxed);
        if whole && !self.is_identified() && self.is_local.load(Relaxed) {
            // Full: it stays unidentified, and may have to make room.
            let _ = self.become_kind(LOCAL);
        }
    }

    fn become_kind(&self, kind: u8) -> Result<(), Full> {
        let mut counts = self.admission.lock();
        let most = counts.max_identified();
        let was = self.kind.load(Relaxed);
        let identified = counts.local + counts.by_token - usize::from(was != UNIDENTIFIED);
        let is_full = match kind {
            LOCAL => counts.local >= (most - most / TOKEN_PART).max(1),
            _ => false,
        };
        if is_full || identified >= most {
            return Err(Full);
        }
        counts.leave(was, self.id);
        match kind {
            LOCAL => counts.local += 1,
            _ => counts.by_token += 1,
        }
        self.kind.store(kind, Relaxed);
        Ok(())
    }
}

impl Counts {
    fn leave(&mut self, kind: u8, id: u64) {
        match kind {
            LOCAL => self.local -= 1,
            BY_TOKEN => self.by_token -= 1,
            _ => drop(self.unidentified.remove(&id)),
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let kind = self.kind.load(Relaxed);
        self.admission.lock().leave(kind, self.id);
    }
}

/// One client has a whole /64 network of IPv6 to itself.
fn network(address: IpAddr) -> IpAddr {
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
        let admission = Admission::new(8, false);
        let first = admission.enter(address(1));
        let known = admission.enter(address(1));
        known.identify(true).unwrap();
        let second = admission.enter(address(2));
        assert!(!first.evicted.is_cancelled());
        let third = admission.enter(address(3));
        assert!(first.evicted.is_cancelled());
        assert!(!known.evicted.is_cancelled() && !second.evicted.is_cancelled());
        drop(third);
        let _fourth = admission.enter(address(4));
        assert!(!second.evicted.is_cancelled());
    }

    #[test]
    fn an_address_with_too_many_loses_its_own() {
        let admission = Admission::new(128, true);
        let other = admission.enter(address(9));
        let own: Vec<_> = (0..3).map(|_| admission.enter(address(1))).collect();
        let gone: Vec<bool> = own.iter().map(|it| it.evicted.is_cancelled()).collect();
        assert_eq!(gone, [true, false, false]);
        assert!(!other.evicted.is_cancelled());
        let six = |text: &str| network(text.parse().unwrap());
        assert_eq!(six("2001:db8::1"), six("2001:db8::ffff:2"));
        assert_ne!(six("2001:db8::1"), six("2001:db8:0:1::1"));
        assert_eq!(six("::ffff:192.0.2.1"), address(1));
    }

    #[test]
    fn callers_without_a_token_leave_room_for_tokens() {
        let admission = Admission::new(40, false);
        let enter = || admission.enter(address(1));
        let mut local = Vec::new();
        let full = loop {
            let slot = enter();
            match slot.identify(false) {
                Ok(()) => local.push(slot),
                Err(Full) => break slot,
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
        let admission = Admission::new(8, false);
        let slot = admission.enter(address(1));
        slot.set_whole(false);
        slot.identify(false).unwrap();
        assert!(!slot.is_identified());
        slot.set_whole(true);
        assert!(slot.is_identified());
    }
}
