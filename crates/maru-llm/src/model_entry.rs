//! One entry of the settings: its backend, its queue and how its models take tools.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use maru_dialect::{DIALECT_NAMES, DialectSelection, ToolSet, UnknownDialect};
use maru_http::{
    AddressPolicy, ClientTls, HttpResponse, JsonService, RetrySchedule, ServiceRequest,
};
use serde_json::Value;
use tracing::debug;

use super::{
    ChatRequest, ChatRequestOptions, Error, ModelOrigin, ToolChoice, anthropic,
    backend_client::{ErrorResponse, open_backend},
    backend_health::BackendHealth,
    constrained,
    decoder::{DecoderOptions, ResponseDecoder},
    gemini,
    history::{self, BackendQuirks},
    model_call::ModelCall,
    model_names::ModelNames,
    openai::{self, OutputOptions},
    prompt::{self, CallFormat},
    queue::{QueueLimits, QueuePermit, RequestQueue},
    reasoning_start::ReasoningStarts,
    request_recorder::{ModelRequestRecorder, RecordedRequest},
    tool_support::ToolSupport,
    usage_ledger::MeteredModel,
};
use maru_config::{BackendApi, ClientMode, ModelDefinition, ModelPrice, SecretString, ToolMode};

const OPENAI_BASE_URL: &str = "https://api.openai.com/v1";
const ANTHROPIC_BASE_URL: &str = "https://api.anthropic.com/v1";
const GEMINI_BASE_URL: &str = "https://generativelanguage.googleapis.com/v1beta";
/// The HTTP client has as many connections to one host at most.
const MAX_CONCURRENT_REQUESTS: usize = 1024;

/// One entry of the settings.
#[derive(Debug)]
pub(super) struct ModelEntry {
    pub(super) origin: ModelOrigin,
    pub(super) names: ModelNames,
    pub(super) backend: BackendApi,
    pub(super) service: JsonService,
    base_url: String,
    pub(super) queue: Arc<RequestQueue>,
    pub(super) health: Arc<BackendHealth>,
    tool_mode: ToolMode,
    dialect: DialectSelection,
    pub(super) reasoning_starts: Arc<ReasoningStarts>,
    pub(super) client_mode: Option<ClientMode>,
    pub(super) timeout: Duration,
    pub(super) idle_timeout: Duration,
    pub(super) price: Option<ModelPrice>,
    tool_support: ToolSupport,
    /// The backend does not know `stream_options`.
    rejects_stream_options: AtomicBool,
}

/// A request as the backend reads it, and the decoder of its response.
struct PreparedRequest {
    request: ServiceRequest,
    decoder: ResponseDecoder,
}

