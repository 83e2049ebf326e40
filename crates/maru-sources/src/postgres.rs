//! Reading a PostgreSQL database with SQL that others wrote.
//!
//! A statement is checked by name, prepared by the server in a transaction that
//! only reads, checked again by what the server found it to mean, and run as a
//! sub-query that makes each row one JSON text. The transaction never commits.
//! When it runs again, that it locks nothing else shows that it still means the same.

mod amplifiers;
mod backend_memory;
mod collected_bytes;
mod error;
mod growth;
mod guard;
mod query_request;
mod read_transaction;
mod role;
mod row_json;
mod safe_functions;
mod schema;
mod system_catalog;
mod value;
mod value_growth;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use deadpool_postgres::{
    Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime, TimeoutType,
};
use maru_postgres::{PostgresAddress, PostgresConnectError, PostgresTls};
use maru_runtime::tasks::Tasks;
use tokio::time::{self, Instant};
use tokio_postgres::{Config, types::Type};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{
    ColumnInfo, Error, QueryLimits, QueryParameters, QueryRows, SourceSettings, TableInfo,
    data_source::QueryOutput, statement::SqlStatement,
};

use query_request::{QueryRequest, StatementShape};
use read_transaction::{ADVISORY_LOCK, ReadTransaction, SELECT_ALL_LOCKS, SessionTimeouts};
use row_json::RowJsonWriter;
use system_catalog::{Oid, SystemCatalog};

/// How old the snapshot of the system catalog may be, and how long a connection that
/// need not stay open may be idle.
const CATALOG_MAX_AGE: Duration = Duration::from_secs(60);
/// How long connecting may take.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How much longer than the server's own deadline an answer may take: the server's
/// leaves the connection usable.
const ANSWER_GRACE: Duration = Duration::from_millis(250);
/// How many statements are remembered.
const MAX_CACHED_STATEMENTS: usize = 256;

/// A pool of connections to one database.
#[derive(Clone, Debug)]
pub(super) struct PostgresSource(Arc<PostgresSourceInner>);

