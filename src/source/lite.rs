//! Reading an SQLite file with SQL that others wrote.
//!
//! SQLite asks, for every table, column and function of a statement, whether it
//! may be used ([`rules`]); the file is opened read-only, and a query is bounded
//! in time, memory and what each function may do.
//!
//! A query runs on a thread that may block. To hand it there costs more than most
//! look-ups, so one that was quick before is tried where it was asked for, briefly.

mod connection;
mod explore;
mod functions;
mod rules;
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

use rusqlite::ErrorCode;
use tokio::{
    sync::Semaphore,
    time::{self, Instant},
};

use super::{
    Error, Limits, Parameters, Rows, Settings, Value,
    rows::Collector,
    statement::{Bound, Statement},
};
use crate::tasks::Tasks;
use connection::Reader;

const MAX_IDLE: usize = 5;
/// Queries that run at the same time.
const MOST: usize = 20;
/// How long a query may hold up whoever else is served by its thread.
const BRIEFLY: Duration = Duration::from_millis(1);
/// How many quick queries are remembered.
const REMEMBERED: usize = 256;

/// A file that is read and never written.
#[derive(Clone, Debug)]
pub(super) struct Lite(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    path: PathBuf,
    settings: Settings,
    tasks: Tasks,
    idle: Mutex<Vec<Reader>>,
    turns: Arc<Semaphore>,
    /// Texts of queries that took a part of [`BRIEFLY`] when they last ran.
    quick: Mutex<HashSet<String>>,
}

/// One query as a thread gets it.
struct Job {
    statement: Statement,
    bound: Bound,
    values: Vec<Value>,
    limits: Limits,
    deadline: Instant,
    stop: Arc<AtomicBool>,
}

/// Stops a query that nobody waits for.
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

impl Lite {
    pub(super) fn open(path: &Path, settings: Settings, tasks: &Tasks) -> Result<Self, Error> {
        let first = Reader::open(path, &settings).map_err(Error::Open)?;
        Ok(Self(Arc::new(Inner {
            path: path.to_owned(),
            settings,
            tasks: tasks.clone(),
            idle: Mutex::new(vec![first]),
            turns: Arc::new(Semaphore::new(MOST)),
            quick: Mutex::default(),
        })))
    }

    pub(super) async fn query(
        &self,
        statement: Statement,
        parameters: &Parameters,
        limits: Limits,
    ) -> Result<Rows, Error> {
        let values = parameters.for_names(&statement.parameters())?;
        let values = values.into_iter().cloned().collect();
        let stop = Arc::new(AtomicBool::new(false));
        let job = Job {
            bound: statement.bound(),
            statement,
            values,
            limits,
            deadline: Instant::now() + limits.timeout,
            stop: Arc::clone(&stop),
        };
        let _stop = Stop(stop);
        if let Some(rows) = self.0.read_here(&job) {
            return Ok(rows);
        }
        let inner = Arc::clone(&self.0);
        let work = move |reader: &mut Reader| {
            let began = Instant::now();
            let done = read(reader, &job, job.deadline);
            let quick = done.is_ok() && began.elapsed() < BRIEFLY / 4;
            inner.remember(&job.bound.sql, quick);
            done
        };
        let done = time::timeout(limits.timeout, self.run(work));
        done.await.unwrap_or(Err(Error::TooSlow))
    }

    /// Does some work with a connection on a thread that may block.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Reader) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let turn = Arc::clone(&self.0.turns).acquire_owned().await;
        let turn = turn.map_err(|_| Error::Stopping)?;
        let inner = Arc::clone(&self.0);
        let done = self.0.tasks.blocking(move || {
            // The turn ends with the work, not with the wait for it.
            let _turn = turn;
            let mut reader = inner.take()?;
            let done = work(&mut reader);
            inner.put_back(reader);
            done
        });
        done.await.unwrap_or(Err(Error::Stopping))
    }
}

impl Inner {
    /// Runs a query that was quick before; `None` if it is not, or was not.
    fn read_here(&self, job: &Job) -> Option<Rows> {
        if !self.quick().contains(&job.bound.sql) {
            return None;
        }
        let _turn = self.turns.try_acquire().ok()?;
        let mut reader = self.idle().pop()?;
        let done = reader.without_waiting(|it| read(it, job, Instant::now() + BRIEFLY));
        self.put_back(reader);
        done.ok()
    }

    fn remember(&self, sql: &str, is_quick: bool) {
        let mut quick = self.quick();
        if !is_quick {
            quick.remove(sql);
        } else if !quick.contains(sql) {
            if quick.len() >= REMEMBERED {
                quick.clear();
            }
            quick.insert(sql.to_owned());
        }
    }

    fn quick(&self) -> MutexGuard<'_, HashSet<String>> {
        self.quick.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Reader>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Result<Reader, Error> {
        let idle = self.idle().pop();
        match idle {
            Some(reader) => Ok(reader),
            None => Reader::open(&self.path, &self.settings).map_err(Error::Open),
        }
    }

    fn put_back(&self, reader: Reader) {
        let mut idle = self.idle();
        if idle.len() < MAX_IDLE {
            idle.push(reader);
        }
    }
}

fn read(reader: &mut Reader, job: &Job, deadline: Instant) -> Result<Rows, Error> {
    reader.refresh(&job.statement)?;
    let stop = Arc::clone(&job.stop);
    reader.arm(move || stop.load(Relaxed) || deadline <= Instant::now())?;
    let done = reader.read(&job.bound.sql, &job.values, job.limits);
    reader.disarm();
    done.map_err(|error| job.statement.place(error, &job.bound))
}
