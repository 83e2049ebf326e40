//! maru's own tables, in an SQLite file of the data directory or in PostgreSQL.
//!
//! [`Store`] is the handle. Its methods stand in one file per table (`servers`, `tokens`,
//! `audit` and so on), each with an `impl Store` block and the row type. A method is written
//! once: a `PortableStatement` is one SQL text that both back ends run, with `CellValue`s as
//! parameters and columns. Writes that belong together are one transaction.
//!
//! ```ignore
//! let store = Store::in_memory().await?;
//! store.insert_token(&TokenRow::new("laptop", "agent", hash)).await?;
//! assert_eq!(store.tokens().await?.len(), 1);
//! ```
//!
//! Test with `cargo nextest run -p maru-store`, and both back ends with
//! `cargo nextest run -p maru --test it store`, which starts a PostgreSQL server.

#![forbid(unsafe_code)]

mod agent_runs;
mod audit;
mod authorization_server;
mod availability;
mod call_history;
mod call_leases;
mod call_limits;
mod call_usage;
mod change_feed;
mod console;
mod copy;
mod credentials;
mod custom_tools;
mod hub_locks;
mod hub_mailbox;
mod migrations;
mod model_budgets;
mod model_usage;
mod models;
mod postgres;
mod seal;
mod servers;
mod sources;
mod sqlite;
mod statement;
mod tokens;
mod tool_pins;
mod toolsets;

use std::{path::Path, sync::Arc, time::Duration};

use thiserror::Error;

use availability::StoreAvailability;
use postgres::PostgresBackend;
use sqlite::SqliteBackend;
use statement::{CellValue, PortableStatement, ResultRow, StatementBatch};

pub use agent_runs::AgentRunRow;
pub use audit::{AuditFilter, AuditRow, AuditedCall};
pub use authorization_server::{AccountRow, OAuthClientRow, OAuthGrantRow};
pub use call_history::{CallFilter, CallPage};
pub use call_leases::{CallLease, LeaseRequest};
pub use call_limits::CallLimitRow;
pub use call_usage::{CallUsageFilter, CallUsageRow};
pub use change_feed::{ChangeFeed, ChangedTables};
pub use console::ConsoleSessionRow;
pub use copy::{CopyError, CopyMode};
pub use credentials::{ServerCredentialRow, SignInRow};
pub use custom_tools::{CustomDraftRow, CustomParamRow, CustomToolRow, CustomVersionRow};
pub use hub_locks::{HubLock, HubLocks, LOST_LOCK_DELAY, LockAttempt};
pub use hub_mailbox::{HubEnvelope, HubMailbox, HubMemberRow};
pub use model_budgets::ModelBudgetRow;
pub use model_usage::{ModelUsageFilter, ModelUsageRow, UsageBatch, UsageTotals};
pub use models::ModelRow;
pub use seal::{SecretSealer, is_sealed};
pub use servers::ServerRow;
pub use sources::SourceRow;
pub use tokens::TokenRow;
pub use tool_pins::ToolPinRow;
pub use toolsets::{ToolOverrideRow, ToolsetRow};

/// Why the store could not be opened, read or written.
#[derive(Debug, Error)]
pub enum Error {
    /// The database is not maru's, is damaged or unreachable, or has a newer schema.
    #[error("cannot use the store {location}; nothing was changed")]
    Unusable {
        /// The file, or the host, port and database; never a password.
        location: String,
        /// Why it cannot be used.
        #[source]
        cause: DatabaseError,
    },
    /// The URL of the PostgreSQL database is invalid.
    #[error("the URL of the store is invalid")]
    Address(#[from] maru_postgres::Error),
    /// The database is unreachable at the moment.
    #[error("the store {location} is down: {reason}")]
    Down {
        /// The host, port and database; never a password.
        location: String,
        /// Why the connection failed.
        reason: maru_postgres::PostgresConnectError,
    },
    /// The key that the hubs of this store share was encrypted with another one.
    #[error(
        "the key that all hubs of this database share cannot be read; give every hub the same seal_key_file"
    )]
    SharedKeyUnreadable,
    /// A statement failed.
    #[error("the store did not {attempted}")]
    Failed {
        /// What was attempted, as in "the store did not list the tokens".
        attempted: &'static str,
        /// The error of the database.
        #[source]
        cause: DatabaseError,
    },
}

