//! `/api/tools`: lists, enables, disables and calls tools for the console.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Path, Query, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};
use tokio::time::Instant;

use super::{HubState, body::JsonBody, servers::json_error, tool_stream::StreamedCall};
use maru_auth::Principal;
use maru_downstream::http::reply;
use maru_protocol::RpcError;
use maru_tools::{
    CallArguments, Caller, CatalogEntry, CatalogScope, EntryResponse, RequestContext,
};

/// The client name of calls from the console.
pub(super) const CONSOLE_CLIENT_NAME: &str = "maru console";
const MAX_SUMMARY_CHARS: usize = 300;
const DEFAULT_FOUND_TOOLS: usize = 50;

/// The parameters of `GET /api/tools`.
#[derive(Debug, Deserialize)]
pub(super) struct ToolListQuery {
    /// What the tools should do; the best are listed first.
    query: Option<String>,
    /// The maximum number of tools that a query finds.
    limit: Option<usize>,
}

/// `GET /api/tools`: all tools, or those that `query` finds.
pub(super) async fn list(
    State(hub): State<Arc<HubState>>,
    Extension(principal): Extension<Principal>,
    Query(asked): Query<ToolListQuery>,
) -> Response {
    if let Some(query) = asked.query.as_deref().filter(|it| !it.trim().is_empty()) {
        let limit = asked.limit.unwrap_or(DEFAULT_FOUND_TOOLS);
        return found_tools(&hub, principal, query, limit).await;
    }
    let snapshot = hub.engine.catalog().snapshot();
    let journal = hub.engine.catalog().journal();
    let tools: Vec<Value> = journal.read_stats(|stats| {
        let calls = |name: &str| stats.tools.get(name).map_or(0, |it| it.total);
        let tool_json = |(tool, enabled): (&Arc<CatalogEntry>, bool)| {
            let mut json = summary(tool, enabled);
            json["calls"] = calls(tool.public_name()).into();
            json
        };
        snapshot.tools_with_state().map(tool_json).collect()
    });
    reply::json(StatusCode::OK, Value::from(tools).to_string())
}

async fn found_tools(hub: &HubState, principal: Principal, query: &str, limit: usize) -> Response {
    let caller = Caller::new(principal, CatalogScope::All);
    let ranked = match hub.engine.catalog().rank_tools(&caller, query).await {
        Ok(ranked) => ranked,
        Err(error) => return json_error(StatusCode::BAD_REQUEST, &error.message, None),
    };
    let found = ranked.iter().filter(|it| it.is_match).take(limit);
    let tools: Vec<Value> = found.map(|it| summary(&it.entry, true)).collect();
    reply::json(StatusCode::OK, Value::from(tools).to_string())
}

/// `GET /api/tools/{name}`.
pub(super) async fn show(State(hub): State<Arc<HubState>>, Path(name): Path<String>) -> Response {
    let Some((tool, enabled)) = find(&hub, &name) else {
        return unknown_tool(&name);
    };
    let mut json = summary(&tool, enabled);
    let listing = tool.listing();
    for member in ["description", "inputSchema", "outputSchema", "annotations"] {
        json[member] = listing[member].clone();
    }
    reply::json(StatusCode::OK, json.to_string())
}

/// `PUT /api/tools/{name}`: `{"enabled"}`.
pub(super) async fn set_enabled(
    State(hub): State<Arc<HubState>>,
    Path(name): Path<String>,
    JsonBody(body): JsonBody,
) -> Response {
    apply_enabled(&hub, Some(name), &body).await
}

/// `PUT /api/tools`: `{"names", "enabled"}`.
pub(super) async fn set_many_enabled(
    State(hub): State<Arc<HubState>>,
    JsonBody(body): JsonBody,
) -> Response {
    apply_enabled(&hub, None, &body).await
}

