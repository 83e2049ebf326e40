//! One use of a connection: a transaction that only reads and never commits.

use std::pin::pin;

use deadpool_postgres::{ClientWrapper, Object};
use futures_util::TryStreamExt;
use maru_postgres::PostgresTls;
use maru_runtime::tasks::Tasks;
use serde_json::Value as Json;
use tokio::{
    sync::oneshot,
    time::{self, Duration},
};
use tokio_postgres::{Row, RowStream, Statement, error::SqlState, types::Type};

use super::{
    CachedStatement,
    backend_memory::{BackendProcess, SELECT_BACKEND},
    collected_bytes::CollectedBytes,
    error,
    query_request::{QueryRequest, StatementShape},
    row_json::{self, RawColumn, RowJsonWriter},
    system_catalog::Oid,
    value::inferred_type,
};
use crate::{
    Error, QueryRows, SourceSettings,
    rows::{RowCollector, plan_row},
};

const ROLLBACK_SQL: &str = "ROLLBACK";
/// What the transaction may have left behind, though it was rolled back. Settings,
/// temporary tables, cursors, listening and sequences end with it, or cannot be
/// reached by a query at all.
const CLEANUP_SQL: &str = "ROLLBACK; SELECT pg_catalog.pg_advisory_unlock_all()";
const SELECT_LOCKED_RELATIONS: &str = "SELECT DISTINCT l.relation FROM pg_catalog.pg_lock_status() l \
    JOIN pg_catalog.pg_class c ON c.oid = l.relation AND c.relkind NOT IN ('i', 'I', 'c') \
    WHERE l.pid = pg_catalog.pg_backend_pid()";
/// All that is locked once a statement has run: partitions and indexes too, and
/// [`ADVISORY_LOCK`] for a lock that would outlive the transaction.
pub(super) const SELECT_ALL_LOCKS: &str = "SELECT COALESCE(l.relation, 0) \
    FROM pg_catalog.pg_lock_status() l WHERE l.pid = pg_catalog.pg_backend_pid() \
    AND (l.relation IS NOT NULL OR l.locktype OPERATOR(pg_catalog.=) 'advisory')";
pub(super) const ADVISORY_LOCK: Oid = 0;
/// How many statements a connection keeps prepared.
const MAX_PREPARED_STATEMENTS: usize = 64;
/// How long a server may take to clean up after a query.
const CLEANUP_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a query waits for a lock if nothing else is set.
const DEFAULT_LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// How long to wait for the effect of a cancel request before the next one. The first
/// may come between two statements of a transaction and end neither.
const CANCEL_INTERVAL: Duration = Duration::from_millis(150);
const MAX_CANCEL_REQUESTS: usize = 10;

/// A connection in use. One that is dropped without being returned to the pool is
/// closed, and what the server still does for it is cancelled.
#[derive(Debug)]
pub(super) struct ReadTransaction {
    client: Option<Object>,
    tls: PostgresTls,
    tasks: Tasks,
}

/// The server's own deadlines in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SessionTimeouts {
    statement: Duration,
    lock: Duration,
}

/// What the server says of a statement: its shape, and the relations it means.
pub(super) struct StatementAnalysis {
    pub(super) shape: StatementShape,
    pub(super) locked_relations: Vec<Oid>,
    /// The server's process, if it is one of this machine.
    pub(super) backend: Option<BackendProcess>,
}

impl ReadTransaction {
    pub(super) fn new(client: Object, tls: &PostgresTls, tasks: &Tasks) -> Self {
        Self {
            client: Some(client),
            tls: tls.clone(),
            tasks: tasks.clone(),
        }
    }

    pub(super) fn client(&self) -> &Object {
        self.client
            .as_ref()
            .expect("only returning or dropping takes it away")
    }

    /// Ends what was begun, so that the connection can begin anew.
    pub(super) async fn restart(self) -> Result<Self, Error> {
        let cleaned = self.client().batch_execute(CLEANUP_SQL).await;
        cleaned.map_err(|error| error::from_internal_query(&error))?;
        Ok(self)
    }

