//! Reports every query: a `tracing` span, and a callback for metrics.

use std::{fmt, sync::Arc, time::Duration};

use tokio::time::Instant;
use tracing::{Span, field::Empty, info_span};

use super::{Error, QueryRows};

/// A query that ended.
#[derive(Debug)]
pub struct FinishedQuery<'a> {
    /// The name of its source.
    pub source: &'a Arc<str>,
    /// How it ended: `ok`, `refused`, `timed_out`, `no_connection`, `unreachable`, `failed` or `cancelled`.
    pub outcome: &'static str,
    /// How long it took.
    pub duration: Duration,
}

/// Is told of every query of a source; must not wait.
#[derive(Clone)]
pub struct QueryObserver(Arc<dyn Fn(&FinishedQuery<'_>) + Send + Sync>);

impl QueryObserver {
    /// Tells `callback`.
    pub fn new(callback: impl Fn(&FinishedQuery<'_>) + Send + Sync + 'static) -> Self {
        Self(Arc::new(callback))
    }

    fn notify(&self, query: &FinishedQuery<'_>) {
        (self.0)(query);
    }
}

impl fmt::Debug for QueryObserver {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("QueryObserver")
    }
}

/// A query in progress. Dropped before it is finished, it was cancelled.
#[derive(Debug)]
pub(super) struct QueryRecorder<'a> {
    source: &'a Arc<str>,
    observer: Option<&'a QueryObserver>,
    span: Span,
    started_at: Instant,
    outcome: &'static str,
}

impl<'a> QueryRecorder<'a> {
    /// `system` is the name of the database in the OpenTelemetry conventions.
    pub(super) fn start(
        system: &'static str,
        source: &'a Arc<str>,
        observer: Option<&'a QueryObserver>,
    ) -> Self {
        Self {
            source,
            observer,
            span: query_span(system, source),
            started_at: Instant::now(),
            outcome: "cancelled",
        }
    }

    /// The span of the query.
    pub(super) fn span(&self) -> &Span {
        &self.span
    }

    /// The query has ended.
    pub(super) fn finish(mut self, done: &Result<QueryRows, Error>) {
        self.outcome = match done {
            Ok(rows) => {
                let count = i64::try_from(rows.count).unwrap_or(i64::MAX);
                self.span.record("db.response.returned_rows", count);
                "ok"
            }
            Err(error) => outcome_of(error),
        };
    }
}

impl Drop for QueryRecorder<'_> {
    fn drop(&mut self) {
        if self.outcome != "ok" {
            self.span.record("otel.status_code", "ERROR");
            self.span.record("error.type", self.outcome);
        }
        if let Some(observer) = self.observer {
            observer.notify(&FinishedQuery {
                source: self.source,
                outcome: self.outcome,
                duration: self.started_at.elapsed(),
            });
        }
    }
}

/// The span of a query, by the OpenTelemetry conventions for databases. The statement is
/// not in it: people write values into statements.
fn query_span(system: &'static str, source: &str) -> Span {
    info_span!(
        "sql_query",
        otel.name = format!("SELECT {source}"),
        otel.kind = "client",
        otel.status_code = Empty,
        db.system.name = system,
        db.operation.name = "SELECT",
        db.namespace = source,
        db.response.returned_rows = Empty,
        "error.type" = Empty,
    )
}

fn outcome_of(error: &Error) -> &'static str {
    match error {
        Error::AtPosition { error, .. } => outcome_of(error),
        Error::Refused(_)
        | Error::MissingParameter(_)
        | Error::UnknownParameter(_)
        | Error::NulInParameter(_)
        | Error::TableNotFound(_) => "refused",
        Error::TimedOut => "timed_out",
        Error::NoFreeConnection(_) => "no_connection",
        Error::Unreachable(_) | Error::Open(_) | Error::ShuttingDown => "unreachable",
        Error::Query(_)
        | Error::Database(_)
        | Error::Rejected { .. }
        | Error::TooMuchMemory
        | Error::InvalidSettings(_) => "failed",
    }
}
