//! `/api/tools/{name}/override`: how a tool is described to clients.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use serde_json::{Value, json};

use super::{HubState, body::JsonBody, servers::json_error, tools};
use maru_downstream::http::reply;
use maru_tools::{
    CatalogEntry, CatalogSnapshot, OWN_SERVER_NAME, ToolOverride, ToolOverrides, public_name,
};

/// `GET /api/tools/{name}/override`: the override, and how it changes the server's
/// description.
pub(super) async fn show(State(hub): State<Arc<HubState>>, Path(name): Path<String>) -> Response {
    match tools::find(&hub, &name) {
        Some((tool, _)) => {
            let shown = override_json(&hub.engine.catalog().snapshot(), &tool);
            reply::json(StatusCode::OK, shown.to_string())
        }
        None => tools::unknown_tool(&name),
    }
}

/// `PUT /api/tools/{name}/override`: replaces the override. Clients see it at once.
pub(super) async fn save(
    State(hub): State<Arc<HubState>>,
    Path(name): Path<String>,
    JsonBody(body): JsonBody,
) -> Response {
    let Some((tool, _)) = tools::find(&hub, &name) else {
        return tools::unknown_tool(&name);
    };
    let change = match ToolOverride::parse(&body) {
        Ok(change) => change,
        Err(invalid) => {
            let field = Some(invalid.field);
            return json_error(StatusCode::BAD_REQUEST, &invalid.message, field);
        }
    };
    let saved = hub.tool_overrides.save(tool.server(), tool.key(), &change);
    if let Err(error) = saved.await {
        return store_error_response(&error);
    }
    let shown = override_json(&hub.engine.catalog().snapshot(), &tool);
    reply::json(StatusCode::OK, shown.to_string())
}

/// `DELETE /api/tools/{name}/override`: clients see the server's description again.
pub(super) async fn remove(State(hub): State<Arc<HubState>>, Path(name): Path<String>) -> Response {
    let Some((server, tool)) = overridden_tool(&hub, &name) else {
        return tools::unknown_tool(&name);
    };
    match hub.tool_overrides.remove(&server, &tool).await {
        Ok(true) => reply::empty(StatusCode::NO_CONTENT),
        Ok(false) => json_error(StatusCode::NOT_FOUND, "the tool has no override", None),
        Err(error) => store_error_response(&error),
    }
}

/// `GET /api/tool-overrides`: every override, also of tools that are not there now.
pub(super) async fn list(State(hub): State<Arc<HubState>>) -> Response {
    let snapshot = hub.engine.catalog().snapshot();
    let overrides = snapshot.tool_overrides().iter();
    let shown: Vec<Value> = overrides
        .map(|((server, tool), change)| {
            json!({
                "name": public_name_of(server, tool),
                "server": **server,
                "tool": **tool,
                "override": **change,
                "isAvailable": snapshot.listed_tool(server, tool).is_some(),
            })
        })
        .collect();
    reply::json(StatusCode::OK, Value::from(shown).to_string())
}

/// The server and the tool of an override, whose tool need not be there now.
fn overridden_tool(hub: &HubState, name: &str) -> Option<(String, String)> {
    if let Some((tool, _)) = tools::find(hub, name) {
        return Some((tool.server().to_string(), tool.key().to_owned()));
    }
    let snapshot = hub.engine.catalog().snapshot();
    let overrides: &ToolOverrides = snapshot.tool_overrides();
    let mut keys = overrides.keys();
    let found = keys.find(|(server, tool)| public_name_of(server, tool) == name);
    found.map(|(server, tool)| (server.to_string(), tool.to_string()))
}

/// The name by which a tool is known, whether it is there or not.
fn public_name_of(server: &str, tool: &str) -> String {
    if server == OWN_SERVER_NAME {
        tool.to_owned()
    } else {
        public_name(server, tool)
    }
}

fn override_json(snapshot: &CatalogSnapshot, tool: &CatalogEntry) -> Value {
    let key = (Arc::clone(tool.server()), Arc::from(tool.key()));
    let change = snapshot.tool_overrides().get(&key).map(Arc::as_ref);
    let original = tool.listing();
    let listed = snapshot.listed_tool(tool.server(), tool.key());
    let (name, shown) = match listed {
        Some(listed) => (listed.listed_name().to_owned(), listed.listing()),
        None => (tool.public_name().to_owned(), original.clone()),
    };
    let mut differences = Vec::new();
    if name != tool.public_name() {
        differences.push(json!({"path": "/name", "original": tool.public_name(), "shown": name}));
    }
    compare("", &original, &shown, &mut differences);
    let unknown = change.map_or(Vec::new(), |it| it.unknown_parameters(&original));
    // A name that another tool has is not used.
    let refused_name = change
        .and_then(|it| it.name.as_deref())
        .filter(|it| *it != name && listed.is_some());
    json!({
        "name": tool.public_name(),
        "listedName": name,
        "override": change,
        "original": original,
        "shown": shown,
        "differences": differences,
        "unknownParameters": unknown,
        "refusedName": refused_name,
    })
}

/// Collects the members that differ, by JSON pointer.
fn compare(path: &str, original: &Value, shown: &Value, differences: &mut Vec<Value>) {
    match (original, shown) {
        (Value::Object(one), Value::Object(other)) => {
            let mut names: Vec<&String> = one.keys().chain(other.keys()).collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                let escaped = name.replace('~', "~0").replace('/', "~1");
                let path = format!("{path}/{escaped}");
                compare(&path, &original[name], &shown[name], differences);
            }
        }
        (one, other) if one == other => (),
        (one, other) => {
            differences.push(json!({"path": path, "original": one, "shown": other}));
        }
    }
}

fn store_error_response(error: &maru_store::Error) -> Response {
    tracing::error!("failed to change the override of a tool: {error}");
    json_error(
        StatusCode::SERVICE_UNAVAILABLE,
        &error.public_message(),
        None,
    )
}
