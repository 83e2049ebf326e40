//! What is left of connections: a program that is still ending, a goodbye that
//! is still on its way.

use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};

/// Everything that is left of connections to one server.
#[derive(Clone, Debug)]
pub(super) struct CleanupTracker(TaskTracker);

/// Something that is left, until it is dropped.
pub(super) type CleanupToken = TaskTrackerToken;

impl CleanupTracker {
    pub(super) fn new() -> Self {
        let tracker = TaskTracker::new();
        // Closed, it can be waited for, and still takes more.
        tracker.close();
        Self(tracker)
    }

    /// Notes one more thing.
    pub(super) fn token(&self) -> CleanupToken {
        self.0.token()
    }

    /// Resolves when nothing is left.
    pub(super) async fn wait(&self) {
        self.0.wait().await;
    }
}
