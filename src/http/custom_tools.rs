//! `/api/custom-tools`: custom tools.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use serde_json::{Value, json, value::RawValue};

use super::{HubState, body::JsonBody};
use crate::{
    auth::Principal,
    downstream::http::reply,
    tools::custom::{CustomTool, SaveError, SavedVersion, ValidationError},
};

/// `GET /api/custom-tools`.
pub(super) async fn list(State(hub): State<Arc<HubState>>) -> Response {
    let tools: Value = hub
        .custom_tools
        .list()
        .await
        .iter()
        .map(CustomTool::to_json)
        .collect();
    reply::json(StatusCode::OK, tools.to_string())
}

/// `POST /api/custom-tools`.
pub(super) async fn create(
    State(hub): State<Arc<HubState>>,
    Extension(who): Extension<Principal>,
    JsonBody(body): JsonBody,
) -> Response {
    let made = hub.custom_tools.create(&body, who.name()).await;
    respond(StatusCode::CREATED, made)
}

/// `GET /api/custom-tools/{name}`.
pub(super) async fn show(State(hub): State<Arc<HubState>>, Path(name): Path<String>) -> Response {
    respond(StatusCode::OK, hub.custom_tools.get(&name).await)
}

/// `PUT /api/custom-tools/{name}`: what is not named stays as it is.
pub(super) async fn update(
    State(hub): State<Arc<HubState>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    JsonBody(body): JsonBody,
) -> Response {
    let made = hub.custom_tools.update(&name, &body, who.name()).await;
    respond(StatusCode::OK, made)
}

/// `DELETE /api/custom-tools/{name}`.
pub(super) async fn remove(State(hub): State<Arc<HubState>>, Path(name): Path<String>) -> Response {
    match hub.custom_tools.remove(&name).await {
        Ok(()) => reply::empty(StatusCode::NO_CONTENT),
        Err(why) => reject_change(&why),
    }
}

/// `POST /api/custom-tools/{name}/activate`.
pub(super) async fn activate(
    State(hub): State<Arc<HubState>>,
    Path(name): Path<String>,
) -> Response {
    respond(
        StatusCode::OK,
        hub.custom_tools.set_active(&name, true).await,
    )
}

/// `POST /api/custom-tools/{name}/deactivate`.
pub(super) async fn deactivate(
    State(hub): State<Arc<HubState>>,
    Path(name): Path<String>,
) -> Response {
    respond(
        StatusCode::OK,
        hub.custom_tools.set_active(&name, false).await,
    )
}

/// `GET /api/custom-tools/{name}/versions`.
pub(super) async fn versions(
    State(hub): State<Arc<HubState>>,
    Path(name): Path<String>,
) -> Response {
    let shown = |it: &SavedVersion| json!({"version": it.version, "saved_by": it.saved_by, "saved_dt": it.saved_dt, "tool": it.tool});
    match hub.custom_tools.versions(&name).await {
        Ok(saved) => {
            let saved: Value = saved.iter().map(shown).collect();
            reply::json(StatusCode::OK, saved.to_string())
        }
        Err(why) => reject_change(&why),
    }
}

/// `POST /api/custom-tools/{name}/versions/{version}/restore`.
pub(super) async fn restore(
    State(hub): State<Arc<HubState>>,
    Extension(who): Extension<Principal>,
    Path((name, version)): Path<(String, i64)>,
) -> Response {
    let made = hub.custom_tools.restore(&name, version, who.name()).await;
    respond(StatusCode::OK, made)
}

/// `POST /api/custom-tools/test`: runs a definition that need not be saved.
pub(super) async fn test(State(hub): State<Arc<HubState>>, JsonBody(body): JsonBody) -> Response {
    let arguments = match &body["arguments"] {
        Value::Null => json!({}),
        given => given.clone(),
    };
    let tested = hub
        .custom_tools
        .run_unsaved(&body["tool"], &arguments)
        .await;
    let shown = match tested {
        Ok((done, ms)) => {
            let result = RawValue::from_string(done.json).ok();
            serde_json::to_string(&ToolTestResponse {
                ok: true,
                result,
                text: &done.text,
                ms,
            })
        }
        Err(flaw) => serde_json::to_string(&json!({"ok": false, "error": error_json(&flaw)})),
    };
    reply::json(StatusCode::OK, shown.unwrap_or_default())
}

#[derive(serde::Serialize)]
struct ToolTestResponse<'a> {
    ok: bool,
    result: Option<Box<RawValue>>,
    text: &'a str,
    ms: f64,
}

fn respond(status: StatusCode, made: Result<CustomTool, SaveError>) -> Response {
    match made {
        Ok(made) => reply::json(status, made.to_json().to_string()),
        Err(why) => reject_change(&why),
    }
}

fn reject_change(why: &SaveError) -> Response {
    let status = match why {
        SaveError::Invalid(_) => StatusCode::BAD_REQUEST,
        SaveError::NameTaken(_) | SaveError::TooManyTools(_) => StatusCode::CONFLICT,
        SaveError::UnknownTool(_) | SaveError::UnknownVersion(..) => StatusCode::NOT_FOUND,
        SaveError::Store(error) => {
            tracing::error!("a change of the custom tools failed: {error}");
            StatusCode::SERVICE_UNAVAILABLE
        }
    };
    let mut shown = json!({"error": why.to_string()});
    if let SaveError::Invalid(flaw) = why {
        shown["field"] = json!(flaw.field);
        shown["line"] = json!(flaw.position.map(|it| it.0));
        shown["column"] = json!(flaw.position.map(|it| it.1));
    }
    reply::json(status, shown.to_string())
}

fn error_json(flaw: &ValidationError) -> Value {
    json!({
        "message": flaw.message,
        "field": flaw.field,
        "line": flaw.position.map(|it| it.0),
        "column": flaw.position.map(|it| it.1),
    })
}
