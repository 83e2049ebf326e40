//! Whether maru is alive, and whether it can work.

use std::sync::Arc;

use axum::{Extension, extract::State, http::StatusCode, response::Response};
use serde_json::json;

use super::Hub;
use crate::{
    access::Principal,
    downstream::http::reply,
    tool::{Caller, Scope},
};

const OPENAPI: &str = include_str!("../../docs/openapi.json");

/// `GET /api/openapi.json`.
pub(super) async fn openapi() -> Response {
    reply::json(StatusCode::OK, OPENAPI.to_owned())
}

/// The process answers.
pub(super) async fn alive() -> Response {
    reply::json(StatusCode::OK, json!({"status": "ok"}).to_string())
}

/// The catalog is built.
pub(super) async fn ready(
    State(hub): State<Arc<Hub>>,
    Extension(principal): Extension<Principal>,
) -> Response {
    let snapshot = hub.engine.catalog().snapshot();
    let scope = Scope::All;
    let seen = snapshot.seen(&Caller::new(principal, scope));
    let tools = seen.map_or(0, |view| view.tools.keys().count());
    let state = json!({"status": "ready", "tools": tools, "sessions": hub.engine.session_count()});
    reply::json(StatusCode::OK, state.to_string())
}