async fn apply_enabled(hub: &HubState, name: Option<String>, body: &Value) -> Response {
    let Some(on) = body["enabled"].as_bool() else {
        let message = "must be true or false";
        return json_error(StatusCode::BAD_REQUEST, message, Some("enabled"));
    };
    let names = body["names"].as_array().into_iter().flatten();
    let names = names.filter_map(|it| it.as_str().map(str::to_owned));
    let names: Vec<String> = name.into_iter().chain(names).collect();
    let mut changed = Vec::new();
    for name in names {
        let Some((entry, is_on)) = find(hub, &name) else {
            return unknown_tool(&name);
        };
        if is_on != on {
            changed.push(entry);
        }
    }
    let keys: Vec<(String, String)> = changed
        .iter()
        .map(|it| (it.server().to_string(), it.key().to_owned()))
        .collect();
    if let Err(error) = hub.custom_tools.set_tools_enabled(&keys, on).await {
        tracing::error!("failed to enable or disable tools: {error}");
        let message = "the store could not save the change; no tool was changed";
        return json_error(StatusCode::SERVICE_UNAVAILABLE, message, None);
    }
    let names: Vec<&str> = changed.iter().map(|it| it.public_name()).collect();
    let sessions = hub.engine.session_count();
    let done = json!({"ok": true, "changed": names, "told": sessions});
    reply::json(StatusCode::OK, done.to_string())
}

/// `POST /api/tools/{name}/call`: `{"arguments"}`. With `Accept: text/event-stream` the
/// response is a stream of what the tool says, asks and returns.
pub(super) async fn call(
    State(hub): State<Arc<HubState>>,
    Path(name): Path<String>,
    Extension(principal): Extension<Principal>,
    headers: HeaderMap,
    JsonBody(mut body): JsonBody,
) -> Response {
    let arguments = match body.get_mut("arguments").map(Value::take) {
        None | Some(Value::Null) => json!({}),
        Some(arguments @ Value::Object(_)) => arguments,
        Some(_) => {
            return json_error(
                StatusCode::BAD_REQUEST,
                "must be an object",
                Some("arguments"),
            );
        }
    };
    let arguments = Arc::new(CallArguments::from(arguments));
    let accepted = headers.get(header::ACCEPT).map(HeaderValue::as_bytes);
    if accepted == Some(b"text/event-stream") {
        let call = StreamedCall {
            hub,
            principal,
            tool: name,
            arguments,
        };
        return call.respond();
    }
    let caller = Caller::new(principal, CatalogScope::All);
    let context = RequestContext {
        client: Some(CONSOLE_CLIENT_NAME.into()),
        ..RequestContext::default()
    };
    let started = Instant::now();
    let catalog = hub.engine.catalog();
    let response = catalog.call_tool(&caller, &name, arguments, context.into());
    reply::json(StatusCode::OK, call_json(response.await, started))
}

/// The JSON of a response.
pub(super) fn call_json(response: Result<EntryResponse, RpcError>, started: Instant) -> String {
    let milliseconds = started.elapsed().as_secs_f64() * 1000.0;
    match response {
        Ok(EntryResponse::Complete(result)) => {
            // The raw JSON keeps the digits of numbers.
            let raw: Option<Box<RawValue>> = serde_json::from_str(result.as_json()).ok();
            let raw = raw.map_or("null".to_owned(), |it| it.get().to_owned());
            format!("{{\"ok\":true,\"milliseconds\":{milliseconds:.2},\"result\":{raw}}}")
        }
        Ok(EntryResponse::InputRequired(_)) => error_json(
            "input_required",
            "this tool requests input from its caller; call it with Accept: text/event-stream, or from a client",
        ),
        Err(error) => error_json("refused", &error.message),
    }
}

pub(super) fn error_json(code: &str, message: &str) -> String {
    json!({"ok": false, "error": {"code": code, "message": message}}).to_string()
}

pub(super) fn find(hub: &HubState, name: &str) -> Option<(Arc<CatalogEntry>, bool)> {
    let snapshot = hub.engine.catalog().snapshot();
    let mut tools = snapshot.tools_with_state();
    let (tool, enabled) = tools.find(|(it, _)| it.public_name() == name)?;
    Some((Arc::clone(tool), enabled))
}

pub(super) fn unknown_tool(name: &str) -> Response {
    let name: String = name.chars().take(100).collect();
    let message = format!("no tool is named {name:?}");
    json_error(StatusCode::NOT_FOUND, &message, None)
}

fn summary(tool: &CatalogEntry, enabled: bool) -> Value {
    let listing = tool.listing();
    let schema = &listing["inputSchema"];
    let description = listing["description"].as_str().unwrap_or_default();
    json!({
        "name": tool.public_name(),
        "server": &**tool.server(),
        "key": tool.key(),
        "title": listing["title"].as_str(),
        "description": description.chars().take(MAX_SUMMARY_CHARS).collect::<String>(),
        "parameters": schema["properties"].as_object().map_or(0, serde_json::Map::len),
        "required": schema["required"].as_array().map_or(0, Vec::len),
        "annotations": listing["annotations"],
        "enabled": enabled,
    })
}
