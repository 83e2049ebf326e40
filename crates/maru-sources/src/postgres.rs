//! Reading a PostgreSQL database with SQL that others wrote.
//!
//! A statement is checked by name, prepared by the server in a transaction that
//! only reads, checked again by what the server found it to mean, and run as a
//! sub-query that makes each row one JSON text. The transaction never commits.
//! When it runs again, that it locks nothing else shows that it still means the same.

mod error;
mod guard;
mod query_request;
mod read_transaction;
mod row_json;
mod safe_functions;
mod schema;
mod system_catalog;
mod value;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use maru_postgres::PostgresAddress;
use maru_runtime::tasks::Tasks;
use tokio::time::{self, Instant};
use tokio_postgres::{Config, NoTls, types::Type};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{
    Error, QueryLimits, QueryParameters, QueryRows, SourceSettings, statement::SqlStatement,
};

use query_request::{QueryRequest, StatementShape};
use read_transaction::{ADVISORY_LOCK, ReadTransaction, SELECT_ALL_LOCKS, timeout_settings};
use row_json::RowJsonWriter;
use system_catalog::{Oid, SystemCatalog};

/// Connections that are kept open.
const MIN_OPEN_CONNECTIONS: usize = 5;
const MAX_CONNECTIONS: usize = 20;
/// How old the picture of the catalogue may be, and how long a connection above
/// [`MIN_OPEN_CONNECTIONS`] may be idle.
const CATALOG_MAX_AGE: Duration = Duration::from_secs(60);

/// A pool of connections to one database.
#[derive(Clone, Debug)]
pub(super) struct PostgresSource(Arc<PostgresSourceInner>);

#[derive(Debug)]
struct PostgresSourceInner {
    name: String,
    pool: Pool,
    settings: SourceSettings,
    tasks: Tasks,
    system_catalog: Mutex<Option<(Instant, Arc<SystemCatalog>)>>,
    /// Statements that ran.
    statement_cache: Mutex<HashMap<String, Arc<CachedStatement>>>,
}

/// How many statements are remembered.
const MAX_CACHED_STATEMENTS: usize = 256;

/// A statement that ran. As long as it locks nothing else when it runs again, it
/// means what it meant, and the server need not be asked beforehand.
#[derive(Debug)]
struct CachedStatement {
    shape: StatementShape,
    /// How its rows become JSON here, if they can.
    row_writer: Option<RowJsonWriter>,
    declared_types: Vec<Type>,
    system_catalog: Arc<SystemCatalog>,
    locked_relations: Vec<Oid>,
}

impl PostgresSource {
    pub(super) fn open(
        name: &str,
        address: &PostgresAddress,
        settings: SourceSettings,
        tasks: &Tasks,
    ) -> Result<Self, Error> {
        let inner = Arc::new(PostgresSourceInner {
            name: name.to_owned(),
            pool: build_pool(address, settings.limits.timeout)?,
            settings,
            tasks: tasks.clone(),
            system_catalog: Mutex::default(),
            statement_cache: Mutex::default(),
        });
        tasks.spawn(maintain_connections(
            Arc::downgrade(&inner),
            tasks.stop_token(),
        ));
        Ok(Self(inner))
    }

    pub(super) async fn query(
        &self,
        statement: &SqlStatement,
        parameters: &QueryParameters,
        limits: QueryLimits,
    ) -> Result<QueryRows, Error> {
        let done = time::timeout(
            limits.timeout,
            self.run_query(statement, parameters, limits),
        )
        .await;
        done.unwrap_or(Err(Error::TimedOut))
    }

