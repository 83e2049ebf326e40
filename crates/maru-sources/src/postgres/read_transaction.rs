//! One use of a connection: a transaction that only reads and never commits.

use std::pin::pin;

use deadpool_postgres::Object;
use futures_util::TryStreamExt;
use maru_runtime::tasks::Tasks;
use tokio::time::{self, Duration};
use tokio_postgres::{CancelToken, NoTls, RowStream, Statement, error::SqlState, types::Type};

use super::{
    CachedStatement, error,
    query_request::{QueryRequest, StatementShape},
    row_json::{self, RowJsonWriter},
    system_catalog::Oid,
    value::inferred_type,
};
use crate::{Error, QueryRows, rows::RowCollector};

const ROLLBACK_SQL: &str = "ROLLBACK";
/// What the transaction may have left behind, though it was rolled back. Settings,
/// temporary tables, cursors, listening and sequences end with it, or cannot be
/// reached by a query at all.
const CLEANUP_SQL: &str = "ROLLBACK; SELECT pg_catalog.pg_advisory_unlock_all()";
const SELECT_LOCKED_RELATIONS: &str = "SELECT DISTINCT l.relation FROM pg_catalog.pg_lock_status() l \
    JOIN pg_catalog.pg_class c ON c.oid = l.relation AND c.relkind NOT IN ('i', 'I', 'c') \
    WHERE l.pid = pg_catalog.pg_backend_pid()";
/// All that is locked once a statement has run: partitions and indexes too, and
/// [`OUTLIVES`] for a lock that would outlive the transaction.
pub(super) const SELECT_ALL_LOCKS: &str = "SELECT COALESCE(l.relation, 0) \
    FROM pg_catalog.pg_lock_status() l WHERE l.pid = pg_catalog.pg_backend_pid() \
    AND (l.relation IS NOT NULL OR l.locktype OPERATOR(pg_catalog.=) 'advisory')";
pub(super) const ADVISORY_LOCK: Oid = 0;
/// How many statements a connection keeps prepared.
const MAX_PREPARED_STATEMENTS: usize = 64;
/// How long a server may take to clean up or to hear that a query is to end.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(2);

/// A connection in use. One that is dropped without `close` is closed, and what
/// it did is cancelled.
#[derive(Debug)]
pub(super) struct ReadTransaction {
    client: Option<Object>,
    tasks: Tasks,
}

/// What came of beginning: the shape of the statement, and the relations it means.
pub(super) struct StatementAnalysis {
    pub(super) shape: StatementShape,
    pub(super) locked_relations: Vec<Oid>,
}

impl ReadTransaction {
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
    /// relations it means.
    pub(super) async fn begin_sql(
        &self,
        asked: &QueryRequest<'_>,
    ) -> Result<StatementAnalysis, Error> {
        let begin = begin(asked);
        let types = asked.declared_types();
        let client = self.client();
        let look = client
            .prepare_cached(SELECT_LOCKED_RELATIONS)
            .await
            .map_err(error::from_internal_query)?;
        // All go out at once; the server takes them in this order.
        let (begun, prepared, locked) = tokio::join!(
            biased;
            client.batch_execute(&begin),
            client.prepare_typed(asked.sql, &types),
            self.query_locks(&look),
        );
        begun.map_err(error::from_internal_query)?;
        let (statement, locked) = match prepared {
            Err(error) if !types.is_empty() && is_missing_type_error(&error) => {
                let statement = self.prepare_with_inferred_types(asked, &begin).await?;
                (statement, self.query_locks(&look).await?)
            }
            prepared => (prepared.map_err(error::from_prepare)?, locked?),
        };
        let shape = StatementShape::from_prepared(&statement);
        Ok(StatementAnalysis {
            shape,
            locked_relations: locked,
        })
    }

