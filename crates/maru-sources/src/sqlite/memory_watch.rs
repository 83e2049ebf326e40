//! Whether the hub grows while a query runs in it, by that query.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::Instant;

use crate::process_memory::{private_kilobytes, thread_faulted_kilobytes};

/// How much larger the process may get while one query runs, by all that it does.
const MAX_GROWTH_KILOBYTES: u64 = 128 * 1024;
/// How much of that the query itself may have taken before it is blamed. Several queries at
/// once share the growth, and large requests of others make the process grow, too.
const MAX_OWN_KILOBYTES: u64 = 32 * 1024;
/// How long a query runs between two looks. One takes about 10 µs.
const CHECK_INTERVAL: Duration = Duration::from_millis(4);

/// Looks from time to time at the memory of this process and of the thread that runs the
/// query, where that can be seen. SQLite's own counters are no measure: those of a connection
/// leave out sorting and aggregates, and those of the process lock every allocation.
#[derive(Debug)]
pub(super) struct MemoryWatch {
    checked: Instant,
    start: Option<MemoryUse>,
    grown: Arc<AtomicBool>,
}

#[derive(Clone, Copy, Debug)]
struct MemoryUse {
    process: u64,
    thread: u64,
}

impl MemoryWatch {
    /// Sets `grown` once the query has too much.
    pub(super) fn new(now: Instant, grown: Arc<AtomicBool>) -> Self {
        Self {
            checked: now,
            start: None,
            grown,
        }
    }

    /// To be asked on the thread that runs the query.
    pub(super) fn has_grown(&mut self, now: Instant) -> bool {
        if now.duration_since(self.checked) < CHECK_INTERVAL {
            return false;
        }
        self.checked = now;
        let has_grown = self.is_over_limits().unwrap_or(false);
        self.grown.fetch_or(has_grown, Relaxed);
        has_grown
    }

    fn is_over_limits(&mut self) -> Option<bool> {
        let process = private_kilobytes("self")?;
        let Some(start) = self.start else {
            let thread = thread_faulted_kilobytes()?;
            self.start = Some(MemoryUse { process, thread });
            return Some(false);
        };
        if process.saturating_sub(start.process) <= MAX_GROWTH_KILOBYTES {
            return Some(false);
        }
        let own = thread_faulted_kilobytes()?.saturating_sub(start.thread);
        Some(own > MAX_OWN_KILOBYTES)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    /// More than the process may grow by.
    fn fill_memory() -> Vec<u8> {
        vec![1; 144 << 20]
    }

    #[test]
    fn query_is_not_blamed_for_the_memory_of_others() {
        let mut now = Instant::now();
        let grown = Arc::new(AtomicBool::new(false));
        let mut watch = MemoryWatch::new(now, Arc::clone(&grown));
        let mut look = || {
            now += CHECK_INTERVAL;
            watch.has_grown(now)
        };
        assert!(!look());
        let _of_others = std::thread::spawn(fill_memory).join().unwrap();
        assert!(!look() && !grown.load(Relaxed));
        let _own = fill_memory();
        assert!(look() && grown.load(Relaxed));
    }
}
