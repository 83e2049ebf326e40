//! `POST /generate` and `/generate_with_mcp`: the agent loop over JSON-RPC.

use std::{sync::Arc, time::Duration};

use axum::{
    Extension,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    response::Response,
};
use futures_util::stream;
use maru_protocol::{RpcError, code, write_event};
use serde_json::{Map, Value, json};

use super::{
    HubState,
    body::{self, RequestMemory},
    openai,
};
use maru_agent::{
    self as agent, ActiveRun, AgentRequest, ApprovalPolicy, CutReason, RunEvent, RunOutcome,
    UnavailableServer,
};
use maru_auth::Principal;
use maru_downstream::http::{event_stream, reply, require_json};
use maru_llm as llm;

/// The model did not answer, no named server is available, or the hub stops.
const MODEL_ERROR: i64 = -32_000;
/// As many runs as allowed are in progress.
const BUSY_ERROR: i64 = -32_001;
const MAX_NAMED_SERVERS: usize = 1000;

/// `POST /generate`: no tools.
pub(super) async fn without_tools(
    State(hub): State<Arc<HubState>>,
    Extension(principal): Extension<Principal>,
    request: Request,
) -> Response {
    generate(&hub, principal, request, false).await
}

/// `POST /generate_with_mcp`: with tools.
pub(super) async fn with_tools(
    State(hub): State<Arc<HubState>>,
    Extension(principal): Extension<Principal>,
    request: Request,
) -> Response {
    generate(&hub, principal, request, true).await
}

async fn generate(
    hub: &Arc<HubState>,
    principal: Principal,
    request: Request,
    with_tools: bool,
) -> Response {
    let (parts, body) = request.into_parts();
    if let Err(response) = require_json(&parts.headers) {
        return response;
    }
    let memory = RequestMemory::of(&parts.extensions);
    let bytes = match body::read(&memory, body, hub.max_body_bytes()).await {
        Ok(bytes) => bytes,
        Err(response) => return response,
    };
    let call = match body::parse_json(&memory, bytes).await {
        Ok(request) => parse_request(request),
        Err((StatusCode::BAD_REQUEST, message)) => {
            Err((Value::Null, RpcError::new(code::PARSE_ERROR, message)))
        }
        Err(rejection) => return body::rejection_response(rejection),
    };
    let RpcCall { id, params } = match call {
        Ok(call) => call,
        Err((id, error)) => return rpc_error_response(&id, &error),
    };
    let started = agent_request(params, principal, with_tools).and_then(|request| {
        hub.agent
            .start(request)
            .map_err(|error| to_rpc_error(&error))
    });
    let run = match started {
        Ok(run) => run,
        Err(error) => return rpc_error_response(&id, &error),
    };
    if wants_stream(&parts.headers) {
        respond_stream(run, id, hub.engine.limits().keep_alive())
    } else {
        respond_json(run, &id).await
    }
}

/// A JSON-RPC request.
struct RpcCall {
    id: Value,
    params: Map<String, Value>,
}

/// Parses a request. An error carries the request's id, as far as it can be read.
fn parse_request(mut request: Value) -> Result<RpcCall, (Value, RpcError)> {
    let id = match request.get("id").unwrap_or(&Value::Null) {
        id @ (Value::Null | Value::String(_)) => id.clone(),
        Value::Number(id) if id.is_i64() || id.is_u64() => id.clone().into(),
        _ => {
            let message = "the id is text or a whole number".to_owned();
            return Err((Value::Null, RpcError::new(code::INVALID_REQUEST, message)));
        }
    };
    match parse_params(&mut request) {
        Ok(params) => Ok(RpcCall { id, params }),
        Err(error) => Err((id, error)),
    }
}

fn parse_params(request: &mut Value) -> Result<Map<String, Value>, RpcError> {
    if request["jsonrpc"] != "2.0" || !request["method"].is_string() {
        let message = "this is no JSON-RPC 2.0 request".to_owned();
        return Err(RpcError::new(code::INVALID_REQUEST, message));
    }
    if request["method"] != "generate_content" {
        let message = "the method is generate_content".to_owned();
        return Err(RpcError::new(code::METHOD_NOT_FOUND, message));
    }
    match request["params"].take() {
        Value::Object(params) => Ok(params),
        _ => Err(RpcError::invalid_params("params must be an object")),
    }
}

