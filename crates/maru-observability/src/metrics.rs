//! Metrics for `GET /metrics`.
//!
//! Every label has few values: tools, models, sources and routes come from the catalog,
//! the settings and the route table. A name that a caller made up is counted under
//! [`OTHER_NAMES`].

mod http_requests;
mod models;
mod sql;
mod tool_calls;

use std::{fmt, sync::Arc};

use maru_sources::QueryObserver;
use prometheus_client::{encoding::text, metrics::histogram::Histogram, registry::Registry};

use super::journal::CallJournal;
use sql::SqlMetrics;
use tool_calls::ToolCallMetrics;

pub use http_requests::HttpRequestMetrics;
pub use models::{ModelMetrics, ModelOutcome, TokenKind};

/// The label of all unknown names.
pub const OTHER_NAMES: &str = "(others)";

/// Upper bounds of the histogram buckets, in seconds.
const LATENCY_BOUNDS_SECONDS: [f64; 13] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0,
];
/// Upper bounds for models, which take longer.
const MODEL_LATENCY_BOUNDS_SECONDS: [f64; 12] = [
    0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0,
];

/// All metrics of one hub.
#[derive(Debug)]
pub struct HubMetrics {
    registry: Registry,
    /// Requests over HTTP.
    pub http_requests: HttpRequestMetrics,
    /// Requests to models.
    pub models: ModelMetrics,
    tool_calls: Arc<ToolCallMetrics>,
    sql: SqlMetrics,
}

impl Default for HubMetrics {
    fn default() -> Self {
        let metrics = Self {
            registry: Registry::default(),
            http_requests: HttpRequestMetrics::default(),
            models: ModelMetrics::default(),
            tool_calls: Arc::default(),
            sql: SqlMetrics::default(),
        };
        metrics.registered()
    }
}

impl HubMetrics {
    fn registered(mut self) -> Self {
        self.tool_calls.register(&mut self.registry);
        self.http_requests.register(&mut self.registry);
        self.sql.register(&mut self.registry);
        self.models.register(&mut self.registry);
        self
    }

    /// Counts every call that `journal` records from now on.
    pub fn count_calls_of(&self, journal: &CallJournal) {
        let calls = Arc::clone(&self.tool_calls);
        journal.on_record(Box::new(move |record| calls.count(record)));
    }

    /// An observer that counts the statements of data sources.
    pub fn query_observer(&self) -> QueryObserver {
        let sql = self.sql.clone();
        QueryObserver::new(move |query| sql.count(query))
    }

    /// Writes all metrics, and the gauges in `current`, in the text format of `OpenMetrics`.
    pub fn encode(&self, current: &Registry) -> Result<String, fmt::Error> {
        let mut out = String::new();
        text::encode_registry(&mut out, &self.registry)?;
        text::encode_registry(&mut out, current)?;
        text::encode_eof(&mut out)?;
        Ok(out)
    }
}

fn latency_histogram() -> Histogram {
    Histogram::new(LATENCY_BOUNDS_SECONDS)
}

fn model_latency_histogram() -> Histogram {
    Histogram::new(MODEL_LATENCY_BOUNDS_SECONDS)
}
