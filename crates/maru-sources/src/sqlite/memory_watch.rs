//! Whether the hub grows while a query runs in it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::Instant;

use crate::process_memory::private_kilobytes;

/// How much larger the process may get while one query runs, by all that it does.
const MAX_GROWTH_KILOBYTES: u64 = 128 * 1024;
/// How long a query runs between two looks. One takes about 10 µs.
const CHECK_INTERVAL: Duration = Duration::from_millis(4);

/// Looks from time to time at the memory of this process, where that can be seen.
#[derive(Debug)]
pub(super) struct MemoryWatch {
    checked: Instant,
    start: Option<u64>,
    grown: Arc<AtomicBool>,
}

impl MemoryWatch {
    /// Sets `grown` once the process has too much.
    pub(super) fn new(now: Instant, grown: Arc<AtomicBool>) -> Self {
        Self {
            checked: now,
            start: None,
            grown,
        }
    }

    pub(super) fn has_grown(&mut self, now: Instant) -> bool {
        if now.duration_since(self.checked) < CHECK_INTERVAL {
            return false;
        }
        self.checked = now;
        let Some(size) = private_kilobytes("self") else {
            return false;
        };
        let start = *self.start.get_or_insert(size);
        let has_grown = size.saturating_sub(start) > MAX_GROWTH_KILOBYTES;
        self.grown.fetch_or(has_grown, Relaxed);
        has_grown
    }
}
