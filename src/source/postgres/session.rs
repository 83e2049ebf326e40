//! One use of a connection: a transaction that only reads and never commits.

use std::pin::pin;

use deadpool_postgres::Object;
use futures_util::TryStreamExt;
use tokio::time::{self, Duration};
use tokio_postgres::{
    CancelToken, NoTls, Statement,
    error::SqlState,
    types::{ToSql, Type},
};

use super::{
    catalogue::Oid,
    error,
    value::{Text, given_type, own_type},
};
use crate::{
    source::{
        Error, Limits, Rows, Value,
        rows::{Collector, distinct},
        statement::MAX_NAME,
    },
    tasks::Tasks,
};

/// What the transaction may have left behind, though it was rolled back. Temporary
/// tables, cursors, listening and sequences end with it, or cannot be reached by a
/// query at all.
const CLEAN: &str = "ROLLBACK; RESET ALL; SELECT pg_catalog.pg_advisory_unlock_all()";
const LOCKED: &str = "SELECT DISTINCT l.relation FROM pg_catalog.pg_lock_status() l \
    JOIN pg_catalog.pg_class c ON c.oid = l.relation AND c.relkind NOT IN ('i', 'I', 'c') \
    WHERE l.pid = pg_catalog.pg_backend_pid()";
/// How long a server may take to clean up or to hear that a query is to end.
const PATIENCE: Duration = Duration::from_secs(2);

/// A connection in use. One that is dropped without `close` is closed, and what
/// it did is cancelled.
#[derive(Debug)]
pub(super) struct Session {
    client: Option<Object>,
    tasks: Tasks,
}

/// A statement that the server has understood.
#[derive(Debug)]
pub(super) struct Prepared {
    sql: String,
    pub(super) shape: Shape,
}

/// What goes into a statement and comes out of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    parameters: Vec<Type>,
    columns: Vec<String>,
}

/// What came of beginning: the statement, the relations it means, and its rows
/// if they were asked for on a guess that was right.
pub(super) struct Begun {
    pub(super) prepared: Prepared,
    pub(super) locked: Vec<Oid>,
    pub(super) read: Option<Result<(Rows, bool), Error>>,
}

impl Session {
    pub(super) fn new(client: Object, tasks: &Tasks) -> Self {
        let tasks = tasks.clone();
        Self {
            client: Some(client),
            tasks,
        }
    }

    pub(super) fn client(&self) -> &Object {
        self.client
            .as_ref()
            .expect("only closing or dropping takes it away")
    }

    /// Begins the transaction and has the server read the statement; says which
    /// relations it means. With a `guess` at its shape, its rows are asked for in
    /// the same breath; whoever may not see them throws them away.
    pub(super) async fn begin(
        &self,
        sql: &str,
        values: &[&Value],
        limits: Limits,
        guess: Option<&Shape>,
    ) -> Result<Begun, Error> {
        let begin = begin(limits);
        let types: Vec<Type> = values.iter().map(|it| given_type(it)).collect();
        let client = self.client();
        let read = async {
            match guess {
                Some(guess) => Some(self.read(sql, guess, values, limits).await),
                None => None,
            }
        };
        let look = client.prepare_cached(LOCKED).await.map_err(error::own)?;
        // All go out at once; the server takes them in this order, so the look at
        // the locks comes before the rows are read.
        let (begun, prepared, locked, read) = tokio::join!(
            biased;
            client.batch_execute(&begin),
            client.prepare_typed(sql, &types),
            self.locked(&look),
            read
        );
        begun.map_err(error::own)?;
        let (statement, locked) = match prepared {
            Err(error) if !values.is_empty() && lacks_types(&error) => {
                let statement = self.prepare_again(sql, values, &begin).await?;
                (statement, self.locked(&look).await?)
            }
            prepared => (prepared.map_err(error::prepared)?, locked?),
        };
        let names = statement.columns().iter().map(tokio_postgres::Column::name);
        let shape = Shape {
            columns: distinct(names, MAX_NAME),
            parameters: statement.params().to_vec(),
        };
        Ok(Begun {
            read: read.filter(|_| guess == Some(&shape)),
            prepared: Prepared {
                sql: sql.to_owned(),
                shape,
            },
            locked,
        })
    }

    /// The same with the types that the values have by themselves.
    async fn prepare_again(
        &self,
        sql: &str,
        values: &[&Value],
        begin: &str,
    ) -> Result<Statement, Error> {
        let types: Vec<Type> = values.iter().map(|it| own_type(it)).collect();
        let again = format!("ROLLBACK; {begin}");
        self.client()
            .batch_execute(&again)
            .await
            .map_err(error::own)?;
        self.client()
            .prepare_typed(sql, &types)
            .await
            .map_err(error::prepared)
    }

