//! Threads that serve connections.
//!
//! A connection stays on the thread that took it, with its clock, its poller and the
//! connections to servers that it uses: a call that crosses threads wakes the other
//! thread and is woken by it, which takes a third more CPU per call.

use std::{cell::Cell, future::Future, io, num::NonZero, sync::Arc, thread, time::Duration};

use tokio::{
    runtime::{Builder, Handle, Runtime},
    time,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::tasks::Tasks;

/// tokio wakes its poller, by a write to itself, when a new earliest timer is armed.
/// A timer that is always earlier than those of requests avoids that write. It came
/// with connections that stay on their thread and fewer writes: a call through the hub
/// then took 29 to 31 µs of CPU instead of 33 to 37, all of it together.
const STANDING_TIMER_PERIOD: Duration = Duration::from_secs(5);

thread_local! {
    static CURRENT_WORKER: Cell<usize> = const { Cell::new(0) };
}

/// The worker of this thread; 0 is where the hub was started.
pub fn current_worker() -> usize {
    CURRENT_WORKER.get()
}

/// One for every core but one, which is left to what maru talks to on the same
/// machine. Dropping them ends their threads and what still runs there.
#[derive(Debug)]
pub struct WorkerPool {
    workers: Vec<Worker>,
    _stop: DropGuard,
}

#[derive(Debug)]
struct Worker {
    runtime: Handle,
    /// Held by each of its connections.
    open_connections: Arc<()>,
}

impl WorkerPool {
    /// Makes this thread the first worker and starts the others.
    pub fn start(tasks: &Tasks) -> io::Result<Self> {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let stop = CancellationToken::new();
        tasks.spawn(keep_timer_armed(tasks.stop_token()));
        let mut lanes = vec![Worker::on_runtime(Handle::current())];
        for number in 1..cores.saturating_sub(1) {
            lanes.push(Worker::start(number, stop.clone())?);
        }
        Ok(Self {
            workers: lanes,
            _stop: stop.drop_guard(),
        })
    }

    /// Spawns `connection` on the worker that has the fewest.
    pub fn spawn(&self, tasks: &Tasks, connection: impl Future<Output = ()> + Send + 'static) {
        let lanes = self.workers.iter();
        let lane = lanes.min_by_key(|it| Arc::strong_count(&it.open_connections));
        let lane = lane.expect("there is always the first");
        let open = Arc::clone(&lane.open_connections);
        let connection = async move {
            connection.await;
            drop(open);
        };
        tasks.spawn_on(&lane.runtime, connection);
    }
}

impl Worker {
    fn on_runtime(runtime: Handle) -> Self {
        let open_connections = Arc::default();
        Self {
            runtime,
            open_connections,
        }
    }

    fn start(number: usize, stop: CancellationToken) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let lane = Self::on_runtime(runtime.handle().clone());
        thread::Builder::new()
            .name(format!("lane-{number}"))
            .spawn(move || run_worker(number, runtime, stop))?;
        Ok(lane)
    }
}

fn run_worker(number: usize, runtime: Runtime, stop: CancellationToken) {
    CURRENT_WORKER.set(number);
    runtime.block_on(keep_timer_armed(stop));
    runtime.shutdown_background();
}

async fn keep_timer_armed(stop: CancellationToken) {
    while time::timeout(STANDING_TIMER_PERIOD, stop.cancelled())
        .await
        .is_err()
    {}
}

#[cfg(test)]
mod tests {
    use std::thread::ThreadId;

    use tokio::sync::mpsc;

    use super::*;

    /// Two connections that last on two workers, whose threads are told.
    #[tokio::test]
    async fn connections_are_spread_and_stay_where_they_are() {
        let (tasks, stop) = (Tasks::default(), CancellationToken::new());
        let lanes = WorkerPool {
            workers: vec![
                Worker::on_runtime(Handle::current()),
                Worker::start(1, stop.clone()).unwrap(),
            ],
            _stop: stop.drop_guard(),
        };
        let (told, mut threads) = mpsc::channel::<(usize, ThreadId)>(8);
        for _ in 0..2 {
            let (told, stop) = (told.clone(), tasks.stop_token());
            lanes.spawn(&tasks, async move {
                told.send((current_worker(), thread::current().id()))
                    .await
                    .unwrap();
                stop.cancelled().await;
                told.send((current_worker(), thread::current().id()))
                    .await
                    .unwrap();
            });
        }
        let mut begun = [threads.recv().await.unwrap(), threads.recv().await.unwrap()];
        tasks.shutdown().await;
        let mut ended = [threads.recv().await.unwrap(), threads.recv().await.unwrap()];
        begun.sort_by_key(|it| it.0);
        ended.sort_by_key(|it| it.0);
        assert_eq!(begun.map(|it| it.0), [0, 1]);
        assert_eq!(begun, ended);
    }
}
