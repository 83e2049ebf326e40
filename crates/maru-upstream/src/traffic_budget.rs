//! Limits the unsolicited messages of a server.
//!
//! Responses are limited by the calls. Everything else (notifications, requests, lines
//! that are not messages, responses without a call, comments, stderr) costs the hub time,
//! so each connection has a budget; a server that exceeds it is disconnected.

use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use super::Error;
use maru_config::LimitSettings;

/// The burst size in seconds of budget.
const BURST_SECONDS: f64 = 12.0;

/// The budget of one connection: token buckets for messages and bytes, refilled every
/// second.
#[derive(Debug)]
pub(super) struct TrafficBudget {
    rate: TrafficRate,
    remaining: Mutex<RemainingBudget>,
}

/// The unsolicited messages and bytes that a server may send per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct TrafficRate {
    pub(super) messages: u32,
    pub(super) bytes: u32,
}

#[derive(Debug)]
struct RemainingBudget {
    messages: f64,
    bytes: f64,
    refilled_at: Instant,
}

impl From<&LimitSettings> for TrafficRate {
    fn from(limits: &LimitSettings) -> Self {
        Self {
            messages: limits.server_messages_per_second,
            bytes: limits.server_bytes_per_second,
        }
    }
}

impl TrafficBudget {
    pub(super) fn new(rate: TrafficRate) -> Self {
        let budget = RemainingBudget {
            messages: f64::from(rate.messages) * BURST_SECONDS,
            bytes: f64::from(rate.bytes) * BURST_SECONDS,
            refilled_at: Instant::now(),
        };
        Self {
            rate,
            remaining: Mutex::new(budget),
        }
    }

    /// Charges one message of `bytes` bytes to the budget.
    pub(super) fn spend_message(&self, bytes: usize) -> Result<(), Error> {
        self.spend(1, bytes)
    }

    /// Charges `messages` messages of `bytes` bytes in total to the budget.
    pub(super) fn spend(&self, messages: usize, bytes: usize) -> Result<(), Error> {
        let mut budget = self
            .remaining
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (messages, bytes) = (as_f64(messages), as_f64(bytes));
        // The clock is read only when a bucket is empty, because spending within the
        // burst needs no refill.
        if budget.messages < messages || budget.bytes < bytes {
            budget.refill(self.rate);
        }
        budget.messages -= messages;
        budget.bytes -= bytes;
        if budget.messages < 0.0 {
            return Err(over_budget_error(
                self.rate.messages,
                "messages that nobody asked for",
                "limits.server_messages_per_second",
            ));
        }
        if budget.bytes < 0.0 {
            return Err(over_budget_error(
                self.rate.bytes,
                "bytes that nobody asked for",
                "limits.server_bytes_per_second",
            ));
        }
        Ok(())
    }
}

impl RemainingBudget {
    fn refill(&mut self, rate: TrafficRate) {
        let now = Instant::now();
        let seconds = now.duration_since(self.refilled_at).as_secs_f64();
        self.refilled_at = now;
        let fill = |budget: f64, rate: u32| {
            let rate = f64::from(rate);
            (budget + seconds * rate).min(rate * BURST_SECONDS)
        };
        self.messages = fill(self.messages, rate.messages);
        self.bytes = fill(self.bytes, rate.bytes);
    }
}

fn over_budget_error(rate: u32, what: &str, setting: &str) -> Error {
    Error::Lost(format!(
        "the server sends more than {rate} {what} a second ({setting}), so it was disconnected"
    ))
}

fn as_f64(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const RATE: TrafficRate = TrafficRate {
        messages: 100,
        bytes: 1000,
    };

    #[tokio::test(start_paused = true)]
    async fn server_within_its_rate_is_never_disconnected() {
        let budget = TrafficBudget::new(RATE);
        for _ in 0..100 {
            for _ in 0..100 {
                budget.spend_message(10).unwrap();
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn server_beyond_its_rate_is_told_what_it_passed() {
        let sent = |messages: usize, bytes| {
            let budget = TrafficBudget::new(RATE);
            (0..messages).find_map(|_| budget.spend_message(bytes).err())
        };
        assert_eq!(sent(1200, 0), None);
        let error = sent(1201, 0).unwrap().to_string();
        assert!(error.contains("more than 100 messages"), "{error}");
        assert!(
            error.contains("limits.server_messages_per_second"),
            "{error}"
        );
        let error = sent(13, 1000).unwrap().to_string();
        assert!(error.contains("more than 1000 bytes"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn long_silence_earns_one_burst_more_at_most() {
        let budget = TrafficBudget::new(RATE);
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert!(budget.spend(1200, 0).is_ok());
        assert!(budget.spend(1200, 0).is_ok());
        assert!(budget.spend(1, 0).is_err());
    }
}
