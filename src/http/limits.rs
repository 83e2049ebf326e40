//! `/api/limits`: how often a day tools may be called.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use maru_store::CallLimitRow;
use serde_json::{Value, json};

use super::{HubState, body::JsonBody, servers::json_error};
use crate::{downstream::http::reply, tools::QuotaTarget};

const MAX_TARGET_BYTES: usize = 200;

/// `GET /api/limits`.
pub(super) async fn list(State(hub): State<Arc<HubState>>) -> Response {
    match hub.quota.list().await {
        Ok(rows) => limits_response(&rows),
        Err(why) => store_error_response(&why),
    }
}

fn limits_response(rows: &[CallLimitRow]) -> Response {
    let rows: Value = rows.iter().map(limit_json).collect();
    reply::json(StatusCode::OK, rows.to_string())
}

/// `PUT /api/limits/{target_type}/{target_id}`.
pub(super) async fn set(
    State(hub): State<Arc<HubState>>,
    Path((kind, id)): Path<(String, String)>,
    JsonBody(body): JsonBody,
) -> Response {
    let bad = |why: &str, field: &str| json_error(StatusCode::BAD_REQUEST, why, Some(field));
    let Some(target) = QuotaTarget::parse(&kind) else {
        return bad("use USER or TOOL", "target_type");
    };
    let (day, minute) = (&body["max_count"], &body["max_per_minute"]);
    let wrong = |it: &Value| !it.is_null() && it.as_i64().is_none_or(|it| it < 0);
    if wrong(day) || (day.is_null() && minute.is_null()) {
        return bad("say how many calls a day: {\"max_count\": 50}", "max_count");
    }
    if wrong(minute) {
        return bad("say how many calls a minute", "max_per_minute");
    }
    let (per_day, per_minute) = (day.as_i64(), minute.as_i64());
    if id.len() > MAX_TARGET_BYTES || id.chars().any(char::is_control) {
        return bad("this is no name of a user or tool", "target_id");
    }
    match hub.quota.set_limit(target, &id, per_day, per_minute).await {
        Ok(()) => match hub.quota.list().await {
            Ok(rows) => limits_response(&rows),
            // It is set; that the others cannot be read now does not undo it.
            Err(_) => limits_response(&[CallLimitRow {
                target_type: target.as_str().to_owned(),
                target_id: id,
                max_count: per_day,
                max_per_minute: per_minute,
                used: 0,
            }]),
        },
        Err(why) => store_error_response(&why),
    }
}

/// `DELETE /api/limits/{target_type}/{target_id}`.
pub(super) async fn remove(
    State(hub): State<Arc<HubState>>,
    Path((kind, id)): Path<(String, String)>,
) -> Response {
    let none = || json_error(StatusCode::NOT_FOUND, "there is no such limit", None);
    let Some(target) = QuotaTarget::parse(&kind) else {
        return none();
    };
    match hub.quota.remove_limit(target, &id).await {
        Ok(true) => reply::empty(StatusCode::NO_CONTENT),
        Ok(false) => none(),
        Err(why) => store_error_response(&why),
    }
}

fn limit_json(row: &CallLimitRow) -> Value {
    let mut shown = json!({"target_type": row.target_type, "target_id": row.target_id});
    if let Some(most) = row.max_count {
        shown["max_count"] = most.into();
        shown["used_today"] = row.used.into();
    }
    if let Some(most) = row.max_per_minute {
        shown["max_per_minute"] = most.into();
    }
    shown
}

fn store_error_response(why: &maru_store::Error) -> Response {
    tracing::error!("the daily limits could not be read or changed: {why}");
    json_error(StatusCode::SERVICE_UNAVAILABLE, &why.public_message(), None)
}