    /// Begins the transaction, reads a statement that is known, and ends it, in one
    /// breath; no rows if it locks anything that it did not lock, or has other columns.
    pub(super) async fn read_cached(
        &self,
        asked: &QueryRequest<'_>,
        known: &CachedStatement,
    ) -> Result<Option<QueryRows>, Error> {
        let cache = &self.client().statement_cache;
        if cache.size() > MAX_PREPARED_STATEMENTS {
            cache.clear();
        }
        let look = self.client().prepare_cached(SELECT_ALL_LOCKS);
        let look = look.await.map_err(error::from_internal_query)?;
        let plain = known.row_writer.as_ref();
        let sql = match plain {
            Some(_) => row_json::length_checked_query(&known.shape, asked),
            None => known.shape.json_rows_query(asked),
        };
        let statement = self
            .client()
            .prepare_typed_cached(&sql, &known.shape.parameters)
            .await
            .map_err(error::from_prepare)?;
        if plain.is_some() && !row_json::matches_shape(&known.shape, statement.columns()) {
            return Ok(None);
        }
        let begin = begin(asked);
        let (begun, rows, locked, ended) = tokio::join!(
            biased;
            self.client().batch_execute(&begin),
            async {
                let rows = self.client().query_raw(&statement, asked.text_parameters()).await;
                collect_rows(asked, &known.shape, plain, rows).await
            },
            self.query_locks(&look),
            self.client().batch_execute(ROLLBACK_SQL),
        );
        begun.and(ended).map_err(error::from_internal_query)?;
        let (rows, _) = rows?;
        let same = locked?.iter().all(|it| known.locked_relations.contains(it))
            && rows.first_row_matches_columns();
        Ok(same.then_some(rows))
    }

    /// The same with the types that the values have by themselves.
    async fn prepare_with_inferred_types(
        &self,
        asked: &QueryRequest<'_>,
        begin: &str,
    ) -> Result<Statement, Error> {
        let types: Vec<Type> = asked.values.iter().map(|it| inferred_type(it)).collect();
        let again = format!("ROLLBACK; {begin}");
        self.client()
            .batch_execute(&again)
            .await
            .map_err(error::from_internal_query)?;
        self.client()
            .prepare_typed(asked.sql, &types)
            .await
            .map_err(error::from_prepare)
    }

    /// The relations that the server locked so far.
    pub(super) async fn locked_relations(&self, sql: &str) -> Result<Vec<Oid>, Error> {
        let look = self.client().prepare_cached(sql).await;
        self.query_locks(&look.map_err(error::from_internal_query)?)
            .await
    }

    async fn query_locks(&self, look: &Statement) -> Result<Vec<Oid>, Error> {
        let rows = self.client().query(look, &[]).await;
        let rows = rows.map_err(error::from_internal_query)?;
        rows.iter()
            .map(|it| it.try_get(0).map_err(error::from_internal_query))
            .collect()
    }

    /// The rows, and whether the server sent all that it had to.
    pub(super) async fn read_rows(
        &self,
        asked: &QueryRequest<'_>,
        shape: &StatementShape,
    ) -> Result<(QueryRows, bool), Error> {
        if asked.limits.rows == 0 {
            let none = RowCollector::new(shape.columns.clone(), asked.limits);
            return Ok((none.finish(), true));
        }
        let values = asked
            .text_parameters()
            .zip(shape.parameters.iter().cloned());
        let sql = shape.json_rows_query(asked);
        let rows = self.client().query_typed_raw(&sql, values).await;
        collect_rows(asked, shape, None, rows).await
    }

    /// The end of its use. A statement that was stopped half-way takes the
    /// connection with it.
    pub(super) fn finish<T>(self, read: Result<(T, bool), Error>) -> Result<T, Error> {
        if !matches!(&read, Ok((_, false)) | Err(Error::TimedOut)) {
            self.return_after_cleanup();
        }
        read.map(|(rows, _)| rows)
    }

    /// Hands the connection back, which is as it was.
    pub(super) fn return_unchanged(mut self) {
        drop(self.client.take());
    }

