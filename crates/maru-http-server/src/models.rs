//! `/api/models`: the models of this hub, and those that are added while it runs.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use serde_json::{Value, json};

use super::{HubState, body::JsonBody, servers::json_error};
use maru_downstream::http::reply;
use maru_llm::{ModelError, ModelOrigin};

/// `GET /api/models`: every entry with its origin, its queue and the health of its backend.
pub(super) async fn list(State(hub): State<Arc<HubState>>) -> Response {
    let status = hub.models.current().status().into_iter();
    let mut shown: Vec<Value> = status
        .map(|it| {
            json!({
                "name": it.name, "origin": it.origin.as_str(), "backend": it.backend,
                "running": it.running, "waiting": it.waiting,
                "consecutive_failures": it.consecutive_failures,
                "cooldown_seconds": it.cooldown.as_secs_f64().ceil(),
            })
        })
        .collect();
    let faults = hub.model_manager.faults().await.into_iter();
    let origin = ModelOrigin::Console.as_str();
    shown.extend(
        faults.map(|(name, fault)| json!({"name": name, "origin": origin, "fault": fault})),
    );
    reply::json(StatusCode::OK, Value::from(shown).to_string())
}

/// `POST /api/models`: the members of an entry of `models` in the settings.
pub(super) async fn add(State(hub): State<Arc<HubState>>, JsonBody(body): JsonBody) -> Response {
    match hub.model_manager.add(&body).await {
        Ok(model) => reply::json(StatusCode::CREATED, model.to_string()),
        Err(error) => reject(&error),
    }
}

/// `POST /api/models/test`: `{"definition", "model"}`. Asks a short question with settings
/// that need not be saved; `model` is one of a family.
pub(super) async fn test(State(hub): State<Arc<HubState>>, JsonBody(body): JsonBody) -> Response {
    let model = body["model"].as_str().filter(|it| !it.is_empty());
    let tested = hub.model_manager.test(&body["definition"], model).await;
    let shown = match tested {
        Ok(test) => json!({
            "ok": true, "model": test.model, "text": test.text,
            "ms": u64::try_from(test.duration.as_millis()).unwrap_or(u64::MAX),
            "models": test.models,
        }),
        Err(error) => {
            json!({"ok": false, "error": {"message": error.to_string(), "field": error_field(&error)}})
        }
    };
    reply::json(StatusCode::OK, shown.to_string())
}

/// `GET /api/models/{name}`: the settings of an added model, its key masked.
pub(super) async fn show(State(hub): State<Arc<HubState>>, Path(name): Path<String>) -> Response {
    match hub.model_manager.show(&name).await {
        Ok(model) => reply::json(StatusCode::OK, model.to_string()),
        Err(error) => reject(&error),
    }
}

/// `PUT /api/models/{name}`.
pub(super) async fn update(
    State(hub): State<Arc<HubState>>,
    Path(name): Path<String>,
    JsonBody(body): JsonBody,
) -> Response {
    match hub.model_manager.update(&name, &body).await {
        Ok(model) => reply::json(StatusCode::OK, model.to_string()),
        Err(error) => reject(&error),
    }
}

/// `DELETE /api/models/{name}`.
pub(super) async fn remove(State(hub): State<Arc<HubState>>, Path(name): Path<String>) -> Response {
    match hub.model_manager.remove(&name).await {
        Ok(()) => reply::empty(StatusCode::NO_CONTENT),
        Err(error) => reject(&error),
    }
}

fn reject(error: &ModelError) -> Response {
    let status = match error {
        ModelError::Invalid { .. } | ModelError::Failed(_) => StatusCode::BAD_REQUEST,
        ModelError::NameTaken(_) | ModelError::FromSettings(_) => StatusCode::CONFLICT,
        ModelError::UnknownModel(_) => StatusCode::NOT_FOUND,
        ModelError::Store(error) => {
            tracing::error!("a change of the models failed: {error}");
            StatusCode::SERVICE_UNAVAILABLE
        }
    };
    json_error(status, &error.to_string(), error_field(error))
}

fn error_field(error: &ModelError) -> Option<&'static str> {
    match error {
        ModelError::Invalid { field, .. } => *field,
        ModelError::NameTaken(_) => Some("name"),
        _ => None,
    }
}
