//! maru's own state, in an SQLite file of the data directory or in PostgreSQL.
//!
//! A method is written once: its statement is one text that both back ends
//! understand, and what goes in and comes out is a `Value`.

#![forbid(unsafe_code)]

mod agent_runs;
mod audit;
mod availability;
mod call_limits;
mod console;
mod custom_tools;
mod migrations;
mod postgres;
mod seal;
mod servers;
mod sqlite;
mod statement;
mod tokens;
mod tool_pins;

use std::{path::Path, sync::Arc, time::Duration};

use thiserror::Error;

use availability::StoreAvailability;
use postgres::PostgresBackend;
use sqlite::SqliteBackend;
use statement::{CellValue, PortableStatement, ResultRow};

pub use agent_runs::AgentRunRow;
pub use audit::{AuditFilter, AuditRow};
pub use call_limits::CallLimitRow;
pub use console::ConsoleSessionRow;
pub use custom_tools::{CustomParamRow, CustomToolRow, CustomVersionRow};
pub use seal::{SecretSealer, is_sealed};
pub use servers::ServerRow;
pub use tokens::TokenRow;
pub use tool_pins::ToolPinRow;

/// The state could not be read or written.
#[derive(Debug, Error)]
pub enum Error {
    /// It is not ours, is damaged, cannot be reached, or is newer than this maru.
    #[error("cannot use the store {place}; nothing was changed")]
    Unusable {
        /// The file, or the host, port and database; never a password.
        place: String,
        /// What is wrong with it.
        #[source]
        cause: DatabaseError,
    },
    /// The address of a PostgreSQL database cannot be used as it is.
    #[error("cannot use the address of the store")]
    Address(#[from] maru_postgres::Error),
    /// The database cannot be reached now.
    #[error("the store {place} is down: {why}")]
    Down {
        /// The host, port and database; never a password.
        place: String,
        /// What the attempt to reach it met.
        why: String,
    },
    /// A statement failed.
    #[error("the store did not {attempted}")]
    Failed {
        /// What was tried.
        attempted: &'static str,
        /// Why it failed.
        #[source]
        cause: DatabaseError,
    },
}

/// Why a back end failed. Never holds what was to be written.
#[derive(Debug, Error)]
pub enum DatabaseError {
    /// SQLite says so.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// PostgreSQL says so.
    #[error("{0}")]
    Postgres(String),
    /// There is no connection to PostgreSQL.
    #[error("{0}")]
    Unreachable(String),
    /// Nobody answered.
    #[error("there was no answer within {0:?}")]
    Timeout(Duration),
    /// The tables have more steps than this maru knows.
    #[error("it was written by a newer maru (schema {0})")]
    NewerSchema(i64),
    /// A column holds something that maru does not write there.
    #[error("a column holds {found} where {wanted} belongs")]
    UnexpectedColumnType {
        /// The kind of value.
        found: &'static str,
        /// The kind that maru writes.
        wanted: &'static str,
    },
    /// The process ends before the work was done.
    #[error("the hub is stopping")]
    Stopping,
}

impl Error {
    /// Whether the database cannot be reached; that was logged when it began.
    pub fn is_down(&self) -> bool {
        matches!(self, Self::Down { .. })
    }

    /// The text for those who may not know where the database is.
    pub fn public_message(&self) -> String {
        match self {
            Self::Down { .. } => "the store is down; try again later".to_owned(),
            other => other.to_string(),
        }
    }
}

const PING_STATEMENT: PortableStatement = PortableStatement {
    attempted: "answer",
    sql: "SELECT name FROM token LIMIT 1",
};

/// A handle to the state; clones share its connections. What was acknowledged
/// is on disk, unless the state is in memory.
#[derive(Clone, Debug)]
pub struct Store {
    backend: StoreBackend,
    sealer: Option<Arc<SecretSealer>>,
    availability: Arc<StoreAvailability>,
}

#[derive(Clone, Debug)]
enum StoreBackend {
    Sqlite(SqliteBackend),
    Postgres(PostgresBackend),
}

impl Store {
    /// Opens the file, making or upgrading it.
    pub async fn open(path: &Path) -> Result<Self, Error> {
        let opened = SqliteBackend::open(path.to_owned()).await;
        Self::from_opened(path.display().to_string(), opened.map(StoreBackend::Sqlite))
    }

    /// State that ends with the last handle.
    pub async fn in_memory() -> Result<Self, Error> {
        let opened = SqliteBackend::in_memory().await;
        Self::from_opened("in memory".to_owned(), opened.map(StoreBackend::Sqlite))
    }

    /// Opens the PostgreSQL database at `postgres://…`, making or upgrading the
    /// tables; gives up after 10 s. There is no TLS yet.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        let address = maru_postgres::PostgresAddress::parse(url)?;
        let place = address.redacted_location();
        let opened = PostgresBackend::connect(&address).await;
        Self::from_opened(place, opened.map(StoreBackend::Postgres))
    }