#[derive(Debug)]
struct PostgresSourceInner {
    name: String,
    address: PostgresAddress,
    tls: PostgresTls,
    pool: Pool,
    settings: SourceSettings,
    tasks: Tasks,
    system_catalog: Mutex<Option<(Instant, Arc<SystemCatalog>)>>,
    /// Held by the query that loads the catalog, for which the others wait.
    catalog_turn: tokio::sync::Mutex<()>,
    /// Statements that ran.
    statement_cache: Mutex<HashMap<String, Arc<CachedStatement>>>,
    /// Why the last attempt to connect failed; none if it did not.
    connect_error: Mutex<Option<PostgresConnectError>>,
}

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
        check_caller_settings(&settings.caller_settings)?;
        let tls = address
            .tls_connector()
            .map_err(|error| Error::InvalidSettings(error.to_string()))?;
        let inner = Arc::new(PostgresSourceInner {
            name: name.to_owned(),
            pool: build_pool(address, &tls, &settings)?,
            address: address.clone(),
            tls,
            settings,
            tasks: tasks.clone(),
            system_catalog: Mutex::default(),
            catalog_turn: tokio::sync::Mutex::default(),
            statement_cache: Mutex::default(),
            connect_error: Mutex::default(),
        });
        tasks.spawn(maintain_connections(
            Arc::downgrade(&inner),
            tasks.stop_token(),
        ));
        Ok(Self(inner))
    }

    /// Why the database could not be reached when it was last tried.
    pub(super) fn connect_error(&self) -> Option<PostgresConnectError> {
        self.0.lock_connect_error().clone()
    }

    pub(super) async fn query(
        &self,
        statement: &SqlStatement,
        parameters: &QueryParameters,
        limits: QueryLimits,
        output: QueryOutput,
    ) -> Result<QueryRows, Error> {
        let amplification = amplifiers::check_amplifiers(statement)?;
        let mut bound = statement.bind_parameters(parameters);
        amplification.bound_counts(&mut bound);
        let values = parameters.values_in_order(&statement.parameter_names())?;
        let values = bound
            .parameter_indexes
            .iter()
            .filter_map(|it| values.get(*it));
        let values: Vec<_> = values.collect();
        let settings = self.0.settings.caller_settings.iter();
        let caller_settings = settings.map(|(setting, value)| {
            let value = parameters.caller_value(value).unwrap_or_default();
            (setting.as_str(), value)
        });
        let request = QueryRequest {
            sql: &bound.sql,
            values: &values,
            limits,
            output,
            growth: amplification.growth,
            session_timeouts: SessionTimeouts::new(&self.0.settings),
            caller_settings: caller_settings.collect(),
        };
        request.growth.check_parameters(request.longest_value())?;
        let client = self.client().await?;
        let catalog = self.system_catalog(&client).await?;
        guard::check_names(statement, &catalog)?;
        let running = self.run_query(client, statement, &request, catalog);
        let rows = within(limits.timeout, running).await;
        rows.map_err(|error| statement.locate_error(error, &bound))
    }

    async fn run_query(
        &self,
        client: Object,
        statement: &SqlStatement,
        request: &QueryRequest<'_>,
        catalog: Arc<SystemCatalog>,
    ) -> Result<QueryRows, Error> {
        let mut transaction = ReadTransaction::new(client, &self.0.tls, &self.0.tasks);
        if let Some(cached) = self.0.cached_statement(request, &catalog) {
            match transaction.read_cached(request, &cached).await {
                Ok(Some(rows)) => {
                    transaction.return_unchanged();
                    return Ok(rows);
                }
                Err(error @ (Error::TimedOut | Error::TooMuchMemory)) => {
                    return transaction.finish(Err(error));
                }
                // Tables have changed since: the server says again what it means.
                Ok(None) | Err(_) => self.0.evict_statement(request.sql),
            }
            transaction = transaction.restart().await?;
        }
        let read = self
            .analyze_and_read(&transaction, statement, request, catalog)
            .await;
        transaction.finish(read)
    }

    /// Runs a statement once the server has said what it means. The flag says whether
    /// the server sent all that it had to.
    async fn analyze_and_read(
        &self,
        transaction: &ReadTransaction,
        statement: &SqlStatement,
        request: &QueryRequest<'_>,
        mut catalog: Arc<SystemCatalog>,
    ) -> Result<(QueryRows, bool), Error> {
        let analysis = transaction.begin_sql(request).await?;
        if guard::is_catalog_outdated(&catalog, &analysis.locked_relations) {
            catalog = self.load_catalog(transaction.client()).await?;
        }
        guard::check_relations(statement, &catalog, &analysis.locked_relations)?;
        let reading = async {
            if growth::collects_rows(statement) {
                let collected = transaction.estimate_collected_bytes(request, &analysis.shape);
                guard::check_collected_bytes(collected.await?)?;
            }
            if request.output == QueryOutput::Plan {
                let plan = transaction.read_plan(request, &analysis.shape).await?;
                let locked = transaction.relations_in_use().await?;
                guard::check_plan_relations(&catalog, &locked)?;
                return Ok((plan, true));
            }
            let (rows, is_complete) = transaction.read_rows(request, &analysis.shape).await?;
            if is_complete
                && request.limits.rows > 0
                && request.limits.offset == 0
                && !analysis.shape.has_renamed_columns
            {
                let locked = transaction.locked_relations(SELECT_ALL_LOCKS).await?;
                let is_checked_anew =
                    !request.values.is_empty() && growth::memory_depends_on_values(statement);
                if !locked.contains(&ADVISORY_LOCK) && !is_checked_anew {
                    let shape = analysis.shape.clone();
                    self.0.cache_statement(request, shape, catalog, locked);
                }
            }
            Ok((rows, is_complete))
        };
        let Some(backend) = &analysis.backend else {
            return reading.await;
        };
        tokio::select! {
            biased;
            read = reading => read,
            () = backend.wait_until_too_large() => Err(Error::TooMuchMemory),
        }
    }

    /// The relations that may be read, by schema and name.
    pub(super) async fn tables(&self) -> Result<Vec<TableInfo>, Error> {
        let client = self.client().await?;
        let catalog = self.system_catalog(&client).await?;
        let listing = schema::list_tables(&client, &catalog);
        within(self.0.settings.limits.timeout, listing).await
    }

    /// The columns of a relation that may be read.
    pub(super) async fn describe(&self, name: &str) -> Result<Vec<ColumnInfo>, Error> {
        let client = self.client().await?;
        let catalog = self.system_catalog(&client).await?;
        let relation = catalog
            .find_relation(name)
            .ok_or_else(|| Error::TableNotFound(name.to_owned()))?;
        let listing = schema::list_columns(&client, &catalog, relation);
        within(self.0.settings.limits.timeout, listing).await
    }

    /// A connection, once one is free.
    async fn client(&self) -> Result<Object, Error> {
        match self.0.pool.get().await {
            Ok(client) => {
                self.0.record_connected();
                Ok(client)
            }
            Err(PoolError::Timeout(TimeoutType::Wait)) => Err(Error::NoFreeConnection(
                self.0.settings.pool.acquire_timeout,
            )),
            Err(error) => {
                let reason = error::from_pool(&error);
                self.0.record_connect_error(&reason, &error);
                Err(Error::Unreachable(reason))
            }
        }
    }

    /// A snapshot of the system catalog that is fresh enough.
    async fn system_catalog(&self, client: &Object) -> Result<Arc<SystemCatalog>, Error> {
        if let Some(fresh) = self.0.fresh_catalog() {
            return Ok(fresh);
        }
        let loading = async {
            let _turn = self.0.catalog_turn.lock().await;
            match self.0.fresh_catalog() {
                Some(fresh) => Ok(fresh),
                None => self.load_catalog(client).await,
            }
        };
        // All that wait give up when the first does.
        within(self.0.settings.limits.timeout, loading).await
    }

    async fn load_catalog(&self, client: &Object) -> Result<Arc<SystemCatalog>, Error> {
        let loading = async {
            let loaded = SystemCatalog::load(client, &self.0.settings).await;
            loaded.map_err(|error| error::from_internal_query(&error))
        };
        let catalog = Arc::new(within(self.0.settings.limits.timeout, loading).await?);
        let mut latest = self
            .0
            .system_catalog
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *latest = Some((Instant::now(), Arc::clone(&catalog)));
        Ok(catalog)
    }
}

