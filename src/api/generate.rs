//! `POST /generate` and `/generate_with_mcp`: the agent loop over JSON-RPC.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    Extension,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use futures_util::stream;
use serde_json::{Map, Value, json};

use super::{Hub, body, openai};
use crate::{
    access::Principal,
    agent::{self, Cut, Happening, Live, Outcome, Question},
    downstream::http::{check, reply},
    llm,
    mcp::{self, RpcError, code},
};

/// A model did not answer.
const MODEL: i64 = -32_000;
/// Everything that may run does.
const BUSY: i64 = -32_001;
const MAX_SERVERS: usize = 1000;

/// `POST /generate`: no tools.
pub(super) async fn plain(
    State(hub): State<Arc<Hub>>,
    Extension(who): Extension<Principal>,
    request: Request,
) -> Response {
    answer(&hub, who, request, false).await
}

/// `POST /generate_with_mcp`: with tools.
pub(super) async fn with_tools(
    State(hub): State<Arc<Hub>>,
    Extension(who): Extension<Principal>,
    request: Request,
) -> Response {
    answer(&hub, who, request, true).await
}

async fn answer(hub: &Arc<Hub>, who: Principal, request: Request, tools: bool) -> Response {
    let (parts, body) = request.into_parts();
    if let Err(refusal) = check(&parts.headers) {
        return refusal;
    }
    let bytes = match body::read(body, hub.max_body_bytes()).await {
        Ok(bytes) => bytes,
        Err(refusal) => return refusal,
    };
    let (id, params) = match read(&bytes) {
        Ok(read) => read,
        Err(error) => return failed(StatusCode::BAD_REQUEST, &Value::Null, &error),
    };
    let started = question(params, who, tools)
        .and_then(|question| hub.agent.start(question).map_err(|error| rpc(&error)));
    let live = match started {
        Ok(live) => live,
        Err(error) => return failed(StatusCode::OK, &id, &error),
    };
    match wants_stream(&parts.headers) {
        true => streamed(live, id),
        false => in_one(live, &id).await,
    }
}

/// The id and the parameters of a request.
fn read(bytes: &[u8]) -> Result<(Value, Map<String, Value>), RpcError> {
    let invalid = |why: &str| RpcError::new(code::INVALID_REQUEST, why.to_owned());
    let text = mcp::check(bytes).map_err(|why| RpcError::new(code::PARSE, why.to_string()))?;
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
        _ => Err(RpcError::params("params must be an object")),
    }
}

fn question(
    mut params: Map<String, Value>,
    who: Principal,
    tools: bool,
) -> Result<Question, RpcError> {
    const KNOWN: &[&str] = &[
        "model",
        "messages",
        "temperature",
        "max_output_tokens",
        "mcp_servers",
        "max_iterations",
        "tool_timeout",
        "approval",
    ];
    if let Some(other) = params.keys().find(|it| !KNOWN.contains(&it.as_str())) {
        let other: String = other.chars().take(60).collect();
        return Err(RpcError::params(format!(
            "there is no parameter {other:?}; known are {}",
            KNOWN.join(", ")
        )));
    }
    let messages = messages(params.remove("messages"))?;
    Ok(Question {
        principal: who,
        model: text(&params, "model")?,
        messages,
        other: passed_on(&params)?,
        servers: match tools {
            true => servers(params.get("mcp_servers"))?,
            false => Some(Vec::new()),
        },
        rounds: whole(&params, "max_iterations", 1, 20)?.map(|it| u32::try_from(it).unwrap_or(20)),
        tool_timeout: number(&params, "tool_timeout", 0.1, 600.0)?.map(Duration::from_secs_f64),
        approval: text(&params, "approval")?.is_some_and(|it| it == "ask"),
    })
}

/// What the backend is told besides.
fn passed_on(params: &Map<String, Value>) -> Result<Map<String, Value>, RpcError> {
    let mut other = Map::new();
    if let Some(temperature) = number(params, "temperature", 0.0, 2.0)? {
        other.insert("temperature".to_owned(), temperature.into());
    }
    if let Some(most) = whole(params, "max_output_tokens", 1, 1_000_000)? {
        other.insert("max_tokens".to_owned(), most.into());
    }
    Ok(other)
}

/// As OpenAI or as Gemini writes them.
fn messages(given: Option<Value>) -> Result<Vec<llm::Message>, RpcError> {
    let Some(Value::Array(mut given)) = given else {
        return Err(RpcError::params(
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
    openai::messages(given.into()).map_err(RpcError::params)
}

fn servers(given: Option<&Value>) -> Result<Option<Vec<String>>, RpcError> {
    let wrong = || RpcError::params("mcp_servers must be a list of names");
    match given {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(names)) if names.len() <= MAX_SERVERS => {
            let names = names.iter().map(|it| it.as_str().map(str::to_owned));
            names.collect::<Option<_>>().map(Some).ok_or_else(wrong)
        }
        Some(_) => Err(wrong()),
    }
}

fn text(params: &Map<String, Value>, name: &str) -> Result<Option<String>, RpcError> {
    match params.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) if (1..=256).contains(&text.len()) => Ok(Some(text.clone())),
        Some(_) => Err(RpcError::params(format!(
            "{name} must be a text of 1 to 256 characters"
        ))),
    }
}