    /// Encrypts secrets from now on, also those that are written already.
    pub async fn with_sealer(mut self, seal: SecretSealer) -> Result<Self, Error> {
        self.sealer = Some(Arc::new(seal));
        self.seal_server_configs().await?;
        Ok(self)
    }

    /// Whether other hubs may use the same state.
    pub fn is_shared(&self) -> bool {
        matches!(self.backend, StoreBackend::Postgres(_))
    }

    /// Whether the store answers.
    pub async fn ping(&self) -> Result<(), Error> {
        self.query(PING_STATEMENT, Vec::new()).await.map(drop)
    }

    /// Prepares every statement and checks that its parameters and columns have types
    /// that a `Value` has; returns how many there are.
    pub async fn check_statements(&self) -> Result<usize, Error> {
        let all = all_statements();
        for statement in &all {
            let checked = match &self.backend {
                StoreBackend::Sqlite(it) => it.check_sql(statement.sql).await,
                StoreBackend::Postgres(it) => it.check_sql(statement.sql).await,
            };
            checked.map_err(|cause| statement.into_error(cause))?;
        }
        Ok(all.len())
    }

    fn from_opened(
        place: String,
        opened: Result<StoreBackend, DatabaseError>,
    ) -> Result<Self, Error> {
        match opened {
            Ok(back_end) => Ok(Self {
                backend: back_end,
                sealer: None,
                availability: Arc::new(StoreAvailability::new(place)),
            }),
            Err(cause) => Err(Error::Unusable { place, cause }),
        }
    }

    /// The rows that `statement` answers with.
    async fn query_as<T: TryFrom<ResultRow, Error = DatabaseError>>(
        &self,
        statement: PortableStatement,
        values: Vec<CellValue>,
    ) -> Result<Vec<T>, Error> {
        let rows = self.query(statement, values).await?.into_iter();
        let read: Result<Vec<T>, DatabaseError> = rows.map(T::try_from).collect();
        read.map_err(|cause| statement.into_error(cause))
    }

    /// Whether `statement`, which returns what it writes, wrote anything.
    async fn execute(
        &self,
        statement: PortableStatement,
        values: Vec<CellValue>,
    ) -> Result<bool, Error> {
        let rows = self.query(statement, values).await?;
        Ok(!rows.is_empty())
    }

    /// Runs all of `work`, or nothing; `whole` says what that is.
    async fn execute_in_transaction<W>(
        &self,
        whole: PortableStatement,
        work: W,
    ) -> Result<(), Error>
    where
        W: IntoIterator<Item = (PortableStatement, Vec<CellValue>), IntoIter: Send + 'static>,
    {
        let work = work.into_iter().map(|(it, values)| (it.sql, values));
        let done = match &self.backend {
            StoreBackend::Sqlite(it) => it.execute_in_transaction(work).await,
            StoreBackend::Postgres(it) => it.execute_in_transaction(work).await,
        };
        self.record_outcome(whole, done)
    }

    async fn query(
        &self,
        statement: PortableStatement,
        values: Vec<CellValue>,
    ) -> Result<Vec<ResultRow>, Error> {
        let answer = match &self.backend {
            StoreBackend::Sqlite(it) => it.query(statement.sql, values).await,
            StoreBackend::Postgres(it) => it.query(statement.sql, values).await,
        };
        self.record_outcome(statement, answer)
    }

    fn record_outcome<T>(
        &self,
        statement: PortableStatement,
        outcome: Result<T, DatabaseError>,
    ) -> Result<T, Error> {
        match outcome {
            Ok(answer) => {
                self.availability.record_answer();
                Ok(answer)
            }
            Err(cause) => {
                let down = self.availability.record_failure(&cause);
                Err(down.unwrap_or_else(|| statement.into_error(cause)))
            }
        }
    }
}

/// Every statement that both back ends run.
fn all_statements() -> Vec<PortableStatement> {
    let files = [
        audit::STATEMENTS,
        console::STATEMENTS,
        custom_tools::STATEMENTS,
        call_limits::STATEMENTS,
        tool_pins::STATEMENTS,
        agent_runs::STATEMENTS,
        servers::STATEMENTS,
        tokens::STATEMENTS,
    ];
    let mut all = files.concat();
    all.push(PING_STATEMENT);
    all.extend(audit::insert_statements());
    all
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// A statement that is missing in `ALL` would not be checked on PostgreSQL.
    #[test]
    fn every_statement_is_listed() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let files = fs::read_dir(folder).unwrap().flatten();
        let files = files.filter(|it| it.file_name() != "lib.rs");
        let texts = files.filter_map(|it| fs::read_to_string(it.path()).ok());
        let declared: usize = texts
            .map(|it| {
                it.matches(": PortableStatement = PortableStatement {")
                    .count()
            })
            .sum();
        // Those that are made, and the one of this file.
        let listed = all_statements().len() - audit::insert_statements().count() - 1;
        assert_eq!(listed, declared);
    }
}
