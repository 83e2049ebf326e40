//! Reading an SQLite file with SQL that others wrote.
//!
//! SQLite asks, for every table, column and function of a statement, whether it
//! may be used (`access_rules`); the file is opened read-only, and a query is bounded
//! in time, memory and what each function may do.
//!
//! A query runs on a thread that may block. Handing it over took four tenths of the
//! 91 µs of CPU of a call with one look-up, so a query that was quick before is first
//! tried where it was asked for, for a millisecond at most.

mod access_rules;
mod bounded_functions;
mod connection;
mod schema;
mod value;

use std::{
    collections::HashSet,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use maru_runtime::tasks::Tasks;
use rusqlite::ErrorCode;
use tokio::{
    sync::Semaphore,
    time::{self, Instant},
};

use super::{
    Error, QueryLimits, QueryParameters, QueryRows, QueryValue, SourceSettings,
    rows::RowCollector,
    statement::{BoundStatement, SqlStatement},
};

use connection::GuardedConnection;

const MAX_IDLE_CONNECTIONS: usize = 5;
/// Queries that run at the same time.
const MAX_CONCURRENT_QUERIES: usize = 20;
/// How long a query may hold up whoever else is served by its thread.
const INLINE_QUERY_TIMEOUT: Duration = Duration::from_millis(1);
/// How many quick queries are remembered.
const MAX_FAST_QUERIES: usize = 256;

/// A file that is read and never written.
#[derive(Clone, Debug)]
pub(super) struct SqliteSource(Arc<SqliteSourceInner>);

#[derive(Debug)]
struct SqliteSourceInner {
    path: PathBuf,
    settings: SourceSettings,
    tasks: Tasks,
    idle_connections: Mutex<Vec<GuardedConnection>>,
    query_permits: Arc<Semaphore>,
    /// Texts of queries that took a part of [`INLINE_QUERY_TIMEOUT`] when they last ran.
    fast_queries: Mutex<HashSet<String>>,
}

/// One query as a thread gets it.
struct QueryJob {
    statement: SqlStatement,
    bound: BoundStatement,
    values: Vec<QueryValue>,
    limits: QueryLimits,
    deadline: Instant,
    is_cancelled: Arc<AtomicBool>,
}

/// Stops a query that nobody waits for.
struct CancelQueryOnDrop(Arc<AtomicBool>);

impl Drop for CancelQueryOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

impl SqliteSource {
    pub(super) fn open(
        path: &Path,
        settings: SourceSettings,
        tasks: &Tasks,
    ) -> Result<Self, Error> {
        let first = GuardedConnection::open(path, &settings).map_err(Error::Open)?;
        Ok(Self(Arc::new(SqliteSourceInner {
            path: path.to_owned(),
            settings,
            tasks: tasks.clone(),
            idle_connections: Mutex::new(vec![first]),
            query_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_QUERIES)),
            fast_queries: Mutex::default(),
        })))
    }

    pub(super) async fn query(
        &self,
        statement: SqlStatement,
        parameters: &QueryParameters,
        limits: QueryLimits,
    ) -> Result<QueryRows, Error> {
        let values = parameters.values_in_order(&statement.parameter_names())?;
        let values = values.into_iter().cloned().collect();
        let stop = Arc::new(AtomicBool::new(false));
        let job = QueryJob {
            bound: statement.bind_parameters(),
            statement,
            values,
            limits,
            deadline: Instant::now() + limits.timeout,
            is_cancelled: Arc::clone(&stop),
        };
        let _stop = CancelQueryOnDrop(stop);
        if let Some(rows) = self.0.try_run_inline(&job) {
            return Ok(rows);
        }
        let inner = Arc::clone(&self.0);
        let work = move |reader: &mut GuardedConnection| {
            let began = Instant::now();
            let done = run_job(reader, &job, job.deadline);
            let quick = done.is_ok() && began.elapsed() < INLINE_QUERY_TIMEOUT / 4;
            inner.record_speed(&job.bound.sql, quick);
            done
        };
        let done = time::timeout(limits.timeout, self.run_blocking(work));
        done.await.unwrap_or(Err(Error::TimedOut))
    }

    /// Does some work with a connection on a thread that may block.
    async fn run_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut GuardedConnection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let turn = Arc::clone(&self.0.query_permits).acquire_owned().await;
        let turn = turn.map_err(|_| Error::ShuttingDown)?;
        let inner = Arc::clone(&self.0);
        let done = self.0.tasks.spawn_blocking(move || {
            // The turn ends with the work, not with the wait for it.
            let _turn = turn;
            let mut reader = inner.take_connection()?;
            let done = work(&mut reader);
            inner.return_connection(reader);
            done
        });
        done.await.unwrap_or(Err(Error::ShuttingDown))
    }
}

impl SqliteSourceInner {
    /// Runs a query that was quick before; `None` if it is not, or was not.
    fn try_run_inline(&self, job: &QueryJob) -> Option<QueryRows> {
        if !self.lock_fast_queries().contains(&job.bound.sql) {
            return None;
        }
        let _turn = self.query_permits.try_acquire().ok()?;
        let mut reader = self.lock_idle_connections().pop()?;
        let done = reader
            .without_busy_timeout(|it| run_job(it, job, Instant::now() + INLINE_QUERY_TIMEOUT));
        self.return_connection(reader);
        done.ok()
    }

    fn record_speed(&self, sql: &str, is_quick: bool) {
        let mut quick = self.lock_fast_queries();
        if !is_quick {
            quick.remove(sql);
        } else if !quick.contains(sql) {
            if quick.len() >= MAX_FAST_QUERIES {
                quick.clear();
            }
            quick.insert(sql.to_owned());
        }
    }

    fn lock_fast_queries(&self) -> MutexGuard<'_, HashSet<String>> {
        self.fast_queries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_idle_connections(&self) -> MutexGuard<'_, Vec<GuardedConnection>> {
        self.idle_connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn take_connection(&self) -> Result<GuardedConnection, Error> {
        let idle = self.lock_idle_connections().pop();
        match idle {
            Some(reader) => Ok(reader),
            None => GuardedConnection::open(&self.path, &self.settings).map_err(Error::Open),
        }
    }

    fn return_connection(&self, reader: GuardedConnection) {
        let mut idle = self.lock_idle_connections();
        if idle.len() < MAX_IDLE_CONNECTIONS {
            idle.push(reader);
        }
    }
}

fn run_job(
    reader: &mut GuardedConnection,
    job: &QueryJob,
    deadline: Instant,
) -> Result<QueryRows, Error> {
    reader.check_names(&job.statement)?;
    let stop = Arc::clone(&job.is_cancelled);
    reader.set_interrupt_check(move || stop.load(Relaxed) || deadline <= Instant::now())?;
    let done = reader.query_rows(&job.bound.sql, &job.values, job.limits);
    reader.clear_interrupt_check();
    done.map_err(|error| job.statement.locate_error(error, &job.bound))
}
