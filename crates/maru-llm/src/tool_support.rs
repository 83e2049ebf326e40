//! Whether a model takes tools natively. Some backends drop the tools of a request
//! silently, such as llama.cpp with a chat template that has no place for them.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use hyper::header::CONTENT_TYPE;
use maru_http::{HttpResponse, JsonService, ServiceRequest};
use maru_runtime::tasks::with_timeout;
use serde_json::{Map, Value, json};
use tokio::{sync::OnceCell, time::Instant};
use tracing::debug;

use super::{TokenUsage, backend_client::ErrorResponse};
use maru_config::ToolMode;

/// Models that are remembered, per entry of the settings.
const MAX_REMEMBERED_MODELS: usize = 1000;
/// How long one request of a probe may take; it may have to load the model.
const PROBE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a probe is not repeated that told nothing although the backend answers.
const PROBE_RETRY_DELAY: Duration = Duration::from_secs(60);
/// The question of a probe, and the fewest tokens that any tokenizer makes of it. A
/// backend that counts fewer does not count.
const PROBE_QUESTION: &str = "Reply with the single word yes and nothing else.";
const MIN_PROBE_TOKENS: u64 = 9;

/// How the tools of requests reach the models of one backend in the mode `auto`.
#[derive(Debug, Default)]
pub(super) struct ToolSupport(Mutex<HashMap<String, ModelToolSupport>>);

#[derive(Clone, Debug, Default)]
struct ModelToolSupport {
    /// The backend answered that the model does not support tools.
    is_refused: bool,
    /// The model answered in text although it had to call.
    ignores_choice: bool,
    probed: Arc<OnceCell<ToolMode>>,
    /// When the last probe was inconclusive.
    inconclusive_at: Option<Instant>,
}

/// A probe that told nothing.
#[derive(Debug, PartialEq, Eq)]
enum ProbeFailure {
    /// The backend cannot be reached, or is busy or starting.
    Unavailable,
    /// It answers something else, or takes too long for each request to wait for it.
    Inconclusive,
}

impl ToolSupport {
    /// The mode for `model`, found out by a probe the first time. The next request probes
    /// again if the backend did not answer, and a later one if the answer told nothing.
    pub(super) async fn probe(&self, service: &JsonService, model: &str) -> ToolMode {
        let support = self.support_of(model);
        if support.is_refused {
            return ToolMode::Prompt;
        }
        let probed = support.probed.get_or_try_init(|| async {
            // Those that waited for a probe do not repeat it.
            if self.is_inconclusive(model) {
                return Err(ProbeFailure::Inconclusive);
            }
            let probed = probe_tool_mode(service, model).await;
            debug!(model, ?probed, "probed how the model takes tools");
            if probed == Err(ProbeFailure::Inconclusive) {
                self.set_inconclusive(model);
            }
            probed
        });
        probed.await.copied().unwrap_or(ToolMode::Native)
    }

    /// Whether `model` answered in text although it had to call.
    pub(super) fn ignores_choice(&self, model: &str) -> bool {
        self.lock().get(model).is_some_and(|it| it.ignores_choice)
    }

    /// Remembers that it did.
    pub(super) fn set_ignores_choice(&self, model: &str) {
        self.remember(model, |it| it.ignores_choice = true);
    }

    /// Whether the backend answered that `model` does not support tools.
    pub(super) fn is_refused(&self, model: &str) -> bool {
        self.lock().get(model).is_some_and(|it| it.is_refused)
    }

    fn is_inconclusive(&self, model: &str) -> bool {
        let models = self.lock();
        let probed_at = models.get(model).and_then(|it| it.inconclusive_at);
        probed_at.is_some_and(|at| at.elapsed() < PROBE_RETRY_DELAY)
    }

    /// Only a model that is remembered is probed.
    fn set_inconclusive(&self, model: &str) {
        if let Some(support) = self.lock().get_mut(model) {
            support.inconclusive_at = Some(Instant::now());
        }
    }

    /// Remembers that the backend answered so.
    pub(super) fn set_refused(&self, model: &str) {
        self.remember(model, |it| it.is_refused = true);
    }

    fn remember(&self, model: &str, change: impl FnOnce(&mut ModelToolSupport)) {
        let mut models = self.lock();
        if models.len() < MAX_REMEMBERED_MODELS || models.contains_key(model) {
            change(models.entry(model.to_owned()).or_default());
        }
    }

