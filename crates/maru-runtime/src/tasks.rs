//! The one place that spawns.

use std::{future::Future, panic, time::Duration};

use tokio::{runtime::Handle, task, time};
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
    pub async fn spawn_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        self.tracker.spawn_blocking(work).await.ok()
    }

    /// Resolves when shutdown begins.
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.child_token()
    }

    /// Signals shutdown without waiting.
    pub fn request_stop(&self) {
        self.stop.cancel();
    }

    /// Signals shutdown and waits for every task.
    pub async fn shutdown(&self) {
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }
}

/// Runs `work` on a thread that may block. A panic goes on in the caller; `None` means
/// that the runtime ends before the work was begun.
pub async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    match task::spawn_blocking(work).await {
        Ok(done) => Some(done),
        Err(ended) => match ended.try_into_panic() {
            Ok(panic) => panic::resume_unwind(panic),
            Err(_) => None,
        },
    }
}

/// Bytes of work after which a task that reads from one peer lets others go on.
const SLICE_BYTES: usize = 32 << 10;
/// What a message costs beside its bytes, however short it is.
const MESSAGE_COST: usize = 256;

/// Work on the messages of one peer, cut into slices so that a peer that floods
/// cannot hold the thread: other tasks of the thread wait for one slice at most.
#[derive(Debug)]
pub struct WorkSlice {
    left: usize,
}

impl Default for WorkSlice {
    fn default() -> Self {
        Self { left: SLICE_BYTES }
    }
}

impl WorkSlice {
    /// Counts a message of `bytes` bytes; gives way when the slice is used up.
    pub async fn spend(&mut self, bytes: usize) {
        match self.left.checked_sub(bytes.saturating_add(MESSAGE_COST)) {
            Some(left) => self.left = left,
            None => {
                self.left = SLICE_BYTES;
                // Not `wake_by_ref`: tokio looks at sockets only every 61 polls while
                // a task is ready, and `yield_now` comes back after such a look.
                task::yield_now().await;
            }
        }
    }
}

/// What `work` gives, or `None` if that takes longer than `limit`.
pub async fn with_timeout<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    time::timeout(limit, work).await.ok()
}
