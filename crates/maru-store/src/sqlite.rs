//! The SQLite back end: a file, or a database in memory.

use std::{path::PathBuf, sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use maru_runtime::tasks;
use rusqlite::{
    Connection, ErrorCode, Statement, TransactionBehavior, params_from_iter,
    types::{FromSql, FromSqlResult, ToSql, ToSqlOutput, ValueRef},
};
use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    time::{self, Instant},
};

use super::{CellValue, DatabaseError, ResultRow, StatementBatch, migrations};

/// How long to wait while another program locks the file.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay between attempts to open a locked file.
const BUSY_RETRY_DELAY: Duration = Duration::from_millis(10);
/// How long a statement waits for the connection.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// One connection, used by one statement at a time on tokio's blocking threads.
#[derive(Clone, Debug)]
pub(super) struct SqliteBackend {
    connection: Arc<Mutex<Connection>>,
}

impl SqliteBackend {
    pub(super) async fn open(path: PathBuf) -> Result<Self, DatabaseError> {
        let deadline = Instant::now() + BUSY_TIMEOUT;
        loop {
            let path = path.clone();
            match run_blocking(move || Self::configure(Connection::open(path)?)).await {
                // `busy_timeout` does not cover the switch to WAL by another process.
                Err(cause) if is_busy(&cause) && Instant::now() < deadline => {
                    time::sleep(BUSY_RETRY_DELAY).await;
                }
                result => return result,
            }
        }
    }

    pub(super) async fn in_memory() -> Result<Self, DatabaseError> {
        run_blocking(|| Self::configure(Connection::open_in_memory()?)).await
    }

    /// Runs one statement and returns its rows. Writes are on disk when this returns.
    pub(super) fn query(
        &self,
        sql: &'static str,
        values: Vec<CellValue>,
    ) -> BoxFuture<'_, Result<Vec<ResultRow>, DatabaseError>> {
        Box::pin(async move {
            let connection = self.lock_connection().await?;
            run_blocking(move || query_rows(&connection, sql, &values)).await
        })
    }

    /// Runs `work` in one transaction. Statements are created on the blocking thread, one
    /// after the other.
    pub(super) fn execute_in_transaction(
        &self,
        work: StatementBatch,
    ) -> BoxFuture<'_, Result<(), DatabaseError>> {
        Box::pin(async move {
            let mut connection = self.lock_connection().await?;
            run_blocking(move || {
                let transaction =
                    connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                for (sql, values) in work {
                    query_rows(&transaction, sql, &values)?;
                }
                Ok(transaction.commit()?)
            })
            .await
        })
    }

    /// Checks that SQLite can prepare the statement.
    pub(super) async fn check_sql(&self, sql: &'static str) -> Result<(), DatabaseError> {
        let connection = self.lock_connection().await?;
        run_blocking(move || Ok(connection.prepare(sql).map(drop)?)).await
    }

    pub(super) async fn lock_connection(
        &self,
    ) -> Result<OwnedMutexGuard<Connection>, DatabaseError> {
        let lock = Arc::clone(&self.connection).lock_owned();
        let guard = time::timeout(LOCK_TIMEOUT, lock).await;
        guard.map_err(|_| DatabaseError::Timeout(LOCK_TIMEOUT))
    }

    fn configure(mut connection: Connection) -> Result<Self, DatabaseError> {
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        // Deleted or overwritten values may be secrets.
        connection.pragma_update(None, "secure_delete", true)?;
        migrations::migrate_sqlite(&mut connection)?;
        let connection = Arc::new(Mutex::new(connection));
        Ok(Self { connection })
    }
}

async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, DatabaseError> + Send + 'static,
) -> Result<T, DatabaseError> {
    let result = tasks::run_blocking(work).await;
    result.unwrap_or(Err(DatabaseError::Stopping))
}

fn is_busy(cause: &DatabaseError) -> bool {
    let DatabaseError::Sqlite(error) = cause else {
        return false;
    };
    error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}

pub(super) fn query_rows(
    connection: &Connection,
    sql: &str,
    values: &[CellValue],
) -> Result<Vec<ResultRow>, DatabaseError> {
    let mut statement = connection.prepare_cached(sql)?;
    read_rows(&mut statement, values)
}

fn read_rows(
    statement: &mut Statement<'_>,
    values: &[CellValue],
) -> Result<Vec<ResultRow>, DatabaseError> {
    let width = statement.column_count();
    let rows = statement.query_map(params_from_iter(values), |row| {
        let cells: rusqlite::Result<Vec<CellValue>> = (0..width).map(|at| row.get(at)).collect();
        cells.map(ResultRow::new)
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

impl ToSql for CellValue {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Null => ToSqlOutput::Borrowed(ValueRef::Null),
            Self::Bool(value) => ToSqlOutput::from(*value),
            Self::Integer(number) => ToSqlOutput::from(*number),
            Self::Text(text) => ToSqlOutput::from(text.as_str()),
            Self::Blob(bytes) => ToSqlOutput::from(bytes.as_slice()),
        })
    }
}

impl FromSql for CellValue {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        Ok(match value {
            ValueRef::Null => Self::Null,
            ValueRef::Integer(number) => Self::Integer(number),
            ValueRef::Text(_) => Self::from(value.as_str()?),
            ValueRef::Blob(bytes) => Self::from(bytes),
            ValueRef::Real(_) => return Err(rusqlite::types::FromSqlError::InvalidType),
        })
    }
}
