//! The databases that tools read, in PostgreSQL and SQLite.
//!
//! [`DataSource`] runs any query that only reads: those of people and models who write SQL,
//! and those of maru's own tools. A query passes through:
//!
//! - `lexer` and `statement`: tokens, depth and length; each `:name` becomes a numbered
//!   parameter of [`QueryParameters`], so values are bound and never inserted.
//! - `validate_statement`: what needs no database: one query, of a size that can be walked.
//! - `postgres` or `sqlite`: the guard of that database (names against a copy of its catalog,
//!   or the authorizer), its limits, and rows as JSON ([`QueryRows`]).
//!
//! `postgres/growth` and `postgres/amplifiers` bound what a statement may make of little
//! input, because PostgreSQL has no bound for the memory of one query. [`write_sample`] makes the sample data.
//!
//! ```ignore
//! let source = DataSource::sqlite("sample", path, SourceSettings::default(), &tasks)?;
//! let limits = source.limits();
//! let rows = source.query("SELECT name FROM employees WHERE id = :id", &parameters, limits);
//! ```
//!
//! Test with `cargo nextest run -p maru-sources`, and with real databases by
//! `cargo nextest run -p maru --test it source`, which starts a PostgreSQL server.

#![forbid(unsafe_code)]

mod data_source;
mod driver_message;
mod lexer;
mod parameters;
mod postgres;
mod process_memory;
mod query_observer;
mod rows;
mod sample;
mod schema;
mod sqlite;
mod statement;
mod validate_statement;

use std::time::Duration;

use thiserror::Error;

pub use data_source::DataSource;
pub use lexer::SqlDialect;
pub use parameters::{
    CALLER_PREFIX, CallerValues, QueryParameterKind, QueryParameters, QueryValue, SqlIdentifier,
};
pub use query_observer::{FinishedQuery, QueryObserver};
pub use rows::QueryRows;
pub use sample::{EnforcedLimit, sample_limits, write_limits, write_sample};
pub use schema::{ColumnInfo, ForeignKeyTarget, TableInfo, TableKind};
pub use statement::check_query_syntax;

/// The longest statement, in bytes.
pub const MAX_STATEMENT_BYTES: usize = 32 * 1024;
/// The most operators in one chain.
pub const MAX_OPERATOR_CHAIN: usize = 1000;

/// What may be read in a source, and how it is connected to.
#[derive(Clone, Debug, Default)]
pub struct SourceSettings {
    /// The tables and views that may be read, as `name` or `schema.name`. None
    /// means all of the source's own; those of the system never are.
    pub relations: Vec<String>,
    /// Functions that may be called beside the built-in ones that only
    /// calculate.
    pub functions: Vec<String>,
    /// How far a query may go that asks for no less.
    pub limits: QueryLimits,
    /// How many queries run at the same time, and how long one waits for its turn.
    pub pool: PoolSettings,
    /// PostgreSQL: the schemas in which names without one are looked up, instead of
    /// those of the role.
    pub search_path: Vec<String>,
    /// PostgreSQL: how long a query waits for a lock.
    pub lock_timeout: Option<Duration>,
    /// PostgreSQL: settings such as `app.user` that a transaction has while a query
    /// runs, and the value of the caller that each gets, for row-level security.
    pub caller_settings: Vec<(String, String)>,
    /// How many sample values of a column are shown; none unless an admin allows it.
    pub sample_values: usize,
}

/// How many connections a source has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSettings {
    /// Idle connections that stay open.
    pub min_connections: usize,
    /// Connections, and so queries, at the same time.
    pub max_connections: usize,
    /// How long a query waits until one of them is free. The time of the query itself
    /// begins after that.
    pub acquire_timeout: Duration,
}

impl Default for PoolSettings {
    /// As the pool of psycopg has it in document 000.
    fn default() -> Self {
        Self {
            min_connections: 5,
            max_connections: 20,
            acquire_timeout: Duration::from_secs(30),
        }
    }
}

