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
mod memory_watch;
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
    ColumnInfo, Error, QueryLimits, QueryParameters, QueryRows, QueryValue, SourceSettings,
    TableInfo,
    rows::RowCollector,
    statement::{BoundStatement, SqlStatement},
};

use connection::GuardedConnection;
use memory_watch::MemoryWatch;

/// How much later than its deadline a query may be seen to end: SQLite looks at the
/// clock every hundred instructions.
const CLOCK_GRACE: Duration = Duration::from_millis(100);
/// How long a query may block its thread, which serves other connections too.
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
    /// How many values are computed for a row.
    computed_values: usize,
    is_cancelled: Arc<AtomicBool>,
}

/// Stops a query whose caller stopped waiting.
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
            query_permits: Arc::new(Semaphore::new(settings.pool.max_connections.max(1))),
            settings,
            tasks: tasks.clone(),
            idle_connections: Mutex::new(vec![first]),
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
        let is_cancelled = Arc::new(AtomicBool::new(false));
        let job = QueryJob {
            bound: statement.bind_parameters(parameters),
            computed_values: statement.count_computed_values(),
            statement,
            values: expand_lists(values),
            limits,
            is_cancelled: Arc::clone(&is_cancelled),
        };
        let _cancel_on_drop = CancelQueryOnDrop(is_cancelled);
        if let Some(rows) = self.0.try_run_inline(&job) {
            return Ok(rows);
        }
        let inner = Arc::clone(&self.0);
        self.run_blocking(limits.timeout, move |reader| {
            let began = Instant::now();
            let rows = run_job(reader, &job, began + job.limits.timeout);
            let is_quick = rows.is_ok() && began.elapsed() < INLINE_QUERY_TIMEOUT / 4;
            inner.record_speed(&job.bound.sql, is_quick);
            rows
        })
        .await
    }

    /// How SQLite would run a query, one line for each row.
    pub(super) async fn explain(
        &self,
        statement: SqlStatement,
        parameters: &QueryParameters,
        limits: QueryLimits,
    ) -> Result<QueryRows, Error> {
        let bound = statement.bind_parameters(parameters);
        self.run_blocking(limits.timeout, move |reader| {
            reader.check_names(&statement)?;
            let check = QueryLimits { rows: 0, ..limits };
            reader
                .query_rows(&bound.sql, &[], check)
                .map_err(|error| statement.locate_error(error, &bound))?;
            reader.query_plan(&bound.sql, limits)
        })
        .await
    }

    /// The relations that may be read, by name.
    pub(super) async fn tables(&self) -> Result<Vec<TableInfo>, Error> {
        self.run_internal(schema::list_tables).await
    }

    /// The columns of a relation that may be read.
    pub(super) async fn describe(&self, name: &str) -> Result<Vec<ColumnInfo>, Error> {
        let relation = name.to_owned();
        let columns = self.run_internal(move |reader| schema::list_columns(reader, &relation));
        let not_found = || Error::TableNotFound(name.to_owned());
        columns.await?.ok_or_else(not_found)
    }

    /// Runs `work`, which uses only maru's own statements.
    async fn run_internal<T: Send + 'static>(
        &self,
        work: impl FnOnce(&GuardedConnection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T, Error> {
        self.run_blocking(self.0.settings.limits.timeout, move |reader| {
            let done = reader.refresh_rules().and_then(|()| {
                let authorizer = Arc::clone(&reader.authorizer);
                authorizer.allow_all_during(|| work(reader))
            });
            done.map_err(|error| connection::execution_error(&error))
        })
        .await
    }

    /// Does some work with a connection on a thread that may block. Its time begins
    /// when it has a permit.
    async fn run_blocking<T: Send + 'static>(
        &self,
        timeout: Duration,
        work: impl FnOnce(&mut GuardedConnection) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let acquire_timeout = self.0.settings.pool.acquire_timeout;
        let permit = Arc::clone(&self.0.query_permits).acquire_owned();
        let permit = time::timeout(acquire_timeout, permit)
            .await
            .map_err(|_| Error::NoFreeConnection(acquire_timeout))?;
        let permit = permit.map_err(|_| Error::ShuttingDown)?;
        let inner = Arc::clone(&self.0);
        let done = self.0.tasks.spawn_blocking(move || {
            // The permit ends with the work, not with the wait for it.
            let _permit = permit;
            let mut reader = inner.take_connection()?;
            let done = work(&mut reader);
            inner.return_connection(reader);
            done
        });
        match time::timeout(timeout + CLOCK_GRACE, done).await {
            Ok(done) => done.unwrap_or(Err(Error::ShuttingDown)),
            Err(_) => Err(Error::TimedOut),
        }
    }
}

impl SqliteSourceInner {
    /// Runs a query that was quick before; `None` if it is not, or was not.
    fn try_run_inline(&self, job: &QueryJob) -> Option<QueryRows> {
        if !self.lock_fast_queries().contains(&job.bound.sql) {
            return None;
        }
        let _permit = self.query_permits.try_acquire().ok()?;
        let mut reader = self.lock_idle_connections().pop()?;
        let deadline = Instant::now() + INLINE_QUERY_TIMEOUT;
        // Nobody can stop waiting meanwhile.
        let is_over = move || deadline <= Instant::now();
        let done = reader
            .limit_values(job.computed_values)
            .and_then(|()| reader.query_prepared(&job.bound.sql, &job.values, job.limits, is_over));
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
        if idle.len() < self.settings.pool.min_connections.max(1) {
            idle.push(reader);
        }
    }
}

/// The values of all parameters, then those of the lists one by one, as they are bound.
fn expand_lists(mut values: Vec<QueryValue>) -> Vec<QueryValue> {
    let lists = values.iter().filter_map(|it| match it {
        QueryValue::List(values) => Some(values.clone()),
        _ => None,
    });
    let of_lists: Vec<QueryValue> = lists.flatten().collect();
    values.extend(of_lists);
    values
}

fn run_job(
    reader: &mut GuardedConnection,
    job: &QueryJob,
    deadline: Instant,
) -> Result<QueryRows, Error> {
    reader.check_names(&job.statement)?;
    reader.limit_values(job.computed_values)?;
    let stop = Arc::clone(&job.is_cancelled);
    let has_grown = Arc::new(AtomicBool::new(false));
    let mut memory = MemoryWatch::new(Instant::now(), Arc::clone(&has_grown));
    reader.set_interrupt_check(move || {
        let now = Instant::now();
        stop.load(Relaxed) || deadline <= now || memory.has_grown(now)
    })?;
    let done = reader.query_rows(&job.bound.sql, &job.values, job.limits);
    reader.clear_interrupt_check();
    match done {
        Err(Error::TimedOut) if has_grown.load(Relaxed) => Err(Error::TooMuchMemory),
        done => done.map_err(|error| job.statement.locate_error(error, &job.bound)),
    }
}
