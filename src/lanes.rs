//! Threads that serve connections.
//!
//! A connection stays on the thread that took it, with its clock, its poller and the
//! connections to servers that it uses: a call that crosses threads pays for waking
//! the other one, there and back, and costs a third more.

use std::{
    cell::Cell,
    future::{Future, poll_fn},
    io,
    num::NonZero,
    sync::Arc,
    task::Poll,
    thread,
    time::Duration,
};

use tokio::{
    runtime::{Builder, Handle, Runtime},
    time,
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::tasks::Tasks;

/// A timer that rings before all others wakes the poller, by a write to itself. A
/// sooner one, which is always there, spares every request that.
const TICK: Duration = Duration::from_secs(5);

thread_local! {
    static HERE: Cell<usize> = const { Cell::new(0) };
}

/// The lane of this thread; 0 is where the hub was started.
pub fn here() -> usize {
    HERE.get()
}

/// Lets everything go first that is ready on this thread. Before a write it makes
/// several writes follow each other, and whoever reads them on the same machine is
/// woken once.
pub async fn others_first() {
    let mut waited = false;
    poll_fn(|context| {
        if waited {
            return Poll::Ready(());
        }
        waited = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// One for every core but one, which is left to what maru talks to on the same
/// machine. Dropping them ends their threads and what still runs there.
#[derive(Debug)]
pub struct Lanes {
    lanes: Vec<Lane>,
    _stop: DropGuard,
}

#[derive(Debug)]
struct Lane {
    runtime: Handle,
    /// Held by each of its connections.
    open: Arc<()>,
}

impl Lanes {
    /// Makes this thread the first lane and starts the others.
    pub fn start(tasks: &Tasks) -> io::Result<Self> {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let stop = CancellationToken::new();
        tasks.spawn(tick(tasks.stop()));
        let mut lanes = vec![Lane::on(Handle::current())];
        for number in 1..cores.saturating_sub(1) {
            lanes.push(Lane::start(number, stop.clone())?);
        }
        Ok(Self {
            lanes,
            _stop: stop.drop_guard(),
        })
    }

    /// Spawns `connection` on the lane that has the fewest.
    pub fn spawn(&self, tasks: &Tasks, connection: impl Future<Output = ()> + Send + 'static) {
        let lanes = self.lanes.iter();
        let lane = lanes.min_by_key(|it| Arc::strong_count(&it.open));
        let lane = lane.expect("there is always the first");
        let open = Arc::clone(&lane.open);
        let connection = async move {
            connection.await;
            drop(open);
        };
        tasks.spawn_on(&lane.runtime, connection);
    }
}

impl Lane {
    fn on(runtime: Handle) -> Self {
        let open = Arc::default();
        Self { runtime, open }
    }

    fn start(number: usize, stop: CancellationToken) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let lane = Self::on(runtime.handle().clone());
        thread::Builder::new()
            .name(format!("lane-{number}"))
            .spawn(move || run(number, runtime, stop))?;
        Ok(lane)
    }
}

fn run(number: usize, runtime: Runtime, stop: CancellationToken) {
    HERE.set(number);
    runtime.block_on(tick(stop));
    runtime.shutdown_background();
}

async fn tick(stop: CancellationToken) {
    while time::timeout(TICK, stop.cancelled()).await.is_err() {}
}

#[cfg(test)]
mod tests {
    use std::thread::ThreadId;

    use tokio::sync::mpsc;

    use super::*;

    /// Two connections that last on two lanes, whose threads are told.
    #[tokio::test]
    async fn connections_are_spread_and_stay_where_they_are() {
        let (tasks, stop) = (Tasks::default(), CancellationToken::new());
        let lanes = Lanes {
            lanes: vec![
                Lane::on(Handle::current()),
                Lane::start(1, stop.clone()).unwrap(),
            ],
            _stop: stop.drop_guard(),
        };
        let (told, mut threads) = mpsc::channel::<(usize, ThreadId)>(8);
        for _ in 0..2 {
            let (told, stop) = (told.clone(), tasks.stop());
            lanes.spawn(&tasks, async move {
                told.send((here(), thread::current().id())).await.unwrap();
                stop.cancelled().await;
                told.send((here(), thread::current().id())).await.unwrap();
            });
        }
        let mut begun = [threads.recv().await.unwrap(), threads.recv().await.unwrap()];
        tasks.close().await;
        let mut ended = [threads.recv().await.unwrap(), threads.recv().await.unwrap()];
        begun.sort_by_key(|it| it.0);
        ended.sort_by_key(|it| it.0);
        assert_eq!(begun.map(|it| it.0), [0, 1]);
        assert_eq!(begun, ended);
    }

    #[tokio::test]
    async fn whoever_lets_others_go_first_comes_last() {
        let (told, mut order) = mpsc::channel(2);
        let first = told.clone();
        tokio::join!(
            async {
                others_first().await;
                told.send("polite").await.unwrap();
            },
            async {
                first.send("other").await.unwrap();
            }
        );
        assert_eq!(order.recv().await, Some("other"));
        assert_eq!(order.recv().await, Some("polite"));
    }
}