fn agent_request(
    mut params: Map<String, Value>,
    principal: Principal,
    with_tools: bool,
) -> Result<AgentRequest, RpcError> {
    const KNOWN_PARAMS: &[&str] = &[
        "model",
        "messages",
        "temperature",
        "max_output_tokens",
        "mcp_servers",
        "toolset",
        "own_tools",
        "max_iterations",
        "tool_timeout",
        "approval",
    ];
    if let Some(other) = params
        .keys()
        .find(|it| !KNOWN_PARAMS.contains(&it.as_str()))
    {
        let other: String = other.chars().take(60).collect();
        return Err(RpcError::invalid_params(format!(
            "there is no parameter {other:?}; known are {}",
            KNOWN_PARAMS.join(", ")
        )));
    }
    let messages = parse_messages(params.remove("messages"))?;
    let servers = parse_server_names(params.get("mcp_servers"))?;
    Ok(AgentRequest {
        principal,
        model: text_param(&params, "model")?,
        messages,
        backend_options: backend_options(&params)?,
        servers: if with_tools {
            servers
        } else {
            Some(Vec::new())
        },
        toolset: text_param(&params, "toolset")?,
        own_tools: bool_param(&params, "own_tools")?,
        max_rounds: integer_param(&params, "max_iterations", 1, 20)?
            .map(|it| u32::try_from(it).unwrap_or(20)),
        tool_timeout: number_param(&params, "tool_timeout", 0.1, 600.0)?
            .map(Duration::from_secs_f64),
        approval: match text_param(&params, "approval")?.as_deref() {
            None => ApprovalPolicy::Nobody,
            Some("ask") => ApprovalPolicy::DestructiveCalls,
            Some("each") => ApprovalPolicy::EveryCall,
            Some(_) => {
                let message = "approval must be \"ask\" or \"each\"";
                return Err(RpcError::invalid_params(message));
            }
        },
    })
}

/// Members of the request to the backend.
fn backend_options(params: &Map<String, Value>) -> Result<Map<String, Value>, RpcError> {
    let mut options = Map::new();
    if let Some(temperature) = number_param(params, "temperature", 0.0, 2.0)? {
        options.insert("temperature".to_owned(), temperature.into());
    }
    if let Some(max_tokens) = integer_param(params, "max_output_tokens", 1, 1_000_000)? {
        options.insert("max_tokens".to_owned(), max_tokens.into());
    }
    Ok(options)
}

/// As OpenAI or as Gemini writes them.
fn parse_messages(given: Option<Value>) -> Result<Vec<llm::ChatMessage>, RpcError> {
    let Some(Value::Array(mut given)) = given else {
        return Err(RpcError::invalid_params(
            "messages must be a list of {\"role\", \"content\"}",
        ));
    };
    for message in given.iter_mut().filter_map(Value::as_object_mut) {
        if message.get("role").is_some_and(|it| it == "model") {
            message.insert("role".to_owned(), "assistant".into());
        }
        if let Some(parts) = message.remove("parts") {
            let texts = parts.as_array().into_iter().flatten();
            let texts: Vec<&str> = texts.filter_map(|it| it["text"].as_str()).collect();
            message.insert("content".to_owned(), texts.join("\n").into());
        }
    }
    openai::messages(given.into()).map_err(RpcError::invalid_params)
}

fn parse_server_names(given: Option<&Value>) -> Result<Option<Vec<String>>, RpcError> {
    let invalid = || RpcError::invalid_params("mcp_servers must be a list of names");
    match given {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(names)) if names.len() <= MAX_NAMED_SERVERS => {
            let names = names.iter().map(|it| it.as_str().map(str::to_owned));
            names.collect::<Option<_>>().map(Some).ok_or_else(invalid)
        }
        Some(_) => Err(invalid()),
    }
}

fn bool_param(params: &Map<String, Value>, name: &str) -> Result<Option<bool>, RpcError> {
    match params.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(value)) => Ok(Some(*value)),
        Some(_) => Err(RpcError::invalid_params(format!(
            "{name} must be true or false"
        ))),
    }
}

fn text_param(params: &Map<String, Value>, name: &str) -> Result<Option<String>, RpcError> {
    match params.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if (1..=256).contains(&text.len()) => Ok(Some(text.clone())),
        Some(_) => Err(RpcError::invalid_params(format!(
            "{name} must be a text of 1 to 256 characters"
        ))),
    }
}

fn integer_param(
    params: &Map<String, Value>,
    name: &str,
    min: u64,
    max: u64,
) -> Result<Option<u64>, RpcError> {
    match params.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(given) => match given.as_u64().filter(|it| (min..=max).contains(it)) {
            Some(number) => Ok(Some(number)),
            None => Err(RpcError::invalid_params(format!(
                "{name} must be a whole number from {min} to {max}"
            ))),
        },
    }
}

fn number_param(
    params: &Map<String, Value>,
    name: &str,
    min: f64,
    max: f64,
) -> Result<Option<f64>, RpcError> {
    match params.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(given) => match given.as_f64().filter(|it| (min..=max).contains(it)) {
            Some(number) => Ok(Some(number)),
            None => Err(RpcError::invalid_params(format!(
                "{name} must be a number from {min} to {max}"
            ))),
        },
    }
}

/// Whether the client prefers an event stream to one document.
fn wants_stream(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT);
    let accepted = accepted.and_then(|it| it.to_str().ok()).unwrap_or_default();
    let position = |kind: &str| accepted.find(kind).unwrap_or(usize::MAX);
    position("text/event-stream") < position("application/json").min(position("*/*"))
}

