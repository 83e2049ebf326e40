//! `/api/sources`: the databases that tools read, and what they hold.

use std::{collections::HashMap, sync::Arc};

use axum::{
    Extension,
    extract::{Path, Query, State},
    http::StatusCode,
    response::Response,
};
use serde_json::{Value, json};

use maru_auth::Principal;

use super::{HubState, body::JsonBody, servers::json_error};
use maru_downstream::http::reply;
use maru_tools::{SampleMode, SourceError};

/// `GET /api/sources`: every source with its origin, without addresses.
pub(super) async fn list(State(hub): State<Arc<HubState>>) -> Response {
    json_response(StatusCode::OK, &hub.sources.list().await.into())
}

/// `GET /api/source-settings`: the JSON Schema of a source.
pub(super) async fn settings_schema(State(hub): State<Arc<HubState>>) -> Response {
    json_response(StatusCode::OK, hub.sources.settings_schema())
}

/// `POST /api/sources`.
pub(super) async fn add(State(hub): State<Arc<HubState>>, JsonBody(body): JsonBody) -> Response {
    match hub.sources.add(&body).await {
        Ok(source) => json_response(StatusCode::CREATED, &source),
        Err(error) => reject(&error),
    }
}

/// `POST /api/sources/test`: connects with settings that need not be saved.
pub(super) async fn test(State(hub): State<Arc<HubState>>, JsonBody(body): JsonBody) -> Response {
    let tested = match hub.sources.test(&body).await {
        Ok(tables) => json!({"ok": true, "tables": tables}),
        Err(error) => {
            json!({"ok": false, "error": {"message": error.to_string(), "field": error_field(&error)}})
        }
    };
    json_response(StatusCode::OK, &tested)
}

/// `GET /api/sources/{name}`: the settings of an added source, secrets masked.
pub(super) async fn show(State(hub): State<Arc<HubState>>, Path(name): Path<String>) -> Response {
    match hub.sources.show(&name).await {
        Ok(source) => json_response(StatusCode::OK, &source),
        Err(error) => reject(&error),
    }
}

/// `PUT /api/sources/{name}`; of the sample only `{"mode"}`.
pub(super) async fn update(
    State(hub): State<Arc<HubState>>,
    Path(name): Path<String>,
    JsonBody(body): JsonBody,
) -> Response {
    if let Some(mode) = body["mode"].as_str().filter(|_| name == "sample") {
        return match hub.sources.set_sample_mode(SampleMode::parse(mode)).await {
            Ok(()) => json_response(StatusCode::OK, &hub.sources.list().await.into()),
            Err(error) => reject(&error),
        };
    }
    match hub.sources.update(&name, &body).await {
        Ok(source) => json_response(StatusCode::OK, &source),
        Err(error) => reject(&error),
    }
}

/// `DELETE /api/sources/{name}`.
pub(super) async fn remove(State(hub): State<Arc<HubState>>, Path(name): Path<String>) -> Response {
    match hub.sources.remove(&name).await {
        Ok(()) => reply::empty(StatusCode::NO_CONTENT),
        Err(error) => reject(&error),
    }
}

/// `GET /api/sources/{name}/tables`.
pub(super) async fn tables(
    State(hub): State<Arc<HubState>>,
    Path(name): Path<String>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    let schema = query.get("schema").map(String::as_str);
    found_response(hub.sources.context().tables(Some(&name), schema).await)
}

/// `GET /api/sources/{name}/tables/{table}`.
pub(super) async fn columns(
    State(hub): State<Arc<HubState>>,
    Path((name, table)): Path<(String, String)>,
    Extension(principal): Extension<Principal>,
) -> Response {
    let context = hub.sources.context();
    let described = context.describe_columns(Some(&name), &table, &principal);
    found_response(described.await)
}

fn found_response(found: Result<Value, String>) -> Response {
    match found {
        Ok(found) => json_response(StatusCode::OK, &found),
        Err(message) => json_error(StatusCode::NOT_FOUND, &message, None),
    }
}

fn json_response(status: StatusCode, value: &Value) -> Response {
    reply::json(status, value.to_string())
}

fn reject(error: &SourceError) -> Response {
    let status = match error {
        SourceError::Invalid { .. } => StatusCode::BAD_REQUEST,
        SourceError::NameTaken(_) | SourceError::FromSettings(_) => StatusCode::CONFLICT,
        SourceError::UnknownSource(_) => StatusCode::NOT_FOUND,
        SourceError::Store(error) => {
            tracing::error!("a change of the sources failed: {error}");
            StatusCode::SERVICE_UNAVAILABLE
        }
    };
    json_error(status, &error.to_string(), error_field(error))
}

fn error_field(error: &SourceError) -> Option<&'static str> {
    match error {
        SourceError::Invalid { field, .. } => *field,
        SourceError::NameTaken(_) => Some("name"),
        _ => None,
    }
}
