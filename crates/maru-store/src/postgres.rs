//! State in a PostgreSQL database.

mod cell;

use std::{sync::Arc, time::Duration};

use deadpool_postgres::{
    GenericClient, Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError,
    RecyclingMethod, Runtime,
};
use futures_util::future::BoxFuture;
use maru_postgres::{PostgresAddress, PostgresConnectError, PostgresTls};
use tokio::time;
use tokio_postgres::{Connection, Socket, tls::MakeTlsConnect, types::ToSql};

use super::{CellValue, DatabaseError, ResultRow, StatementBatch, migrations};

/// How long a start may take, with its migrations.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a statement waits for a connection, be it a new one.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection that was idle may take to show that it is alive.
const RECYCLE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the server may work on a statement before it ends it.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the answer of a statement may take.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(12);
const MAX_CONNECTIONS: usize = 4;
/// The channel that the triggers of the tables notify.
pub(super) const CHANGE_CHANNEL: &str = "maru_change";

/// A few connections; a lost one is replaced when it is needed.
#[derive(Clone, Debug)]
pub(super) struct PostgresBackend {
    pool: Pool,
    address: Arc<PostgresAddress>,
}

impl PostgresBackend {
    pub(super) async fn connect(address: &PostgresAddress) -> Result<Self, DatabaseError> {
        let pool = build_pool(address)?;
        let start = async {
            let mut client = pool.get().await?;
            migrations::migrate_postgres(&mut client).await
        };
        let started = time::timeout(STARTUP_TIMEOUT, start).await;
        started.unwrap_or(Err(DatabaseError::Timeout(STARTUP_TIMEOUT)))?;
        let address = Arc::new(address.clone());
        Ok(Self { pool, address })
    }

    /// A backend whose first statement connects.
    #[cfg(test)]
    pub(super) fn unconnected(address: &PostgresAddress) -> Result<Self, DatabaseError> {
        let address = Arc::new(address.clone());
        let pool = build_pool(&address)?;
        Ok(Self { pool, address })
    }

    /// Runs one statement to its end; it is committed when this returns.
    pub(super) fn query(
        &self,
        sql: &'static str,
        values: Vec<CellValue>,
    ) -> BoxFuture<'_, Result<Vec<ResultRow>, DatabaseError>> {
        Box::pin(async move {
            let client = self.acquire_connection().await?;
            let answer = time::timeout(RESPONSE_TIMEOUT, query_rows(&client, sql, &values)).await;
            answer.unwrap_or_else(|_| discard_timed_out(client))
        })
    }

    /// Runs all statements, or none.
    pub(super) async fn execute_in_transaction(
        &self,
        work: StatementBatch,
    ) -> Result<(), DatabaseError> {
        self.query_in_transaction(work).await.map(drop)
    }

    /// Runs all statements, or none, and returns the rows of each.
    pub(super) fn query_in_transaction(
        &self,
        work: StatementBatch,
    ) -> BoxFuture<'_, Result<Vec<Vec<ResultRow>>, DatabaseError>> {
        Box::pin(async move {
            let mut client = self.acquire_connection().await?;
            let all = async {
                let transaction = client.transaction().await?;
                let mut rows = Vec::new();
                for (sql, values) in work {
                    rows.push(query_rows(&transaction, sql, &values).await?);
                }
                transaction.commit().await?;
                Ok(rows)
            };
            let done = time::timeout(RESPONSE_TIMEOUT, all).await;
            done.unwrap_or_else(|_| discard_timed_out(client))
        })
    }

    /// Whether PostgreSQL understands the statement, and gives its parameters and
    /// columns types that a `Value` has.
    pub(super) async fn check_sql(&self, sql: &'static str) -> Result<(), DatabaseError> {
        let client = self.acquire_connection().await?;
        let prepared = time::timeout(RESPONSE_TIMEOUT, client.prepare_cached(sql)).await;
        let prepared = prepared.map_err(|_| DatabaseError::Timeout(RESPONSE_TIMEOUT))??;
        let columns = prepared.columns().iter().map(|it| it.type_());
        match prepared
            .params()
            .iter()
            .chain(columns)
            .find(|it| !cell::is_supported_type(it))
        {
            None => Ok(()),
            Some(kind) => Err(DatabaseError::Postgres(format!(
                "no value goes into the type {kind}"
            ))),
        }
    }

    /// Opens a connection outside the pool, under this name.
    pub(super) async fn connect_named(
        &self,
        name: &str,
    ) -> Result<
        (
            tokio_postgres::Client,
            Connection<Socket, <PostgresTls as MakeTlsConnect<Socket>>::Stream>,
        ),
        DatabaseError,
    > {
        let tls = tls_connector(&self.address)?;
        let mut config = self.address.config_with_defaults(&[]);
        config.application_name(name);
        Ok(config.connect(tls).await?)
    }

    /// Sends a notification that names no table to every listener of `channel`.
    pub(super) async fn notify_listeners(&self, channel: &str) -> Result<(), DatabaseError> {
        let client = self.acquire_connection().await?;
        let sql = "SELECT pg_notify($1, '')";
        client.execute(sql, &[&channel]).await?;
        Ok(())
    }

    pub(super) async fn acquire_connection(&self) -> Result<Object, DatabaseError> {
        let client = time::timeout(ACQUIRE_TIMEOUT, self.pool.get()).await;
        match client {
            Ok(client) => Ok(client?),
            Err(_) => Err(DatabaseError::Unreachable(PostgresConnectError::NoAnswer)),
        }
    }
}

