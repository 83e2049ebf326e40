//! From the name of a model to its answer: entry, turn, backend, reader.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use maru_dialect::{DIALECT_NAMES, DialectOptions, DialectSelection, ToolSet, UnknownDialect};
use maru_http::{AddressPolicy, ClientTls, HttpResponse, JsonService, ServiceRequest};
use maru_runtime::tasks::with_timeout;
use serde_json::Value;
use tokio::time::Instant;
use tracing::{Instrument as _, debug};

use super::{
    ChatRequest, ChatRequestOptions, ChatResponse, ChatStream, Error, ToolChoice,
    backend_client::{ErrorResponse, open_backend},
    constrained,
    decoder::ResponseDecoder,
    gemini,
    history::{self, BackendQuirks},
    model_names::ModelNames,
    openai,
    prompt::{self, CallFormat},
    queue::{QueueLimits, QueuePermit, RequestQueue},
    request_recorder::ModelRequestRecorder,
    stream::ChatStreamParts,
};
use crate::{
    config::{BackendApi, ClientMode, ModelDefinition, SecretString, ToolMode},
    observability::metrics::ModelMetrics,
};

const OPENAI_BASE_URL: &str = "https://api.openai.com/v1";
const GEMINI_BASE_URL: &str = "https://generativelanguage.googleapis.com/v1beta";
/// Models that were found to take no tools and are remembered, per entry.
const MAX_TOOLLESS_MODELS: usize = 1000;
/// As many as the client of one place takes.
const MAX_CONCURRENT_REQUESTS: usize = 1024;

/// Every model that is configured. Answers come through [`ChatStream`]s that their
/// readers move.
#[derive(Debug)]
pub struct Gateway {
    pub(super) entries: Vec<ModelEntry>,
    /// Nothing was configured: the address that is tried instead.
    fallback_url: Option<String>,
    metrics: ModelMetrics,
}

/// One entry of the settings.
#[derive(Debug)]
pub(super) struct ModelEntry {
    pub(super) names: ModelNames,
    pub(super) backend: BackendApi,
    pub(super) service: JsonService,
    base_url: String,
    queue: std::sync::Arc<RequestQueue>,
    tool_mode: ToolMode,
    dialect: DialectSelection,
    client_mode: Option<ClientMode>,
    timeout: Duration,
    /// Models of the backend that take no tools.
    toolless_models: Mutex<HashSet<String>>,
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

/// A request in the words of a backend.
struct PreparedRequest {
    request: ServiceRequest,
    decoder: ResponseDecoder,
}

impl Gateway {
    /// Opens every entry; none is reached before it is asked. Without any, the
    /// Ollama at `ollama` is used.
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
            ModelEntry::open(it, policy, tls).map_err(|why| Error::InvalidSetting { at, name, why })
        });
        Ok(Self {
            entries: entries.collect::<Result<_, _>>()?,
            fallback_url: fallback,
            metrics: ModelMetrics::default(),
        })
    }

    /// The same, counting in `metrics`.
    #[must_use]
    pub fn with_metrics(mut self, metrics: &ModelMetrics) -> Self {
        self.metrics = metrics.clone();
        self
    }

    /// Asks for an answer, piece by piece. Resolves when it begins.
    pub async fn stream_chat(
        &self,
        request: ChatRequest,
        limit: Duration,
    ) -> Result<ChatStream, Error> {
        self.start_chat(request, &ChatRequestOptions::streamed(limit))
            .await
    }

    /// Asks for an answer in one.
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

    /// Asks for an answer as it is wanted. Resolves when it begins.
    pub async fn start_chat(
        &self,
        request: ChatRequest,
        wanted: &ChatRequestOptions,
    ) -> Result<ChatStream, Error> {
        let asked = request.model.clone();
        let (entry, model) = self
            .find_entry(&asked)
            .ok_or_else(|| Error::UnknownModel(asked.clone()))?;
        let limit = entry.timeout.min(wanted.limit);
        let end = Instant::now() + limit;
        let mut recorder = entry.record_request(&self.metrics, &model);
        let work = async {
            let turn = entry.acquire_permit(&asked, wanted).await?;
            recorder.mark_admitted();
            let (reply, reading) = entry
                .start_response(request, &model, wanted.stream, end)
                .await?;
            Ok((turn, reply, reading))
        };
        let late = || Error::Timeout {
            model: asked.clone(),
            limit,
        };
        let work = Box::pin(work.instrument(recorder.span().clone()));
        let done = with_timeout(limit, work)
            .await
            .unwrap_or_else(|| Err(late()));
        let (turn, reply, reading) = done.map_err(|error| {
            recorder.fail(&error);
            self.to_public_error(error)
        })?;
        ChatStream::new(ChatStreamParts {
            reply,
            decoder: reading,
            backend: entry.backend,
            model: asked,
            deadline: end,
            timeout: limit,
            permit: turn,
            recorder,
        })
    }

    /// How calls reach clients that ask for `model`, if the settings say so.
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

    fn find_entry(&self, asked: &str) -> Option<(&ModelEntry, String)> {
        let found = |it| {
            let entry: &ModelEntry = it;
            entry.names.resolve(asked).map(|model| (entry, model))
        };
        self.entries.iter().find_map(found)
    }

    /// Where nothing is configured, that is what is wrong.
    fn to_public_error(&self, error: Error) -> Error {
        match (&self.fallback_url, error) {
            (Some(place), Error::Unreachable { .. }) => Error::NoModels(place.clone()),
            (_, error) => error,
        }
    }
}