    async fn run_query(
        &self,
        statement: &SqlStatement,
        parameters: &QueryParameters,
        limits: QueryLimits,
    ) -> Result<QueryRows, Error> {
        let bound = statement.bind_parameters();
        let values = parameters.values_in_order(&statement.parameter_names())?;
        let values = bound
            .parameter_indexes
            .iter()
            .filter_map(|it| values.get(*it).copied());
        let values: Vec<_> = values.collect();

        let client = self.client().await?;
        let catalogue = self.system_catalog(&client).await?;
        guard::check_names(statement, &catalogue)?;
        let mut session = ReadTransaction::new(client, &self.0.tasks);
        let asked = QueryRequest {
            sql: &bound.sql,
            values: &values,
            limits,
            connection_timeout: self.0.settings.limits.timeout,
        };
        if let Some(known) = self.0.cached_statement(&asked, &catalogue) {
            match session.read_cached(&asked, &known).await {
                Ok(Some(rows)) => {
                    session.return_unchanged();
                    return Ok(rows);
                }
                Err(Error::TimedOut) => return Err(Error::TimedOut),
                // Tables have changed since: what it means is asked again.
                Ok(None) | Err(_) => self.0.evict_statement(asked.sql),
            }
            session.return_after_cleanup();
            session = ReadTransaction::new(self.client().await?, &self.0.tasks);
        }
        let read = self
            .analyze_and_read(&session, statement, &asked, catalogue)
            .await;
        let rows = session.finish(read);
        rows.map_err(|error| statement.locate_error(error, &bound))
    }

    /// Runs a statement once the server has said what it means.
    async fn analyze_and_read(
        &self,
        session: &ReadTransaction,
        statement: &SqlStatement,
        asked: &QueryRequest<'_>,
        mut catalogue: Arc<SystemCatalog>,
    ) -> Result<(QueryRows, bool), Error> {
        let begun = session.begin_sql(asked).await?;
        if guard::is_catalog_outdated(&catalogue, &begun.locked_relations) {
            catalogue = self.load_catalog(session.client()).await?;
        }
        guard::check_relations(statement, &catalogue, &begun.locked_relations)?;
        let read = session.read_rows(asked, &begun.shape).await?;
        if read.1 && asked.limits.rows > 0 && !begun.shape.has_renamed_columns {
            let locked = session.locked_relations(SELECT_ALL_LOCKS).await?;
            if !locked.contains(&ADVISORY_LOCK) {
                self.0
                    .cache_statement(asked, begun.shape, catalogue, locked);
            }
        }
        Ok(read)
    }

    async fn client(&self) -> Result<Object, Error> {
        self.0.pool.get().await.map_err(error::from_pool)
    }

    /// A picture of the catalogue that is fresh enough.
    async fn system_catalog(&self, client: &Object) -> Result<Arc<SystemCatalog>, Error> {
        match self.0.fresh_catalog() {
            Some(fresh) => Ok(fresh),
            None => self.load_catalog(client).await,
        }
    }

    async fn load_catalog(&self, client: &Object) -> Result<Arc<SystemCatalog>, Error> {
        let loaded = SystemCatalog::load(client, &self.0.settings)
            .await
            .map_err(error::from_internal_query)?;
        let loaded = Arc::new(loaded);
        let mut kept = self
            .0
            .system_catalog
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *kept = Some((Instant::now(), Arc::clone(&loaded)));
        Ok(loaded)
    }
}

impl PostgresSourceInner {
    /// What is known of a statement that ran since the catalogue was last read.
    fn cached_statement(
        &self,
        asked: &QueryRequest<'_>,
        catalogue: &Arc<SystemCatalog>,
    ) -> Option<Arc<CachedStatement>> {
        let known = self.lock_statement_cache().get(asked.sql).cloned();
        // One that is only looked at is asked about every time.
        known.filter(|it| {
            let same = Arc::ptr_eq(&it.system_catalog, catalogue)
                && it.declared_types == asked.declared_types();
            same && asked.limits.rows > 0
        })
    }

    fn cache_statement(
        &self,
        asked: &QueryRequest<'_>,
        shape: StatementShape,
        catalogue: Arc<SystemCatalog>,
        locked: Vec<Oid>,
    ) {
        let known = CachedStatement {
            row_writer: RowJsonWriter::for_shape(&shape, catalogue.is_utc),
            shape,
            declared_types: asked.declared_types(),
            system_catalog: catalogue,
            locked_relations: locked,
        };
        let mut statements = self.lock_statement_cache();
        if statements.len() >= MAX_CACHED_STATEMENTS {
            statements.clear();
        }
        statements.insert(asked.sql.to_owned(), Arc::new(known));
    }

