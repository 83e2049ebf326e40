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
use maru_auth::Principal;
use maru_downstream::http::reply;
use maru_tools::custom::{SaveError, SavedTool, SavedVersion, ToolRecord, ValidationError};

/// `GET /api/custom-tools`: the published tools and those that are drafts only.
pub(super) async fn list(State(hub): State<Arc<HubState>>) -> Response {
    let tools = hub.custom_tools.list().await;
    let shown = tools.iter().map(|(name, it)| it.to_json(name));
    reply::json(StatusCode::OK, shown.collect::<Value>().to_string())
}

/// `POST /api/custom-tools`.
pub(super) async fn create(
    State(hub): State<Arc<HubState>>,
    Extension(who): Extension<Principal>,
    JsonBody(body): JsonBody,
) -> Response {
    let saved = hub.custom_tools.create(&body, who.name()).await;
    saved_response(StatusCode::CREATED, saved)
}

/// `GET /api/custom-tools/{name}`.
pub(super) async fn show(State(hub): State<Arc<HubState>>, Path(name): Path<String>) -> Response {
    record_response(&name, hub.custom_tools.get(&name).await)
}

/// `PUT /api/custom-tools/{name}`: members that are not named stay as they are.
pub(super) async fn update(
    State(hub): State<Arc<HubState>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    JsonBody(body): JsonBody,
) -> Response {
    let saved = hub.custom_tools.update(&name, &body, who.name()).await;
    saved_response(StatusCode::OK, saved)
}

/// `DELETE /api/custom-tools/{name}`: the tool and its draft.
pub(super) async fn remove(State(hub): State<Arc<HubState>>, Path(name): Path<String>) -> Response {
    empty_response(hub.custom_tools.remove(&name).await)
}

/// `PUT /api/custom-tools/{name}/draft`: what clients see does not change.
pub(super) async fn save_draft(
    State(hub): State<Arc<HubState>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    JsonBody(body): JsonBody,
) -> Response {
    let saved = hub.custom_tools.save_draft(&name, &body, who.name()).await;
    record_response(&name, saved)
}

/// `DELETE /api/custom-tools/{name}/draft`.
pub(super) async fn discard_draft(
    State(hub): State<Arc<HubState>>,
    Path(name): Path<String>,
) -> Response {
    empty_response(hub.custom_tools.discard_draft(&name).await)
}

/// `POST /api/custom-tools/{name}/publish`: `{"tool"}`, or the draft if there is none.
pub(super) async fn publish(
    State(hub): State<Arc<HubState>>,
    Extension(who): Extension<Principal>,
    Path(name): Path<String>,
    JsonBody(body): JsonBody,
) -> Response {
    let tool = body.get("tool").filter(|it| !it.is_null());
    let saved = hub.custom_tools.publish(&name, tool, who.name()).await;
    saved_response(StatusCode::OK, saved)
}

/// `POST /api/custom-tools/{name}/activate`.
pub(super) async fn activate(
    State(hub): State<Arc<HubState>>,
    Path(name): Path<String>,
) -> Response {
    record_response(&name, hub.custom_tools.set_active(&name, true).await)
}

/// `POST /api/custom-tools/{name}/deactivate`.
pub(super) async fn deactivate(
    State(hub): State<Arc<HubState>>,
    Path(name): Path<String>,
) -> Response {
    record_response(&name, hub.custom_tools.set_active(&name, false).await)
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
        Err(error) => reject_change(&error),
    }
}

/// `POST /api/custom-tools/{name}/versions/{version}/restore`.
pub(super) async fn restore(
    State(hub): State<Arc<HubState>>,
    Extension(who): Extension<Principal>,
    Path((name, version)): Path<(String, i64)>,
) -> Response {
    let saved = hub.custom_tools.restore(&name, version, who.name()).await;
    saved_response(StatusCode::OK, saved)
}

/// `POST /api/custom-tools/test`: runs a definition that need not be saved; with
/// `"run": false` it is only checked, and the answer says what saving it would change.
pub(super) async fn test(
    State(hub): State<Arc<HubState>>,
    Extension(principal): Extension<Principal>,
    JsonBody(body): JsonBody,
) -> Response {
    if body["run"] == false {
        return match hub.custom_tools.check(&body["tool"], None).await {
            Ok(change) => {
                let shown = json!({"ok": true, "change": change.as_str()});
                reply::json(StatusCode::OK, shown.to_string())
            }
            Err(error) => {
                let shown = json!({"ok": false, "error": save_error_json(&error)});
                reply::json(StatusCode::OK, shown.to_string())
            }
        };
    }
    let arguments = match &body["arguments"] {
        Value::Null => json!({}),
        given => given.clone(),
    };
    let tested = hub
        .custom_tools
        .run_unsaved(&body["tool"], &arguments, &principal)
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
        Err(error) => serde_json::to_string(&json!({"ok": false, "error": error_json(&error)})),
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

fn saved_response(status: StatusCode, saved: Result<SavedTool, SaveError>) -> Response {
    match saved {
        Ok(saved) => {
            let published = saved.record.published.as_ref();
            let name = published.map_or("", |it| it.definition.name.as_str());
            let mut shown = saved.record.to_json(name);
            shown["change"] = saved.change.as_str().into();
            reply::json(status, shown.to_string())
        }
        Err(error) => reject_change(&error),
    }
}

fn record_response(name: &str, record: Result<ToolRecord, SaveError>) -> Response {
    match record {
        Ok(record) => reply::json(StatusCode::OK, record.to_json(name).to_string()),
        Err(error) => reject_change(&error),
    }
}

fn empty_response(done: Result<(), SaveError>) -> Response {
    match done {
        Ok(()) => reply::empty(StatusCode::NO_CONTENT),
        Err(error) => reject_change(&error),
    }
}

fn reject_change(error: &SaveError) -> Response {
    let status = match error {
        SaveError::Invalid(_) => StatusCode::BAD_REQUEST,
        SaveError::NameTaken(_) | SaveError::TooManyTools(_) => StatusCode::CONFLICT,
        SaveError::UnknownTool(_) | SaveError::NoDraft(_) | SaveError::UnknownVersion(..) => {
            StatusCode::NOT_FOUND
        }
        SaveError::Store(error) => {
            tracing::error!("a change of the custom tools failed: {error}");
            StatusCode::SERVICE_UNAVAILABLE
        }
    };
    let mut shown = json!({"error": error.to_string()});
    if let SaveError::Invalid(error) = error {
        shown["field"] = json!(error.field);
        shown["line"] = json!(error.position.map(|it| it.0));
        shown["column"] = json!(error.position.map(|it| it.1));
    }
    reply::json(status, shown.to_string())
}

fn save_error_json(error: &SaveError) -> Value {
    match error {
        SaveError::Invalid(error) => error_json(error),
        other => json!({"message": other.to_string(), "field": "name"}),
    }
}

fn error_json(error: &ValidationError) -> Value {
    json!({
        "message": error.message,
        "field": error.field,
        "line": error.position.map(|it| it.0),
        "column": error.position.map(|it| it.1),
    })
}
