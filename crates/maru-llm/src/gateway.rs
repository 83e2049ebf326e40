//! Routes a request by the name of its model to the entry of the settings that serves it.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use maru_http::{AddressPolicy, ClientTls};
use tokio::time::Instant;

use super::{
    ChatRequest, ChatRequestOptions, ChatResponse, ChatStream, EmbeddingMeter, Error, ModelInfo,
    UsageLedger, listing,
    model_call::{BackendCandidate, ModelCall},
    model_entry::ModelEntry,
    usage_ledger::{MeteredModel, RequestMeter, TokenEstimate},
};
use maru_config::{ClientMode, ModelDefinition};
use maru_observability::metrics::{ModelMetrics, ModelOutcome};

/// Counts the requests of a program that embeds the gateway.
const UNNAMED_CALLER: &str = "local";

/// Every configured model. Responses come as [`ChatStream`]s, driven by their readers.
#[derive(Debug)]
pub struct Gateway {
    entries: Vec<ModelEntry>,
    /// The address that is tried because nothing is configured.
    fallback_url: Option<String>,
    metrics: ModelMetrics,
    usage: Option<Arc<UsageLedger>>,
}

/// Where an entry comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelOrigin {
    /// `models` in the settings.
    Settings,
    /// Added while the hub runs.
    Console,
    /// The Ollama that is used where the settings have no models.
    Implied,
}

/// How busy an entry is.
#[derive(Clone, Debug)]
pub struct ModelStatus {
    /// Where it comes from.
    pub origin: ModelOrigin,
    /// Its name in the settings.
    pub name: String,
    /// Requests in progress.
    pub running: usize,
    /// Requests that wait.
    pub waiting: usize,
    /// Host and port of its backend.
    pub backend: String,
    /// Failures of the backend in a row.
    pub consecutive_failures: u32,
    /// How long the backend is used last because of them.
    pub cooldown: Duration,
}

