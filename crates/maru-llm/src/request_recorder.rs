//! Metrics and the span of one request to a model.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;
use tracing::Span;

use super::{
    ChatEvent, Error, FinishReason, TokenUsage,
    usage_ledger::{MAX_COUNTED_TOKENS, RequestMeter, RequestUsage},
};
use maru_observability::{
    metrics::{ModelMetrics, ModelOutcome, TokenKind},
    telemetry::spans,
};

/// A request to a model, from its arrival to the end of the response. Dropping it earlier
/// counts as cancelled.
#[derive(Debug)]
pub(super) struct ModelRequestRecorder {
    metrics: ModelMetrics,
    meter: Option<RequestMeter>,
    /// The name in the settings.
    model: Arc<str>,
    /// Host and port of the backend.
    backend: Arc<str>,
    span: Span,
    started_at: Instant,
    /// How long the first piece of the response took.
    first_token: Option<Duration>,
    /// Bytes of text in the response.
    response_bytes: u64,
    /// The last one: some backends repeat it with every chunk.
    usage: Option<TokenUsage>,
    /// Whether the answer is whole, even if nobody reads its end.
    is_complete: bool,
    is_over: bool,
}

/// What a recorder records.
pub(super) struct RecordedRequest<'a> {
    pub(super) metrics: ModelMetrics,
    pub(super) meter: Option<RequestMeter>,
    /// The name in the settings.
    pub(super) entry: &'a str,
    pub(super) provider: &'static str,
    /// Host and port of the backend.
    pub(super) backend: Arc<str>,
    /// The backend's name of the model.
    pub(super) model: &'a str,
    pub(super) started_at: Instant,
}

impl ModelRequestRecorder {
    pub(super) fn start(request: RecordedRequest<'_>) -> Self {
        Self {
            metrics: request.metrics,
            meter: request.meter,
            model: request.entry.into(),
            backend: request.backend,
            span: spans::model_request(request.provider, request.model),
            started_at: request.started_at,
            first_token: None,
            response_bytes: 0,
            usage: None,
            is_complete: false,
            is_over: false,
        }
    }

    /// The span of the request.
    pub(super) fn span(&self) -> &Span {
        &self.span
    }

    /// The request left the queue.
    pub(super) fn mark_admitted(&self) {
        self.metrics
            .observe_queue_wait(&self.model, self.started_at.elapsed());
    }

    /// Records events of the response, and its end.
    pub(super) fn observe(&mut self, events: &[ChatEvent], read: &Result<bool, Error>) {
        if self.first_token.is_none() && events.iter().any(ChatEvent::is_output) {
            let wait = self.started_at.elapsed();
            self.first_token = Some(wait);
            self.metrics.observe_first_token(&self.model, wait);
        }
        for event in events {
            match event {
                ChatEvent::Text(text) | ChatEvent::Reasoning(text) => {
                    self.response_bytes += text.len() as u64;
                }
                ChatEvent::ToolCall(call) => self.response_bytes += call.arguments.len() as u64,
                ChatEvent::Usage(usage) => self.usage = Some(usage.clone()),
                ChatEvent::Finish(reason) => self.record_finish(*reason),
                _ => (),
            }
        }
        match read {
            Ok(true) => (),
            Ok(false) => self.end(ModelOutcome::Ok),
            Err(error) => self.fail(error),
        }
    }

    /// The request failed.
    pub(super) fn fail(&mut self, error: &Error) {
        self.end(match error {
            Error::QueueFull { .. } => ModelOutcome::QueueFull,
            _ => ModelOutcome::Failed,
        });
    }

    /// Another backend is asked instead, whose recorder counts the request.
    pub(super) fn fail_over(self) {
        self.metrics.count_failover(&self.model, &self.backend);
        self.discard();
    }

    /// The request is sent again, which counts it.
    pub(super) fn discard(mut self) {
        self.is_over = true;
        spans::record_error(&self.span, ModelOutcome::Failed.as_str());
    }

    fn record_finish(&mut self, reason: FinishReason) {
        self.is_complete = true;
        self.span
            .record("gen_ai.response.finish_reasons", reason.as_str());
    }

    fn end(&mut self, outcome: ModelOutcome) {
        if self.is_over {
            return;
        }
        self.is_over = true;
        let (model, backend) = (&self.model, &self.backend);
        let duration = self.started_at.elapsed();
        self.metrics.count_request(model, backend, outcome);
        self.metrics.observe_duration(model, duration);
        if outcome != ModelOutcome::Ok {
            spans::record_error(&self.span, outcome.as_str());
        }
        if let Some(meter) = &self.meter {
            let usage = RequestUsage {
                reported: self.usage.as_ref(),
                response_bytes: self.response_bytes,
                is_error: matches!(outcome, ModelOutcome::Failed | ModelOutcome::QueueFull),
                first_token: self.first_token,
                duration,
            };
            let cost = meter.count(backend, &usage);
            self.metrics.count_cost(model, backend, cost);
        }
        if let Some(usage) = self.usage.take() {
            self.count_tokens(&usage);
        }
    }

    fn count_tokens(&self, usage: &TokenUsage) {
        let count = |kind, count: u64| {
            let count = count.min(MAX_COUNTED_TOKENS);
            self.metrics
                .count_tokens(&self.model, &self.backend, kind, count);
            i64::try_from(count).unwrap_or(0)
        };
        let input = count(TokenKind::Input, usage.input());
        count(TokenKind::Cached, usage.cached());
        let output = count(TokenKind::Output, usage.output());
        count(TokenKind::Reasoning, usage.reasoning());
        self.span.record("gen_ai.usage.input_tokens", input);
        self.span.record("gen_ai.usage.output_tokens", output);
    }
}

impl Drop for ModelRequestRecorder {
    fn drop(&mut self) {
        self.end(if self.is_complete {
            ModelOutcome::Ok
        } else {
            ModelOutcome::Cancelled
        });
    }
}