fn whole(
    params: &Map<String, Value>,
    name: &str,
    least: u64,
    most: u64,
) -> Result<Option<u64>, RpcError> {
    match params.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(given) => match given.as_u64().filter(|it| (least..=most).contains(it)) {
            Some(number) => Ok(Some(number)),
            None => Err(RpcError::params(format!(
                "{name} must be a whole number from {least} to {most}"
            ))),
        },
    }
}

fn number(
    params: &Map<String, Value>,
    name: &str,
    least: f64,
    most: f64,
) -> Result<Option<f64>, RpcError> {
    match params.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(given) => match given.as_f64().filter(|it| (least..=most).contains(it)) {
            Some(number) => Ok(Some(number)),
            None => Err(RpcError::params(format!(
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

async fn in_one(live: Live, id: &Value) -> Response {
    match live.outcome().await {
        Ok(outcome) => {
            let answer = json!({"jsonrpc": "2.0", "id": id, "result": result(&outcome)});
            reply::json(StatusCode::OK, answer.to_string())
        }
        Err(error) => failed(StatusCode::OK, id, &rpc(&error)),
    }
}

/// The run goes on as the client reads; it ends when the client leaves.
fn streamed(live: Live, id: Value) -> Response {
    let body = stream::unfold(Some(live), move |live| {
        let id = id.clone();
        async move {
            let mut live = live?;
            let (name, data, more) = match live.next().await {
                Ok(None) => return None,
                Ok(Some(happening)) => {
                    let last = matches!(happening, Happening::Answered(_));
                    let (name, data) = event(happening);
                    (name, data, !last)
                }
                Err(error) => ("error", envelope(&id, &rpc(&error)), false),
            };
            let text = format!("event: {name}\ndata: {data}\n\n");
            Some((Ok::<_, Infallible>(Bytes::from(text)), more.then_some(live)))
        }
    });
    let mut response = Response::new(Body::from_stream(body));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// The name and the data of an event.
fn event(happening: Happening) -> (&'static str, Value) {
    match happening {
        Happening::Began {
            run,
            model,
            tools,
            tool_tokens,
        } => (
            "run",
            json!({"run_id": &*run, "model": model, "tools": tools, "tool_tokens": tool_tokens}),
        ),
        Happening::Round(number) => ("round", json!({"round": number})),
        Happening::Text(text) => ("thought", json!({"text": text})),
        Happening::Reasoning(text) => ("reasoning", json!({"text": text})),
        Happening::TextWasReasoning => ("reasoning", json!({"text": "", "all_text": true})),
        Happening::Called(called) => ("call", called.shown()),
        Happening::Waits { id, tool } => ("approval", json!({"id": id, "name": tool})),
        Happening::Observed(called) => ("observation", called.shown()),
        Happening::Usage(usage) => ("usage", usage),
        Happening::Answered(outcome) => ("answer", result(&outcome)),
    }
}

fn result(outcome: &Outcome) -> Value {
    let cut = outcome.finished.cut;
    let calls: Vec<Value> = outcome.calls.iter().map(agent::Called::shown).collect();
    let mut usage = outcome.tokens.shown();
    usage["tool_tokens"] = outcome.tool_tokens.into();
    json!({
        "text": outcome.finished.text,
        "model": outcome.model,
        "run_id": &*outcome.run,
        "iterations": outcome.rounds,
        "finish_reason": cut.map_or("stop", Cut::name),
        "cut": cut.is_some(),
        "tool_calls": calls,
        "usage": usage,
    })
}

fn rpc(error: &agent::Error) -> RpcError {
    match error {
        agent::Error::UnknownServer { .. } => RpcError::params(error.to_string()),
        agent::Error::Busy(_) => RpcError::new(BUSY, error.to_string()),
        agent::Error::NoModel | agent::Error::Model(_) => RpcError::new(MODEL, error.to_string()),
    }
}

fn failed(status: StatusCode, id: &Value, error: &RpcError) -> Response {
    reply::json(status, envelope(id, error).to_string())
}

fn envelope(id: &Value, error: &RpcError) -> Value {
    let mut shown = json!({"code": error.code, "message": error.message});
    if let Some(data) = &error.data {
        shown["data"] = data.clone();
    }
    json!({"jsonrpc": "2.0", "id": id, "error": shown})
}