/// An error of SQLite or PostgreSQL. It never contains the values of a statement.
#[derive(Debug, Error)]
pub enum DatabaseError {
    /// SQLite reported an error.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// PostgreSQL reported an error.
    #[error("{0}")]
    Postgres(String),
    /// PostgreSQL refused the values of a statement.
    #[error("{0}")]
    RefusedValues(String),
    /// The connection to PostgreSQL failed.
    #[error("{0}")]
    Unreachable(maru_postgres::PostgresConnectError),
    /// The database did not answer in time.
    #[error("there was no answer within {0:?}")]
    Timeout(Duration),
    /// A newer maru has migrated the tables.
    #[error("it was written by a newer maru (schema {0})")]
    NewerSchema(i64),
    /// A column contains a value of an unexpected type.
    #[error("a column contains {found} instead of {expected}")]
    UnexpectedColumnType {
        /// The type of the value.
        found: &'static str,
        /// The type that maru writes.
        expected: &'static str,
    },
    /// The process ended before the statement ran.
    #[error("the hub is stopping")]
    Stopping,
}

impl Error {
    /// Whether the database is unreachable. The outage is already logged.
    pub fn is_down(&self) -> bool {
        matches!(self, Self::Down { .. })
    }

    /// Whether the database refused the values, as it would at each further attempt.
    pub fn is_refusal(&self) -> bool {
        use rusqlite::ErrorCode::{ConstraintViolation, TooBig, TypeMismatch};
        match self {
            Self::Failed { cause, .. } => match cause {
                DatabaseError::RefusedValues(_) => true,
                DatabaseError::Sqlite(error) => matches!(
                    error.sqlite_error_code(),
                    Some(ConstraintViolation | TooBig | TypeMismatch)
                ),
                _ => false,
            },
            _ => false,
        }
    }

    /// Returns why the database is unreachable; the reason does not reveal where it is.
    pub fn connect_error(&self) -> Option<&maru_postgres::PostgresConnectError> {
        match self {
            Self::Down { reason, .. } => Some(reason),
            _ => None,
        }
    }

    /// Returns a message that does not reveal where the database is.
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

/// A handle to the tables; clones share its connections. A write that returned is on
/// disk, unless the store is in memory.
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
    /// Opens the SQLite file at `path`; creates or migrates it if needed.
    pub async fn open(path: &Path) -> Result<Self, Error> {
        let opened = SqliteBackend::open(path.to_owned()).await;
        Self::from_opened(path.display().to_string(), opened.map(StoreBackend::Sqlite))
    }

    /// Opens an SQLite database in memory, which ends with the last handle.
    pub async fn in_memory() -> Result<Self, Error> {
        let opened = SqliteBackend::in_memory().await;
        Self::from_opened("in memory".to_owned(), opened.map(StoreBackend::Sqlite))
    }

