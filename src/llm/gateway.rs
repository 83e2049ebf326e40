//! Routes a request by the name of its model to the entry of the settings that serves it.

use std::time::Duration;

use maru_http::{AddressPolicy, ClientTls};
use maru_runtime::tasks::with_timeout;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::{
    ChatRequest, ChatRequestOptions, ChatResponse, ChatStream, Error, ModelInfo, listing,
    model_entry::ModelEntry, stream::ChatStreamParts,
};
use crate::{
    config::{ClientMode, ModelDefinition},
    observability::metrics::ModelMetrics,
};

/// Every configured model. Responses come as [`ChatStream`]s, driven by their readers.
#[derive(Debug)]
pub struct Gateway {
    entries: Vec<ModelEntry>,
    /// The address that is tried because nothing is configured.
    fallback_url: Option<String>,
    metrics: ModelMetrics,
}

/// How busy an entry is.
#[derive(Clone, Debug)]
pub struct ModelStatus {
    /// Its name in the settings.
    pub name: String,
    /// Requests in progress.
    pub running: usize,
    /// Requests that wait.
    pub waiting: usize,
}

impl Gateway {
    /// Opens every entry; no backend is contacted before the first request. Without any
    /// entry, the Ollama at `ollama` is used.
    pub fn open(
        models: &[ModelDefinition],
        ollama: &str,
        policy: &AddressPolicy,
        tls: &ClientTls,
    ) -> Result<Self, Error> {
        let implied;
        let (models, fallback) = match models {
            [] => {
                implied = [ModelDefinition {
                    base_url: Some(format!("{}/v1", ollama.trim_end_matches('/'))),
                    ..ModelDefinition::default()
                }];
                (&implied[..], Some(ollama.to_owned()))
            }
            models => (models, None),
        };
        let entries = models.iter().enumerate().map(|(at, it)| {
            let name = it.name.clone();
            ModelEntry::open(it, policy, tls).map_err(|reason| Error::InvalidSetting {
                at,
                name,
                reason,
            })
        });
        Ok(Self {
            entries: entries.collect::<Result<_, _>>()?,
            fallback_url: fallback,
            metrics: ModelMetrics::default(),
        })
    }

    /// Counts requests and tokens in `metrics`.
    #[must_use]
    pub fn with_metrics(mut self, metrics: &ModelMetrics) -> Self {
        self.metrics = metrics.clone();
        self
    }

    /// Starts a streamed response. Resolves when it begins.
    pub async fn stream_chat(
        &self,
        request: ChatRequest,
        limit: Duration,
    ) -> Result<ChatStream, Error> {
        self.start_chat(request, &ChatRequestOptions::streamed(limit))
            .await
    }

    /// Requests a whole response.
    pub async fn complete_chat(
        &self,
        request: ChatRequest,
        limit: Duration,
    ) -> Result<ChatResponse, Error> {
        let stream = self
            .start_chat(request, &ChatRequestOptions::unstreamed(limit))
            .await?;
        stream.collect_response().await
    }

    /// Starts a response. Resolves when it begins.
    pub async fn start_chat(
        &self,
        request: ChatRequest,
        options: &ChatRequestOptions,
    ) -> Result<ChatStream, Error> {
        let name = request.model.clone();
        let (entry, model) = self
            .find_entry(&name)
            .ok_or_else(|| Error::UnknownModel(name.clone()))?;
        let limit = entry.timeout.min(options.limit);
        let deadline = Instant::now() + limit;
        let mut recorder = entry.record_request(&self.metrics, &model);
        let starting = async {
            let permit = entry.acquire_permit(&name, options).await?;
            recorder.mark_admitted();
            let (response, decoder) = entry
                .start_response(request, &model, options, deadline)
                .await?;
            Ok((permit, response, decoder))
        };
        let late = || Error::Timeout {
            model: name.clone(),
            limit,
        };
        let starting = Box::pin(starting.instrument(recorder.span().clone()));
        let started = with_timeout(limit, starting)
            .await
            .unwrap_or_else(|| Err(late()));
        let (permit, response, decoder) = started.map_err(|error| {
            recorder.fail(&error);
            self.to_public_error(error)
        })?;
        ChatStream::new(ChatStreamParts {
            response,
            decoder,
            backend: entry.backend,
            model: name,
            deadline,
            timeout: limit,
            idle_timeout: entry.idle_timeout,
            permit,
            recorder,
        })
    }

    /// Every model that can be requested by its own name. Backends that do not
    /// answer in time are left out.
    pub async fn list_models(&self) -> Vec<ModelInfo> {
        listing::list_models(&self.entries).await
    }

    /// How calls of `model` reach clients, if the settings say so.
    pub fn client_mode(&self, model: &str) -> Option<ClientMode> {
        self.find_entry(model)?.0.client_mode
    }

    /// How busy every entry is.
    pub fn status(&self) -> Vec<ModelStatus> {
        let status = |it: &ModelEntry| {
            let (running, waiting) = it.queue.load();
            ModelStatus {
                name: it.names.configured_name().to_owned(),
                running,
                waiting,
            }
        };
        self.entries.iter().map(status).collect()
    }

    /// The entry for a name that clients use, and the backend's name of the model.
    fn find_entry(&self, name: &str) -> Option<(&ModelEntry, String)> {
        let resolve =
            |entry| -> Option<_> { ModelEntry::resolve(entry, name).map(|model| (entry, model)) };
        self.entries.iter().find_map(resolve)
    }

    /// Where no model is configured, the error says that.
    fn to_public_error(&self, error: Error) -> Error {
        match (&self.fallback_url, error) {
            (Some(url), Error::Unreachable { .. }) => Error::NoModels(url.clone()),
            (_, error) => error,
        }
    }
}