    fn evict_statement(&self, sql: &str) {
        self.lock_statement_cache().remove(sql);
    }

    fn lock_statement_cache(&self) -> MutexGuard<'_, HashMap<String, Arc<CachedStatement>>> {
        self.statement_cache
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn fresh_catalog(&self) -> Option<Arc<SystemCatalog>> {
        let kept = self
            .system_catalog
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let fresh = kept
            .as_ref()
            .filter(|(since, _)| since.elapsed() < CATALOG_MAX_AGE);
        fresh.map(|(_, catalogue)| Arc::clone(catalogue))
    }

    /// Closes connections that are idle, down to those that are kept.
    fn close_idle_connections(&self) {
        let mut kept = 0;
        self.pool.retain(|_, metrics| {
            kept += 1;
            kept <= MIN_OPEN_CONNECTIONS || metrics.last_used() < CATALOG_MAX_AGE
        });
    }
}

fn build_pool(address: &PostgresAddress, timeout: Duration) -> Result<Pool, Error> {
    let recycling_method = RecyclingMethod::Fast;
    let config = session_config(address, timeout);
    let manager = Manager::from_config(config, NoTls, ManagerConfig { recycling_method });
    Pool::builder(manager)
        .max_size(MAX_CONNECTIONS)
        .runtime(Runtime::Tokio1)
        .create_timeout(Some(Duration::from_secs(5)))
        .wait_timeout(Some(Duration::from_secs(5)))
        .build()
        .map_err(|error| Error::InvalidSettings(error.to_string()))
}

/// For sessions that only read. No query can change these settings, and each use ends
/// by going back to them.
fn session_config(address: &PostgresAddress, timeout: Duration) -> Config {
    let timeouts = timeout_settings(timeout).map(|(name, value)| (name, value.to_string()));
    let fixed = [
        ("default_transaction_read_only", "on"),
        ("standard_conforming_strings", "on"),
        ("IntervalStyle", "iso_8601"),
        ("DateStyle", "ISO"),
        ("bytea_output", "hex"),
        ("extra_float_digits", "1"),
        ("jit", "off"),
    ];
    let timeouts = timeouts.iter().map(|(name, value)| (*name, value.as_str()));
    let settings: Vec<(&str, &str)> = fixed.into_iter().chain(timeouts).collect();
    let mut config = address.config_with_overrides(&settings);
    config.application_name("maru");
    config
}

/// Opens the connections that are kept, then closes those that are too many,
/// until the source is gone.
async fn maintain_connections(source: Weak<PostgresSourceInner>, stop: CancellationToken) {
    if let Some(inner) = source.upgrade().map(PostgresSource) {
        tokio::select! {
            () = stop.cancelled() => return,
            () = open_initial_connections(&inner) => (),
        }
    }
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = time::sleep(CATALOG_MAX_AGE) => (),
        }
        match source.upgrade() {
            Some(inner) => inner.close_idle_connections(),
            None => return,
        }
    }
}

async fn open_initial_connections(source: &PostgresSource) {
    let name = &source.0.name;
    let mut clients = Vec::new();
    for _ in 0..MIN_OPEN_CONNECTIONS {
        match source.client().await {
            Ok(client) => clients.push(client),
            Err(error) => {
                let cause = std::error::Error::source(&error).map(ToString::to_string);
                warn!(source.name = %name, ?cause, "source {name}: {error}; tried again when asked");
                return;
            }
        }
    }
    let Some(client) = clients.first() else {
        return;
    };
    let Ok(catalogue) = source.system_catalog(client).await else {
        return;
    };
    if !catalogue.write_privileges.is_empty() {
        let powers = catalogue.write_privileges.join(", ");
        warn!(source.name = %name, powers, "the role of source {name} {powers}; give it one that may only read");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_read_only_whatever_the_address_says() {
        let url = "postgres://a/m?options=-c%20default_transaction_read_only=off";
        let address = PostgresAddress::parse(url).unwrap();
        let config = session_config(&address, Duration::from_secs(5));
        let options = config.get_options().unwrap();
        assert!(options.contains("off -c default_transaction_read_only=on"));
        assert!(options.contains(" -c statement_timeout=5000"));
    }
}