impl PostgresSourceInner {
    /// A statement that ran since the catalog was last loaded.
    fn cached_statement(
        &self,
        request: &QueryRequest<'_>,
        catalog: &Arc<SystemCatalog>,
    ) -> Option<Arc<CachedStatement>> {
        let cached = self.lock_statement_cache().get(request.sql).cloned();
        // A check without rows asks the server every time, and so does a later page, whose
        // text is its own.
        cached.filter(|it| {
            let is_same = Arc::ptr_eq(&it.system_catalog, catalog)
                && it.declared_types == request.declared_types();
            is_same
                && request.output == QueryOutput::Rows
                && request.limits.rows > 0
                && request.limits.offset == 0
        })
    }

    fn cache_statement(
        &self,
        request: &QueryRequest<'_>,
        shape: StatementShape,
        catalog: Arc<SystemCatalog>,
        locked_relations: Vec<Oid>,
    ) {
        let statement = CachedStatement {
            row_writer: RowJsonWriter::for_shape(&shape, catalog.is_utc),
            shape,
            declared_types: request.declared_types(),
            system_catalog: catalog,
            locked_relations,
        };
        let mut statements = self.lock_statement_cache();
        if statements.len() >= MAX_CACHED_STATEMENTS {
            statements.clear();
        }
        statements.insert(request.sql.to_owned(), Arc::new(statement));
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
        let latest = self
            .system_catalog
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let fresh = latest
            .as_ref()
            .filter(|(since, _)| since.elapsed() < CATALOG_MAX_AGE);
        fresh.map(|(_, catalog)| Arc::clone(catalog))
    }

    /// Closes connections that are idle, down to those that stay open.
    fn close_idle_connections(&self) {
        let mut kept = 0;
        self.pool.retain(|_, metrics| {
            kept += 1;
            kept <= self.settings.pool.min_connections || metrics.last_used() < CATALOG_MAX_AGE
        });
    }

    fn lock_connect_error(&self) -> MutexGuard<'_, Option<PostgresConnectError>> {
        self.connect_error
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn record_connected(&self) {
        if self.lock_connect_error().take().is_some() {
            let name = &self.name;
            info!(source.name = %name, "source {name} can be reached again");
        }
    }

    /// Logs an error when it is not the one of the attempt before.
    fn record_connect_error(&self, reason: &PostgresConnectError, error: &PoolError) {
        let before = self.lock_connect_error().replace(reason.clone());
        if before.as_ref() != Some(reason) {
            let (name, place) = (&self.name, self.address.redacted_location());
            let cause = std::error::Error::source(error).map(ToString::to_string);
            warn!(source.name = %name, reason = reason.code(), ?cause,
                "source {name}, {place}, cannot be reached: {reason}; tried again when it is used");
        }
    }
}

/// The answer of a server that has `timeout` to end by itself.
async fn within<T>(
    timeout: Duration,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let answer = time::timeout(timeout + ANSWER_GRACE, answer).await;
    answer.unwrap_or(Err(Error::TimedOut))
}

