//! Limits how often something may be tried in a minute, for each of many keys.

use std::{
    collections::HashMap,
    hash::Hash,
    net::{IpAddr, Ipv6Addr},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tracing::warn;

const WINDOW: Duration = Duration::from_secs(60);
/// Above this many keys, those of earlier windows are forgotten.
const MAX_KEYS: usize = 4096;

/// Counts attempts by key.
#[derive(Debug)]
pub(super) struct AttemptLimit<K> {
    /// What is counted, for the log.
    what: &'static str,
    per_window: u32,
    attempts: Mutex<HashMap<K, (Instant, u32)>>,
}

/// The part of an address that stands for one client: who has an IPv6 address has a whole
/// /64 of them.
pub(super) fn client_prefix(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => address.into(),
        IpAddr::V6(address) => {
            let prefix = u128::from(address) & !u128::from(u64::MAX);
            Ipv6Addr::from(prefix).into()
        }
    }
}

impl<K: Clone + Eq + Hash> AttemptLimit<K> {
    /// Allows `per_window` attempts in a minute.
    pub(super) fn new(what: &'static str, per_window: u32) -> Self {
        Self {
            what,
            per_window,
            attempts: Mutex::default(),
        }
    }

    /// Counts an attempt; false if there were too many. The first refusal of a minute is
    /// logged.
    pub(super) fn try_attempt(&self, key: K) -> bool {
        let now = Instant::now();
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        if attempts.len() >= MAX_KEYS {
            attempts.retain(|_, (begun, _)| now.duration_since(*begun) < WINDOW);
        }
        if attempts.len() >= MAX_KEYS && !attempts.contains_key(&key) {
            // Others must not be refused because somebody tries many keys.
            let oldest = attempts.iter().min_by_key(|(_, (begun, _))| *begun);
            let oldest = oldest.map(|(key, _)| key.clone());
            oldest.and_then(|it| attempts.remove(&it));
        }
        let entry = attempts.entry(key).or_insert((now, 0));
        if now.duration_since(entry.0) >= WINDOW {
            *entry = (now, 0);
        }
        entry.1 = entry.1.saturating_add(1);
        if entry.1 == self.per_window.saturating_add(1) {
            warn!("{} in a minute: more are refused", self.what);
        }
        entry.1 <= self.per_window
    }

    /// Takes back an attempt that succeeded.
    pub(super) fn forgive(&self, key: &K) {
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, count)) = attempts.get_mut(key) {
            *count = count.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_key_has_its_attempts_in_a_minute() {
        let limit = AttemptLimit::new("attempts", 2);
        let tried = ["a", "a", "a", "b"].map(|it| limit.try_attempt(it));
        assert_eq!(tried, [true, true, false, true]);
        tokio::time::advance(WINDOW).await;
        assert!(limit.try_attempt("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn success_is_not_counted_and_many_keys_refuse_nobody() {
        let limit = AttemptLimit::new("attempts", 1);
        for _ in 0..3 {
            assert!(limit.try_attempt(0));
            limit.forgive(&0);
        }
        assert!((1..2 * MAX_KEYS).all(|it| limit.try_attempt(it)));
    }

    #[test]
    fn client_is_a_whole_ipv6_network() {
        let prefix = |it: &str| client_prefix(it.parse().unwrap());
        assert_eq!(prefix("2001:db8::1:2:3:4"), prefix("2001:db8::ffff"));
        assert_ne!(prefix("2001:db8:0:1::1"), prefix("2001:db8::1"));
        assert_eq!(prefix("::ffff:192.0.2.1"), prefix("192.0.2.1"));
        assert_ne!(prefix("192.0.2.1"), prefix("192.0.2.2"));
    }
}