impl ModelEntry {
    fn open(
        definition: &ModelDefinition,
        policy: &AddressPolicy,
        tls: &ClientTls,
    ) -> Result<Self, String> {
        let backend = definition.backend;
        let (base_url, header) = match backend {
            BackendApi::Openai => (OPENAI_BASE_URL, "authorization"),
            BackendApi::Gemini => (GEMINI_BASE_URL, "x-goog-api-key"),
        };
        let base_url = definition.base_url.as_deref().unwrap_or(base_url);
        // Empty where a variable that may be missing has no value.
        let key = definition.api_key.as_ref();
        let key = key.filter(|it| !it.reveal().is_empty());
        let key = key.map(|key| match backend {
            BackendApi::Openai => SecretString::from(format!("Bearer {}", key.reveal())),
            BackendApi::Gemini => key.clone(),
        });
        let timeout = Duration::from_millis(definition.timeout_ms);
        let names = ModelNames::new(
            &definition.name,
            &definition.aliases,
            definition.model.as_deref(),
        )?;
        Ok(Self {
            names,
            backend,
            service: open_backend(base_url, policy, tls, timeout, key.map(|it| (header, it)))?,
            base_url: base_url.to_owned(),
            queue: RequestQueue::new(queue_limits(definition)),
            tool_mode: definition.tool_mode,
            dialect: parse_dialect(&definition.dialect)?,
            client_mode: definition.client_mode,
            timeout,
            toolless_models: Mutex::default(),
        })
    }

    fn record_request(&self, metrics: &ModelMetrics, model: &str) -> ModelRequestRecorder {
        let provider = match self.backend {
            BackendApi::Openai => "openai",
            BackendApi::Gemini => "gcp.gemini",
        };
        let entry = self.names.configured_name();
        ModelRequestRecorder::start(metrics.clone(), entry, provider, model)
    }

    async fn acquire_permit(
        &self,
        asked: &str,
        wanted: &ChatRequestOptions,
    ) -> Result<QueuePermit, Error> {
        let entered = self.queue.try_acquire().map_err(|full| Error::QueueFull {
            model: asked.to_owned(),
            waiting: full.waiting,
            retry_after: full.retry_after,
        })?;
        Ok(match entered {
            Ok(turn) => turn,
            Err(place) => place.wait_for_permit(&wanted.queue_position).await,
        })
    }

    /// The beginning of an answer; models that turn out to take no tools are
    /// asked once more, with the tools in the text.
    async fn start_response(
        &self,
        request: ChatRequest,
        model: &str,
        stream: bool,
        end: Instant,
    ) -> Result<(HttpResponse, ResponseDecoder), Error> {
        let asked = request.model.clone();
        let mode = self.effective_tool_mode(model);
        let may_change = mode == ToolMode::Native
            && self.tool_mode == ToolMode::Auto
            && !request.tools.is_empty();
        let spare = may_change.then(|| request.clone());
        let prepared = self.prepare(request, model, mode, stream);
        let failed = match self.send_with_retry(&prepared, &asked, end).await? {
            Ok(reply) => return Ok((reply, prepared.decoder)),
            Err(refusal) => refusal,
        };
        let refused = |it: ErrorResponse| Error::Status {
            model: asked.clone(),
            status: it.status.as_u16(),
            code: it.code,
            retry_after: it.retry_after,
        };
        let Some(request) = spare.filter(|_| failed.tools_unsupported) else {
            return Err(refused(failed));
        };
        debug!(
            model,
            "the model takes no tools; describing them from now on"
        );
        self.remember_toolless_model(model);
        let prepared = self.prepare(request, model, ToolMode::Prompt, stream);
        match self.send_with_retry(&prepared, &asked, end).await? {
            Ok(reply) => Ok((reply, prepared.decoder)),
            Err(refusal) => Err(refused(refusal)),
        }
    }