    fn support_of(&self, model: &str) -> ModelToolSupport {
        let mut models = self.lock();
        match models.get(model) {
            Some(support) => support.clone(),
            None if models.len() < MAX_REMEMBERED_MODELS => {
                models.entry(model.to_owned()).or_default().clone()
            }
            // Names that clients made up are not remembered without end, nor probed.
            None => ModelToolSupport {
                probed: Arc::new(OnceCell::new_with(Some(ToolMode::Native))),
                ..ModelToolSupport::default()
            },
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, ModelToolSupport>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Asks the same question with and without a tool. If the prompt has as many tokens in
/// both, the tool never reached the model.
async fn probe_tool_mode(service: &JsonService, model: &str) -> Result<ToolMode, ProbeFailure> {
    let tool = json!({"type": "function", "function": {
        "name": "get_current_weather_in_city",
        "description": "Looks up the current weather in a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }});
    let with_tool = match send_probe(service, model, json!({"tools": [tool]})).await? {
        Ok(reply) => prompt_tokens(&reply),
        Err(error) if error.tools_unsupported => return Ok(ToolMode::Prompt),
        Err(error) => return Err(failure_of(&error)),
    };
    let without = match send_probe(service, model, json!({})).await? {
        Ok(reply) => prompt_tokens(&reply),
        Err(error) => return Err(failure_of(&error)),
    };
    if with_tool < MIN_PROBE_TOKENS || with_tool != without {
        return Ok(ToolMode::Native);
    }
    Ok(if can_constrain(service, model).await? {
        ToolMode::Constrained
    } else {
        ToolMode::Prompt
    })
}

/// Whether the backend holds its output to a schema: no model writes this by itself.
async fn can_constrain(service: &JsonService, model: &str) -> Result<bool, ProbeFailure> {
    let schema = json!({
        "type": "object",
        "properties": {"maru": {"type": "string", "enum": ["ok"]}},
        "required": ["maru"],
        "additionalProperties": false,
    });
    let format = json!({"type": "json_schema", "json_schema": {"name": "reply", "strict": true, "schema": schema}});
    let change = json!({"response_format": format, "max_tokens": 32});
    let Ok(reply) = send_probe(service, model, change).await? else {
        return Ok(false);
    };
    let text = reply["choices"][0]["message"]["content"].as_str();
    let output: Option<Value> = text.and_then(|it| serde_json::from_str(it).ok());
    Ok(output == Some(json!({"maru": "ok"})))
}

fn prompt_tokens(reply: &Value) -> u64 {
    let usage = reply["usage"].as_object();
    usage.map_or(0, |it| TokenUsage(it.clone()).count("prompt_tokens"))
}

async fn send_probe(
    service: &JsonService,
    model: &str,
    change: Value,
) -> Result<Result<Value, ErrorResponse>, ProbeFailure> {
    let messages = json!([{"role": "user", "content": PROBE_QUESTION}]);
    let mut body = Map::new();
    body.insert("model".to_owned(), model.into());
    body.insert("messages".to_owned(), messages);
    body.insert("max_tokens".to_owned(), 1.into());
    body.insert("temperature".to_owned(), 0.into());
    if let Value::Object(change) = change {
        body.extend(change);
    }
    let body = serde_json::to_vec(&body).expect("values are JSON");
    let request = ServiceRequest::post("/chat/completions".to_owned(), body);
    let reply = with_timeout(PROBE_TIMEOUT, async {
        let Ok(reply) = service.open_response(&request).await else {
            return Err(ProbeFailure::Unavailable);
        };
        if !reply.status.is_success() {
            return Ok(Err(ErrorResponse::read(reply).await));
        }
        let document = read_json(reply).await;
        document.map(Ok).ok_or(ProbeFailure::Inconclusive)
    });
    reply.await.unwrap_or(Err(ProbeFailure::Inconclusive))
}

fn failure_of(error: &ErrorResponse) -> ProbeFailure {
    if error.is_retryable() {
        ProbeFailure::Unavailable
    } else {
        ProbeFailure::Inconclusive
    }
}

/// A document; who streams without being asked to may never end.
async fn read_json(mut reply: HttpResponse) -> Option<Value> {
    let content_type = reply.header(&CONTENT_TYPE).unwrap_or_default();
    if content_type.starts_with("text/event-stream") {
        return None;
    }
    serde_json::from_slice(&reply.bytes().await.ok()?).ok()
}