    /// The relations that the server locked so far: those that the statement
    /// means.
    async fn locked(&self, look: &Statement) -> Result<Vec<Oid>, Error> {
        let rows = self.client().query(look, &[]).await;
        let rows = rows.map_err(error::own)?;
        rows.iter()
            .map(|it| it.try_get(0).map_err(error::own))
            .collect()
    }

    /// The rows, and whether the server sent all that it had to.
    pub(super) async fn read(
        &self,
        sql: &str,
        shape: &Shape,
        values: &[&Value],
        limits: Limits,
    ) -> Result<(Rows, bool), Error> {
        let mut collector = Collector::new(shape.columns.clone(), limits);
        if limits.rows == 0 {
            return Ok((collector.finish(), true));
        }
        let texts: Vec<Text<'_>> = values.iter().map(|it| Text(it)).collect();
        let texts = texts.iter().map(|it| it as &(dyn ToSql + Sync));
        let values = texts.zip(shape.parameters.iter().cloned());
        let sql = shape.as_json(sql, limits);
        let rows = self
            .client()
            .query_typed_raw(&sql, values)
            .await
            .map_err(error::run)?;
        let mut rows = pin!(rows);
        while let Some(row) = rows.try_next().await.map_err(error::run)? {
            let (fits, text): (bool, &str) = (get(&row, 0)?, get(&row, 1)?);
            if !fits {
                collector.cut();
            }
            if !fits || !collector.push(text) {
                let done = rows.try_next().await.map_err(error::run)?.is_none();
                return Ok((collector.finish(), done));
            }
        }
        Ok((collector.finish(), true))
    }

    /// Hands the connection back as it was, once the server has cleaned up;
    /// nobody waits for that. If it cannot be done, the connection is closed.
    pub(super) fn close(mut self) {
        let tasks = self.tasks.clone();
        tasks.spawn(async move {
            let cleaned = time::timeout(PATIENCE, self.client().batch_execute(CLEAN)).await;
            if matches!(cleaned, Ok(Ok(()))) {
                drop(self.client.take());
            }
        });
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let Some(client) = self.client.take() else {
            return;
        };
        let token = client.cancel_token();
        let client = Object::take(client);
        self.tasks.spawn(async move {
            stop(token).await;
            drop(client);
        });
    }
}

async fn stop(token: CancelToken) {
    // If the server does not hear it, its own deadline ends the query.
    let _ = time::timeout(PATIENCE, token.cancel_query(NoTls)).await;
}

fn get<'a, T>(row: &'a tokio_postgres::Row, at: usize) -> Result<T, Error>
where
    T: tokio_postgres::types::FromSql<'a>,
{
    row.try_get(at).map_err(error::own)
}

/// A transaction that only reads, with the deadlines of this use.
fn begin(limits: Limits) -> String {
    let timeout = limits.timeout.as_millis().max(1);
    let lock = timeout.min(PATIENCE.as_millis());
    let idle = timeout + PATIENCE.as_millis();
    format!(
        "BEGIN READ ONLY; SET LOCAL statement_timeout = {timeout}; \
         SET LOCAL lock_timeout = {lock}; \
         SET LOCAL idle_in_transaction_session_timeout = {idle}"
    )
}

/// Whether the server could not find the type of a parameter by its use.
fn lacks_types(error: &tokio_postgres::Error) -> bool {
    let states = [
        SqlState::AMBIGUOUS_PARAMETER,
        SqlState::INDETERMINATE_DATATYPE,
        SqlState::AMBIGUOUS_FUNCTION,
        SqlState::UNDEFINED_FUNCTION,
        SqlState::DATATYPE_MISMATCH,
    ];
    error.code().is_some_and(|it| states.contains(it))
}

impl Prepared {
    /// The text that was prepared.
    pub(super) fn sql(&self) -> &str {
        &self.sql
    }
}

impl Shape {
    /// A statement of this shape as a sub-query whose rows are JSON texts; only a query can
    /// stand there. A row that is longer than the whole answer may be is left
    /// out by the server.
    fn as_json(&self, sql: &str, limits: Limits) -> String {
        let mut query = String::from("_q");
        while self.columns.contains(&query) {
            query.push('_');
        }
        let names = self
            .columns
            .iter()
            .map(|it| format!("\"{}\"", it.replace('"', "\"\"")));
        let names: Vec<String> = names.collect();
        let names = names.join(",");
        let names = if names.is_empty() {
            names
        } else {
            format!("({names})")
        };
        let (most, bytes) = (limits.rows + 1, limits.bytes);
        format!(
            "SELECT pg_catalog.octet_length(j) OPERATOR(pg_catalog.<=) {bytes}, \
             CASE WHEN pg_catalog.octet_length(j) OPERATOR(pg_catalog.<=) {bytes} \
             THEN j ELSE '' END FROM (SELECT pg_catalog.row_to_json({query})::pg_catalog.text AS j \
             FROM (\n{sql}\n) AS {query}{names} LIMIT {most}) AS _r"
        )
    }
}