    /// Begins the transaction and has the server analyze the statement.
    pub(super) async fn begin_sql(
        &self,
        request: &QueryRequest<'_>,
    ) -> Result<StatementAnalysis, Error> {
        let begin = begin(request);
        let types = request.declared_types();
        let client = self.client();
        let locks_query = client
            .prepare_cached(SELECT_LOCKED_RELATIONS)
            .await
            .map_err(|error| error::from_internal_query(&error))?;
        let backend_query = client
            .prepare_cached(SELECT_BACKEND)
            .await
            .map_err(|error| error::from_internal_query(&error))?;
        // All are sent together; the server runs them in this order. Behind a pooler of
        // transactions only a transaction keeps its process.
        let (begun, backend, prepared, locked) = tokio::join!(
            biased;
            client.batch_execute(&begin),
            BackendProcess::of_session(client, &backend_query),
            client.prepare_typed(request.sql, &types),
            self.query_locks(&locks_query),
        );
        begun.map_err(|error| error::from_internal_query(&error))?;
        let backend = backend?;
        let (statement, locked) = match prepared {
            Err(error) if !types.is_empty() && is_missing_type_error(&error) => {
                let statement = self.prepare_with_inferred_types(request, &begin).await?;
                (statement, self.query_locks(&locks_query).await?)
            }
            prepared => (
                prepared.map_err(|error| error::from_prepare(&error))?,
                locked?,
            ),
        };
        let shape = StatementShape::from_prepared(&statement);
        Ok(StatementAnalysis {
            shape,
            locked_relations: locked,
            backend,
        })
    }

    /// Begins the transaction, reads a cached statement, and ends it, in one round trip;
    /// no rows if it locks anything that it did not lock before, or has other columns. The
    /// memory of the server is watched if other values than those before may need more.
    pub(super) async fn read_cached(
        &self,
        request: &QueryRequest<'_>,
        cached: &CachedStatement,
    ) -> Result<Option<QueryRows>, Error> {
        let cache = &self.client().statement_cache;
        if cache.size() > MAX_PREPARED_STATEMENTS {
            cache.clear();
        }
        let locks_query = self.client().prepare_cached(SELECT_ALL_LOCKS);
        let locks_query = locks_query
            .await
            .map_err(|error| error::from_internal_query(&error))?;
        let backend_query = if !request.values.is_empty()
            && request
                .growth
                .is_watched_with_parameters(request.longest_value())
        {
            let prepared = self.client().prepare_cached(SELECT_BACKEND).await;
            Some(prepared.map_err(|error| error::from_internal_query(&error))?)
        } else {
            None
        };
        let row_writer = cached.row_writer.as_ref();
        let sql = match row_writer {
            Some(_) => row_json::length_checked_query(&cached.shape, request),
            None => cached.shape.json_rows_query(request),
        };
        let statement = self
            .client()
            .prepare_typed_cached(&sql, &cached.shape.parameters)
            .await
            .map_err(|error| error::from_prepare(&error))?;
        if row_writer.is_some() && !row_json::matches_shape(&cached.shape, statement.columns()) {
            return Ok(None);
        }
        let begin = begin(request);
        let (found, backend) = oneshot::channel();
        let find_backend = async {
            let Some(query) = &backend_query else {
                return;
            };
            if let Ok(backend) = BackendProcess::of_session(self.client(), query).await {
                let _ = found.send(backend);
            }
        };
        let reading = async {
            tokio::join!(
                biased;
                self.client().batch_execute(&begin),
                find_backend,
                async {
                    let rows = self.client().query_raw(&statement, request.text_parameters());
                    collect_rows(request, &cached.shape, row_writer, rows.await).await
                },
                self.query_locks(&locks_query),
                self.client().batch_execute(ROLLBACK_SQL),
            )
        };
        let outgrowing = async {
            match backend.await {
                Ok(Some(backend)) => backend.wait_until_too_large().await,
                _ => std::future::pending().await,
            }
        };
        let (begun, (), rows, locked, ended) = tokio::select! {
            biased;
            read = reading => read,
            () = outgrowing => return Err(Error::TooMuchMemory),
        };
        begun
            .and(ended)
            .map_err(|error| error::from_internal_query(&error))?;
        let (rows, _) = rows?;
        let same = locked?
            .iter()
            .all(|it| cached.locked_relations.contains(it))
            && rows.first_row_matches_columns();
        Ok(same.then_some(rows))
    }

