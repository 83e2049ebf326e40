//! The databases that tools read.

mod sample;
mod sqlite;

use thiserror::Error;

pub use sample::write_sample;
pub use sqlite::Sqlite;

/// A database could not answer.
#[derive(Debug, Error)]
pub enum Error {
    /// The file cannot be opened.
    #[error("cannot open the database")]
    Open(#[source] rusqlite::Error),
    /// The query ran into its deadline.
    #[error("the query took too long and was stopped")]
    TooSlow,
    /// The query failed.
    #[error("the query failed")]
    Query(#[source] rusqlite::Error),
}
