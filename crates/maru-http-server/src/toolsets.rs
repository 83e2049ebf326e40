//! `/api/toolsets`: named selections of tools, each with an endpoint of its own.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use serde_json::{Value, json};

use super::{HubState, body::JsonBody, servers::json_error};
use maru_config::ToolsetDefinition;
use maru_downstream::http::reply;
use maru_tools::{CatalogScope, CatalogSnapshot, Toolset, ToolsetError};

/// `GET /api/toolsets`: every toolset, with the number of its tools and what they cost.
pub(super) async fn list(State(hub): State<Arc<HubState>>) -> Response {
    let snapshot = hub.engine.catalog().snapshot();
    let toolsets = snapshot.toolsets().values();
    let shown: Vec<Value> = toolsets
        .map(|it| toolset_json(&hub, &snapshot, it))
        .collect();
    reply::json(StatusCode::OK, Value::from(shown).to_string())
}

/// `GET /api/toolsets/{name}`: a toolset and the names of its tools.
pub(super) async fn show(State(hub): State<Arc<HubState>>, Path(name): Path<String>) -> Response {
    let snapshot = hub.engine.catalog().snapshot();
    let Some(toolset) = snapshot.toolsets().get(name.as_str()) else {
        return unknown_toolset();
    };
    let mut shown = toolset_json(&hub, &snapshot, toolset);
    let view = snapshot.view(&CatalogScope::Toolset(name.into()));
    let entries = view.map_or(&[][..], |it| it.tools.entries());
    let names: Vec<&str> = entries.iter().map(|it| it.listed_name()).collect();
    shown["toolNames"] = names.into();
    reply::json(StatusCode::OK, shown.to_string())
}

/// `PUT /api/toolsets/{name}`: adds or replaces a toolset. Clients see it at once.
pub(super) async fn save(
    State(hub): State<Arc<HubState>>,
    Path(name): Path<String>,
    JsonBody(body): JsonBody,
) -> Response {
    let Value::Object(mut members) = body else {
        let message = "the body must be an object such as {\"include\": [\"files__*\"]}";
        return json_error(StatusCode::BAD_REQUEST, message, None);
    };
    members.insert("name".to_owned(), name.as_str().into());
    let definition: ToolsetDefinition = match serde_json::from_value(members.into()) {
        Ok(definition) => definition,
        Err(error) => return json_error(StatusCode::BAD_REQUEST, &error.to_string(), None),
    };
    match hub.toolsets.save(definition).await {
        Ok(()) => show(State(hub), Path(name)).await,
        Err(error) => save_error_response(&error),
    }
}

/// `DELETE /api/toolsets/{name}`.
pub(super) async fn remove(State(hub): State<Arc<HubState>>, Path(name): Path<String>) -> Response {
    match hub.toolsets.remove(&name).await {
        Ok(true) => reply::empty(StatusCode::NO_CONTENT),
        Ok(false) => unknown_toolset(),
        Err(error) => save_error_response(&error),
    }
}

fn unknown_toolset() -> Response {
    json_error(
        StatusCode::NOT_FOUND,
        "there is no toolset of this name",
        None,
    )
}

fn toolset_json(hub: &HubState, snapshot: &CatalogSnapshot, toolset: &Toolset) -> Value {
    let definition = toolset.definition();
    let name = definition.name.as_str();
    let mut shown = json!(definition);
    let view = snapshot.view(&CatalogScope::Toolset(name.into()));
    let tools = view.map(|it| (it.tools.entries().len(), it.tools.estimated_tokens()));
    let (count, tokens) = tools.unwrap_or_default();
    shown["toolCount"] = count.into();
    shown["estimatedTokens"] = tokens.into();
    shown["endpoint"] = format!("/mcp/t/{name}").into();
    let is_from_settings = hub.toolsets.is_from_settings(name);
    shown["from"] = if is_from_settings { "settings" } else { "api" }.into();
    shown
}

fn save_error_response(error: &ToolsetError) -> Response {
    match error {
        ToolsetError::Invalid(invalid) => json_error(
            StatusCode::BAD_REQUEST,
            &invalid.message,
            Some(invalid.field),
        ),
        ToolsetError::FromSettings(_) | ToolsetError::TooMany => {
            json_error(StatusCode::CONFLICT, &error.to_string(), None)
        }
        ToolsetError::Store(error) => {
            tracing::error!("failed to change the toolsets: {error}");
            let message = error.public_message();
            json_error(StatusCode::SERVICE_UNAVAILABLE, &message, None)
        }
    }
}