impl ModelOrigin {
    /// Its name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Settings => "settings",
            Self::Console => "console",
            Self::Implied => "implied",
        }
    }
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
        let entries = Self::open_configured(models, ollama, policy, tls)?;
        let fallback_url = models.is_empty().then(|| ollama.to_owned());
        Ok(Self::from_entries(entries, fallback_url))
    }

    /// Opens every entry of the settings, or the Ollama at `ollama` if there is none.
    pub(super) fn open_configured(
        models: &[ModelDefinition],
        ollama: &str,
        policy: &AddressPolicy,
        tls: &ClientTls,
    ) -> Result<Vec<ModelEntry>, Error> {
        let implied = ModelDefinition {
            base_url: Some(format!("{}/v1", ollama.trim_end_matches('/'))),
            ..ModelDefinition::default()
        };
        let (models, origin) = match models {
            [] => (std::slice::from_ref(&implied), ModelOrigin::Implied),
            models => (models, ModelOrigin::Settings),
        };
        let entries = models.iter().enumerate().map(|(at, it)| {
            let name = it.name.clone();
            ModelEntry::open(it, origin, policy, tls).map_err(|reason| Error::InvalidSetting {
                at,
                name,
                reason,
            })
        });
        entries.collect()
    }

    /// Without any other model, errors say that nothing answers at `fallback_url`.
    pub(super) fn from_entries(entries: Vec<ModelEntry>, fallback_url: Option<String>) -> Self {
        Self {
            entries,
            fallback_url,
            metrics: ModelMetrics::default(),
            usage: None,
        }
    }

    /// Counts requests and tokens in `metrics`.
    #[must_use]
    pub fn with_metrics(mut self, metrics: &ModelMetrics) -> Self {
        self.metrics = metrics.clone();
        self
    }

    /// Counts what requests use in `usage`, and keeps to its budgets.
    #[must_use]
    pub fn with_usage(mut self, usage: &Arc<UsageLedger>) -> Self {
        self.usage = Some(Arc::clone(usage));
        self
    }

    /// Starts a streamed response. Resolves when it begins.
    pub async fn stream_chat(
        &self,
        request: ChatRequest,
        limit: Duration,
    ) -> Result<ChatStream, Error> {
        let options = ChatRequestOptions::streamed(UNNAMED_CALLER, limit);
        self.start_chat(request, &options).await
    }

    /// Requests a whole response.
    pub async fn complete_chat(
        &self,
        request: ChatRequest,
        limit: Duration,
    ) -> Result<ChatResponse, Error> {
        let options = ChatRequestOptions::unstreamed(UNNAMED_CALLER, limit);
        let stream = self.start_chat(request, &options).await?;
        stream.collect_response().await
    }

    /// Starts a response. Resolves when it begins.
    pub fn start_chat<'a>(
        &'a self,
        request: ChatRequest,
        options: &'a ChatRequestOptions,
    ) -> BoxFuture<'a, Result<ChatStream, Error>> {
        // Boxed, so that it is compiled in this crate only (ADR 0010).
        Box::pin(async move {
            let started_at = Instant::now();
            let name = request.model.clone();
            let mut candidates = self.find_candidates(&name);
            if candidates.is_empty() {
                return Err(Error::UnknownModel(name));
            }
            if request.text_prompt.is_some() {
                candidates.retain(|it| it.entry.continues_texts());
            }
            let timeout = candidates.iter().map(|it| it.entry.timeout).max();
            let timeout = timeout.ok_or_else(|| Error::ChatOnly(name.clone()))?;
            let limit = timeout.min(options.limit);
            let meter = self.start_meter(candidates[0].entry, options, &request)?;
            let call = ModelCall {
                name,
                options,
                metrics: &self.metrics,
                meter,
                started_at,
                deadline: started_at + limit,
                limit,
            };
            let started = match candidates.as_slice() {
                [only] => call.start(only, request).await,
                several => call.start_with_failover(several, request).await,
            };
            started.map_err(|error| self.to_public_error(error))
        })
    }

    /// Starts to meter a request for embeddings of `texts` by the model `model` of `backend`,
    /// which may have a price in the settings.
    pub fn meter_embedding<'a>(
        &self,
        caller: &str,
        model: &str,
        backend: &str,
        texts: impl Iterator<Item = &'a str>,
    ) -> Result<EmbeddingMeter, Error> {
        let meter = self.usage.as_ref().map(|usage| {
            let mut serving = self.entries.iter().filter(|it| it.names.serves(model));
            let metered = MeteredModel {
                name: model.into(),
                configured_name: model.into(),
                price: serving.find_map(|it| it.price).unwrap_or_default(),
            };
            let estimate = TokenEstimate::of_texts(texts);
            RequestMeter::start(usage, &caller.into(), metered, estimate)
        });
        Ok(EmbeddingMeter::new(meter.transpose()?, backend))
    }

    /// Reserves what `request` is expected to use, if usage is counted.
    fn start_meter(
        &self,
        entry: &ModelEntry,
        options: &ChatRequestOptions,
        request: &ChatRequest,
    ) -> Result<Option<RequestMeter>, Error> {
        let Some(usage) = &self.usage else {
            return Ok(None);
        };
        let model = entry.metered_model(&request.model);
        let estimate = TokenEstimate::of_chat(request);
        let configured_name = Arc::clone(&model.configured_name);
        let meter = RequestMeter::start(usage, &options.caller, model, estimate);
        if meter.is_err() {
            self.metrics
                .count_request(&configured_name, &"".into(), ModelOutcome::OverBudget);
        }
        meter.map(Some)
    }

    /// Every model that can be requested by its own name. Backends that do not
    /// answer in time are left out.
    pub async fn list_models(&self) -> Vec<ModelInfo> {
        listing::list_models(&self.entries).await
    }

    /// Whether a model with this name can be requested.
    pub fn serves(&self, model: &str) -> bool {
        self.entries.iter().any(|it| it.resolve(model).is_some())
    }

    /// How calls of `model` reach clients, if the settings say so.
    pub fn client_mode(&self, model: &str) -> Option<ClientMode> {
        let serves = |it: &&ModelEntry| it.resolve(model).is_some();
        self.entries.iter().find(serves)?.client_mode
    }

    /// How busy every entry is.
    pub fn status(&self) -> Vec<ModelStatus> {
        let status = |it: &ModelEntry| {
            let (running, waiting) = it.queue.load();
            let (consecutive_failures, cooldown) = it.health.status();
            ModelStatus {
                origin: it.origin,
                name: it.names.configured_name().to_owned(),
                running,
                waiting,
                backend: it.authority(),
                consecutive_failures,
                cooldown,
            }
        };
        self.entries.iter().map(status).collect()
    }

    /// The first entry for a name that clients use, and the entries with the same name in
    /// the settings that also serve it.
    fn find_candidates(&self, name: &str) -> Vec<BackendCandidate<'_>> {
        let resolve = |entry| -> Option<_> {
            let model = ModelEntry::resolve(entry, name)?;
            Some(BackendCandidate { entry, model })
        };
        let mut matching = self.entries.iter().filter_map(resolve);
        let Some(first) = matching.next() else {
            return Vec::new();
        };
        let configured = first.entry.names.configured_name();
        let others = matching.filter(|it| it.entry.names.configured_name() == configured);
        let others: Vec<_> = others.collect();
        std::iter::once(first).chain(others).collect()
    }

    /// Where no model is configured, the error says that.
    fn to_public_error(&self, error: Error) -> Error {
        match (&self.fallback_url, error) {
            (Some(url), Error::Unreachable { .. }) => Error::NoModels(url.clone()),
            (_, error) => error,
        }
    }
}
