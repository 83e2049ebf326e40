//! Which failures are retried, and how long to wait before each attempt.

use std::time::Duration;

use hyper::StatusCode;
use tokio::time::{self, Instant};

const INITIAL_DELAY: Duration = Duration::from_millis(250);
const MAX_DOUBLINGS: u32 = 6;

/// The remaining attempts of a request, limited by their number and a deadline.
#[derive(Debug)]
pub struct RetrySchedule {
    attempt: u32,
    max_retries: u32,
    deadline: Instant,
}

impl RetrySchedule {
    /// Allows `max_retries` attempts after the first, none of which starts after
    /// `deadline`.
    pub fn new(max_retries: u32, deadline: Instant) -> Self {
        Self {
            attempt: 0,
            max_retries,
            deadline,
        }
    }

    /// Waits until the next attempt, with exponential backoff and at least as long as the
    /// server asks for. Returns `false` at once if no attempt is left or it would start
    /// after the deadline.
    pub async fn wait(&mut self, retry_after: Option<Duration>) -> bool {
        let delay = delay_before_retry(self.attempt, retry_after);
        if self.attempt >= self.max_retries || Instant::now() + delay >= self.deadline {
            return false;
        }
        time::sleep(delay).await;
        self.attempt += 1;
        true
    }
}

/// Whether a response with this status may succeed when the request is sent again.
pub fn is_retryable_status(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 429 | 500 | 502 | 503 | 504 | 529)
}

fn delay_before_retry(attempt: u32, retry_after: Option<Duration>) -> Duration {
    let backoff = INITIAL_DELAY * 2_u32.pow(attempt.min(MAX_DOUBLINGS));
    retry_after.unwrap_or_default().max(backoff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delay_doubles_and_respects_retry_after() {
        let check = |attempt, seconds, expected| {
            let delay = delay_before_retry(attempt, Some(Duration::from_secs(seconds)));
            assert_eq!(delay, Duration::from_millis(expected));
        };
        check(0, 0, 250);
        check(2, 0, 1000);
        check(0, 3, 3000);
        check(99, 0, 16_000);
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_are_limited_by_number_and_deadline() {
        let started = Instant::now();
        let mut schedule = RetrySchedule::new(2, started + Duration::from_secs(60));
        assert!(schedule.wait(None).await);
        assert!(schedule.wait(Some(Duration::from_secs(5))).await);
        assert!(!schedule.wait(None).await);
        assert_eq!(started.elapsed(), Duration::from_millis(5250));
        let mut schedule = RetrySchedule::new(2, Instant::now() + Duration::from_secs(4));
        assert!(!schedule.wait(Some(Duration::from_secs(5))).await);
        assert_eq!(started.elapsed(), Duration::from_millis(5250));
    }
}
