//! One named source, whatever database is behind it.

use std::{path::Path, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use maru_postgres::{PostgresAddress, PostgresConnectError};
use maru_runtime::tasks::Tasks;
use serde_json::{Map, Value as Json};
use tracing::Instrument as _;

use super::{
    ColumnInfo, Error, QueryLimits, QueryParameters, QueryRows, SourceSettings, TableInfo,
    lexer::SqlDialect,
    postgres::{CONNECT_TIMEOUT, PostgresSource},
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
    acquire_timeout: Duration,
    sample_values: usize,
    backend: DatabaseBackend,
    observer: Option<QueryObserver>,
}

/// What a statement is sent for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueryOutput {
    Rows,
    Plan,
}

/// What the grace periods of the steps of a query add up to, and some time to answer.
const DEADLINE_GRACE: Duration = Duration::from_secs(1);
/// Rows of a table among which sample values are looked for.
const SAMPLED_ROWS: usize = 100;
/// Columns of a table that are sampled.
const MAX_SAMPLED_COLUMNS: usize = 100;
/// Characters of a sample value.
const MAX_SAMPLE_LENGTH: usize = 100;

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
        let open = |settings| PostgresSource::open(name, address, settings, tasks);
        Self::new(name, settings, |it| open(it).map(DatabaseBackend::Postgres))
    }

    /// An SQLite file that exists.
    pub fn sqlite(
        name: &str,
        path: &Path,
        settings: SourceSettings,
        tasks: &Tasks,
    ) -> Result<Self, Error> {
        let open = |settings| SqliteSource::open(path, settings, tasks);
        Self::new(name, settings, |it| open(it).map(DatabaseBackend::Sqlite))
    }

    fn new(
        name: &str,
        settings: SourceSettings,
        open: impl FnOnce(SourceSettings) -> Result<DatabaseBackend, Error>,
    ) -> Result<Self, Error> {
        Ok(Self {
            name: name.into(),
            limits: settings.limits,
            acquire_timeout: settings.pool.acquire_timeout,
            sample_values: settings.sample_values,
            backend: open(settings)?,
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

    /// How long a query may take with all that comes before it: the wait for a connection,
    /// connecting, and the system catalog.
    pub fn query_deadline(&self) -> Duration {
        let before = match self.backend {
            DatabaseBackend::Postgres(_) => CONNECT_TIMEOUT + self.limits.timeout,
            DatabaseBackend::Sqlite(_) => Duration::ZERO,
        };
        self.acquire_timeout + before + self.limits.timeout + DEADLINE_GRACE
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
    pub fn query<'a>(
        &'a self,
        sql: &'a str,
        parameters: &'a QueryParameters,
        limits: QueryLimits,
    ) -> BoxFuture<'a, Result<QueryRows, Error>> {
        Box::pin(self.run_observed(sql, parameters, limits, QueryOutput::Rows))
    }

    /// How the database would run a query that [`DataSource::query`] runs, one line for
    /// each row. Nothing is read. A query of views over what may not be read itself has
    /// no plan to show: the plan names it.
    pub fn explain<'a>(
        &'a self,
        sql: &'a str,
        parameters: &'a QueryParameters,
        limits: QueryLimits,
    ) -> BoxFuture<'a, Result<QueryRows, Error>> {
        Box::pin(self.run_observed(sql, parameters, limits, QueryOutput::Plan))
    }

    async fn run_observed(
        &self,
        sql: &str,
        parameters: &QueryParameters,
        limits: QueryLimits,
        output: QueryOutput,
    ) -> Result<QueryRows, Error> {
        let recorder = QueryRecorder::start(self.system_name(), &self.name, self.observer.as_ref());
        let running = self.run_query(sql, parameters, limits, output);
        let done = running.instrument(recorder.span().clone()).await;
        recorder.finish(&done);
        done
    }

    async fn run_query(
        &self,
        sql: &str,
        parameters: &QueryParameters,
        limits: QueryLimits,
        output: QueryOutput,
    ) -> Result<QueryRows, Error> {
        let limits = limits.capped_by(self.limits);
        let mut statement = SqlStatement::parse(sql, self.dialect())?;
        parameters.check_names(&statement.parameter_names())?;
        if parameters.has_identifiers() {
            statement = statement.with_identifiers(parameters)?;
        }
        check_order(&statement)?;
        statement.check_lists(parameters)?;
        match (&self.backend, output) {
            (DatabaseBackend::Postgres(postgres), output) => {
                postgres.query(&statement, parameters, limits, output).await
            }
            (DatabaseBackend::Sqlite(sqlite), QueryOutput::Rows) => {
                sqlite.query(statement, parameters, limits).await
            }
            (DatabaseBackend::Sqlite(sqlite), QueryOutput::Plan) => {
                sqlite.explain(statement, parameters, limits).await
            }
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
    pub fn tables(&self) -> BoxFuture<'_, Result<Vec<TableInfo>, Error>> {
        match &self.backend {
            DatabaseBackend::Postgres(postgres) => Box::pin(postgres.tables()),
            DatabaseBackend::Sqlite(sqlite) => Box::pin(sqlite.tables()),
        }
    }

    /// The columns of a relation that may be read, given as `name` or
    /// `schema.name`.
    pub fn describe<'a>(&'a self, table: &'a str) -> BoxFuture<'a, Result<Vec<ColumnInfo>, Error>> {
        match &self.backend {
            DatabaseBackend::Postgres(postgres) => Box::pin(postgres.describe(table)),
            DatabaseBackend::Sqlite(sqlite) => Box::pin(sqlite.describe(table)),
        }
    }

    /// Adds values of each column, if an admin allows that. `parameters` has the caller, for
    /// row-level security. Columns of a table that cannot be read get none.
    pub async fn add_samples(
        &self,
        table: &str,
        columns: &mut [ColumnInfo],
        parameters: &QueryParameters,
        limits: QueryLimits,
    ) {
        let sampled = columns.len().min(MAX_SAMPLED_COLUMNS);
        if self.sample_values == 0 || sampled == 0 {
            return;
        }
        let sql = sample_query(table, &columns[..sampled]);
        let limits = QueryLimits {
            rows: SAMPLED_ROWS,
            ..limits
        };
        let Ok(rows) = self.query(&sql, parameters, limits).await else {
            return;
        };
        let rows: Vec<Map<String, Json>> = serde_json::from_str(&rows.json).unwrap_or_default();
        for row in &rows {
            for (at, column) in columns.iter_mut().enumerate() {
                let Some(value) = row.get(&format!("c{at}")).and_then(Json::as_str) else {
                    continue;
                };
                let is_new = !column.samples.iter().any(|it| it == value);
                if is_new && column.samples.len() < self.sample_values {
                    column.samples.push(value.to_owned());
                }
            }
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

/// Selects the beginning of each value as text.
fn sample_query(table: &str, columns: &[ColumnInfo]) -> String {
    let quote = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    let relation = match table.split_once('.') {
        Some((schema, name)) => format!("{}.{}", quote(schema), quote(name)),
        None => quote(table),
    };
    let selected: Vec<String> = columns
        .iter()
        .enumerate()
        .map(|(at, it)| {
            let column = quote(&it.name);
            format!("substr(CAST({column} AS text), 1, {MAX_SAMPLE_LENGTH}) AS c{at}")
        })
        .collect();
    format!("SELECT {} FROM {relation}", selected.join(", "))
}
