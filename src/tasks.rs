//! The one place that spawns.

use std::{future::Future, time::Duration};

use tokio::{runtime::Handle, time};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Spawner and shutdown signal shared by every long-lived task.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Tasks {
    /// Spawns `task`; `close` waits for it.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn(task);
    }

    /// Spawns `task` on `runtime`; `close` waits for it.
    pub fn spawn_on(&self, runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn_on(task, runtime);
    }

    /// Runs `work` on a thread that may block; `close` waits for it.
    pub async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        self.tracker.spawn_blocking(work).await.ok()
    }

    /// Resolves when shutdown begins.
    pub fn stop(&self) -> CancellationToken {
        self.stop.child_token()
    }

    /// Signals shutdown and waits for every task.
    pub async fn close(&self) {
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}

/// What `work` gives, or `None` if that takes longer than `limit`. Work that is
/// done at once needs no clock.
pub async fn within<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        done = work => Some(done),
        () = later(limit) => None,
    }
}

/// Looks at the clock when it is first waited for, not when it is made.
pub async fn later(limit: Duration) {
    time::sleep(limit).await;
}
