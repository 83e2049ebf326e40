//! One request on its way to a backend: its place in the queue, and the next backend if
//! the first one fails before its response has begun.

use std::{sync::Arc, time::Duration};

use maru_http::RetrySchedule;
use maru_runtime::tasks::with_timeout;
use tokio::time::Instant;
use tracing::{Instrument as _, debug, warn};

use super::{
    ChatRequest, ChatRequestOptions, ChatStream, Error,
    backend_client::MAX_RETRIES,
    model_entry::ModelEntry,
    request_recorder::ModelRequestRecorder,
    stream::{self, ChatStreamParts},
    usage_ledger::RequestMeter,
};
use maru_observability::metrics::ModelMetrics;

/// A request to a model, whichever backend answers it.
pub(super) struct ModelCall<'a> {
    /// The name that the client uses.
    pub(super) name: String,
    pub(super) options: &'a ChatRequestOptions,
    pub(super) metrics: &'a ModelMetrics,
    /// Counts what the request uses, whichever backend answers it.
    pub(super) meter: Option<RequestMeter>,
    pub(super) started_at: Instant,
    pub(super) deadline: Instant,
    /// How long it may take.
    pub(super) limit: Duration,
}

/// An entry that serves the model.
pub(super) struct BackendCandidate<'a> {
    pub(super) entry: &'a ModelEntry,
    /// The backend's name of the model.
    pub(super) model: String,
}

/// How often a request is sent to a backend, and how long that may take.
#[derive(Clone, Copy)]
struct SendAttempts {
    max_retries: u32,
    response_timeout: Duration,
}

/// A request that got no response, and the recorder that counts it.
type FailedAttempt = (Error, ModelRequestRecorder);

