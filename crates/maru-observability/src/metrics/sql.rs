//! SQL statements of data sources.

use std::sync::Arc;

use maru_sources::FinishedQuery;
use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};

use super::latency_histogram;

/// The statements of every source.
#[derive(Clone, Debug)]
pub(super) struct SqlMetrics {
    statements: Family<StatementLabels, Counter>,
    durations: Family<SourceLabels, Histogram, fn() -> Histogram>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SourceLabels {
    source: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatementLabels {
    source: Arc<str>,
    outcome: &'static str,
}

impl Default for SqlMetrics {
    fn default() -> Self {
        Self {
            statements: Family::default(),
            durations: Family::new_with_constructor(latency_histogram),
        }
    }
}

impl SqlMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "maru_sql_statements",
            "SQL statements by source and how they ended",
            self.statements.clone(),
        );
        registry.register(
            "maru_sql_statement_duration_seconds",
            "How long SQL statements took",
            self.durations.clone(),
        );
    }

    pub(super) fn count(&self, query: &FinishedQuery<'_>) {
        let labels = StatementLabels {
            source: Arc::clone(query.source),
            outcome: query.outcome,
        };
        self.statements.get_or_create(&labels).inc();
        let source = labels.source;
        let duration = self.durations.get_or_create_owned(&SourceLabels { source });
        duration.observe(query.duration.as_secs_f64());
    }
}