    /// Prepares the statement with the types that the values have by themselves.
    async fn prepare_with_inferred_types(
        &self,
        request: &QueryRequest<'_>,
        begin: &str,
    ) -> Result<Statement, Error> {
        let types: Vec<Type> = request.values.iter().map(|it| inferred_type(it)).collect();
        let again = format!("ROLLBACK; {begin}");
        self.client()
            .batch_execute(&again)
            .await
            .map_err(|error| error::from_internal_query(&error))?;
        self.client()
            .prepare_typed(request.sql, &types)
            .await
            .map_err(|error| error::from_prepare(&error))
    }

    /// The relations that the server locked so far.
    pub(super) async fn locked_relations(&self, sql: &str) -> Result<Vec<Oid>, Error> {
        let locks_query = self.client().prepare_cached(sql).await;
        self.query_locks(&locks_query.map_err(|error| error::from_internal_query(&error))?)
            .await
    }

    async fn query_locks(&self, locks_query: &Statement) -> Result<Vec<Oid>, Error> {
        let rows = self.client().query(locks_query, &[]).await;
        let rows = rows.map_err(|error| error::from_internal_query(&error))?;
        rows.iter()
            .map(|it| {
                it.try_get(0)
                    .map_err(|error| error::from_internal_query(&error))
            })
            .collect()
    }

    /// The rows, and whether the server sent all that it had to.
    pub(super) async fn read_rows(
        &self,
        request: &QueryRequest<'_>,
        shape: &StatementShape,
    ) -> Result<(QueryRows, bool), Error> {
        if request.limits.rows == 0 {
            let empty = RowCollector::new(shape.columns.clone(), request.limits);
            return Ok((empty.finish(), true));
        }
        let values = request
            .text_parameters()
            .zip(shape.parameters.iter().cloned());
        let sql = shape.json_rows_query(request);
        let rows = self.client().query_typed_raw(&sql, values).await;
        collect_rows(request, shape, None, rows).await
    }

    /// How the server would run the statement, as text. As a sub-query it can only be a
    /// query.
    pub(super) async fn read_plan(
        &self,
        request: &QueryRequest<'_>,
        shape: &StatementShape,
    ) -> Result<QueryRows, Error> {
        let values = request
            .text_parameters()
            .zip(shape.parameters.iter().cloned());
        let sql = format!("EXPLAIN SELECT * FROM (\n{}\n) AS _q", request.sql);
        let rows = self.client().query_typed_raw(&sql, values).await;
        let mut rows = pin!(rows.map_err(|error| error::from_execution(&error))?);
        let mut collector = RowCollector::new(vec!["plan".to_owned()], request.limits);
        while let Some(row) = rows
            .try_next()
            .await
            .map_err(|error| error::from_execution(&error))?
        {
            let line: &str = row
                .try_get(0)
                .map_err(|error| error::from_internal_query(&error))?;
            collector.try_push(&plan_row(line));
        }
        Ok(collector.finish())
    }