impl ModelCall<'_> {
    /// Starts a response of the only backend, with retries.
    pub(super) async fn start(
        &self,
        only: &BackendCandidate<'_>,
        request: ChatRequest,
    ) -> Result<ChatStream, Error> {
        let attempts = SendAttempts {
            max_retries: MAX_RETRIES,
            response_timeout: self.limit,
        };
        let started = self.start_once(only, request, attempts).await;
        record_health(only.entry, &started);
        started.map_err(|(error, mut recorder)| {
            recorder.fail(&error);
            error
        })
    }

    /// Starts a response of the first backend that gives one. Backends in their cooldown
    /// come last. If all of them fail, they are tried again like a single backend.
    pub(super) async fn start_with_failover(
        &self,
        candidates: &[BackendCandidate<'_>],
        request: ChatRequest,
    ) -> Result<ChatStream, Error> {
        let mut schedule = RetrySchedule::new(MAX_RETRIES, self.deadline);
        loop {
            let (error, mut recorder) = match self.try_each(candidates, &request).await {
                Ok(stream) => return Ok(stream),
                Err(failed) => failed,
            };
            let is_retryable = error.allows_failover();
            if !is_retryable || !schedule.wait(error.retry_after()).await {
                recorder.fail(&error);
                return Err(error);
            }
            recorder.discard();
        }
    }

    /// Tries every backend once, until one responds.
    async fn try_each(
        &self,
        candidates: &[BackendCandidate<'_>],
        request: &ChatRequest,
    ) -> Result<ChatStream, FailedAttempt> {
        let mut untried: Vec<&BackendCandidate<'_>> = candidates.iter().collect();
        loop {
            let ready = untried.iter().position(|it| it.entry.health.try_use());
            let candidate = untried.remove(ready.unwrap_or(0));
            let started = self
                .try_backend(candidate, request.clone(), untried.is_empty())
                .await;
            record_health(candidate.entry, &started);
            match started {
                Err((error, recorder)) if error.allows_failover() && !untried.is_empty() => {
                    let backend = candidate.entry.authority();
                    warn!(
                        model = self.name,
                        backend, %error, "a backend failed; trying the next one"
                    );
                    recorder.fail_over();
                }
                started => return started,
            }
        }
    }

    /// Starts a response and reads its beginning: up to there, another backend can be
    /// asked. One that is not the last must begin within its `idle_timeout_ms`.
    async fn try_backend(
        &self,
        candidate: &BackendCandidate<'_>,
        request: ChatRequest,
        is_last: bool,
    ) -> Result<ChatStream, FailedAttempt> {
        let response_timeout = if is_last {
            self.limit
        } else {
            candidate.entry.idle_timeout
        };
        let attempts = SendAttempts {
            max_retries: 0,
            response_timeout,
        };
        let mut stream = self.start_once(candidate, request, attempts).await?;
        let limit = response_timeout.min(self.time_left());
        let begun = with_timeout(limit, stream.prefetch()).await;
        match begun.unwrap_or_else(|| Err(self.silent(candidate.entry))) {
            Ok(()) => Ok(stream),
            Err(error) => Err((error, stream.into_recorder())),
        }
    }

    /// Sends the request to one backend. A model that answers in text although it has to call
    /// is asked once more, and then held to a call.
    async fn start_once(
        &self,
        candidate: &BackendCandidate<'_>,
        request: ChatRequest,
        attempts: SendAttempts,
    ) -> Result<ChatStream, FailedAttempt> {
        let BackendCandidate { entry, model } = candidate;
        if !entry.may_ignore_choice(&request, model) {
            return self.send_once(candidate, request, attempts).await;
        }
        let mut stream = self.send_once(candidate, request.clone(), attempts).await?;
        if stream.prefetch_call().await {
            return Ok(stream);
        }
        debug!(
            model,
            "the model ignores the choice of a tool; constraining it from now on"
        );
        entry.set_ignores_choice(model);
        stream.into_recorder().discard();
        self.send_once(candidate, request, attempts).await
    }

    /// Waits in the queue of one backend and sends the request to it.
    async fn send_once(
        &self,
        candidate: &BackendCandidate<'_>,
        request: ChatRequest,
        attempts: SendAttempts,
    ) -> Result<ChatStream, FailedAttempt> {
        let BackendCandidate { entry, model } = candidate;
        let recorder = entry.record_request(self, model);
        let starting = async {
            let permit = entry.acquire_permit(&self.name, self.options).await?;
            recorder.mark_admitted();
            let schedule = RetrySchedule::new(attempts.max_retries, self.deadline);
            let sent = entry.start_response(request, model, self.options, schedule);
            let sent = with_timeout(attempts.response_timeout, sent).await;
            let (response, decoder) = sent.unwrap_or_else(|| Err(self.silent(entry)))?;
            let is_event_stream =
                stream::is_event_stream(&response).map_err(|what| Error::InvalidResponse {
                    model: self.name.clone(),
                    what,
                })?;
            Ok((permit, response, is_event_stream, decoder))
        };
        let starting = Box::pin(starting.instrument(recorder.span().clone()));
        let started = with_timeout(self.time_left(), starting).await;
        let started = started.unwrap_or_else(|| {
            Err(Error::Timeout {
                model: self.name.clone(),
                limit: self.limit,
            })
        });
        let (permit, response, is_event_stream, decoder) = match started {
            Ok(started) => started,
            Err(error) => return Err((error, recorder)),
        };
        Ok(ChatStream::new(ChatStreamParts {
            response,
            is_event_stream,
            decoder,
            backend: entry.backend,
            backend_model: model.clone(),
            reasoning_starts: Arc::clone(&entry.reasoning_starts),
            model: self.name.clone(),
            deadline: self.deadline,
            timeout: self.limit,
            idle_timeout: entry.idle_timeout,
            health: entry.health.clone(),
            permit,
            recorder,
        }))
    }

    fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn silent(&self, entry: &ModelEntry) -> Error {
        Error::Silent {
            model: self.name.clone(),
            limit: entry.idle_timeout,
        }
    }
}

fn record_health(entry: &ModelEntry, started: &Result<ChatStream, FailedAttempt>) {
    match started {
        Ok(_) => entry.health.record_success(),
        Err((error, _)) if error.is_backend_failure() => {
            entry.health.record_failure(error.retry_after());
        }
        Err(_) => (),
    }
}
