//! One named source, whatever database is behind it.

use std::{path::Path, sync::Arc};

use maru_postgres::{PostgresAddress, PostgresConnectError};
use maru_runtime::tasks::Tasks;
use tracing::Instrument as _;

use super::{
    ColumnInfo, Error, QueryLimits, QueryParameters, QueryRows, SourceSettings, TableInfo,
    lexer::SqlDialect,
    postgres::PostgresSource,
    query_observer::{QueryObserver, QueryRecorder},
    sqlite::SqliteSource,
    statement::SqlStatement,
    validate_statement::check_order,
};

/// A handle to a database that is read and never written; clones share its
/// connections.
#[derive(Clone, Debug)]
pub struct DataSource {
    name: Arc<str>,
    limits: QueryLimits,
    backend: DatabaseBackend,
    observer: Option<QueryObserver>,
}

#[derive(Clone, Debug)]
enum DatabaseBackend {
    Postgres(PostgresSource),
    Sqlite(SqliteSource),
}

impl DataSource {
    /// A PostgreSQL database. It is connected to in the background; one that
    /// cannot be reached is tried again at every query.
    pub fn postgres(
        name: &str,
        address: &PostgresAddress,
        settings: SourceSettings,
        tasks: &Tasks,
    ) -> Result<Self, Error> {
        let limits = settings.limits;
        let backend =
            DatabaseBackend::Postgres(PostgresSource::open(name, address, settings, tasks)?);
        Ok(Self {
            name: name.into(),
            limits,
            backend,
            observer: None,
        })
    }

    /// An SQLite file that exists.
    pub fn sqlite(
        name: &str,
        path: &Path,
        settings: SourceSettings,
        tasks: &Tasks,
    ) -> Result<Self, Error> {
        let limits = settings.limits;
        let backend = DatabaseBackend::Sqlite(SqliteSource::open(path, settings, tasks)?);
        Ok(Self {
            name: name.into(),
            limits,
            backend,
            observer: None,
        })
    }

    /// The same, with `observer` told of every query.
    #[must_use]
    pub fn with_observer(mut self, observer: QueryObserver) -> Self {
        self.observer = Some(observer);
        self
    }

    /// The name it was given.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How far a query may go.
    pub fn limits(&self) -> QueryLimits {
        self.limits
    }

    /// Why the database could not be reached when it was last tried; none if it could.
    pub fn connect_error(&self) -> Option<PostgresConnectError> {
        match &self.backend {
            DatabaseBackend::Postgres(postgres) => postgres.connect_error(),
            DatabaseBackend::Sqlite(_) => None,
        }
    }

    /// The names of the parameters of a statement, in the order of their first
    /// use, and how many characters stand before that; if it is one query. The
    /// database is not asked.
    pub fn parameters(&self, sql: &str) -> Result<Vec<(String, usize)>, Error> {
        let statement = SqlStatement::parse(sql, self.dialect())?;
        let places = statement.parameter_positions().into_iter();
        Ok(places.map(|(name, at)| (name.to_owned(), at)).collect())
    }

    /// Runs one query that only reads, within the smaller of `limits` and the
    /// source's own. Every `:name` takes its value from `parameters`. Dropping
    /// the future stops the query in the database.
    pub async fn query(
        &self,
        sql: &str,
        parameters: &QueryParameters,
        limits: QueryLimits,
    ) -> Result<QueryRows, Error> {
        let recorder = QueryRecorder::start(self.system_name(), &self.name, self.observer.as_ref());
        let running = self.run_query(sql, parameters, limits);
        let done = running.instrument(recorder.span().clone()).await;
        recorder.finish(&done);
        done
    }

    async fn run_query(
        &self,
        sql: &str,
        parameters: &QueryParameters,
        limits: QueryLimits,
    ) -> Result<QueryRows, Error> {
        let limits = limits.capped_by(self.limits);
        let mut statement = SqlStatement::parse(sql, self.dialect())?;
        parameters.check_names(&statement.parameter_names())?;
        if parameters.has_identifiers() {
            statement = statement.with_identifiers(parameters)?;
        }
        check_order(&statement)?;
        statement.check_lists(parameters)?;
        match &self.backend {
            DatabaseBackend::Postgres(postgres) => {
                postgres.query(&statement, parameters, limits).await
            }
            DatabaseBackend::Sqlite(sqlite) => sqlite.query(statement, parameters, limits).await,
        }
    }

    /// The names of the columns that a query would have, or why it would not
    /// run. Nothing is read.
    pub async fn check(
        &self,
        sql: &str,
        parameters: &QueryParameters,
    ) -> Result<Vec<String>, Error> {
        let limits = QueryLimits {
            rows: 0,
            ..self.limits
        };
        Ok(self.query(sql, parameters, limits).await?.columns)
    }

    /// The relations that may be read, by schema and name.
    pub async fn tables(&self) -> Result<Vec<TableInfo>, Error> {
        match &self.backend {
            DatabaseBackend::Postgres(postgres) => postgres.tables().await,
            DatabaseBackend::Sqlite(sqlite) => sqlite.tables().await,
        }
    }

    /// The columns of a relation that may be read, given as `name` or
    /// `schema.name`.
    pub async fn describe(&self, table: &str) -> Result<Vec<ColumnInfo>, Error> {
        match &self.backend {
            DatabaseBackend::Postgres(postgres) => postgres.describe(table).await,
            DatabaseBackend::Sqlite(sqlite) => sqlite.describe(table).await,
        }
    }

    /// Its name in the OpenTelemetry conventions.
    pub fn system_name(&self) -> &'static str {
        match self.backend {
            DatabaseBackend::Postgres(_) => "postgresql",
            DatabaseBackend::Sqlite(_) => "sqlite",
        }
    }

    fn dialect(&self) -> SqlDialect {
        match self.backend {
            DatabaseBackend::Postgres(_) => SqlDialect::Postgres,
            DatabaseBackend::Sqlite(_) => SqlDialect::Sqlite,
        }
    }
}