fn build_pool(
    address: &PostgresAddress,
    tls: &PostgresTls,
    settings: &SourceSettings,
) -> Result<Pool, Error> {
    let recycling_method = RecyclingMethod::Fast;
    let config = session_config(address, settings);
    let manager = Manager::from_config(config, tls.clone(), ManagerConfig { recycling_method });
    Pool::builder(manager)
        .max_size(settings.pool.max_connections.max(1))
        .runtime(Runtime::Tokio1)
        .create_timeout(Some(CONNECT_TIMEOUT))
        .wait_timeout(Some(settings.pool.acquire_timeout))
        .build()
        .map_err(|error| Error::InvalidSettings(error.to_string()))
}

/// The driver's settings for sessions that only read. No query can change these
/// settings, and each use ends by going back to them.
fn session_config(address: &PostgresAddress, settings: &SourceSettings) -> Config {
    let timeouts = SessionTimeouts::new(settings).settings(settings.limits.timeout);
    let timeouts = timeouts.map(|(name, value)| (name, value.to_string()));
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
    let search_path = search_path(settings);
    let search_path = search_path.iter().map(|it| ("search_path", it.as_str()));
    let settings: Vec<(&str, &str)> = fixed
        .into_iter()
        .chain(timeouts)
        .chain(search_path)
        .collect();
    let mut config = address.config_with_overrides(&settings);
    config.application_name("maru");
    config
}

fn check_caller_settings(settings: &[(String, String)]) -> Result<(), Error> {
    for (name, value) in settings {
        if !is_custom_setting(name) {
            return Err(Error::InvalidSettings(format!(
                "{name:?} is no setting of your own; caller_settings have names such as app.user"
            )));
        }
        if value.is_empty() {
            return Err(Error::InvalidSettings(format!(
                "{name} has no value in caller_settings; use name, role or a claim of the token"
            )));
        }
    }
    Ok(())
}

/// Whether a setting is one that the server does not know: it has a dot.
fn is_custom_setting(name: &str) -> bool {
    let is_part = |it: &str| {
        it.starts_with(|it: char| it.is_ascii_alphabetic() || it == '_')
            && it.chars().all(|it| it.is_ascii_alphanumeric() || it == '_')
    };
    let parts = name.split_once('.');
    parts.is_some_and(|(prefix, name)| is_part(prefix) && is_part(name))
}

fn search_path(settings: &SourceSettings) -> Option<String> {
    let schemas = settings.search_path.iter();
    let schemas: Vec<String> = schemas
        .map(|it| query_request::quote_identifier(it))
        .collect();
    (!schemas.is_empty()).then(|| schemas.join(", "))
}

/// Opens the connections that stay open, then closes those that are too many,
/// until the source is gone. A source that could not be reached is tried again.
async fn maintain_connections(source: Weak<PostgresSourceInner>, stop: CancellationToken) {
    let mut is_open = false;
    loop {
        let Some(inner) = source.upgrade() else {
            return;
        };
        if is_open {
            inner.close_idle_connections();
        } else {
            let source = PostgresSource(inner);
            tokio::select! {
                () = stop.cancelled() => return,
                opened = open_initial_connections(&source) => is_open = opened.is_ok(),
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = time::sleep(CATALOG_MAX_AGE) => (),
        }
    }
}

async fn open_initial_connections(source: &PostgresSource) -> Result<(), Error> {
    let first = source.client().await?;
    let catalog = source.system_catalog(&first).await?;
    role::warn_about_role(
        &source.0.name,
        &source.0.address,
        &source.0.settings,
        &catalog,
    );
    let mut clients = vec![first];
    while clients.len() < source.0.settings.pool.min_connections {
        clients.push(source.client().await?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_read_only_whatever_the_address_says() {
        let url = "postgres://a/m?options=-c%20default_transaction_read_only=off";
        let address = PostgresAddress::parse(url).unwrap();
        let settings = SourceSettings {
            search_path: vec!["a".to_owned(), "b c".to_owned()],
            ..SourceSettings::default()
        };
        let config = session_config(&address, &settings);
        let options = config.get_options().unwrap();
        assert!(options.contains("off -c default_transaction_read_only=on"));
        assert!(options.contains(" -c statement_timeout=5000 -c lock_timeout=2000"));
        assert!(options.ends_with(r#" -c search_path="a",\ "b\ c""#));
    }
}