impl ModelEntry {
    /// Opens the backend of `definition`, or says what is wrong with it. A host that the
    /// settings name may be reached, others as `policy` says.
    pub(super) fn open(
        definition: &ModelDefinition,
        origin: ModelOrigin,
        policy: &AddressPolicy,
        tls: &ClientTls,
    ) -> Result<Self, String> {
        let backend = definition.backend;
        let (base_url, header) = match backend {
            BackendApi::Openai => (OPENAI_BASE_URL, "authorization"),
            BackendApi::Gemini => (GEMINI_BASE_URL, "x-goog-api-key"),
            BackendApi::Anthropic => (ANTHROPIC_BASE_URL, "x-api-key"),
        };
        let base_url = definition.base_url.as_deref().unwrap_or(base_url);
        // Empty where a variable that may be missing has no value.
        let key = definition.api_key.as_ref();
        let key = key.filter(|it| !it.reveal().is_empty());
        let key = key.map(|key| match backend {
            BackendApi::Openai => SecretString::from(format!("Bearer {}", key.reveal())),
            BackendApi::Gemini | BackendApi::Anthropic => key.clone(),
        });
        let timeout = Duration::from_millis(definition.timeout_ms);
        let mut headers: Vec<(&'static str, SecretString)> =
            key.map(|it| (header, it)).into_iter().collect();
        if backend == BackendApi::Anthropic {
            headers.push((
                "anthropic-version",
                anthropic::API_VERSION.to_owned().into(),
            ));
        }
        let target = match origin {
            ModelOrigin::Console if definition.base_url.is_some() => policy.authorize(base_url),
            // The settings or maru itself name it.
            _ => policy.authorize_configured(base_url),
        };
        let target = target.map_err(|error| error.to_string())?;
        let service = open_backend(target, tls, timeout, headers);
        let names = ModelNames::new(
            &definition.name,
            &definition.aliases,
            definition.model.as_deref(),
        )?;
        Ok(Self {
            origin,
            names,
            backend,
            service: service?,
            base_url: base_url.to_owned(),
            queue: RequestQueue::new(queue_limits(definition)),
            health: Arc::new(BackendHealth::new(Duration::from_millis(
                definition.cooldown_ms,
            ))),
            tool_mode: definition.tool_mode,
            dialect: parse_dialect(&definition.dialect)?,
            reasoning_starts: Arc::new(ReasoningStarts::new(definition.starts_in_reasoning)),
            client_mode: definition.client_mode,
            timeout,
            idle_timeout: Duration::from_millis(definition.idle_timeout_ms),
            price: definition.price,
            tool_support: ToolSupport::default(),
            rejects_stream_options: AtomicBool::new(false),
        })
    }

    /// Host and port of the backend.
    pub(super) fn authority(&self) -> String {
        self.service.target().authority()
    }

    /// The model that clients call `name`, as its usage is counted.
    pub(super) fn metered_model(&self, name: &str) -> MeteredModel {
        MeteredModel {
            name: self.names.usage_name(name).into(),
            configured_name: self.names.usage_name(self.names.configured_name()).into(),
            price: self.price.unwrap_or_default(),
        }
    }

    /// Whether the API of the backend continues texts.
    pub(super) fn continues_texts(&self) -> bool {
        self.backend == BackendApi::Openai
    }

    /// Counts and traces one attempt of `call`, which asks for `model`.
    pub(super) fn record_request(&self, call: &ModelCall<'_>, model: &str) -> ModelRequestRecorder {
        let provider = match self.backend {
            BackendApi::Openai => "openai",
            BackendApi::Gemini => "gcp.gemini",
            BackendApi::Anthropic => "anthropic",
        };
        ModelRequestRecorder::start(RecordedRequest {
            metrics: call.metrics.clone(),
            meter: call.meter.clone(),
            entry: self.names.configured_name(),
            provider,
            backend: self.authority().into(),
            model,
            started_at: call.started_at,
        })
    }

    /// The backend's name of the model that clients call `name`, if it is served here.
    pub(super) fn resolve(&self, name: &str) -> Option<String> {
        self.names.resolve(name)
    }

    /// Waits in the queue for a permit.
    pub(super) async fn acquire_permit(
        &self,
        name: &str,
        options: &ChatRequestOptions,
    ) -> Result<QueuePermit, Error> {
        let entered = self.queue.try_acquire().map_err(|full| Error::QueueFull {
            model: name.to_owned(),
            waiting: full.waiting,
            retry_after: full.retry_after,
        })?;
        Ok(match entered {
            Ok(permit) => permit,
            Err(position) => position.wait_for_permit(&options.queue_position).await,
        })
    }

    /// Starts a response, with the attempts of `schedule`. A model that turns out to take
    /// no tools gets them in the text; a backend that does not know `stream_options` gets
    /// none.
    pub(super) async fn start_response(
        &self,
        mut request: ChatRequest,
        model: &str,
        options: &ChatRequestOptions,
        mut schedule: RetrySchedule,
    ) -> Result<(HttpResponse, ResponseDecoder), Error> {
        let name = request.model.clone();
        let mut mode = self.effective_tool_mode(&request, model).await;
        loop {
            // What may have to be sent once more in another form.
            let has_native_tools = mode == ToolMode::Native
                && self.tool_mode == ToolMode::Auto
                && !request.tools.is_empty();
            let spare = has_native_tools.then(|| request.clone());
            let prepared = self.prepare(request, model, mode, options);
            let sent = self.send(prepared, &name, &mut schedule).await?;
            let error = match sent {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            match spare {
                Some(spare) if error.tools_unsupported => {
                    debug!(
                        model,
                        "the model takes no tools; describing them from now on"
                    );
                    self.tool_support.set_refused(model);
                    mode = ToolMode::Prompt;
                    request = spare;
                }
                _ => {
                    return Err(Error::Status {
                        model: name,
                        status: error.status.as_u16(),
                        code: error.code,
                        retry_after: error.retry_after,
                    });
                }
            }
        }
    }

    /// Sends a request, once more without `stream_options` if the backend refuses them.
    async fn send(
        &self,
        mut prepared: PreparedRequest,
        name: &str,
        schedule: &mut RetrySchedule,
    ) -> Result<Result<(HttpResponse, ResponseDecoder), ErrorResponse>, Error> {
        let mut sent = self
            .send_with_retry(&prepared.request, name, schedule)
            .await?;
        if let Err(error) = &sent
            && error.stream_options_unsupported
            && let Some(body) = openai::without_stream_options(&prepared.request.body)
        {
            self.rejects_stream_options.store(true, Relaxed);
            prepared.request.body = body.into();
            sent = self
                .send_with_retry(&prepared.request, name, schedule)
                .await?;
        }
        Ok(sent.map(|response| (response, prepared.decoder)))
    }

    /// Sends a request until there is a response, or trying again does not help.
    async fn send_with_retry(
        &self,
        request: &ServiceRequest,
        name: &str,
        schedule: &mut RetrySchedule,
    ) -> Result<Result<HttpResponse, ErrorResponse>, Error> {
        loop {
            let failed = match self.service.open_response(request).await {
                Ok(response) if response.status.is_success() => return Ok(Ok(response)),
                Ok(response) => Ok(ErrorResponse::read(response).await),
                Err(error) => Err(error),
            };
            let (is_retryable, retry_after) = match &failed {
                Ok(error) => (error.is_retryable(), error.retry_after),
                Err(error) => (error.is_retryable(), None),
            };
            if !is_retryable || !schedule.wait(retry_after).await {
                return failed.map(Err).map_err(|source| Error::Unreachable {
                    model: name.to_owned(),
                    source,
                });
            }
            self.queue.wait_for_rate_limit().await;
        }
    }

    /// Whether `model` may answer `request` in text although it has to call. Backends at
    /// other addresses than OpenAI's own may ignore the choice, such as Ollama; constrained
    /// output holds the model to it.
    pub(super) fn may_ignore_choice(&self, request: &ChatRequest, model: &str) -> bool {
        self.tool_mode == ToolMode::Auto
            && self.has_probe()
            && is_forced(request)
            && !self.tool_support.ignores_choice(model)
    }

    /// Remembers that `model` did.
    pub(super) fn set_ignores_choice(&self, model: &str) {
        self.tool_support.set_ignores_choice(model);
    }

    fn has_probe(&self) -> bool {
        self.backend == BackendApi::Openai && self.base_url != OPENAI_BASE_URL
    }

    /// How the tools of `request` reach `model`.
    async fn effective_tool_mode(&self, request: &ChatRequest, model: &str) -> ToolMode {
        let is_gemini = self.backend == BackendApi::Gemini;
        match self.tool_mode {
            ToolMode::Auto | ToolMode::Native if is_gemini => {
                if gemini::lacks_tool_support(model) {
                    ToolMode::Prompt
                } else {
                    ToolMode::Native
                }
            }
            ToolMode::Auto if is_forced(request) && self.tool_support.ignores_choice(model) => {
                ToolMode::Constrained
            }
            ToolMode::Auto if self.tool_support.is_refused(model) => ToolMode::Prompt,
            ToolMode::Auto if is_callable(request) && self.has_probe() => {
                self.tool_support.probe(&self.service, model).await
            }
            ToolMode::Auto => ToolMode::Native,
            mode => mode,
        }
    }

    fn prepare(
        &self,
        mut request: ChatRequest,
        model: &str,
        mode: ToolMode,
        options: &ChatRequestOptions,
    ) -> PreparedRequest {
        if request.text_prompt.is_some() {
            return PreparedRequest {
                request: self.encode_text_request(request, model, options.stream),
                decoder: ResponseDecoder::new(ToolSet::default(), DecoderOptions::plain_text()),
            };
        }
        let known = request.tools.iter().chain(&request.described_tools);
        let known = ToolSet::new(known.map(|it| (it.name.as_str(), &it.parameters)));
        // A backend that ignores the choice cannot call what it does not see.
        if let ToolChoice::Named(name) = &request.tool_choice {
            request.tools.retain(|it| it.name == *name);
        }
        let callable = match &request.tool_choice {
            ToolChoice::Named(_) => {
                let named = request.tools.iter();
                Some(ToolSet::new(
                    named.map(|it| (it.name.as_str(), &it.parameters)),
                ))
            }
            ToolChoice::None => Some(ToolSet::default()),
            ToolChoice::Auto | ToolChoice::Required => None,
        };
        let is_callable = is_callable(&request);
        // The client's own prompt told the model how to call these.
        let is_described = !request.described_tools.is_empty();
        let is_parallel = request.other.get("parallel_tool_calls") != Some(&Value::Bool(false));
        let constrained = mode == ToolMode::Constrained && is_callable;
        let form =
            constrained.then(|| constrained::output_schema(&request.tools, &request.tool_choice));
        match mode {
            ToolMode::Auto | ToolMode::Native => (),
            ToolMode::Prompt => {
                prompt::fold_tools_into_text(&mut request, &known, CallFormat::Framed);
            }
            ToolMode::Constrained => {
                prompt::fold_tools_into_text(&mut request, &known, CallFormat::Constrained);
            }
        }
        let quirks = BackendQuirks::detect(&self.base_url, model);
        history::clean_messages(&mut request, &known, quirks);
        let (path, body) = self.encode_request(request, model, form, options.stream);
        let is_prompted = options.prompted || mode != ToolMode::Native;
        let decoder_options = DecoderOptions {
            plain_text: false,
            dialect: self.dialect,
            reasoning_start: self.reasoning_starts.expected(model),
            prompted: is_described || (is_callable && is_prompted),
            constrained,
            stream_arguments: options.stream && options.stream_arguments,
            keep_written: options.keep_written,
            max_calls: if is_parallel { usize::MAX } else { 1 },
        };
        PreparedRequest {
            request: ServiceRequest::post(path, body),
            decoder: ResponseDecoder::new(callable.unwrap_or(known), decoder_options),
        }
    }

    /// A text to continue, for a backend with OpenAI's API.
    fn encode_text_request(
        &self,
        request: ChatRequest,
        model: &str,
        stream: bool,
    ) -> ServiceRequest {
        let body = openai::encode_request(request, model, self.output(None, stream));
        ServiceRequest::post("/completions", body)
    }

    fn output(&self, form: Option<Value>, stream: bool) -> OutputOptions {
        OutputOptions {
            form,
            stream,
            stream_usage: !self.rejects_stream_options.load(Relaxed),
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
                let body = openai::encode_request(request, model, self.output(form, stream));
                ("/chat/completions".to_owned(), body)
            }
            BackendApi::Gemini => {
                if gemini::lacks_tool_support(model) {
                    prompt::fold_system_messages(&mut request.messages);
                }
                let body = gemini::encode_request(&request, model, form.as_ref());
                (gemini::request_path(model, stream), body)
            }
            BackendApi::Anthropic => {
                let body = anthropic::encode_request(&request, model, form.as_ref(), stream);
                (anthropic::REQUEST_PATH.to_owned(), body)
            }
        }
    }
}

/// Whether the model may call a tool.
fn is_callable(request: &ChatRequest) -> bool {
    !request.tools.is_empty() && request.tool_choice != ToolChoice::None
}

/// Whether the model must call a tool.
fn is_forced(request: &ChatRequest) -> bool {
    let choice = &request.tool_choice;
    is_callable(request) && matches!(choice, ToolChoice::Required | ToolChoice::Named(_))
}

fn parse_dialect(name: &str) -> Result<DialectSelection, String> {
    name.parse().map_err(|error: UnknownDialect| {
        format!("{error}; known are auto, {}", DIALECT_NAMES.join(", "))
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
