//! `/api/limits`: how often a day tools may be called.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use serde_json::{Value, json};

use super::{Hub, body::Json, servers::error};
use crate::{
    downstream::http::reply,
    store::{self, LimitRow},
    tool::Target,
};

const MAX_NAME: usize = 200;

/// `GET /api/limits`.
pub(super) async fn list(State(hub): State<Arc<Hub>>) -> Response {
    match hub.quota.list().await {
        Ok(rows) => all(&rows),
        Err(why) => failed(&why),
    }
}

fn all(rows: &[LimitRow]) -> Response {
    let rows: Value = rows.iter().map(shown).collect();
    reply::json(StatusCode::OK, rows.to_string())
}

/// `PUT /api/limits/{target_type}/{target_id}`.
pub(super) async fn set(
    State(hub): State<Arc<Hub>>,
    Path((kind, id)): Path<(String, String)>,
    Json(body): Json,
) -> Response {
    let bad = |why: &str, field: &str| error(StatusCode::BAD_REQUEST, why, Some(field));
    let Some(target) = Target::read(&kind) else {
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
    let most = (day.as_i64(), minute.as_i64());
    if id.len() > MAX_NAME || id.chars().any(char::is_control) {
        return bad("this is no name of a user or tool", "target_id");
    }
    match hub.quota.set(target, &id, most).await {
        Ok(()) => match hub.quota.list().await {
            Ok(rows) => all(&rows),
            // It is set; that the others cannot be read now does not undo it.
            Err(_) => all(&[LimitRow {
                target_type: target.name().to_owned(),
                target_id: id,
                max_count: most.0,
                max_per_minute: most.1,
                used: 0,
            }]),
        },
        Err(why) => failed(&why),
    }
}

/// `DELETE /api/limits/{target_type}/{target_id}`.
pub(super) async fn remove(
    State(hub): State<Arc<Hub>>,
    Path((kind, id)): Path<(String, String)>,
) -> Response {
    let none = || error(StatusCode::NOT_FOUND, "there is no such limit", None);
    let Some(target) = Target::read(&kind) else {
        return none();
    };
    match hub.quota.remove(target, &id).await {
        Ok(true) => reply::empty(StatusCode::NO_CONTENT),
        Ok(false) => none(),
        Err(why) => failed(&why),
    }
}

fn shown(row: &LimitRow) -> Value {
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

fn failed(why: &store::Error) -> Response {
    tracing::error!("the daily limits could not be read or changed: {why}");
    error(StatusCode::SERVICE_UNAVAILABLE, &why.to_string(), None)
}
