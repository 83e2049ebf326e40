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

use super::{HubState, body, openai};
use crate::{
    agent::{self, ActiveRun, AgentRequest, CutReason, RunEvent, RunOutcome},
    auth::Principal,
    downstream::http::{event_stream, reply, require_json},
    llm,
};

/// A model did not answer.
const MODEL_ERROR: i64 = -32_000;
/// Everything that may run does.
const BUSY_ERROR: i64 = -32_001;
const MAX_NAMED_SERVERS: usize = 1000;

/// `POST /generate`: no tools.
pub(super) async fn without_tools(
    State(hub): State<Arc<HubState>>,
    Extension(who): Extension<Principal>,
    request: Request,
) -> Response {
    generate(&hub, who, request, false).await
}

/// `POST /generate_with_mcp`: with tools.
pub(super) async fn with_tools(
    State(hub): State<Arc<HubState>>,
    Extension(who): Extension<Principal>,
    request: Request,
) -> Response {
    generate(&hub, who, request, true).await
}

async fn generate(hub: &Arc<HubState>, who: Principal, request: Request, tools: bool) -> Response {
    let (parts, body) = request.into_parts();
    if let Err(refusal) = require_json(&parts.headers) {
        return refusal;
    }
    let bytes = match body::read(body, hub.max_body_bytes()).await {
        Ok(bytes) => bytes,
        Err(refusal) => return refusal,
    };
    let (id, params) = match parse_request(&bytes) {
        Ok(read) => read,
        Err(error) => return rpc_error_response(StatusCode::BAD_REQUEST, &Value::Null, &error),
    };
    let started = agent_request(params, who, tools).and_then(|question| {
        hub.agent
            .start(question)
            .map_err(|error| to_rpc_error(&error))
    });
    let live = match started {
        Ok(live) => live,
        Err(error) => return rpc_error_response(StatusCode::OK, &id, &error),
    };
    if wants_stream(&parts.headers) {
        respond_stream(live, id)
    } else {
        respond_json(live, &id).await
    }
}

/// The id and the parameters of a request.
fn parse_request(bytes: &[u8]) -> Result<(Value, Map<String, Value>), RpcError> {
    let invalid = |why: &str| RpcError::new(code::INVALID_REQUEST, why.to_owned());
    let text = maru_protocol::validate_json(bytes)
        .map_err(|why| RpcError::new(code::PARSE_ERROR, why.to_string()))?;
    let request: Value =
        serde_json::from_str(text).map_err(|_| invalid("this is no JSON-RPC request"))?;
    if request["jsonrpc"] != "2.0" || !request["method"].is_string() {
        return Err(invalid("this is no JSON-RPC 2.0 request"));
    }
    let id = match &request["id"] {
        id @ (Value::Null | Value::String(_)) => id.clone(),
        Value::Number(id) if id.is_i64() || id.is_u64() => id.clone().into(),
        _ => return Err(invalid("the id is text or a whole number")),
    };
    if request["method"] != "generate_content" {
        let why = "the method is generate_content".to_owned();
        return Err(RpcError::new(code::METHOD_NOT_FOUND, why));
    }
    match &request["params"] {
        Value::Object(params) => Ok((id, params.clone())),
        _ => Err(RpcError::invalid_params("params must be an object")),
    }
}

fn agent_request(
    mut params: Map<String, Value>,
    who: Principal,
    tools: bool,
) -> Result<AgentRequest, RpcError> {
    const KNOWN_PARAMS: &[&str] = &[
        "model",
        "messages",
        "temperature",
        "max_output_tokens",
        "mcp_servers",
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
    Ok(AgentRequest {
        principal: who,
        model: text_param(&params, "model")?,
        messages,
        backend_options: backend_options(&params)?,
        servers: if tools {
            parse_server_names(params.get("mcp_servers"))?
        } else {
            Some(Vec::new())
        },
        max_rounds: integer_param(&params, "max_iterations", 1, 20)?
            .map(|it| u32::try_from(it).unwrap_or(20)),
        tool_timeout: number_param(&params, "tool_timeout", 0.1, 600.0)?
            .map(Duration::from_secs_f64),
        allows_approval: text_param(&params, "approval")?.is_some_and(|it| it == "ask"),
    })
}

/// What the backend is told besides.
fn backend_options(params: &Map<String, Value>) -> Result<Map<String, Value>, RpcError> {
    let mut other = Map::new();
    if let Some(temperature) = number_param(params, "temperature", 0.0, 2.0)? {
        other.insert("temperature".to_owned(), temperature.into());
    }
    if let Some(most) = integer_param(params, "max_output_tokens", 1, 1_000_000)? {
        other.insert("max_tokens".to_owned(), most.into());
    }
    Ok(other)
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
    let wrong = || RpcError::invalid_params("mcp_servers must be a list of names");
    match given {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(names)) if names.len() <= MAX_NAMED_SERVERS => {
            let names = names.iter().map(|it| it.as_str().map(str::to_owned));
            names.collect::<Option<_>>().map(Some).ok_or_else(wrong)
        }
        Some(_) => Err(wrong()),
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
    least: u64,
    most: u64,
) -> Result<Option<u64>, RpcError> {
    match params.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(given) => match given.as_u64().filter(|it| (least..=most).contains(it)) {
            Some(number) => Ok(Some(number)),
            None => Err(RpcError::invalid_params(format!(
                "{name} must be a whole number from {least} to {most}"
            ))),
        },
    }
}

