//! Limits how often something may be tried in a minute, for each of many keys.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

const WINDOW: Duration = Duration::from_secs(60);
/// Above this many keys, those of earlier windows are forgotten.
const MAX_KEYS: usize = 4096;

/// Counts attempts by key.
#[derive(Debug)]
pub(super) struct AttemptLimit<K> {
    per_window: u32,
    attempts: Mutex<HashMap<K, (Instant, u32)>>,
}

impl<K: Eq + Hash> AttemptLimit<K> {
    /// Allows `per_window` attempts in a minute.
    pub(super) fn new(per_window: u32) -> Self {
        Self {
            per_window,
            attempts: Mutex::default(),
        }
    }

    /// Counts an attempt; false if there were too many.
    pub(super) fn try_attempt(&self, key: K) -> bool {
        let now = Instant::now();
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        if attempts.len() >= MAX_KEYS {
            attempts.retain(|_, (begun, _)| now.duration_since(*begun) < WINDOW);
        }
        if attempts.len() >= MAX_KEYS && !attempts.contains_key(&key) {
            return false;
        }
        let entry = attempts.entry(key).or_insert((now, 0));
        if now.duration_since(entry.0) >= WINDOW {
            *entry = (now, 0);
        }
        entry.1 = entry.1.saturating_add(1);
        entry.1 <= self.per_window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_key_has_its_attempts_in_a_minute() {
        let limit = AttemptLimit::new(2);
        let tried = ["a", "a", "a", "b"].map(|it| limit.try_attempt(it));
        assert_eq!(tried, [true, true, false, true]);
        tokio::time::advance(WINDOW).await;
        assert!(limit.try_attempt("a"));
    }
}
