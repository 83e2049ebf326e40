//! Reading an SQLite file: a few connections, each query bounded in work.
//!
//! A query first runs where it was asked for, with a budget that takes well
//! under a millisecond: handing it to another thread costs more than most
//! look-ups. One that needs more starts again on a thread that may block.
//!
//! A connection keeps its read transaction for up to [`FRESH`]: locks and
//! checks of the file cost more than a look-up, and an answer may be that old.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use maru_runtime::tasks::Tasks;
use rusqlite::{Connection, OpenFlags, ffi::ErrorCode};
use tokio::{
    sync::Notify,
    time::{self, Instant},
};
use tokio_util::sync::CancellationToken;

use super::Error;

/// Virtual-machine instructions between two looks at the budget.
const STEP: i32 = 500;
const INLINE_STEPS: i64 = 20;
const MAX_IDLE: usize = 8;
/// How long one view of the file may be used.
const FRESH: Duration = Duration::from_millis(10);

/// A file that is read and never written.
#[derive(Clone, Debug)]
pub struct Sqlite(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    tasks: Tasks,
    #[expect(clippy::vec_box, reason = "a reader is large and moves at every query")]
    idle: Mutex<Vec<Box<Reader>>>,
    /// Wakes the task that ends transactions which nobody uses any more.
    used: Arc<Notify>,
}

#[derive(Debug)]
struct Reader {
    connection: Connection,
    budget: Arc<Budget>,
    /// When the open transaction began.
    since: Option<Instant>,
}

/// How much work the current run may still do. Runs are numbered, so that
/// stopping one never hits the next.
#[derive(Debug, Default)]
struct Budget {
    left: AtomicI64,
    run: AtomicU64,
    stopped: AtomicU64,
}

impl Budget {
    fn is_spent(&self) -> bool {
        self.stopped.load(Relaxed) == self.run.load(Relaxed) || self.left.fetch_sub(1, Relaxed) <= 0
    }
}

impl Sqlite {
    /// Opens a file that exists.
    pub fn open(path: &Path, tasks: &Tasks) -> Result<Self, Error> {
        let inner = Inner {
            path: path.to_owned(),
            tasks: tasks.clone(),
            idle: Mutex::default(),
            used: Arc::default(),
        };
        let first = Reader::open(&inner.path).map_err(Error::Open)?;
        inner.put_back(first);
        let inner = Arc::new(inner);
        let used = Arc::clone(&inner.used);
        tasks.spawn(refresh(Arc::downgrade(&inner), used, tasks.stop_token()));
        Ok(Self(inner))
    }

    /// Runs `query`, which may run twice and must only read, within `limit`.
    pub async fn read<T, F>(&self, limit: Duration, query: F) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Fn(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let mut reader = self.0.take()?;
        reader.arm(INLINE_STEPS);
        match reader.run(&query) {
            Err(Error::TimedOut) => self.read_on_a_thread(reader, limit, query).await,
            done => {
                self.0.put_back(reader);
                done
            }
        }
    }

    async fn read_on_a_thread<T, F>(
        &self,
        mut reader: Box<Reader>,
        limit: Duration,
        query: F,
    ) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Fn(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        // Armed before the thread starts: a caller who leaves, or the deadline,
        // stops this run even if it has not begun, and no other.
        let _stop = Stop {
            run: reader.arm(i64::MAX),
            budget: Arc::clone(&reader.budget),
        };
        let inner = Arc::clone(&self.0);
        let work = self.0.tasks.spawn_blocking(move || {
            let done = reader.run(&query);
            inner.put_back(reader);
            done
        });
        let done = time::timeout(limit, work).await;
        done.ok().flatten().unwrap_or(Err(Error::TimedOut))
    }
}

/// Ends transactions soon after their last use, so that they never hold back
/// the writer's checkpoints.
async fn refresh(inner: Weak<Inner>, used: Arc<Notify>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = used.notified() => time::sleep(FRESH).await,
        }
        let Some(source) = inner.upgrade() else {
            return;
        };
        let mut idle = source.idle.lock().unwrap_or_else(PoisonError::into_inner);
        for reader in idle.iter_mut() {
            reader.end();
        }
    }
}

impl Inner {
    fn take(&self) -> Result<Box<Reader>, Error> {
        let idle = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        match idle {
            Some(reader) => Ok(reader),
            None => Reader::open(&self.path).map_err(Error::Open),
        }
    }

    fn put_back(&self, reader: Box<Reader>) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MAX_IDLE {
            idle.push(reader);
            self.used.notify_one();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.used.notify_one();
    }
}

