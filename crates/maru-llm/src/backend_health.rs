//! Whether a backend answers. One that fails repeatedly is used last for a while.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

/// Failures in a row after which a backend is used last.
const FAILURES_BEFORE_COOLDOWN: u32 = 3;
/// The longest wait that a backend may ask for.
const MAX_COOLDOWN: Duration = Duration::from_secs(600);

/// The health of the backend of one entry.
#[derive(Debug)]
pub(super) struct BackendHealth {
    cooldown: Duration,
    state: Mutex<HealthState>,
}

#[derive(Debug, Default)]
struct HealthState {
    consecutive_failures: u32,
    cooling_until: Option<Instant>,
}

impl BackendHealth {
    /// A backend that is used last for `cooldown` after repeated failures.
    pub(super) fn new(cooldown: Duration) -> Self {
        Self {
            cooldown,
            state: Mutex::default(),
        }
    }

    /// Whether the backend takes its turn in the order of preference. After a cooldown one
    /// request tries it, and the others follow when that has succeeded.
    pub(super) fn try_use(&self) -> bool {
        let mut state = self.lock();
        let now = Instant::now();
        match state.cooling_until {
            None => true,
            Some(until) if now < until => false,
            Some(_) => {
                state.cooling_until = Some(now + self.cooldown);
                true
            }
        }
    }

    /// The backend has answered.
    pub(super) fn record_success(&self) {
        *self.lock() = HealthState::default();
    }

    /// The backend has failed, and wants to be asked again after `retry_after`.
    pub(super) fn record_failure(&self, retry_after: Option<Duration>) {
        let mut state = self.lock();
        state.consecutive_failures = state.consecutive_failures.saturating_add(1);
        if state.consecutive_failures >= FAILURES_BEFORE_COOLDOWN {
            let wait = retry_after.unwrap_or_default().max(self.cooldown);
            state.cooling_until = Some(Instant::now() + wait.min(MAX_COOLDOWN));
        }
    }

    /// Failures in a row, and how long the backend is used last.
    pub(super) fn status(&self) -> (u32, Duration) {
        let state = self.lock();
        let left = state.cooling_until.map_or(Duration::ZERO, |until| {
            until.saturating_duration_since(Instant::now())
        });
        (state.consecutive_failures, left)
    }

    fn lock(&self) -> MutexGuard<'_, HealthState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time;

    use super::*;

    const COOLDOWN: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn one_request_tries_a_backend_after_its_cooldown() {
        let health = BackendHealth::new(COOLDOWN);
        for _ in 0..FAILURES_BEFORE_COOLDOWN {
            assert!(health.try_use());
            health.record_failure(None);
        }
        assert!(!health.try_use());
        assert_eq!(health.status(), (3, COOLDOWN));
        time::advance(COOLDOWN).await;
        assert!(health.try_use());
        assert!(!health.try_use());
        health.record_success();
        assert!(health.try_use());
        assert_eq!(health.status(), (0, Duration::ZERO));
    }

    #[tokio::test(start_paused = true)]
    async fn cooldown_is_as_long_as_the_backend_asks_for_within_a_limit() {
        let health = BackendHealth::new(COOLDOWN);
        for wait in [1, 1, 90] {
            health.record_failure(Some(Duration::from_secs(wait)));
        }
        assert_eq!(health.status().1, Duration::from_secs(90));
        health.record_failure(Some(Duration::from_secs(1_000_000)));
        assert_eq!(health.status().1, MAX_COOLDOWN);
    }
}
