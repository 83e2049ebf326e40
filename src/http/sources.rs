//! `/api/sources`: what the databases of the tools hold.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use serde_json::{Value, json};

use super::{HubState, servers::json_error};
use crate::downstream::http::reply;

/// `GET /api/sources`.
pub(super) async fn list(State(hub): State<Arc<HubState>>) -> Response {
    let sources = hub.data.sources.iter().map(|it| {
        let limits = it.limits();
        json!({"name": it.name(), "maxRows": limits.rows, "maxBytes": limits.max_bytes, "timeoutMs": limits.timeout.as_millis()})
    });
    reply::json(StatusCode::OK, sources.collect::<Value>().to_string())
}

/// `GET /api/sources/{name}/tables`.
pub(super) async fn tables(State(hub): State<Arc<HubState>>, Path(name): Path<String>) -> Response {
    respond(hub.data.tables(Some(&name)).await)
}

/// `GET /api/sources/{name}/tables/{table}`.
pub(super) async fn columns(
    State(hub): State<Arc<HubState>>,
    Path((name, table)): Path<(String, String)>,
) -> Response {
    respond(hub.data.describe_columns(Some(&name), &table).await)
}

fn respond(found: Result<Value, String>) -> Response {
    match found {
        Ok(found) => reply::json(StatusCode::OK, found.to_string()),
        Err(why) => json_error(StatusCode::NOT_FOUND, &why, None),
    }
}
