//! Limits the unsolicited messages of a peer: a server or a client.
//!
//! Responses are limited by the calls. Everything else (notifications, lines that are not
//! messages, responses without a call, comments, stderr) costs the hub time, so each
//! connection has a budget; a peer that exceeds it is disconnected.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

use thiserror::Error;
use tokio::time::Instant;

/// The burst size in seconds of budget.
const BURST_SECONDS: f64 = 12.0;

/// The budget of one connection: token buckets for messages and bytes, refilled every
/// second.
#[derive(Debug)]
pub struct TrafficBudget {
    rate: TrafficRate,
    remaining: Mutex<RemainingBudget>,
}

/// The unsolicited messages and bytes that a peer may send per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrafficRate {
    /// Messages per second.
    pub messages: u32,
    /// Bytes per second.
    pub bytes: u32,
}

/// A peer sends more than its budget.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("more than {rate} {unit} that nobody asked for a second")]
pub struct TrafficExceeded {
    rate: u32,
    unit: TrafficUnit,
}

/// What is counted. Its text is part of the setting of the rate:
/// `limits.client_messages_per_second`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrafficUnit {
    Messages,
    Bytes,
}

#[derive(Debug)]
struct RemainingBudget {
    messages: f64,
    bytes: f64,
    refilled_at: Instant,
}

impl TrafficBudget {
    /// A full budget.
    pub fn new(rate: TrafficRate) -> Self {
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
    pub fn spend_message(&self, bytes: usize) -> Result<(), TrafficExceeded> {
        self.spend(1, bytes)
    }

    /// Charges `messages` messages of `bytes` bytes in total to the budget.
    pub fn spend(&self, messages: usize, bytes: usize) -> Result<(), TrafficExceeded> {
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
            return Err(TrafficExceeded {
                rate: self.rate.messages,
                unit: TrafficUnit::Messages,
            });
        }
        if budget.bytes < 0.0 {
            return Err(TrafficExceeded {
                rate: self.rate.bytes,
                unit: TrafficUnit::Bytes,
            });
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

impl TrafficExceeded {
    /// The setting of the rate for `peer`, which is `client` or `server`.
    pub fn setting(self, peer: &str) -> String {
        format!("limits.{peer}_{}_per_second", self.unit)
    }
}

impl fmt::Display for TrafficUnit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Messages => "messages",
            Self::Bytes => "bytes",
        })
    }
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
    async fn peer_within_its_rate_never_exceeds_it() {
        let budget = TrafficBudget::new(RATE);
        for _ in 0..100 {
            for _ in 0..100 {
                budget.spend_message(10).unwrap();
            }
            tokio::time::advance(Duration::from_secs(1)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn peer_beyond_its_rate_is_told_what_it_passed() {
        let sent = |messages: usize, bytes| {
            let budget = TrafficBudget::new(RATE);
            (0..messages).find_map(|_| budget.spend_message(bytes).err())
        };
        assert_eq!(sent(1200, 0), None);
        let error = sent(1201, 0).unwrap();
        let text = "more than 100 messages that nobody asked for a second";
        assert_eq!(error.to_string(), text);
        assert_eq!(error.setting("server"), "limits.server_messages_per_second");
        let error = sent(13, 1000).unwrap();
        let text = "more than 1000 bytes that nobody asked for a second";
        assert_eq!(error.to_string(), text);
        assert_eq!(error.setting("client"), "limits.client_bytes_per_second");
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
