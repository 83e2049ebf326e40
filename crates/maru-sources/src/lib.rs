//! The databases that tools read.
//!
//! [`DataSource`] runs any query that only reads: those of people and models who
//! write SQL, and those of maru's own tools.

#![forbid(unsafe_code)]

mod data_source;
mod driver_message;
mod lexer;
mod parameters;
mod postgres;
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
pub use parameters::{QueryParameterKind, QueryParameters, QueryValue};
pub use query_observer::{FinishedQuery, QueryObserver};
pub use rows::QueryRows;
pub use sample::{EnforcedLimit, sample_limits, write_limits, write_sample};
pub use schema::{ColumnInfo, ForeignKeyTarget, TableInfo, TableKind};
pub use statement::check_query_syntax;

/// The longest statement, in bytes.
pub const MAX_STATEMENT_BYTES: usize = 32 * 1024;
/// The most operators in one chain.
pub const MAX_OPERATOR_CHAIN: usize = 1000;

/// What a source offers.
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
}

/// How far a query may go, and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueryLimits {
    /// Rows in an answer.
    pub rows: usize,
    /// Bytes of an answer's JSON.
    pub max_bytes: usize,
    /// Time from the question to the answer.
    pub timeout: Duration,
    /// The request that it is part of, as the database is told: two halves.
    pub request: Option<[u64; 2]>,
}

impl Default for QueryLimits {
    fn default() -> Self {
        Self {
            rows: 1000,
            max_bytes: 1024 * 1024,
            timeout: Duration::from_secs(5),
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
    /// The database does not run the statement, in its own words.
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
    /// The database cannot be reached. Its cause is for the log only.
    #[error("the database cannot be reached")]
    Unreachable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The process ends before the work was done.
    #[error("the hub is stopping")]
    ShuttingDown,
    /// The same, with the character of the statement where it is wrong.
    #[error("{error}")]
    AtPosition {
        /// How many characters stand before it.
        position: usize,
        /// What is wrong there.
        error: Box<Self>,
    },
}

impl Error {
    /// How many characters of the statement stand before the fault, if it has a
    /// place.
    pub fn position(&self) -> Option<usize> {
        match self {
            Self::AtPosition {
                position: place, ..
            } => Some(*place),
            _ => None,
        }
    }

    /// Gives the fault a place: the byte `at` of `text`.
    fn at_byte(self, text: &str, at: usize) -> Self {
        let before = text.get(..at).unwrap_or(text);
        Self::AtPosition {
            position: before.chars().count(),
            error: Box::new(self),
        }
    }
}
