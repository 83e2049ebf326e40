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
        Ok(rows) => {
            let rows: Value = rows.iter().map(shown).collect();
            reply::json(StatusCode::OK, rows.to_string())
        }
        Err(why) => failed(&why),
    }
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
    let Some(most) = body["max_count"].as_i64().filter(|it| *it >= 0) else {
        return bad("say how many calls a day: {\"max_count\": 50}", "max_count");
    };
    if id.len() > MAX_NAME || id.chars().any(char::is_control) {
        return bad("this is no name of a user or tool", "target_id");
    }
    match hub.quota.set(target, &id, most).await {
        Ok(()) => list(State(hub)).await,
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
    json!({
        "target_type": row.target_type,
        "target_id": row.target_id,
        "max_count": row.max_count,
        "used_today": row.used,
    })
}

fn failed(why: &store::Error) -> Response {
    tracing::error!("the daily limits could not be read or changed: {why}");
    error(StatusCode::INTERNAL_SERVER_ERROR, &why.to_string(), None)
}