async fn respond_json(run: ActiveRun, id: &Value) -> Response {
    match run.into_outcome().await {
        Ok(outcome) => {
            let response = json!({"jsonrpc": "2.0", "id": id, "result": outcome_json(&outcome)});
            reply::json(StatusCode::OK, response.to_string())
        }
        Err(error) => rpc_error_response(id, &to_rpc_error(&error)),
    }
}

/// The run advances as the client reads; it ends when the client leaves.
fn respond_stream(run: ActiveRun, id: Value, keep_alive: Duration) -> Response {
    let events = stream::unfold(Some(run), move |run| {
        let id = id.clone();
        async move {
            let mut run = run?;
            let (name, data, more) = match run.next().await {
                Ok(None) => return None,
                Ok(Some(event)) => {
                    let is_last = matches!(event, RunEvent::Completed(_));
                    let (name, data) = sse_event(event);
                    (name, data, !is_last)
                }
                Err(error) => ("error", error_envelope(&id, &to_rpc_error(&error)), false),
            };
            let text = write_event(Some(name), None, &data.to_string());
            Some((text, more.then_some(run)))
        }
    });
    event_stream(events, keep_alive)
}

/// The name and the data of an event.
fn sse_event(event: RunEvent) -> (&'static str, Value) {
    match event {
        RunEvent::Started {
            run,
            model,
            tools,
            tool_tokens,
            unavailable_servers,
        } => (
            "run",
            json!({
                "run_id": &*run,
                "model": model,
                "tools": tools,
                "tool_tokens": tool_tokens,
                "unavailable_servers": servers_json(&unavailable_servers),
            }),
        ),
        RunEvent::RoundStarted(number) => ("round", json!({"round": number})),
        RunEvent::Text(text) => ("thought", json!({"text": text})),
        RunEvent::Reasoning(text) => ("reasoning", json!({"text": text})),
        RunEvent::TextWasReasoning => ("reasoning", json!({"text": "", "all_text": true})),
        RunEvent::CallStarted(call) => ("call", call.to_json()),
        RunEvent::CallRejected { text, reason } => {
            ("rejected", json!({"text": text, "reason": reason}))
        }
        RunEvent::AwaitingApproval { id, tool } => ("approval", json!({"id": id, "name": tool})),
        RunEvent::CallFinished(call) => ("observation", call.to_json()),
        RunEvent::Usage(usage) => ("usage", usage),
        RunEvent::Completed(outcome) => ("answer", outcome_json(&outcome)),
    }
}

fn outcome_json(outcome: &RunOutcome) -> Value {
    let cut = outcome.answer.cut;
    let calls: Vec<Value> = outcome.calls.iter().map(agent::RunCall::to_json).collect();
    let pending: Vec<Value> = outcome
        .pending_calls
        .iter()
        .map(agent::RunCall::to_json)
        .collect();
    let mut usage = outcome.tokens.to_json();
    usage["tool_tokens"] = outcome.tool_tokens.into();
    json!({
        "text": outcome.answer.text,
        "model": outcome.model,
        "run_id": &*outcome.run,
        "iterations": outcome.rounds,
        "finish_reason": cut.map_or("stop", CutReason::name),
        "cut": cut.is_some(),
        "tool_calls": calls,
        "pending_calls": pending,
        "usage": usage,
        "unavailable_servers": servers_json(&outcome.unavailable_servers),
    })
}

fn servers_json(servers: &[UnavailableServer]) -> Value {
    let servers = servers.iter();
    servers
        .map(|it| json!({"name": it.name, "status": it.status}))
        .collect()
}

fn to_rpc_error(error: &agent::Error) -> RpcError {
    match error {
        agent::Error::UnknownServer { .. }
        | agent::Error::UnknownToolset(_)
        | agent::Error::NoAgentToolset
        | agent::Error::UnknownModel(_) => RpcError::invalid_params(error.to_string()),
        agent::Error::Busy(_) => RpcError::new(BUSY_ERROR, error.to_string()),
        agent::Error::ServersUnavailable(_)
        | agent::Error::NoModel
        | agent::Error::Stopping
        | agent::Error::Timeout { .. }
        | agent::Error::Model(_) => RpcError::new(MODEL_ERROR, error.to_string()),
    }
}

/// 400 for a body that is not a request of this method, 200 for a request that is answered with an
/// error.
fn rpc_error_response(id: &Value, error: &RpcError) -> Response {
    let status = match error.code {
        code::PARSE_ERROR | code::INVALID_REQUEST | code::METHOD_NOT_FOUND => {
            StatusCode::BAD_REQUEST
        }
        _ => StatusCode::OK,
    };
    reply::json(status, error_envelope(id, error).to_string())
}

fn error_envelope(id: &Value, error: &RpcError) -> Value {
    let mut body = json!({"code": error.code, "message": error.message});
    if let Some(data) = &error.data {
        body["data"] = data.clone();
    }
    json!({"jsonrpc": "2.0", "id": id, "error": body})
}
