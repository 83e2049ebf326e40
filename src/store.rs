//! maru's own state, in an SQLite file of the data directory or in PostgreSQL.
//!
//! A method is written once: its statement is one text that both back ends
//! understand, and what goes in and comes out is a `Value`.

mod audit;
mod console;
mod custom;
mod limits;
mod migrate;
mod pins;
mod postgres;
mod runs;
mod seal;
mod servers;
mod sqlite;
mod tokens;
mod value;

use std::{path::Path, sync::Arc, time::Duration};

use thiserror::Error;

use postgres::Postgres;
use sqlite::Sqlite;
use value::{Row, Statement, Value};

pub use audit::{AuditFilter, AuditRow};
pub use console::SessionRow;
pub use custom::{CustomParamRow, CustomToolRow, CustomVersionRow};
pub use limits::LimitRow;
pub use pins::PinRow;
pub use runs::RunRow;
pub use seal::{Seal, is_sealed};
pub use servers::ServerRow;
pub use tokens::TokenRow;

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
        cause: Cause,
    },
    /// The address of a PostgreSQL database cannot be used as it is.
    #[error("cannot use the address of the store: {0}")]
    Address(String),
    /// A statement failed.
    #[error("the store did not {attempted}")]
    Failed {
        /// What was tried.
        attempted: &'static str,
        /// Why it failed.
        #[source]
        cause: Cause,
    },
}

/// Why a back end failed. Never holds what was to be written.
#[derive(Debug, Error)]
pub enum Cause {
    /// SQLite says so.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// PostgreSQL, or the way to it, says so.
    #[error("{0}")]
    Postgres(String),
    /// Nobody answered.
    #[error("there was no answer within {0:?}")]
    Late(Duration),
    /// The tables have more steps than this maru knows.
    #[error("it was written by a newer maru (schema {0})")]
    Newer(i64),
    /// A column holds something that maru does not write there.
    #[error("a column holds {found} where {wanted} belongs")]
    Unexpected {
        /// The kind of value.
        found: &'static str,
        /// The kind that maru writes.
        wanted: &'static str,
    },
    /// The process ends before the work was done.
    #[error("the hub is stopping")]
    Stopping,
}

const PING: Statement = Statement {
    attempted: "answer",
    sql: "SELECT name FROM token LIMIT 1",
};

/// A handle to the state; clones share its connections. What was acknowledged
/// is on disk, unless the state is in memory.
#[derive(Clone, Debug)]
pub struct Store {
    back_end: BackEnd,
    seal: Option<Arc<Seal>>,
}

#[derive(Clone, Debug)]
enum BackEnd {
    Sqlite(Sqlite),
    Postgres(Postgres),
}

impl Store {
    /// Opens the file, making or upgrading it.
    pub async fn open(path: &Path) -> Result<Self, Error> {
        let opened = Sqlite::open(path.to_owned()).await;
        Self::new(path.display().to_string(), opened.map(BackEnd::Sqlite))
    }

    /// State that ends with the last handle.
    pub async fn in_memory() -> Result<Self, Error> {
        let opened = Sqlite::in_memory().await;
        Self::new("in memory".to_owned(), opened.map(BackEnd::Sqlite))
    }

    /// Opens the PostgreSQL database at `postgres://…`, making or upgrading the
    /// tables; gives up after 10 s. There is no TLS yet.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        let address = postgres::Address::parse(url)?;
        let place = address.place();
        let opened = Postgres::connect(address).await;
        Self::new(place, opened.map(BackEnd::Postgres))
    }

    /// Encrypts secrets from now on, also those that are written already.
    pub async fn sealed(mut self, seal: Seal) -> Result<Self, Error> {
        self.seal = Some(Arc::new(seal));
        self.seal_servers().await?;
        Ok(self)
    }

    /// Whether other hubs may use the same state.
    pub fn is_shared(&self) -> bool {
        matches!(self.back_end, BackEnd::Postgres(_))
    }

    /// Whether the store answers.
    pub async fn ping(&self) -> Result<(), Error> {
        self.run(PING, Vec::new()).await.map(drop)
    }

    /// Prepares every statement and checks that its parameters and columns have types
    /// that a `Value` has; returns how many there are.
    pub async fn check_statements(&self) -> Result<usize, Error> {
        let all = statements();
        for statement in &all {
            let checked = match &self.back_end {
                BackEnd::Sqlite(it) => it.check(statement.sql).await,
                BackEnd::Postgres(it) => it.check(statement.sql).await,
            };
            checked.map_err(|cause| statement.failed(cause))?;
        }
        Ok(all.len())
    }

    fn new(place: String, opened: Result<BackEnd, Cause>) -> Result<Self, Error> {
        match opened {
            Ok(back_end) => Ok(Self {
                back_end,
                seal: None,
            }),
            Err(cause) => Err(Error::Unusable { place, cause }),
        }
    }

    /// The rows that `statement` answers with.
    async fn rows<T: TryFrom<Row, Error = Cause>>(
        &self,
        statement: Statement,
        values: Vec<Value>,
    ) -> Result<Vec<T>, Error> {
        let rows = self.run(statement, values).await?.into_iter();
        let read: Result<Vec<T>, Cause> = rows.map(T::try_from).collect();
        read.map_err(|cause| statement.failed(cause))
    }

    /// Whether `statement`, which returns what it writes, wrote anything.
    async fn wrote(&self, statement: Statement, values: Vec<Value>) -> Result<bool, Error> {
        let rows = self.run(statement, values).await?;
        Ok(!rows.is_empty())
    }

    /// Runs all of `work`, or nothing; `whole` says what that is.
    async fn run_all<W>(&self, whole: Statement, work: W) -> Result<(), Error>
    where
        W: IntoIterator<Item = (Statement, Vec<Value>), IntoIter: Send + 'static>,
    {
        let work = work.into_iter().map(|(it, values)| (it.sql, values));
        let done = match &self.back_end {
            BackEnd::Sqlite(it) => it.run_all(work).await,
            BackEnd::Postgres(it) => it.run_all(work).await,
        };
        done.map_err(|cause| whole.failed(cause))
    }

    async fn run(&self, statement: Statement, values: Vec<Value>) -> Result<Vec<Row>, Error> {
        let answer = match &self.back_end {
            BackEnd::Sqlite(it) => it.run(statement.sql, values).await,
            BackEnd::Postgres(it) => it.run(statement.sql, values).await,
        };
        answer.map_err(|cause| statement.failed(cause))
    }
}

/// Every statement that both back ends run.
fn statements() -> Vec<Statement> {
    let files = [
        audit::ALL,
        console::ALL,
        custom::ALL,
        limits::ALL,
        pins::ALL,
        runs::ALL,
        servers::ALL,
        tokens::ALL,
    ];
    let mut all = files.concat();
    all.push(PING);
    all.extend(audit::insertions());
    all
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// A statement that is missing in `ALL` would not be checked on PostgreSQL.
    #[test]
    fn every_statement_is_listed() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store");
        let files = fs::read_dir(folder).unwrap().flatten();
        let texts = files.filter_map(|it| fs::read_to_string(it.path()).ok());
        let declared: usize = texts
            .map(|it| it.matches(": Statement = Statement {").count())
            .sum();
        // Those that are made, and the one of this file.
        let listed = statements().len() - audit::insertions().count() - 1;
        assert_eq!(listed, declared);
    }
}
