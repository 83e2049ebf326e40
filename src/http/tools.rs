//! `/api/tools`: every tool, with its switch; and trying one out.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use serde_json::{Value, json, value::RawValue};
use tokio::time::Instant;

use super::{HubState, body::JsonBody, servers::json_error};
use crate::{
    auth::Principal,
    downstream::http::reply,
    tools::{CallArguments, Caller, CatalogEntry, CatalogScope, EntryResponse, RequestContext},
};

/// How the console calls itself.
const CONSOLE_CLIENT_NAME: &str = "maru console";
const MAX_SUMMARY_CHARS: usize = 300;

/// `GET /api/tools`.
pub(super) async fn list(State(hub): State<Arc<HubState>>) -> Response {
    let snapshot = hub.engine.catalog().snapshot();
    let journal = hub.engine.catalog().journal();
    let tools: Vec<Value> = journal.read_stats(|stats| {
        let calls = |name: &str| stats.tools.get(name).map_or(0, |it| it.total);
        let shown = |(offer, on): (&Arc<CatalogEntry>, bool)| {
            let mut shown = summary(offer, on);
            shown["calls"] = calls(offer.public_name()).into();
            shown
        };
        snapshot.tools_with_state().map(shown).collect()
    });
    reply::json(StatusCode::OK, Value::from(tools).to_string())
}

/// `GET /api/tools/{name}`.
pub(super) async fn show(State(hub): State<Arc<HubState>>, Path(name): Path<String>) -> Response {
    let Some((offer, on)) = find(&hub, &name) else {
        return unknown_tool(&name);
    };
    let mut shown = summary(&offer, on);
    let described = offer.listing();
    for member in ["description", "inputSchema", "outputSchema", "annotations"] {
        shown[member] = described[member].clone();
    }
    reply::json(StatusCode::OK, shown.to_string())
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
        let why = "must be true or false";
        return json_error(StatusCode::BAD_REQUEST, why, Some("enabled"));
    };
    let named = body["names"].as_array().into_iter().flatten();
    let named = named.filter_map(|it| it.as_str().map(str::to_owned));
    let names: Vec<String> = name.into_iter().chain(named).collect();
    let mut changed = Vec::new();
    // One change at a time: each begins with what the last one left.
    let _turn = hub.tool_switch_lock.lock().await;
    let mut switches = hub.engine.catalog().snapshot().disabled_tools().clone();
    for name in names {
        let Some((offer, _)) = find(hub, &name) else {
            return unknown_tool(&name);
        };
        if switches.set_enabled(offer.server(), offer.key(), on) {
            changed.push(offer);
        }
    }
    let rows = changed
        .iter()
        .map(|it| (it.server().to_string(), it.key().to_owned()));
    if let Err(why) = hub.store.set_tools_enabled(rows.collect(), on).await {
        tracing::error!("tools could not be switched: {why}");
        let why = "the store did not keep the change; no tool was switched";
        return json_error(StatusCode::SERVICE_UNAVAILABLE, why, None);
    }
    hub.engine.catalog().set_disabled_tools(switches);
    let names: Vec<&str> = changed.iter().map(|it| it.public_name()).collect();
    let told = hub.engine.session_count();
    let done = json!({"ok": true, "changed": names, "told": told});
    reply::json(StatusCode::OK, done.to_string())
}

/// `POST /api/tools/{name}/call`: `{"arguments"}`.
pub(super) async fn call(
    State(hub): State<Arc<HubState>>,
    Path(name): Path<String>,
    Extension(principal): Extension<Principal>,
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
    let caller = Caller::new(principal, CatalogScope::All);
    let peer = RequestContext {
        client: Some(CONSOLE_CLIENT_NAME.into()),
        ..RequestContext::default()
    };
    let started = Instant::now();
    let catalog = hub.engine.catalog();
    let answer = catalog
        .call_tool(
            &caller,
            &name,
            Arc::new(CallArguments::from(arguments)),
            peer.into(),
        )
        .await;
    let milliseconds = started.elapsed().as_secs_f64() * 1000.0;
    let done = match answer {
        Ok(EntryResponse::Complete(result)) => {
            // As it came: a number keeps its digits.
            let raw: Option<Box<RawValue>> = serde_json::from_str(result.as_json()).ok();
            let raw = raw.map_or("null".to_owned(), |it| it.get().to_owned());
            format!("{{\"ok\":true,\"milliseconds\":{milliseconds:.2},\"result\":{raw}}}")
        }
        Ok(EntryResponse::InputRequired(_)) => error_json(
            "input_required",
            "this tool asks its caller back, which the console cannot answer; call it from a client",
        ),
        Err(why) => error_json("refused", &why.message),
    };
    reply::json(StatusCode::OK, done)
}

fn error_json(code: &str, message: &str) -> String {
    json!({"ok": false, "error": {"code": code, "message": message}}).to_string()
}

fn find(hub: &HubState, name: &str) -> Option<(Arc<CatalogEntry>, bool)> {
    let snapshot = hub.engine.catalog().snapshot();
    let found = snapshot
        .tools_with_state()
        .find(|(it, _)| it.public_name() == name);
    found.map(|(offer, on)| (Arc::clone(offer), on))
}

fn unknown_tool(name: &str) -> Response {
    let shown: String = name.chars().take(100).collect();
    let why = format!("no tool is named {shown:?}");
    json_error(StatusCode::NOT_FOUND, &why, None)
}

fn summary(offer: &CatalogEntry, on: bool) -> Value {
    let described = offer.listing();
    let schema = &described["inputSchema"];
    let text = described["description"].as_str().unwrap_or_default();
    json!({
        "name": offer.public_name(),
        "server": &**offer.server(),
        "key": offer.key(),
        "title": described["title"].as_str(),
        "description": text.chars().take(MAX_SUMMARY_CHARS).collect::<String>(),
        "parameters": schema["properties"].as_object().map_or(0, serde_json::Map::len),
        "required": schema["required"].as_array().map_or(0, Vec::len),
        "annotations": described["annotations"],
        "enabled": on,
    })
}
