//! State in an SQLite file, or in memory.

use std::{panic, path::PathBuf, sync::Arc, time::Duration};

use rusqlite::{
    Connection, ErrorCode, Statement, TransactionBehavior, params_from_iter,
    types::{FromSql, FromSqlResult, ToSql, ToSqlOutput, ValueRef},
};
use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    task,
    time::{self, Instant},
};

use super::{Cause, Row, Value, migrate};

/// How long another program may hold the file.
const BUSY: Duration = Duration::from_secs(5);
/// How soon a busy file is opened again.
const AGAIN: Duration = Duration::from_millis(10);
/// How long a statement waits for those before it.
const TURN: Duration = Duration::from_secs(10);

/// One connection; statements take turns, on threads that may block.
#[derive(Clone, Debug)]
pub(super) struct Sqlite {
    connection: Arc<Mutex<Connection>>,
}

impl Sqlite {
    pub(super) async fn open(path: PathBuf) -> Result<Self, Cause> {
        let deadline = Instant::now() + BUSY;
        loop {
            let path = path.clone();
            match blocking(move || Self::prepare(Connection::open(path)?)).await {
                // SQLite does not wait by itself while another switches to WAL.
                Err(cause) if is_busy(&cause) && Instant::now() < deadline => {
                    time::sleep(AGAIN).await;
                }
                done => return done,
            }
        }
    }

    pub(super) async fn in_memory() -> Result<Self, Cause> {
        blocking(|| Self::prepare(Connection::open_in_memory()?)).await
    }

    /// Runs one statement to its end; it is on disk when this returns.
    pub(super) async fn run(
        &self,
        sql: &'static str,
        values: Vec<Value>,
    ) -> Result<Vec<Row>, Cause> {
        let connection = self.turn().await?;
        blocking(move || run(&connection, sql, &values)).await
    }

    /// Runs all of them, or none. They are made where they run, one after the other.
    pub(super) async fn run_all(
        &self,
        work: impl Iterator<Item = (&'static str, Vec<Value>)> + Send + 'static,
    ) -> Result<(), Cause> {
        let mut connection = self.turn().await?;
        blocking(move || {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            for (sql, values) in work {
                run(&transaction, sql, &values)?;
            }
            Ok(transaction.commit()?)
        })
        .await
    }

    /// Whether SQLite understands the statement.
    pub(super) async fn check(&self, sql: &'static str) -> Result<(), Cause> {
        let connection = self.turn().await?;
        blocking(move || Ok(connection.prepare(sql).map(drop)?)).await
    }

    async fn turn(&self) -> Result<OwnedMutexGuard<Connection>, Cause> {
        let turn = Arc::clone(&self.connection).lock_owned();
        let turn = time::timeout(TURN, turn).await;
        turn.map_err(|_| Cause::Late(TURN))
    }

    fn prepare(mut connection: Connection) -> Result<Self, Cause> {
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "foreign_keys", true)?;
        // What is deleted or overwritten may have been a secret.
        connection.pragma_update(None, "secure_delete", true)?;
        migrate::sqlite(&mut connection)?;
        let connection = Arc::new(Mutex::new(connection));
        Ok(Self { connection })
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Cause> + Send + 'static,
) -> Result<T, Cause> {
    match task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(ended) => match ended.try_into_panic() {
            Ok(panic) => panic::resume_unwind(panic),
            Err(_) => Err(Cause::Stopping),
        },
    }
}

fn is_busy(cause: &Cause) -> bool {
    let Cause::Sqlite(error) = cause else {
        return false;
    };
    error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}

fn run(connection: &Connection, sql: &str, values: &[Value]) -> Result<Vec<Row>, Cause> {
    let mut statement = connection.prepare_cached(sql)?;
    read(&mut statement, values)
}

fn read(statement: &mut Statement<'_>, values: &[Value]) -> Result<Vec<Row>, Cause> {
    let width = statement.column_count();
    let rows = statement.query_map(params_from_iter(values), |row| {
        let cells: rusqlite::Result<Vec<Value>> = (0..width).map(|at| row.get(at)).collect();
        cells.map(Row::new)
    })?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

impl ToSql for Value {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Null => ToSqlOutput::Borrowed(ValueRef::Null),
            Self::Bool(truth) => ToSqlOutput::from(*truth),
            Self::Integer(number) => ToSqlOutput::from(*number),
            Self::Text(text) => ToSqlOutput::from(text.as_str()),
            Self::Blob(bytes) => ToSqlOutput::from(bytes.as_slice()),
        })
    }
}

impl FromSql for Value {
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