    /// Connects to the PostgreSQL database at `postgres://…` and migrates it; fails after
    /// 10 s.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        let address = maru_postgres::PostgresAddress::parse(url)?;
        let location = address.redacted_location();
        let opened = PostgresBackend::connect(&address).await;
        Self::from_opened(location, opened.map(StoreBackend::Postgres))
    }

    /// Encrypts secrets from now on, and those that are already stored.
    pub async fn with_sealer(mut self, sealer: SecretSealer) -> Result<Self, Error> {
        self.sealer = Some(Arc::new(sealer));
        self.seal_sources().await?;
        self.seal_models().await?;
        self.seal_credentials().await?;
        self.seal_server_configs().await?;
        Ok(self)
    }

    /// Whether other hubs may share these tables.
    pub fn is_shared(&self) -> bool {
        matches!(self.backend, StoreBackend::Postgres(_))
    }

    /// Checks that the database answers.
    pub async fn ping(&self) -> Result<(), Error> {
        self.query(PING_STATEMENT, Vec::new()).await.map(drop)
    }

    /// Prepares every statement and checks that `CellValue` supports the types of its
    /// parameters and columns. Returns the number of statements.
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
        location: String,
        opened: Result<StoreBackend, DatabaseError>,
    ) -> Result<Self, Error> {
        match opened {
            Ok(backend) => Ok(Self {
                backend,
                sealer: None,
                availability: Arc::new(StoreAvailability::new(location)),
            }),
            Err(cause) => Err(Error::Unusable { location, cause }),
        }
    }

    /// Runs `statement` and converts its rows.
    async fn query_as<T: TryFrom<ResultRow, Error = DatabaseError>>(
        &self,
        statement: PortableStatement,
        values: Vec<CellValue>,
    ) -> Result<Vec<T>, Error> {
        let rows = self.query(statement, values).await?.into_iter();
        let rows: Result<Vec<T>, DatabaseError> = rows.map(T::try_from).collect();
        rows.map_err(|cause| statement.into_error(cause))
    }

    /// Runs a statement with `RETURNING`; true if it wrote a row.
    async fn execute(
        &self,
        statement: PortableStatement,
        values: Vec<CellValue>,
    ) -> Result<bool, Error> {
        let rows = self.query(statement, values).await?;
        Ok(!rows.is_empty())
    }

    /// Runs `work` in one transaction; `label` names it in errors.
    async fn execute_in_transaction<W>(
        &self,
        label: PortableStatement,
        work: W,
    ) -> Result<(), Error>
    where
        W: IntoIterator<Item = (PortableStatement, Vec<CellValue>), IntoIter: Send + 'static>,
    {
        let work: StatementBatch = Box::new(work.into_iter().map(|(it, values)| (it.sql, values)));
        let outcome = match &self.backend {
            StoreBackend::Sqlite(it) => it.execute_in_transaction(work).await,
            StoreBackend::Postgres(it) => it.execute_in_transaction(work).await,
        };
        self.record_outcome(label, outcome)
    }

    async fn query(
        &self,
        statement: PortableStatement,
        values: Vec<CellValue>,
    ) -> Result<Vec<ResultRow>, Error> {
        let rows = match &self.backend {
            StoreBackend::Sqlite(it) => it.query(statement.sql, values).await,
            StoreBackend::Postgres(it) => it.query(statement.sql, values).await,
        };
        self.record_outcome(statement, rows)
    }

    fn record_outcome<T>(
        &self,
        statement: PortableStatement,
        outcome: Result<T, DatabaseError>,
    ) -> Result<T, Error> {
        match outcome {
            Ok(output) => {
                self.availability.record_success();
                Ok(output)
            }
            Err(cause) => {
                let down = self.availability.record_failure(&cause);
                Err(down.unwrap_or_else(|| statement.into_error(cause)))
            }
        }
    }
}

/// Every statement that runs on both back ends.
fn all_statements() -> Vec<PortableStatement> {
    let files = [
        audit::STATEMENTS,
        authorization_server::STATEMENTS,
        call_history::STATEMENTS,
        console::STATEMENTS,
        credentials::STATEMENTS,
        custom_tools::STATEMENTS,
        call_limits::STATEMENTS,
        call_usage::STATEMENTS,
        model_budgets::STATEMENTS,
        model_usage::STATEMENTS,
        models::STATEMENTS,
        tool_pins::STATEMENTS,
        agent_runs::STATEMENTS,
        servers::STATEMENTS,
        sources::STATEMENTS,
        tokens::STATEMENTS,
        toolsets::STATEMENTS,
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

    /// An unlisted statement would not be checked on PostgreSQL.
    #[test]
    fn every_statement_is_listed() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let files = fs::read_dir(directory).unwrap().flatten();
        let files = files.filter(|it| it.file_name() != "lib.rs");
        let texts = files.filter_map(|it| fs::read_to_string(it.path()).ok());
        let declared: usize = texts
            .map(|it| {
                it.matches(": PortableStatement = PortableStatement {")
                    .count()
            })
            .sum();
        // Without the generated ones and the one of this file.
        let listed = all_statements().len() - audit::insert_statements().count() - 1;
        assert_eq!(listed, declared);
    }
}