    /// How many bytes of rows an aggregate or sub-query of the statement would collect.
    pub(super) async fn estimate_collected_bytes(
        &self,
        request: &QueryRequest<'_>,
        shape: &StatementShape,
    ) -> Result<f64, Error> {
        let values = request
            .text_parameters()
            .zip(shape.parameters.iter().cloned());
        let sql = format!(
            "EXPLAIN (VERBOSE, FORMAT JSON) SELECT * FROM (\n{}\n) AS _q",
            request.sql
        );
        let rows = self.client().query_typed_raw(&sql, values).await;
        let rows: Vec<Row> = rows
            .map_err(|error| error::from_execution(&error))?
            .try_collect()
            .await
            .map_err(|error| error::from_execution(&error))?;
        let plan = rows
            .first()
            .and_then(|it| it.try_get::<_, RawColumn<'_>>(0).ok());
        let plan = plan.and_then(|it| serde_json::from_slice::<Json>(it.0).ok());
        Ok(plan.map_or(0.0, |it| {
            CollectedBytes::estimate(&it[0]["Plan"], request.growth)
        }))
    }

    /// The relations that the statement has locked so far, without indexes.
    pub(super) async fn relations_in_use(&self) -> Result<Vec<Oid>, Error> {
        self.locked_relations(SELECT_LOCKED_RELATIONS).await
    }

    /// Ends the use of the connection. One whose statement was stopped half-way is
    /// closed; one whose statement the server ended itself goes on.
    pub(super) fn finish<T>(self, read: Result<(T, bool), Error>) -> Result<T, Error> {
        if !matches!(&read, Ok((_, false)) | Err(Error::TooMuchMemory)) {
            self.return_after_cleanup();
        }
        read.map(|(rows, _)| rows)
    }

    /// Returns a connection to the pool whose transaction has ended.
    pub(super) fn return_unchanged(mut self) {
        drop(self.client.take());
    }

    /// Returns the connection to the pool once the server has cleaned up; nobody waits
    /// for that. If it cannot be done, the connection is closed.
    fn return_after_cleanup(mut self) {
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
        if let Some(client) = self.client.take() {
            let client = Object::take(client);
            self.tasks.spawn(cancel_and_close(client, self.tls.clone()));
        }
    }
}

/// Cancels what the server does until it answers again, then closes the connection. It
/// is not used again: a cancel request that is late would end the next query.
async fn cancel_and_close(client: ClientWrapper, tls: PostgresTls) {
    let token = client.cancel_token();
    let mut idle = pin!(client.batch_execute(ROLLBACK_SQL));
    for _ in 0..MAX_CANCEL_REQUESTS {
        // If no request gets through, the server's own deadline ends the query.
        let _ = time::timeout(CLEANUP_TIMEOUT, token.cancel_query(tls.clone())).await;
        if time::timeout(CANCEL_INTERVAL, &mut idle).await.is_ok() {
            return;
        }
    }
}

/// Takes rows as they come, as JSON texts or to be written by `row_writer`, up to the
/// limits. The flag says whether the server sent all that it had to.
async fn collect_rows(
    request: &QueryRequest<'_>,
    shape: &StatementShape,
    row_writer: Option<&RowJsonWriter>,
    rows: Result<RowStream, tokio_postgres::Error>,
) -> Result<(QueryRows, bool), Error> {
    let mut collector = RowCollector::new(shape.columns.clone(), request.limits);
    let mut rows = pin!(rows.map_err(|error| error::from_execution(&error))?);
    let mut buffer = Vec::new();
    while let Some(row) = rows
        .try_next()
        .await
        .map_err(|error| error::from_execution(&error))?
    {
        let text = match row_writer {
            Some(writer) => Some(
                writer
                    .write_row(&row, &mut buffer)
                    .ok_or_else(error::unexpected_value)?,
            ),
            None => row
                .try_get(0)
                .map_err(|error| error::from_internal_query(&error))?,
        };
        if text.is_none() {
            collector.end_at_oversized_row();
        }
        if !text.is_some_and(|it| collector.try_push(it)) {
            let done = rows
                .try_next()
                .await
                .map_err(|error| error::from_execution(&error))?
                .is_none();
            return Ok((collector.finish(), done));
        }
    }
    Ok((collector.finish(), true))
}

/// Begins a transaction that only reads, with the name of its request, and with its
/// deadline if that is not the one of the session.
fn begin(request: &QueryRequest<'_>) -> String {
    let mut begin = String::from("BEGIN READ ONLY");
    let session = request.session_timeouts;
    if request.limits.timeout != session.statement {
        for (name, milliseconds) in session.settings(request.limits.timeout) {
            begin.push_str(&format!("; SET LOCAL {name} = {milliseconds}"));
        }
    }
    for (name, value) in &request.caller_settings {
        let value = value.replace('\'', "''").replace('\0', "");
        // Quoted, because parts such as `user` are keywords.
        let name = name.replace('.', "\".\"");
        begin.push_str(&format!("; SET LOCAL \"{name}\" = '{value}'"));
    }
    // Lets an admin match the server's activity or log with the audit log.
    if let Some([high, low]) = request.limits.request {
        begin.push_str(&format!(
            "; SET LOCAL application_name = 'maru {high:016x}{low:016x}'"
        ));
    }
    begin
}

impl SessionTimeouts {
    pub(super) fn new(settings: &SourceSettings) -> Self {
        Self {
            statement: settings.limits.timeout,
            lock: settings.lock_timeout.unwrap_or(DEFAULT_LOCK_TIMEOUT),
        }
    }

    /// The server's settings for a query that may take `timeout`, in milliseconds.
    pub(super) fn settings(self, timeout: Duration) -> [(&'static str, u128); 3] {
        let timeout = timeout.as_millis().clamp(1, 2_000_000_000); // as far as the server counts
        [
            ("statement_timeout", timeout),
            ("lock_timeout", timeout.min(self.lock.as_millis().max(1))),
            (
                "idle_in_transaction_session_timeout",
                timeout + CLEANUP_TIMEOUT.as_millis(),
            ),
        ]
    }
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