/// Closes a connection whose state is unknown; the pool opens another.
fn discard_timed_out<T>(client: Object) -> Result<T, DatabaseError> {
    drop(Object::take(client));
    Err(DatabaseError::Timeout(RESPONSE_TIMEOUT))
}

fn build_pool(address: &PostgresAddress) -> Result<Pool, DatabaseError> {
    let recycling_method = RecyclingMethod::Verified;
    let config = address.config_with_defaults(&[]);
    let settings = session_settings(config.get_options().unwrap_or_default());
    let tls = tls_connector(address)?;
    let manager = Manager::from_config(config, tls, ManagerConfig { recycling_method });
    Pool::builder(manager)
        .max_size(MAX_CONNECTIONS)
        .runtime(Runtime::Tokio1)
        .recycle_timeout(Some(RECYCLE_TIMEOUT))
        .post_create(Hook::async_fn(move |client, _| {
            let settings = settings.clone();
            Box::pin(async move {
                let set = client.batch_execute(&settings).await;
                set.map_err(HookError::Backend)
            })
        }))
        .build()
        .map_err(|error| DatabaseError::Postgres(error.to_string()))
}

/// Sets what the store needs, unless the options of the address set it. `PgBouncer` refuses
/// connections with options, so these are no options.
fn session_settings(options: &str) -> String {
    let timeout = STATEMENT_TIMEOUT.as_millis();
    let settings = [
        ("TimeZone", "'UTC'".to_owned()),
        ("statement_timeout", timeout.to_string()),
    ];
    let missing = settings.iter().filter(|(name, _)| !options.contains(name));
    missing
        .map(|(name, value)| format!("SET {name} = {value};"))
        .collect()
}

fn tls_connector(address: &PostgresAddress) -> Result<PostgresTls, DatabaseError> {
    let tls = address.tls_connector();
    tls.map_err(|error| DatabaseError::Postgres(error.to_string()))
}

pub(super) async fn query_rows(
    client: &impl GenericClient,
    sql: &str,
    values: &[CellValue],
) -> Result<Vec<ResultRow>, DatabaseError> {
    let statement = client.prepare_cached(sql).await?;
    let parameters = values.iter().map(|it| it as &(dyn ToSql + Sync));
    let parameters: Vec<_> = parameters.collect();
    let rows = client.query(&statement, &parameters).await?;
    rows.iter().map(read_row).collect()
}

fn read_row(row: &tokio_postgres::Row) -> Result<ResultRow, DatabaseError> {
    let cells = (0..row.len()).map(|at| row.try_get(at));
    Ok(ResultRow::new(cells.collect::<Result<_, _>>()?))
}

/// No connection could be had.
impl From<PoolError> for DatabaseError {
    fn from(error: PoolError) -> Self {
        Self::Unreachable(match error {
            PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)) => {
                PostgresConnectError::from(&error)
            }
            PoolError::Timeout(_) => PostgresConnectError::NoAnswer,
            _ => PostgresConnectError::ConnectionLost,
        })
    }
}

/// Keeps what happened; the details that a server adds may quote a whole row.
impl From<tokio_postgres::Error> for DatabaseError {
    fn from(error: tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(refusal) => {
                let (message, code) = (refusal.message(), refusal.code().code());
                let hint = match code {
                    // Another server got the statement than prepared it.
                    "26000" | "42P05" => {
                        "; a pooler in transaction mode needs PgBouncer 1.21 or newer"
                    }
                    _ => "",
                };
                let text = format!("the server says: {message} ({code}){hint}");
                // Data exceptions, violated constraints and exceeded program limits.
                let classes = ["22", "23", "54"];
                if classes.iter().any(|it| code.starts_with(it)) {
                    Self::RefusedValues(text)
                } else {
                    Self::Postgres(text)
                }
            }
            None => Self::Unreachable(PostgresConnectError::from(&error)),
        }
    }
}
