//! One named source, whatever database is behind it.

use std::{path::Path, sync::Arc};

use super::{
    Column, Error, Limits, Parameters, Rows, Settings, Table,
    lexer::Dialect,
    lite::Lite,
    postgres::{Address, Postgres},
    statement::Statement,
};
use crate::tasks::Tasks;

/// A handle to a database that is read and never written; clones share its
/// connections.
#[derive(Clone, Debug)]
pub struct Source {
    name: Arc<str>,
    limits: Limits,
    back_end: BackEnd,
}

#[derive(Clone, Debug)]
enum BackEnd {
    Postgres(Postgres),
    Sqlite(Lite),
}

impl Source {
    /// A PostgreSQL database. It is connected to in the background; one that
    /// cannot be reached is tried again at every query.
    pub fn postgres(
        name: &str,
        address: &Address,
        settings: Settings,
        tasks: &Tasks,
    ) -> Result<Self, Error> {
        let limits = settings.limits;
        let back_end = BackEnd::Postgres(Postgres::open(name, address, settings, tasks)?);
        Ok(Self {
            name: name.into(),
            limits,
            back_end,
        })
    }

    /// An SQLite file that exists.
    pub fn sqlite(
        name: &str,
        path: &Path,
        settings: Settings,
        tasks: &Tasks,
    ) -> Result<Self, Error> {
        let limits = settings.limits;
        let back_end = BackEnd::Sqlite(Lite::open(path, settings, tasks)?);
        Ok(Self {
            name: name.into(),
            limits,
            back_end,
        })
    }

    /// The name it was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How far a query may go.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// The names of the parameters of a statement, in the order of their first
    /// use, and how many characters stand before that; if it is one query. The
    /// database is not asked.
    pub fn parameters(&self, sql: &str) -> Result<Vec<(String, usize)>, Error> {
        let statement = Statement::read(sql, self.dialect())?;
        let places = statement.places().into_iter();
        Ok(places.map(|(name, at)| (name.to_owned(), at)).collect())
    }

    /// Runs one query that only reads, within the smaller of `limits` and the
    /// source's own. Every `:name` takes its value from `parameters`. Dropping
    /// the future stops the query in the database.
    pub async fn query(
        &self,
        sql: &str,
        parameters: &Parameters,
        limits: Limits,
    ) -> Result<Rows, Error> {
        let limits = limits.within(self.limits);
        let statement = Statement::read(sql, self.dialect())?;
        match &self.back_end {
            BackEnd::Postgres(postgres) => postgres.query(&statement, parameters, limits).await,
            BackEnd::Sqlite(sqlite) => sqlite.query(statement, parameters, limits).await,
        }
    }

    /// The names of the columns that a query would have, or why it would not
    /// run. Nothing is read.
    pub async fn check(&self, sql: &str, parameters: &Parameters) -> Result<Vec<String>, Error> {
        let limits = Limits {
            rows: 0,
            ..self.limits
        };
        Ok(self.query(sql, parameters, limits).await?.columns)
    }

    /// The relations that may be read, by schema and name.
    pub async fn tables(&self) -> Result<Vec<Table>, Error> {
        match &self.back_end {
            BackEnd::Postgres(postgres) => postgres.tables().await,
            BackEnd::Sqlite(sqlite) => sqlite.tables().await,
        }
    }

    /// The columns of a relation that may be read, given as `name` or
    /// `schema.name`.
    pub async fn describe(&self, table: &str) -> Result<Vec<Column>, Error> {
        match &self.back_end {
            BackEnd::Postgres(postgres) => postgres.describe(table).await,
            BackEnd::Sqlite(sqlite) => sqlite.describe(table).await,
        }
    }

    fn dialect(&self) -> Dialect {
        match self.back_end {
            BackEnd::Postgres(_) => Dialect::Postgres,
            BackEnd::Sqlite(_) => Dialect::Sqlite,
        }
    }
}
