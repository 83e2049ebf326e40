//! Whether maru is alive, and whether it can work.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};
use serde_json::json;

use super::Hub;
use crate::{downstream::http::reply, tool::Scope};

/// The process answers.
pub(super) async fn alive() -> Response {
    reply::json(StatusCode::OK, json!({"status": "ok"}).to_string())
}

/// The catalog is built.
pub(super) async fn ready(State(hub): State<Arc<Hub>>) -> Response {
    let snapshot = hub.engine.catalog().snapshot();
    let tools = snapshot
        .view(&Scope::All)
        .map_or(0, |view| view.tools.keys().count());
    let state = json!({"status": "ready", "tools": tools, "sessions": hub.engine.session_count()});
    reply::json(StatusCode::OK, state.to_string())
}
