//! Tracks the cleanup of closed connections: a program that is still exiting, a session
//! that is still being ended.

use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};

/// Tracks the unfinished cleanup of all connections to one server.
#[derive(Clone, Debug)]
pub(super) struct CleanupTracker(TaskTracker);

/// One unfinished cleanup, until it is dropped.
pub(super) type CleanupToken = TaskTrackerToken;

impl CleanupTracker {
    pub(super) fn new() -> Self {
        let tracker = TaskTracker::new();
        // `wait` resolves only on a closed tracker, which still hands out tokens.
        tracker.close();
        Self(tracker)
    }

    /// Registers one more cleanup task.
    pub(super) fn token(&self) -> CleanupToken {
        self.0.token()
    }

    /// Resolves when all cleanup has finished.
    pub(super) async fn wait(&self) {
        self.0.wait().await;
    }
}
