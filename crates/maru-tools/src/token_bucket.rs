//! A token bucket: a number of calls per minute, refilled evenly, with bursts of up to one
//! minute's calls. Pure: the caller passes the time.

use std::time::Duration;

use tokio::time::Instant;

const SECONDS_PER_MINUTE: f64 = 60.0;

/// The calls that one user or tool has left.
#[derive(Clone, Copy, Debug)]
pub(super) struct TokenBucket {
    available: f64,
    refilled_at: Instant,
}

impl TokenBucket {
    /// A full bucket.
    pub(super) fn new(per_minute: i64, now: Instant) -> Self {
        Self {
            available: capacity(per_minute),
            refilled_at: now,
        }
    }

    /// Takes a token; the error is the time until the next one.
    pub(super) fn try_take(&mut self, per_minute: i64, now: Instant) -> Result<(), Duration> {
        let most = capacity(per_minute);
        let since = now
            .saturating_duration_since(self.refilled_at)
            .as_secs_f64();
        self.available = (self.available + since * most / SECONDS_PER_MINUTE).min(most);
        self.refilled_at = now;
        if self.available >= 1.0 {
            self.available -= 1.0;
            return Ok(());
        }
        let wait = (1.0 - self.available) * SECONDS_PER_MINUTE / most.max(f64::MIN_POSITIVE);
        Err(Duration::try_from_secs_f64(wait).unwrap_or(Duration::MAX))
    }

    /// Whether it is full, so that it can be dropped.
    pub(super) fn is_full(&self, per_minute: i64, now: Instant) -> bool {
        let since = now
            .saturating_duration_since(self.refilled_at)
            .as_secs_f64();
        self.available + since * capacity(per_minute) / SECONDS_PER_MINUTE >= capacity(per_minute)
    }
}

#[expect(clippy::cast_precision_loss, reason = "limits are small numbers")]
fn capacity(per_minute: i64) -> f64 {
    per_minute as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_of_a_minute_and_then_evenly() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut bucket = TokenBucket::new(6, start);
        assert!((0..6).all(|_| bucket.try_take(6, at(0)).is_ok()));
        assert_eq!(bucket.try_take(6, at(0)), Err(Duration::from_secs(10)));
        assert!(bucket.try_take(6, at(10)).is_ok());
        assert!(bucket.try_take(6, at(15)).is_err());
        assert!(!bucket.is_full(6, at(60)) && bucket.is_full(6, at(71)));
        assert!((0..6).all(|_| bucket.try_take(6, at(900)).is_ok()));
        assert!(bucket.try_take(6, at(900)).is_err());
    }
}
