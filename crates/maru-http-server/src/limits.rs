//! `/api/limits`: limits of calls per day and minute, of principals and tools.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use maru_store::CallLimitRow;
use serde_json::{Value, json};

use super::{HubState, body::JsonBody, servers::json_error};
use maru_downstream::http::reply;
use maru_tools::{QuotaTarget, unknown_name};

const MAX_TARGET_BYTES: usize = 200;

/// `GET /api/limits`.
pub(super) async fn list(State(hub): State<Arc<HubState>>) -> Response {
    match hub.quota.list().await {
        Ok(rows) => limits_response(&rows),
        Err(error) => store_error_response(&error),
    }
}

fn limits_response(rows: &[CallLimitRow]) -> Response {
    let rows: Value = rows.iter().map(limit_json).collect();
    reply::json(StatusCode::OK, rows.to_string())
}

/// `PUT /api/limits/{target_type}/{target_id}`.
pub(super) async fn set(
    State(hub): State<Arc<HubState>>,
    Path((target_type, id)): Path<(String, String)>,
    JsonBody(body): JsonBody,
) -> Response {
    let bad_request =
        |message: &str, field: &str| json_error(StatusCode::BAD_REQUEST, message, Some(field));
    let Some(target) = QuotaTarget::parse(&target_type) else {
        return bad_request("use USER or TOOL", "target_type");
    };
    let (per_day, per_minute) = (&body["max_count"], &body["max_per_minute"]);
    let is_invalid = |it: &Value| !it.is_null() && it.as_i64().is_none_or(|it| it < 0);
    if is_invalid(per_day) || (per_day.is_null() && per_minute.is_null()) {
        let message = "must be the number of calls per day, such as {\"max_count\": 50}";
        return bad_request(message, "max_count");
    }
    if is_invalid(per_minute) {
        return bad_request("must be the number of calls per minute", "max_per_minute");
    }
    if id.len() > MAX_TARGET_BYTES || id.chars().any(char::is_control) {
        return bad_request("must be the name of a user or tool", "target_id");
    }
    if body["allow_unknown"] != true
        && let Err(message) = check_target(&hub, target, &id).await
    {
        let message =
            format!("{message} (allow_unknown: true limits a name that is not there yet)");
        return bad_request(&message, "target_id");
    }
    let (max_count, max_per_minute) = (per_day.as_i64(), per_minute.as_i64());
    if let Err(error) = hub
        .quota
        .set_limit(target, &id, max_count, max_per_minute)
        .await
    {
        return store_error_response(&error);
    }
    match hub.quota.list().await {
        Ok(rows) => limits_response(&rows),
        // The limit is set, even if the list cannot be read now.
        Err(_) => limits_response(&[CallLimitRow {
            target_type: target.as_str().to_owned(),
            target_id: id,
            max_count,
            max_per_minute,
            used: 0,
        }]),
    }
}

/// Checks that a limit applies to somebody or something. Users of an authorization server
/// are known only to it, so with `oauth` every name may be one.
async fn check_target(hub: &HubState, target: QuotaTarget, id: &str) -> Result<(), String> {
    let rows = hub.quota.list().await.unwrap_or_default();
    let is_limited = |it: &CallLimitRow| it.target_id == id && it.target_type == target.as_str();
    if rows.iter().any(is_limited) {
        return Ok(());
    }
    let (what, known) = match target {
        QuotaTarget::Tool => ("tool", known_tools(hub)),
        QuotaTarget::User if hub.access.oauth().is_some() => return Ok(()),
        QuotaTarget::User => ("user", known_users(hub).await),
        // Its definition has its limits.
        QuotaTarget::Toolset => return Ok(()),
    };
    if known.iter().any(|it| it == id) {
        return Ok(());
    }
    Err(unknown_name(what, id, known.iter().map(String::as_str)))
}

fn known_tools(hub: &HubState) -> Vec<String> {
    let snapshot = hub.engine.catalog().snapshot();
    let tools = snapshot.tools_with_state();
    tools.map(|(it, _)| it.public_name().to_owned()).collect()
}

/// The names of tokens, the built-in callers, and those who have called.
async fn known_users(hub: &HubState) -> Vec<String> {
    let mut known = vec!["admin".to_owned(), "local".to_owned()];
    let tokens = hub.access.list_tokens().await.unwrap_or_default();
    known.extend(tokens.into_iter().map(|it| it.name));
    let clients = hub.engine.catalog().journal().clients().list();
    known.extend(clients.iter().map(|it| it.principal.to_string()));
    known
}

/// `DELETE /api/limits/{target_type}/{target_id}`.
pub(super) async fn remove(
    State(hub): State<Arc<HubState>>,
    Path((target_type, id)): Path<(String, String)>,
) -> Response {
    let not_found = || json_error(StatusCode::NOT_FOUND, "there is no such limit", None);
    let Some(target) = QuotaTarget::parse(&target_type) else {
        return not_found();
    };
    match hub.quota.remove_limit(target, &id).await {
        Ok(true) => reply::empty(StatusCode::NO_CONTENT),
        Ok(false) => not_found(),
        Err(error) => store_error_response(&error),
    }
}

fn limit_json(row: &CallLimitRow) -> Value {
    let mut limit = json!({"target_type": row.target_type, "target_id": row.target_id});
    if let Some(max) = row.max_count {
        limit["max_count"] = max.into();
        limit["used_today"] = row.used.into();
    }
    if let Some(max) = row.max_per_minute {
        limit["max_per_minute"] = max.into();
    }
    limit
}

fn store_error_response(error: &maru_store::Error) -> Response {
    tracing::error!("failed to read or change call limits: {error}");
    json_error(
        StatusCode::SERVICE_UNAVAILABLE,
        &error.public_message(),
        None,
    )
}