/// How far a query may go, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryLimits {
    /// Rows in an answer.
    pub rows: usize,
    /// Bytes of an answer's JSON.
    pub max_bytes: usize,
    /// Time that the query may run, from when it has a connection.
    pub timeout: Duration,
    /// Rows that are left out before the first: those of the pages before.
    pub offset: usize,
    /// The id of the request, in two halves; the database gets it too.
    pub request: Option<[u64; 2]>,
}

impl Default for QueryLimits {
    fn default() -> Self {
        Self {
            rows: 1000,
            max_bytes: 1024 * 1024,
            timeout: Duration::from_secs(5),
            offset: 0,
            request: None,
        }
    }
}

impl QueryLimits {
    /// The smaller of both, in every respect.
    #[must_use]
    pub fn capped_by(self, other: Self) -> Self {
        Self {
            rows: self.rows.min(other.rows),
            max_bytes: self.max_bytes.min(other.max_bytes),
            timeout: self.timeout.min(other.timeout),
            offset: self.offset,
            request: self.request.or(other.request),
        }
    }
}

/// A database could not answer. The text is for the author of the query: it
/// holds no rows, no paths and nothing of the connection.
#[derive(Debug, Error)]
pub enum Error {
    /// The file cannot be opened.
    #[error("cannot open the database")]
    Open(#[source] rusqlite::Error),
    /// The query ran into its deadline.
    #[error("the query took too long and was stopped")]
    TimedOut,
    /// The query used more memory of the server than it may.
    #[error("the query needs too much memory and was stopped")]
    TooMuchMemory,
    /// Other queries had all connections for as long as one may wait.
    #[error(
        "no connection to the database became free within {} ms; it runs as many queries as it may", .0.as_millis()
    )]
    NoFreeConnection(Duration),
    /// The query failed.
    #[error("the query failed")]
    Query(#[source] rusqlite::Error),
    /// The statement is not one that a source runs.
    #[error("the statement is refused: {0}")]
    Refused(String),
    /// A parameter of the statement has no value.
    #[error("the parameter :{0} has no value")]
    MissingParameter(String),
    /// There is a value for a parameter that the statement does not have.
    #[error("the statement has no parameter :{0}")]
    UnknownParameter(String),
    /// A text has a character that no database takes.
    #[error("the value of the parameter :{0} has a NUL character")]
    NulInParameter(String),
    /// The database does not run the statement.
    #[error("the database says: {0}")]
    Database(String),
    /// The database refused the statement; its message.
    #[error("the database says: {message}{}", hint.as_ref().map(|it| format!(" ({it})")).unwrap_or_default())]
    Rejected {
        /// What is wrong.
        message: String,
        /// What would be right, if it knows.
        hint: Option<String>,
    },
    /// No table or view of this name may be read.
    #[error("there is no table {0} to read")]
    TableNotFound(String),
    /// The settings of the source cannot be used.
    #[error("cannot use the source: {0}")]
    InvalidSettings(String),
    /// The database cannot be reached.
    #[error("the database cannot be reached: {0}")]
    Unreachable(maru_postgres::PostgresConnectError),
    /// The process ends before the work was done.
    #[error("the hub is stopping")]
    ShuttingDown,
    /// An error that has a place in the statement.
    #[error("{error}")]
    AtPosition {
        /// How many characters stand before it.
        position: usize,
        /// What is wrong there.
        error: Box<Self>,
    },
}

impl Error {
    /// How many characters of the statement stand before the error, if it has a
    /// place.
    pub fn position(&self) -> Option<usize> {
        match self {
            Self::AtPosition { position, .. } => Some(*position),
            _ => None,
        }
    }

    /// The message as libpq and its drivers write it, with a caret under the error position.
    pub fn driver_message(&self, statement: &str) -> String {
        driver_message::format_error(self, statement)
    }

    /// Gives the error a place: the byte `at` of `text`.
    fn at_byte(self, text: &str, at: usize) -> Self {
        let before = text.get(..at).unwrap_or(text);
        Self::AtPosition {
            position: before.chars().count(),
            error: Box::new(self),
        }
    }
}