    /// Asks until there is an answer, or asking again does not help.
    async fn send_with_retry(
        &self,
        prepared: &PreparedRequest,
        asked: &str,
        end: Instant,
    ) -> Result<Result<HttpResponse, ErrorResponse>, Error> {
        let mut schedule = self.service.retry_schedule(end);
        loop {
            let failed = match self.service.open_response(&prepared.request).await {
                Ok(reply) if reply.status.is_success() => return Ok(Ok(reply)),
                Ok(reply) => Ok(ErrorResponse::read(reply).await),
                Err(error) => Err(error),
            };
            let (is_retryable, retry_after) = match &failed {
                Ok(refusal) => (refusal.is_retryable(), refusal.retry_after),
                Err(error) => (error.is_retryable(), None),
            };
            if !is_retryable || !schedule.wait(retry_after).await {
                return failed.map(Err).map_err(|source| Error::Unreachable {
                    model: asked.to_owned(),
                    source,
                });
            }
            self.queue.wait_for_rate_limit().await;
        }
    }

    /// How tools reach `model`.
    fn effective_tool_mode(&self, model: &str) -> ToolMode {
        let plain = || match self.backend {
            BackendApi::Gemini => gemini::lacks_tool_support(model),
            BackendApi::Openai => self.lock_toolless_models().contains(model),
        };
        match self.tool_mode {
            ToolMode::Auto if plain() => ToolMode::Prompt,
            ToolMode::Auto => ToolMode::Native,
            // It would only be refused.
            ToolMode::Native if self.backend == BackendApi::Gemini && plain() => ToolMode::Prompt,
            mode => mode,
        }
    }

    fn prepare(
        &self,
        mut request: ChatRequest,
        model: &str,
        mode: ToolMode,
        stream: bool,
    ) -> PreparedRequest {
        let known = request.tools.iter().chain(&request.described_tools);
        let tools = ToolSet::new(known.map(|it| (it.name.as_str(), &it.parameters)));
        let callable = !request.tools.is_empty() && request.tool_choice != ToolChoice::None;
        let constrained = mode == ToolMode::Constrained && callable;
        let form =
            constrained.then(|| constrained::output_schema(&request.tools, &request.tool_choice));
        match mode {
            ToolMode::Auto | ToolMode::Native => (),
            ToolMode::Prompt => {
                prompt::fold_tools_into_text(&mut request, &tools, CallFormat::Framed);
            }
            ToolMode::Constrained => {
                prompt::fold_tools_into_text(&mut request, &tools, CallFormat::Constrained);
            }
        }
        history::clean_messages(
            &mut request,
            &tools,
            BackendQuirks::detect(&self.base_url, model),
        );
        let (path, body) = self.encode_request(request, model, form, stream);
        let options = DialectOptions {
            prompted: callable && matches!(mode, ToolMode::Prompt | ToolMode::Constrained),
            ..DialectOptions::default()
        };
        PreparedRequest {
            request: ServiceRequest::post(path, body),
            decoder: ResponseDecoder::new(tools, self.dialect, options, constrained),
        }
    }

    fn encode_request(
        &self,
        mut request: ChatRequest,
        model: &str,
        form: Option<Value>,
        stream: bool,
    ) -> (String, Vec<u8>) {
        match self.backend {
            BackendApi::Openai => {
                let body = openai::encode_request(request, model, form, stream);
                ("/chat/completions".to_owned(), body)
            }
            BackendApi::Gemini => {
                if gemini::lacks_tool_support(model) {
                    prompt::fold_system_messages(&mut request.messages);
                }
                let body = gemini::encode_request(&request, model, form.as_ref());
                (gemini::request_path(model, stream), body)
            }
        }
    }

    fn remember_toolless_model(&self, model: &str) {
        let mut plain = self.lock_toolless_models();
        if plain.len() < MAX_TOOLLESS_MODELS {
            plain.insert(model.to_owned());
        }
    }

    fn lock_toolless_models(&self) -> std::sync::MutexGuard<'_, HashSet<String>> {
        self.toolless_models
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn parse_dialect(name: &str) -> Result<DialectSelection, String> {
    name.parse().map_err(|why: UnknownDialect| {
        format!("{why}; known are auto, {}", DIALECT_NAMES.join(", "))
    })
}

fn queue_limits(definition: &ModelDefinition) -> QueueLimits {
    let size = |it: u32| usize::try_from(it).unwrap_or(usize::MAX);
    QueueLimits {
        requests_per_minute: definition.requests_per_minute.map(size),
        max_concurrent: definition
            .max_concurrent
            .map_or(MAX_CONCURRENT_REQUESTS, size)
            .min(MAX_CONCURRENT_REQUESTS),
        max_waiting: size(definition.max_waiting),
    }
}