impl Reader {
    fn open(path: &Path) -> rusqlite::Result<Box<Self>> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags)?;
        connection.pragma_update(None, "query_only", true)?;
        connection.busy_timeout(Duration::from_secs(1))?;
        let budget = Arc::new(Budget::default());
        let left = Arc::clone(&budget);
        connection.progress_handler(STEP, Some(move || left.is_spent()))?;
        Ok(Box::new(Self {
            connection,
            budget,
            since: None,
        }))
    }

    /// Begins a run of so many steps; returns its number.
    fn arm(&self, steps: i64) -> u64 {
        self.budget.left.store(steps, Relaxed);
        self.budget.run.fetch_add(1, Relaxed) + 1
    }

    fn run<T>(&mut self, query: &impl Fn(&Connection) -> rusqlite::Result<T>) -> Result<T, Error> {
        let done = self.begin().and_then(|()| query(&self.connection));
        if done.is_err() {
            self.end();
        }
        done.map_err(|cause| match cause.sqlite_error_code() {
            Some(ErrorCode::OperationInterrupted) => Error::TimedOut,
            _ => Error::Query(cause),
        })
    }

    /// Begins a transaction, unless there is a fresh one.
    fn begin(&mut self) -> rusqlite::Result<()> {
        if self.since.is_some_and(|since| since.elapsed() < FRESH) {
            return Ok(());
        }
        self.end();
        self.connection.execute_batch("BEGIN")?;
        self.since = Some(Instant::now());
        Ok(())
    }

    fn end(&mut self) {
        if self.since.take().is_some() && !self.connection.is_autocommit() {
            // It only read; there is nothing to lose.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
    }
}

/// Ends a run that nobody waits for.
struct Stop {
    budget: Arc<Budget>,
    run: u64,
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.budget.stopped.store(self.run, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> (tempfile::TempDir, Sqlite) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.db");
        Connection::open(&path)
            .unwrap()
            .execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (7)")
            .unwrap();
        let source = Sqlite::open(&path, &Tasks::default()).unwrap();
        (directory, source)
    }

    const COUNT: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT ?1)
                         SELECT count(*) FROM n";

    #[tokio::test]
    async fn small_and_large_queries_both_finish() {
        let (_directory, source) = source();
        for rows in [1_i64, 100_000] {
            let count = source
                .read(Duration::from_secs(30), move |c| {
                    c.query_row(COUNT, [rows], |row| row.get::<_, i64>(0))
                })
                .await;
            assert_eq!(count.unwrap(), rows);
        }
    }

    #[tokio::test]
    async fn endless_query_is_stopped_and_the_next_one_runs() {
        let (_directory, source) = source();
        let endless = source
            .read(Duration::from_millis(20), |c| {
                c.query_row(COUNT, [i64::MAX], |row| row.get::<_, i64>(0))
            })
            .await;
        assert!(matches!(endless, Err(Error::TimedOut)));
        let next = source.read(Duration::from_secs(5), |c| {
            c.query_row("SELECT a FROM t", [], |row| row.get::<_, i64>(0))
        });
        assert_eq!(next.await.unwrap(), 7);
    }

    #[tokio::test]
    async fn changes_are_seen_and_nobody_is_held_back() {
        let (directory, source) = source();
        let path = directory.path().join("x.db");
        let value = || {
            source.read(Duration::from_secs(5), |c| {
                c.query_row("SELECT a FROM t", [], |row| row.get::<_, i64>(0))
            })
        };
        let writer = Connection::open(&path).unwrap();
        writer.pragma_update(None, "journal_mode", "WAL").unwrap();
        for expected in 1..=3 {
            writer.execute("UPDATE t SET a = ?1", [expected]).unwrap();
            time::sleep(FRESH * 2).await;
            assert_eq!(value().await.unwrap(), expected);
        }
        time::sleep(FRESH * 5).await;
        let busy: i64 = writer
            .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
            .unwrap();
        assert_eq!(busy, 0);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn query_of_a_caller_who_left_ends() {
        let (directory, _unused) = source();
        let tasks = Tasks::default();
        let source = Sqlite::open(&directory.path().join("x.db"), &tasks).unwrap();
        for _ in 0..20 {
            let endless = source.read(Duration::from_secs(60), |c| {
                c.query_row(COUNT, [i64::MAX], |row| row.get::<_, i64>(0))
            });
            // Leaves at once, mostly before the thread has begun.
            let _ = time::timeout(Duration::from_micros(1), endless).await;
        }
        // Closing waits for every blocking thread.
        let closed = time::timeout(Duration::from_secs(10), tasks.shutdown()).await;
        assert!(closed.is_ok());
    }

    #[tokio::test]
    async fn nothing_can_be_written() {
        let (_directory, source) = source();
        let wrote = source
            .read(Duration::from_secs(5), |c| c.execute("DELETE FROM t", []))
            .await;
        assert!(matches!(wrote, Err(Error::Query(_))));
    }
}
