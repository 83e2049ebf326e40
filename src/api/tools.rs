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

use super::{Hub, body::Json, servers::error};
use crate::{
    access::Principal,
    downstream::http::reply,
    tool::{Answer, Caller, Input, Offer, Peer, Scope},
};

/// How the console calls itself.
const CLIENT: &str = "maru console";
const SHORT: usize = 300;

/// `GET /api/tools`.
pub(super) async fn list(State(hub): State<Arc<Hub>>) -> Response {
    let snapshot = hub.engine.catalog().snapshot();
    let journal = hub.engine.catalog().journal();
    let tools: Vec<Value> = journal.read_stats(|stats| {
        let calls = |name: &str| stats.tools.get(name).map_or(0, |it| it.total);
        let shown = |(offer, on): (&Arc<Offer>, bool)| {
            let mut shown = summary(offer, on);
            shown["calls"] = calls(offer.public_key()).into();
            shown
        };
        snapshot.every_tool().map(shown).collect()
    });
    reply::json(StatusCode::OK, Value::from(tools).to_string())
}

/// `GET /api/tools/{name}`.
pub(super) async fn show(State(hub): State<Arc<Hub>>, Path(name): Path<String>) -> Response {
    let Some((offer, on)) = find(&hub, &name) else {
        return unknown(&name);
    };
    let mut shown = summary(&offer, on);
    let described = offer.described();
    for member in ["description", "inputSchema", "outputSchema", "annotations"] {
        shown[member] = described[member].clone();
    }
    reply::json(StatusCode::OK, shown.to_string())
}

/// `PUT /api/tools/{name}`: `{"enabled"}`.
pub(super) async fn switch(
    State(hub): State<Arc<Hub>>,
    Path(name): Path<String>,
    Json(body): Json,
) -> Response {
    switch_all(&hub, Some(name), &body).await
}

/// `PUT /api/tools`: `{"names", "enabled"}`.
pub(super) async fn switch_many(State(hub): State<Arc<Hub>>, Json(body): Json) -> Response {
    switch_all(&hub, None, &body).await
}

async fn switch_all(hub: &Hub, name: Option<String>, body: &Value) -> Response {
    let Some(on) = body["enabled"].as_bool() else {
        let why = "must be true or false";
        return error(StatusCode::BAD_REQUEST, why, Some("enabled"));
    };
    let named = body["names"].as_array().into_iter().flatten();
    let named = named.filter_map(|it| it.as_str().map(str::to_owned));
    let names: Vec<String> = name.into_iter().chain(named).collect();
    let mut changed = Vec::new();
    // One change at a time: each begins with what the last one left.
    let _turn = hub.switching.lock().await;
    let mut switches = hub.engine.catalog().snapshot().switches().clone();
    for name in names {
        let Some((offer, _)) = find(hub, &name) else {
            return unknown(&name);
        };
        if switches.set(offer.server(), offer.key(), on) {
            changed.push(offer);
        }
    }
    let rows = changed
        .iter()
        .map(|it| (it.server().to_string(), it.key().to_owned()));
    if let Err(why) = hub.store.set_tools(rows.collect(), on).await {
        tracing::error!("tools could not be switched: {why}");
        let why = "the store did not keep the change; no tool was switched";
        return error(StatusCode::SERVICE_UNAVAILABLE, why, None);
    }
    hub.engine.catalog().switch(switches);
    let names: Vec<&str> = changed.iter().map(|it| it.public_key()).collect();
    let told = hub.engine.session_count();
    let done = json!({"ok": true, "changed": names, "told": told});
    reply::json(StatusCode::OK, done.to_string())
}

/// `POST /api/tools/{name}/call`: `{"arguments"}`.
pub(super) async fn call(
    State(hub): State<Arc<Hub>>,
    Path(name): Path<String>,
    Extension(principal): Extension<Principal>,
    Json(mut body): Json,
) -> Response {
    let arguments = match body.get_mut("arguments").map(Value::take) {
        None | Some(Value::Null) => json!({}),
        Some(arguments @ Value::Object(_)) => arguments,
        Some(_) => {
            return error(
                StatusCode::BAD_REQUEST,
                "must be an object",
                Some("arguments"),
            );
        }
    };
    let caller = Caller::new(principal, Scope::All);
    let peer = Peer {
        client: Some(CLIENT.into()),
        ..Peer::default()
    };
    let started = Instant::now();
    let catalog = hub.engine.catalog();
    let answer = catalog
        .call(
            &caller,
            &name,
            Arc::new(Input::from(arguments)),
            peer.into(),
        )
        .await;
    let milliseconds = started.elapsed().as_secs_f64() * 1000.0;
    let done = match answer {
        Ok(Answer::Complete(result)) => {
            // As it came: a number keeps its digits.
            let raw: Option<Box<RawValue>> = serde_json::from_str(&result).ok();
            let raw = raw.map_or("null".to_owned(), |it| it.get().to_owned());
            format!("{{\"ok\":true,\"milliseconds\":{milliseconds:.2},\"result\":{raw}}}")
        }
        Ok(Answer::InputRequired(_)) => failed(
            "input_required",
            "this tool asks its caller back, which the console cannot answer; call it from a client",
        ),
        Err(why) => failed("refused", &why.message),
    };
    reply::json(StatusCode::OK, done)
}

fn failed(code: &str, message: &str) -> String {
    json!({"ok": false, "error": {"code": code, "message": message}}).to_string()
}

fn find(hub: &Hub, name: &str) -> Option<(Arc<Offer>, bool)> {
    let snapshot = hub.engine.catalog().snapshot();
    let found = snapshot
        .every_tool()
        .find(|(it, _)| it.public_key() == name);
    found.map(|(offer, on)| (Arc::clone(offer), on))
}

fn unknown(name: &str) -> Response {
    let shown: String = name.chars().take(100).collect();
    let why = format!("no tool is named {shown:?}");
    error(StatusCode::NOT_FOUND, &why, None)
}

fn summary(offer: &Offer, on: bool) -> Value {
    let described = offer.described();
    let schema = &described["inputSchema"];
    let text = described["description"].as_str().unwrap_or_default();
    json!({
        "name": offer.public_key(),
        "server": &**offer.server(),
        "key": offer.key(),
        "title": described["title"].as_str(),
        "description": text.chars().take(SHORT).collect::<String>(),
        "parameters": schema["properties"].as_object().map_or(0, serde_json::Map::len),
        "required": schema["required"].as_array().map_or(0, Vec::len),
        "annotations": described["annotations"],
        "enabled": on,
    })
}
