//! Worker threads that serve client connections.
//!
//! A connection stays on the thread that accepted it, together with its timers, its
//! poller and the upstream connections it uses. A call that crosses threads needs two
//! wake-ups, which costs a third more CPU per call.

use std::{cell::Cell, future::Future, io, num::NonZero, sync::Arc, thread, time::Duration};

use tokio::{
    runtime::{Builder, Handle, Runtime},
    time,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::tasks::Tasks;

/// Period of a timer that is always armed. tokio wakes its poller, by a write to an
/// eventfd, when a new earliest timer is armed; a standing timer that is earlier than
/// those of requests avoids that write. Together with pinned connections it brought a
/// call through the hub from 33–37 µs of CPU to 29–31.
const STANDING_TIMER_PERIOD: Duration = Duration::from_secs(5);

thread_local! {
    static CURRENT_WORKER: Cell<usize> = const { Cell::new(0) };
}

/// Returns the number of the worker that runs on this thread; 0 is the thread that
/// started the hub.
pub fn current_worker() -> usize {
    CURRENT_WORKER.get()
}

/// Worker threads, one for every core but one, which is left to the programs that maru
/// talks to on the same machine. Dropping the pool ends its threads and the tasks on
/// them.
#[derive(Debug)]
pub struct WorkerPool {
    workers: Vec<Worker>,
    _stop: DropGuard,
}

#[derive(Debug)]
struct Worker {
    runtime: Handle,
    /// Cloned by each of its connections: the reference count tells how many are open.
    open_connections: Arc<()>,
}

impl WorkerPool {
    /// Makes this thread the first worker and starts the others.
    pub fn start(tasks: &Tasks) -> io::Result<Self> {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let stop = CancellationToken::new();
        tasks.spawn(keep_timer_armed(tasks.stop_token()));
        let mut workers = vec![Worker::on_runtime(Handle::current())];
        for number in 1..cores.saturating_sub(1) {
            workers.push(Worker::start(number, stop.clone())?);
        }
        Ok(Self {
            workers,
            _stop: stop.drop_guard(),
        })
    }

    /// Spawns `connection` on the worker with the fewest connections.
    pub fn spawn(&self, tasks: &Tasks, connection: impl Future<Output = ()> + Send + 'static) {
        let workers = self.workers.iter();
        let worker = workers.min_by_key(|it| Arc::strong_count(&it.open_connections));
        let worker = worker.expect("the pool contains at least the current thread");
        let open = Arc::clone(&worker.open_connections);
        let connection = async move {
            connection.await;
            drop(open);
        };
        tasks.spawn_on(&worker.runtime, connection);
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
        let worker = Self::on_runtime(runtime.handle().clone());
        thread::Builder::new()
            .name(format!("worker-{number}"))
            .spawn(move || run_worker(number, runtime, stop))?;
        Ok(worker)
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

    #[tokio::test]
    async fn connections_are_spread_and_stay_where_they_are() {
        let (tasks, stop) = (Tasks::default(), CancellationToken::new());
        let pool = WorkerPool {
            workers: vec![
                Worker::on_runtime(Handle::current()),
                Worker::start(1, stop.clone()).unwrap(),
            ],
            _stop: stop.drop_guard(),
        };
        let (sender, mut threads) = mpsc::channel::<(usize, ThreadId)>(8);
        for _ in 0..2 {
            let (sender, stop) = (sender.clone(), tasks.stop_token());
            pool.spawn(&tasks, async move {
                sender
                    .send((current_worker(), thread::current().id()))
                    .await
                    .unwrap();
                stop.cancelled().await;
                sender
                    .send((current_worker(), thread::current().id()))
                    .await
                    .unwrap();
            });
        }
        let mut started = [threads.recv().await.unwrap(), threads.recv().await.unwrap()];
        tasks.shutdown().await;
        let mut ended = [threads.recv().await.unwrap(), threads.recv().await.unwrap()];
        started.sort_by_key(|it| it.0);
        ended.sort_by_key(|it| it.0);
        assert_eq!(started.map(|it| it.0), [0, 1]);
        assert_eq!(started, ended);
    }
}