    /// Hands the connection back as it was, once the server has cleaned up;
    /// nobody waits for that. If it cannot be done, the connection is closed.
    pub(super) fn return_after_cleanup(mut self) {
        let tasks = self.tasks.clone();
        tasks.spawn(async move {
            let cleaned =
                time::timeout(CLEANUP_TIMEOUT, self.client().batch_execute(CLEANUP_SQL)).await;
            if matches!(cleaned, Ok(Ok(()))) {
                drop(self.client.take());
            }
        });
    }
}

impl Drop for ReadTransaction {
    fn drop(&mut self) {
        let Some(client) = self.client.take() else {
            return;
        };
        let token = client.cancel_token();
        let client = Object::take(client);
        self.tasks.spawn(async move {
            cancel_query(token).await;
            drop(client);
        });
    }
}

/// Takes rows as they come, JSON texts or `plain` ones, as far as the limits let them.
async fn collect_rows(
    asked: &QueryRequest<'_>,
    shape: &StatementShape,
    plain: Option<&RowJsonWriter>,
    rows: Result<RowStream, tokio_postgres::Error>,
) -> Result<(QueryRows, bool), Error> {
    let mut collector = RowCollector::new(shape.columns.clone(), asked.limits);
    let mut rows = pin!(rows.map_err(error::from_execution)?);
    let mut made = Vec::new();
    while let Some(row) = rows.try_next().await.map_err(error::from_execution)? {
        let text = match plain {
            Some(plain) => Some(
                plain
                    .write_row(&row, &mut made)
                    .ok_or_else(error::unexpected_value)?,
            ),
            None => row.try_get(0).map_err(error::from_internal_query)?,
        };
        if text.is_none() {
            collector.mark_truncated();
        }
        if !text.is_some_and(|it| collector.try_push(it)) {
            let done = rows
                .try_next()
                .await
                .map_err(error::from_execution)?
                .is_none();
            return Ok((collector.finish(), done));
        }
    }
    Ok((collector.finish(), true))
}

async fn cancel_query(token: CancelToken) {
    // If the server does not hear it, its own deadline ends the query.
    let _ = time::timeout(CLEANUP_TIMEOUT, token.cancel_query(NoTls)).await;
}

/// A transaction that only reads, with the deadlines of this use, if they are not those
/// that the connection has, and its request.
fn begin(asked: &QueryRequest<'_>) -> String {
    let mut begin = String::from("BEGIN READ ONLY");
    if asked.limits.timeout != asked.connection_timeout {
        for (name, milliseconds) in timeout_settings(asked.limits.timeout) {
            begin.push_str(&format!("; SET LOCAL {name} = {milliseconds}"));
        }
    }
    // Who looks at the server's activity or log finds the call in the audit.
    if let Some([high, low]) = asked.limits.request {
        begin.push_str(&format!(
            "; SET LOCAL application_name = 'maru {high:016x}{low:016x}'"
        ));
    }
    begin
}

/// The server's own deadlines for a query that may take so long.
pub(super) fn timeout_settings(timeout: Duration) -> [(&'static str, u128); 3] {
    let timeout = timeout.as_millis().clamp(1, 2_000_000_000); // as far as the server counts
    let patience = CLEANUP_TIMEOUT.as_millis();
    [
        ("statement_timeout", timeout),
        ("lock_timeout", timeout.min(patience)),
        ("idle_in_transaction_session_timeout", timeout + patience),
    ]
}

/// Whether the server could not find the type of a parameter by its use.
fn is_missing_type_error(error: &tokio_postgres::Error) -> bool {
    let states = [
        SqlState::AMBIGUOUS_PARAMETER,
        SqlState::INDETERMINATE_DATATYPE,
        SqlState::AMBIGUOUS_FUNCTION,
        SqlState::UNDEFINED_FUNCTION,
        SqlState::DATATYPE_MISMATCH,
    ];
    error.code().is_some_and(|it| states.contains(it))
}