fn number_param(
    params: &Map<String, Value>,
    name: &str,
    least: f64,
    most: f64,
) -> Result<Option<f64>, RpcError> {
    match params.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(given) => match given.as_f64().filter(|it| (least..=most).contains(it)) {
            Some(number) => Ok(Some(number)),
            None => Err(RpcError::invalid_params(format!(
                "{name} must be a number from {least} to {most}"
            ))),
        },
    }
}

/// Whether events are wanted rather than one answer.
fn wants_stream(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT);
    let accepted = accepted.and_then(|it| it.to_str().ok()).unwrap_or_default();
    let place = |kind: &str| accepted.find(kind).unwrap_or(usize::MAX);
    place("text/event-stream") < place("application/json").min(place("*/*"))
}

async fn respond_json(live: ActiveRun, id: &Value) -> Response {
    match live.into_outcome().await {
        Ok(outcome) => {
            let answer = json!({"jsonrpc": "2.0", "id": id, "result": outcome_json(&outcome)});
            reply::json(StatusCode::OK, answer.to_string())
        }
        Err(error) => rpc_error_response(StatusCode::OK, id, &to_rpc_error(&error)),
    }
}

/// The run goes on as the client reads; it ends when the client leaves.
fn respond_stream(live: ActiveRun, id: Value) -> Response {
    let events = stream::unfold(Some(live), move |live| {
        let id = id.clone();
        async move {
            let mut live = live?;
            let (name, data, more) = match live.next().await {
                Ok(None) => return None,
                Ok(Some(happening)) => {
                    let last = matches!(happening, RunEvent::Completed(_));
                    let (name, data) = sse_event(happening);
                    (name, data, !last)
                }
                Err(error) => ("error", error_envelope(&id, &to_rpc_error(&error)), false),
            };
            let text = write_event(Some(name), None, &data.to_string());
            Some((text, more.then_some(live)))
        }
    });
    event_stream(events)
}

/// The name and the data of an event.
fn sse_event(happening: RunEvent) -> (&'static str, Value) {
    match happening {
        RunEvent::Started {
            run,
            model,
            tools,
            tool_tokens,
        } => (
            "run",
            json!({"run_id": &*run, "model": model, "tools": tools, "tool_tokens": tool_tokens}),
        ),
        RunEvent::RoundStarted(number) => ("round", json!({"round": number})),
        RunEvent::Text(text) => ("thought", json!({"text": text})),
        RunEvent::Reasoning(text) => ("reasoning", json!({"text": text})),
        RunEvent::TextWasReasoning => ("reasoning", json!({"text": "", "all_text": true})),
        RunEvent::CallStarted(called) => ("call", called.shown()),
        RunEvent::AwaitingApproval { id, tool } => ("approval", json!({"id": id, "name": tool})),
        RunEvent::CallFinished(called) => ("observation", called.shown()),
        RunEvent::Usage(usage) => ("usage", usage),
        RunEvent::Completed(outcome) => ("answer", outcome_json(&outcome)),
    }
}

fn outcome_json(outcome: &RunOutcome) -> Value {
    let cut = outcome.answer.cut;
    let calls: Vec<Value> = outcome.calls.iter().map(agent::RunCall::shown).collect();
    let mut usage = outcome.tokens.shown();
    usage["tool_tokens"] = outcome.tool_tokens.into();
    json!({
        "text": outcome.answer.text,
        "model": outcome.model,
        "run_id": &*outcome.run,
        "iterations": outcome.rounds,
        "finish_reason": cut.map_or("stop", CutReason::name),
        "cut": cut.is_some(),
        "tool_calls": calls,
        "usage": usage,
    })
}

fn to_rpc_error(error: &agent::Error) -> RpcError {
    match error {
        agent::Error::UnknownServer { .. } => RpcError::invalid_params(error.to_string()),
        agent::Error::Busy(_) => RpcError::new(BUSY_ERROR, error.to_string()),
        agent::Error::NoModel | agent::Error::Model(_) => {
            RpcError::new(MODEL_ERROR, error.to_string())
        }
    }
}

fn rpc_error_response(status: StatusCode, id: &Value, error: &RpcError) -> Response {
    reply::json(status, error_envelope(id, error).to_string())
}

fn error_envelope(id: &Value, error: &RpcError) -> Value {
    let mut shown = json!({"code": error.code, "message": error.message});
    if let Some(data) = &error.data {
        shown["data"] = data.clone();
    }
    json!({"jsonrpc": "2.0", "id": id, "error": shown})
}
