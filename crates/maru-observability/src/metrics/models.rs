//! Requests to models, the wait for them, and their tokens.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};

use super::model_latency_histogram;

/// Counts money, which has fractions.
type CostCounter = Counter<f64, AtomicU64>;
/// Billionths in one unit of the currency.
const NANOS_PER_UNIT: f64 = 1e9;

/// The requests to every model of the settings. Clones share their counters.
#[derive(Clone, Debug)]
pub struct ModelMetrics {
    requests: Family<ModelOutcomeLabels, Counter>,
    tokens: Family<TokenLabels, Counter>,
    costs: Family<BackendLabels, CostCounter>,
    failovers: Family<BackendLabels, Counter>,
    durations: Family<ModelLabels, Histogram, fn() -> Histogram>,
    queue_waits: Family<ModelLabels, Histogram, fn() -> Histogram>,
    first_tokens: Family<ModelLabels, Histogram, fn() -> Histogram>,
}

/// How a request to a model ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelOutcome {
    /// With a complete response.
    Ok,
    /// The backend failed or timed out.
    Failed,
    /// The queue was full.
    QueueFull,
    /// A budget did not allow it.
    OverBudget,
    /// The client disconnected before the end.
    Cancelled,
}

/// Which tokens are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// Tokens of the prompt.
    Input,
    /// Those of them that the backend had cached.
    Cached,
    /// Tokens of the response.
    Output,
    /// Those of them that are reasoning.
    Reasoning,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelLabels {
    model: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BackendLabels {
    model: Arc<str>,
    backend: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelOutcomeLabels {
    model: Arc<str>,
    backend: Arc<str>,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    model: Arc<str>,
    backend: Arc<str>,
    kind: &'static str,
}

impl Default for ModelMetrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            tokens: Family::default(),
            costs: Family::default(),
            failovers: Family::default(),
            durations: Family::new_with_constructor(model_latency_histogram),
            queue_waits: Family::new_with_constructor(model_latency_histogram),
            first_tokens: Family::new_with_constructor(model_latency_histogram),
        }
    }
}

impl ModelMetrics {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "maru_model_requests",
            "Requests to models and how they ended",
            self.requests.clone(),
        );
        registry.register(
            "maru_model_tokens",
            "Tokens of prompts and responses, as backends report them",
            self.tokens.clone(),
        );
        registry.register(
            "maru_model_cost",
            "What requests to models cost, in the currency of the settings",
            self.costs.clone(),
        );
        registry.register(
            "maru_model_request_duration_seconds",
            "How long requests to models took, the queue included",
            self.durations.clone(),
        );
        registry.register(
            "maru_model_failovers",
            "Requests that a backend did not answer and another one was asked",
            self.failovers.clone(),
        );
        registry.register(
            "maru_model_queue_wait_seconds",
            "How long requests waited in the queue of a model",
            self.queue_waits.clone(),
        );
        registry.register(
            "maru_model_time_to_first_token_seconds",
            "Time from the request to the first piece of its response",
            self.first_tokens.clone(),
        );
    }

    /// Counts a request that ended. The backend is empty if none was asked.
    pub fn count_request(&self, model: &Arc<str>, backend: &Arc<str>, outcome: ModelOutcome) {
        let labels = ModelOutcomeLabels {
            model: Arc::clone(model),
            backend: Arc::clone(backend),
            outcome: outcome.as_str(),
        };
        self.requests.get_or_create(&labels).inc();
    }

    /// Counts the tokens of a request.
    pub fn count_tokens(&self, model: &Arc<str>, backend: &Arc<str>, kind: TokenKind, count: u64) {
        let labels = TokenLabels {
            model: Arc::clone(model),
            backend: Arc::clone(backend),
            kind: kind.as_str(),
        };
        self.tokens.get_or_create(&labels).inc_by(count);
    }

    /// Counts a request that `backend` did not answer and another one was asked.
    pub fn count_failover(&self, model: &Arc<str>, backend: &Arc<str>) {
        let labels = BackendLabels::new(model, backend);
        self.failovers.get_or_create(&labels).inc();
    }

    /// Counts what a request cost, in billionths of the currency.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a sum of money as metrics have it, in floating point"
    )]
    pub fn count_cost(&self, model: &Arc<str>, backend: &Arc<str>, nanos: i64) {
        let labels = BackendLabels::new(model, backend);
        let units = nanos.max(0) as f64 / NANOS_PER_UNIT;
        self.costs.get_or_create(&labels).inc_by(units);
    }

    /// Records how long a request took.
    pub fn observe_duration(&self, model: &Arc<str>, duration: Duration) {
        observe(&self.durations, model, duration);
    }

    /// Records how long a request waited in the queue.
    pub fn observe_queue_wait(&self, model: &Arc<str>, wait: Duration) {
        observe(&self.queue_waits, model, wait);
    }

    /// Records the time to the first piece of a response.
    pub fn observe_first_token(&self, model: &Arc<str>, wait: Duration) {
        observe(&self.first_tokens, model, wait);
    }
}

impl BackendLabels {
    fn new(model: &Arc<str>, backend: &Arc<str>) -> Self {
        Self {
            model: Arc::clone(model),
            backend: Arc::clone(backend),
        }
    }
}

impl ModelOutcome {
    /// Its name in metrics and spans.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::QueueFull => "queue_full",
            Self::OverBudget => "over_budget",
            Self::Cancelled => "cancelled",
        }
    }
}

impl TokenKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Input => "input",
            Self::Cached => "cached",
            Self::Output => "output",
            Self::Reasoning => "reasoning",
        }
    }
}

fn observe(
    family: &Family<ModelLabels, Histogram, fn() -> Histogram>,
    model: &Arc<str>,
    duration: Duration,
) {
    let model = Arc::clone(model);
    let histogram = family.get_or_create_owned(&ModelLabels { model });
    histogram.observe(duration.as_secs_f64());
}
