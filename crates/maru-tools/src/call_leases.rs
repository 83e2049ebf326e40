//! Calls per minute that this hub has taken in advance from those of all hubs.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use maru_store::{CallLease, Store};
use tokio::time::Instant;

use super::quota::QuotaTarget;

/// A hub takes a sixtieth of a minute's calls at a time, so that it asks the store once in
/// so many calls, and what it does not use is little.
const LEASES_PER_MINUTE: i64 = 60;
/// How long taken calls are kept for the next caller.
const LEASE_LIFETIME: Duration = Duration::from_secs(10);
/// How long a refusal is remembered, unless the next call comes earlier.
const MAX_REFUSAL: Duration = Duration::from_secs(1);
const MAX_TARGETS: usize = 10_000;

/// The calls that this hub has left of each target.
#[derive(Debug, Default)]
pub(super) struct CallLeases {
    taken: Mutex<HashMap<(QuotaTarget, String), TakenLease>>,
    /// Held while the store is asked, so that calls that arrive together ask once.
    asking: tokio::sync::Mutex<()>,
}

/// The state of one target.
#[derive(Clone, Copy, Debug)]
enum TakenLease {
    Left { count: i64, until: Instant },
    Refused { until: Instant, next: Instant },
}

/// What the leases know without the store.
#[derive(Debug, PartialEq, Eq)]
enum LeaseState {
    Taken,
    Refused(Duration),
    Unknown,
}

impl CallLeases {
    /// Takes one call; the error is the time until the next one. `None` if hubs do not
    /// share the store, or it is down.
    pub(super) async fn take(
        &self,
        store: &Store,
        (target, id): (QuotaTarget, &str),
        per_minute: i64,
    ) -> Option<Result<(), Duration>> {
        if !store.is_shared() {
            return None;
        }
        let key = (target, id.to_owned());
        if let Some(known) = self.take_known(&key).into_outcome() {
            return Some(known);
        }
        let _turn = self.asking.lock().await;
        if let Some(known) = self.take_known(&key).into_outcome() {
            return Some(known);
        }
        let wanted = (per_minute / LEASES_PER_MINUTE).max(1);
        let lease = store.take_calls((target.as_str(), id), per_minute, wanted);
        let lease = lease.await?.ok()?;
        let now = Instant::now();
        let (taken, outcome) = match lease {
            CallLease::Granted(count) => {
                let until = now + LEASE_LIFETIME;
                (
                    TakenLease::Left {
                        count: count - 1,
                        until,
                    },
                    Ok(()),
                )
            }
            CallLease::Wait(wait) => {
                let (until, next) = (now + wait.min(MAX_REFUSAL), now + wait);
                (TakenLease::Refused { until, next }, Err(wait))
            }
        };
        let mut all = self.lock();
        if all.len() >= MAX_TARGETS {
            all.retain(|_, it| it.until() > now);
        }
        all.insert(key, taken);
        Some(outcome)
    }

    fn take_known(&self, key: &(QuotaTarget, String)) -> LeaseState {
        let now = Instant::now();
        let mut all = self.lock();
        match all.get_mut(key) {
            Some(TakenLease::Left { count, until }) if *count > 0 && now < *until => {
                *count -= 1;
                LeaseState::Taken
            }
            Some(TakenLease::Refused { until, next }) if now < *until => {
                LeaseState::Refused(*next - now)
            }
            _ => LeaseState::Unknown,
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(QuotaTarget, String), TakenLease>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TakenLease {
    fn until(&self) -> Instant {
        match self {
            Self::Left { until, .. } | Self::Refused { until, .. } => *until,
        }
    }
}

impl LeaseState {
    fn into_outcome(self) -> Option<Result<(), Duration>> {
        match self {
            Self::Taken => Some(Ok(())),
            Self::Refused(wait) => Some(Err(wait)),
            Self::Unknown => None,
        }
    }
}
