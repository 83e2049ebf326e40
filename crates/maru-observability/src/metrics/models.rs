//! Requests to models, the wait for them, and their tokens.

use std::{sync::Arc, time::Duration};

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::Registry,
};

use super::model_latency_histogram;

/// The requests to every model of the settings. Clones share their counters.
#[derive(Clone, Debug)]
pub struct ModelMetrics {
    requests: Family<ModelOutcomeLabels, Counter>,
    tokens: Family<TokenLabels, Counter>,
    failovers: Family<BackendLabels, Counter>,
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
    /// Tokens of the response.
    Output,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelLabels {
    model: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BackendLabels {
    model: Arc<str>,
    backend: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ModelOutcomeLabels {
    model: Arc<str>,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TokenLabels {
    model: Arc<str>,
    kind: &'static str,
}

impl Default for ModelMetrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            tokens: Family::default(),
            failovers: Family::default(),
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

    /// Counts a request that ended.
    pub fn count_request(&self, model: &Arc<str>, outcome: ModelOutcome) {
        let labels = ModelOutcomeLabels {
            model: Arc::clone(model),
            outcome: outcome.as_str(),
        };
        self.requests.get_or_create(&labels).inc();
    }

    /// Counts the tokens of a request.
    pub fn count_tokens(&self, model: &Arc<str>, kind: TokenKind, count: u64) {
        let labels = TokenLabels {
            model: Arc::clone(model),
            kind: kind.as_str(),
        };
        self.tokens.get_or_create(&labels).inc_by(count);
    }

    /// Counts a request that `backend` did not answer and another one was asked.
    pub fn count_failover(&self, model: &Arc<str>, backend: &str) {
        let labels = BackendLabels {
            model: Arc::clone(model),
            backend: backend.to_owned(),
        };
        self.failovers.get_or_create(&labels).inc();
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
            Self::Output => "output",
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
