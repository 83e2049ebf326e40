//! Calls per minute that this hub has taken in advance from those of all hubs.

use std::{
    collections::HashMap,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use maru_store::{CallLease, LeaseRequest, Store};
use tokio::time::{self, Instant};

use super::quota::QuotaTarget;

/// All hubs together take at most a twentieth of a minute's calls in advance, so that each
/// asks the store once in several calls, and what they do not use is little.
const SHARE_IN_ADVANCE: i64 = 20;
/// How long taken calls are kept for the next caller.
const LEASE_LIFETIME: Duration = Duration::from_secs(10);
/// How long a refusal is remembered, unless the next call comes earlier.
const MAX_REFUSAL: Duration = Duration::from_secs(1);
/// How long the store may take; calls of the target wait for it.
const STORE_TIMEOUT: Duration = Duration::from_millis(500);
/// How long the store is not asked again after it failed.
const RETRY_DELAY: Duration = Duration::from_secs(1);
const MAX_TARGETS: usize = 10_000;

/// The calls that this hub has left of each target.
#[derive(Debug, Default)]
pub(super) struct CallLeases(Mutex<HashMap<TargetKey, TargetLease>>);

/// What is limited, and its name.
pub(super) type TargetKey = (QuotaTarget, String);

/// What is known of one target.
#[derive(Debug)]
struct TargetLease {
    taken: TakenLease,
    /// Held while the store is asked, so that calls of the target that arrive together ask
    /// once, and those of other targets do not wait.
    request: Arc<tokio::sync::Mutex<()>>,
}

/// The last answer of the store.
#[derive(Clone, Copy, Debug)]
enum TakenLease {
    Left { count: i64, until: Instant },
    Refused { until: Instant, next: Instant },
    Failed { until: Instant },
}

/// What the leases know without the store.
#[derive(Debug)]
enum LeaseState {
    Known(Option<Result<(), Duration>>),
    Unknown(Arc<tokio::sync::Mutex<()>>),
}

impl CallLeases {
    /// Takes one call; the error is the time until the next one. `None` if hubs do not
    /// share the store, or it does not answer.
    pub(super) async fn take(
        &self,
        store: &Store,
        key: TargetKey,
        per_minute: i64,
    ) -> Option<Result<(), Duration>> {
        if !store.is_shared() {
            return None;
        }
        let wanted = per_minute / SHARE_IN_ADVANCE;
        let (target, id) = key.clone();
        let ask = async || {
            let request = LeaseRequest {
                target_type: target.as_str(),
                target_id: &id,
                per_minute,
                wanted,
            };
            store.take_calls(&request).await?.ok()
        };
        self.take_or_ask(key, ask).await
    }

    async fn take_or_ask<F: Future<Output = Option<CallLease>>>(
        &self,
        key: TargetKey,
        ask: impl FnOnce() -> F,
    ) -> Option<Result<(), Duration>> {
        let request = match self.take_known(&key) {
            LeaseState::Known(outcome) => return outcome,
            LeaseState::Unknown(request) => request,
        };
        let _turn = request.lock().await;
        if let LeaseState::Known(outcome) = self.take_known(&key) {
            return outcome;
        }
        let lease = time::timeout(STORE_TIMEOUT, ask()).await.ok().flatten();
        let now = Instant::now();
        let (taken, outcome) = match lease {
            Some(CallLease::Granted(count)) => {
                let (count, until) = (count - 1, now + LEASE_LIFETIME);
                (TakenLease::Left { count, until }, Some(Ok(())))
            }
            Some(CallLease::Wait(wait)) => {
                let (until, next) = (now + wait.min(MAX_REFUSAL), now + wait);
                (TakenLease::Refused { until, next }, Some(Err(wait)))
            }
            None => {
                let until = now + RETRY_DELAY;
                (TakenLease::Failed { until }, None)
            }
        };
        if let Some(target) = self.lock().get_mut(&key) {
            target.taken = taken;
        }
        outcome
    }

    fn take_known(&self, key: &TargetKey) -> LeaseState {
        let now = Instant::now();
        let mut all = self.lock();
        if !all.contains_key(key) && all.len() >= MAX_TARGETS {
            all.retain(|_, it| it.taken.until() > now || Arc::strong_count(&it.request) > 1);
            if all.len() >= MAX_TARGETS {
                return LeaseState::Known(None);
            }
        }
        let target = all.entry(key.clone()).or_insert_with(|| TargetLease {
            taken: TakenLease::Left {
                count: 0,
                until: now,
            },
            request: Arc::default(),
        });
        match &mut target.taken {
            TakenLease::Left { count, until } if *count > 0 && now < *until => {
                *count -= 1;
                LeaseState::Known(Some(Ok(())))
            }
            TakenLease::Refused { until, next } if now < *until => {
                LeaseState::Known(Some(Err(*next - now)))
            }
            TakenLease::Failed { until } if now < *until => LeaseState::Known(None),
            _ => LeaseState::Unknown(Arc::clone(&target.request)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TargetKey, TargetLease>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TakenLease {
    fn until(&self) -> Instant {
        match self {
            Self::Left { until, .. } | Self::Refused { until, .. } | Self::Failed { until } => {
                *until
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        future::pending,
        sync::atomic::{AtomicUsize, Ordering::Relaxed},
    };

    use futures_util::future::join_all;

    use super::*;

    fn key(id: &str) -> TargetKey {
        (QuotaTarget::Tool, id.to_owned())
    }

    #[tokio::test(start_paused = true)]
    async fn hanging_store_is_asked_once_a_second_and_delays_its_target_only() {
        let (leases, asked) = (CallLeases::default(), AtomicUsize::new(0));
        let hang = || {
            asked.fetch_add(1, Relaxed);
            pending::<Option<CallLease>>()
        };
        let began = Instant::now();
        let slow = join_all((0..50).map(|_| leases.take_or_ask(key("slow"), hang)));
        let fast = async {
            let grant = async || Some(CallLease::Granted(2));
            let taken = leases.take_or_ask(key("fast"), grant).await;
            (taken, began.elapsed())
        };
        let (slow, fast) = tokio::join!(slow, fast);
        assert_eq!(fast, (Some(Ok(())), Duration::ZERO));
        assert!(slow.iter().all(Option::is_none));
        assert_eq!(began.elapsed(), STORE_TIMEOUT);
        assert_eq!(asked.load(Relaxed), 1);
        // The failure is remembered, and not for ever.
        assert_eq!(leases.take_or_ask(key("slow"), hang).await, None);
        assert_eq!(asked.load(Relaxed), 1);
        time::advance(RETRY_DELAY).await;
        let grant = async || Some(CallLease::Granted(1));
        let taken = leases.take_or_ask(key("slow"), grant).await;
        assert_eq!(taken, Some(Ok(())));
    }

    #[tokio::test(start_paused = true)]
    async fn granted_calls_are_taken_without_the_store() {
        let leases = CallLeases::default();
        let grant = async || Some(CallLease::Granted(3));
        let refuse = async || Some(CallLease::Wait(Duration::from_secs(9)));
        assert_eq!(leases.take_or_ask(key("a"), grant).await, Some(Ok(())));
        for _ in 0..2 {
            assert_eq!(leases.take_or_ask(key("a"), refuse).await, Some(Ok(())));
        }
        let wait = Some(Err(Duration::from_secs(9)));
        assert_eq!(leases.take_or_ask(key("a"), refuse).await, wait);
        assert_eq!(leases.take_or_ask(key("a"), grant).await, wait);
    }
}
