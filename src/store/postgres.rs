//! State in a PostgreSQL database.

mod address;
mod value;

use std::{error::Error as _, time::Duration};

use deadpool_postgres::{
    GenericClient, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod, Runtime,
};
use tokio::time;
use tokio_postgres::{NoTls, types::ToSql};

use super::{Cause, Row, Value, migrate};

pub(super) use address::Address;

/// How long a start may take, with its migrations.
const START: Duration = Duration::from_secs(10);
/// How long a statement waits for a connection, be it a new one.
const TURN: Duration = Duration::from_secs(5);
/// How long a connection that was idle may take to show that it is alive.
const ALIVE: Duration = Duration::from_secs(2);
/// How long the server may work on a statement before it ends it.
const WORK: Duration = Duration::from_secs(10);
/// How long its answer may take.
const ANSWER: Duration = Duration::from_secs(12);
const CONNECTIONS: usize = 4;

/// A few connections; a lost one is replaced when it is needed.
#[derive(Clone, Debug)]
pub(super) struct Postgres {
    pool: Pool,
}

impl Postgres {
    pub(super) async fn connect(address: Address) -> Result<Self, Cause> {
        let pool = pool(address)?;
        let start = async {
            let mut client = pool.get().await?;
            migrate::postgres(&mut client).await
        };
        let started = time::timeout(START, start).await;
        started.unwrap_or(Err(Cause::Late(START)))?;
        Ok(Self { pool })
    }

    /// Runs one statement to its end; it is committed when this returns.
    pub(super) async fn run(
        &self,
        sql: &'static str,
        values: Vec<Value>,
    ) -> Result<Vec<Row>, Cause> {
        let client = self.turn().await?;
        let answer = time::timeout(ANSWER, run(&client, sql, &values)).await;
        answer.unwrap_or_else(|_| late(client))
    }

    /// Runs all of them, or none.
    pub(super) async fn run_all(
        &self,
        work: impl Iterator<Item = (&'static str, Vec<Value>)> + Send,
    ) -> Result<(), Cause> {
        let mut client = self.turn().await?;
        let all = async {
            let transaction = client.transaction().await?;
            for (sql, values) in work {
                run(&transaction, sql, &values).await?;
            }
            Ok(transaction.commit().await?)
        };
        let done = time::timeout(ANSWER, all).await;
        done.unwrap_or_else(|_| late(client))
    }

    /// Whether PostgreSQL understands the statement, and gives its parameters and
    /// columns types that a `Value` has.
    pub(super) async fn check(&self, sql: &'static str) -> Result<(), Cause> {
        let client = self.turn().await?;
        let prepared = time::timeout(ANSWER, client.prepare_cached(sql)).await;
        let prepared = prepared.map_err(|_| Cause::Late(ANSWER))??;
        let columns = prepared.columns().iter().map(|it| it.type_());
        match prepared
            .params()
            .iter()
            .chain(columns)
            .find(|it| !value::is_known(it))
        {
            None => Ok(()),
            Some(kind) => Err(Cause::Postgres(format!(
                "no value goes into the type {kind}"
            ))),
        }
    }

    async fn turn(&self) -> Result<Object, Cause> {
        let client = time::timeout(TURN, self.pool.get()).await;
        Ok(client.map_err(|_| Cause::Late(TURN))??)
    }
}

/// Nobody knows what the connection is at; the next one gets a new one.
fn late<T>(client: Object) -> Result<T, Cause> {
    drop(Object::take(client));
    Err(Cause::Late(ANSWER))
}

fn pool(address: Address) -> Result<Pool, Cause> {
    let recycling_method = RecyclingMethod::Verified;
    let config = address.with_settings(&[
        ("TimeZone", "UTC"),
        ("statement_timeout", &WORK.as_millis().to_string()),
    ]);
    let manager = Manager::from_config(config, NoTls, ManagerConfig { recycling_method });
    Pool::builder(manager)
        .max_size(CONNECTIONS)
        .runtime(Runtime::Tokio1)
        .recycle_timeout(Some(ALIVE))
        .build()
        .map_err(|error| Cause::Postgres(error.to_string()))
}

async fn run(client: &impl GenericClient, sql: &str, values: &[Value]) -> Result<Vec<Row>, Cause> {
    let statement = client.prepare_cached(sql).await?;
    let parameters = values.iter().map(|it| it as &(dyn ToSql + Sync));
    let parameters: Vec<_> = parameters.collect();
    let rows = client.query(&statement, &parameters).await?;
    rows.iter().map(read).collect()
}

fn read(row: &tokio_postgres::Row) -> Result<Row, Cause> {
    let cells = (0..row.len()).map(|at| row.try_get(at));
    Ok(Row::new(cells.collect::<Result<_, _>>()?))
}

impl From<PoolError> for Cause {
    fn from(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => error.into(),
            other => Self::Postgres(other.to_string()),
        }
    }
}

/// Keeps what happened; the details that a server adds may quote a whole row.
impl From<tokio_postgres::Error> for Cause {
    fn from(error: tokio_postgres::Error) -> Self {
        if let Some(told) = error.as_db_error() {
            let (message, code) = (told.message(), told.code().code());
            return Self::Postgres(format!("the server says: {message} ({code})"));
        }
        Self::Postgres(match error.source() {
            Some(cause) => format!("{error}: {cause}"),
            None => error.to_string(),
        })
    }
}
