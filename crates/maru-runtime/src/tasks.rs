//! Task spawning and shutdown: every long-lived task is spawned through [`Tasks`].

use std::{future, future::Future, num::NonZero, panic, sync::LazyLock, thread, time::Duration};

use tokio::{runtime::Handle, sync::Semaphore, task, time};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Spawns tasks, signals shutdown to them and waits until they have ended.
#[derive(Clone, Debug, Default)]
pub struct Tasks {
    tracker: TaskTracker,
    stop: CancellationToken,
}

impl Tasks {
    /// Spawns `task`; [`Tasks::shutdown`] waits for it.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn(task);
    }

    /// Spawns `task` on `runtime`; [`Tasks::shutdown`] waits for it.
    pub fn spawn_on(&self, runtime: &Handle, task: impl Future<Output = ()> + Send + 'static) {
        self.tracker.spawn_on(task, runtime);
    }

    /// Runs `work` on tokio's blocking thread pool; [`Tasks::shutdown`] waits for it.
    /// Returns `None` if it panicked.
    pub async fn spawn_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        self.tracker.spawn_blocking(work).await.ok()
    }

    /// Returns a token that is cancelled when shutdown begins.
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

/// Runs `work` on tokio's blocking thread pool and resumes its panic in the caller.
/// Returns `None` if the runtime shuts down before `work` starts.
pub async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    match task::spawn_blocking(work).await {
        Ok(output) => Some(output),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => panic::resume_unwind(panic),
            Err(_) => None,
        },
    }
}

/// Documents up to this size are parsed in place. A larger one would delay every other
/// task of its worker: 4 MiB of small JSON values take a third of a second.
const MAX_INLINE_BYTES: usize = 64 << 10;

/// As many large documents are parsed at the same time as there are cores; others wait,
/// so that many of them do not take the processor from the workers.
static PARSER_PERMITS: LazyLock<Semaphore> =
    LazyLock::new(|| Semaphore::new(thread::available_parallelism().map_or(1, NonZero::get)));

/// Whether parsing so many bytes is left to a blocking thread; see [`run_parser`].
pub fn is_large_document(bytes: usize) -> bool {
    bytes > MAX_INLINE_BYTES
}

/// Runs `work`, which parses `bytes` bytes from a peer: in place if they are few, otherwise
/// on a blocking thread, so that other tasks of the worker go on. Resumes its panic.
pub async fn run_parser<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if !is_large_document(bytes) {
        return work();
    }
    let permit = PARSER_PERMITS.acquire().await;
    let work = move || {
        // Held until the work is done, even if nobody waits for it any more.
        let _permit = permit;
        work()
    };
    match run_blocking(work).await {
        Some(output) => output,
        // The runtime shuts down and drops this future, too.
        None => future::pending().await,
    }
}

/// Bytes that a task reads from one peer before it yields to other tasks.
const SLICE_BYTES: usize = 32 << 10;
/// Cost of a message in addition to its bytes, so that short messages count too.
const MESSAGE_COST: usize = 256;

/// A budget for reading from one peer, so that a peer that floods maru cannot starve the
/// other tasks of the thread: the reader yields whenever the budget is spent.
#[derive(Debug)]
pub struct WorkSlice {
    remaining: usize,
}

impl Default for WorkSlice {
    fn default() -> Self {
        Self {
            remaining: SLICE_BYTES,
        }
    }
}

impl WorkSlice {
    /// Subtracts a message of `bytes` bytes from the budget; yields and refills the
    /// budget when it is spent.
    pub async fn spend(&mut self, bytes: usize) {
        match self
            .remaining
            .checked_sub(bytes.saturating_add(MESSAGE_COST))
        {
            Some(remaining) => self.remaining = remaining,
            None => {
                self.remaining = SLICE_BYTES;
                // Not `wake_by_ref`: while a task is ready, tokio polls sockets only
                // every 61 ticks. `yield_now` resumes after sockets were polled.
                task::yield_now().await;
            }
        }
    }
}

/// Returns the output of `work`, or `None` if it takes longer than `limit`.
pub async fn with_timeout<T>(limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    time::timeout(limit, work).await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_large_documents_leave_the_thread() {
        let here = thread::current().id();
        let small = run_parser(MAX_INLINE_BYTES, || thread::current().id()).await;
        let large = run_parser(MAX_INLINE_BYTES + 1, || thread::current().id()).await;
        assert_eq!(small, here);
        assert_ne!(large, here);
    }

    #[tokio::test]
    async fn other_tasks_go_on_while_a_large_document_is_parsed() {
        let (release, released) = std::sync::mpsc::channel();
        // Ends only when another task of this thread has run.
        let parser = run_parser(MAX_INLINE_BYTES + 1, move || released.recv().is_ok());
        let (parsed, ()) = tokio::join!(parser, async { release.send(()).unwrap() });
        assert!(parsed);
    }
}
