//! `/api/runs`: what happened in runs of the agent.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use serde_json::Value;

use super::{HubState, servers::json_error};
use crate::{auth::Principal, downstream::http::reply};

/// `GET /api/runs`.
pub(super) async fn list(
    State(hub): State<Arc<HubState>>,
    Extension(who): Extension<Principal>,
) -> Response {
    match hub.agent.runs().list(&who).await {
        Ok(runs) => reply::json(StatusCode::OK, Value::from(runs).to_string()),
        Err(why) => store_error_response(&why),
    }
}

/// `GET /api/runs/{id}`.
pub(super) async fn show(
    State(hub): State<Arc<HubState>>,
    Extension(who): Extension<Principal>,
    Path(id): Path<String>,
) -> Response {
    match hub.agent.runs().get(&who, &id).await {
        Ok(Some(run)) => reply::json(StatusCode::OK, run.to_string()),
        Ok(None) => json_error(StatusCode::NOT_FOUND, "there is no such run", None),
        Err(why) => store_error_response(&why),
    }
}

/// `POST /api/runs/{id}/calls/{call}/approve`.
pub(super) async fn approve(
    State(hub): State<Arc<HubState>>,
    Extension(who): Extension<Principal>,
    Path((id, call)): Path<(String, String)>,
) -> Response {
    decision_response(hub.agent.runs().decide(&who, &id, &call, true))
}

/// `POST /api/runs/{id}/calls/{call}/refuse`.
pub(super) async fn refuse(
    State(hub): State<Arc<HubState>>,
    Extension(who): Extension<Principal>,
    Path((id, call)): Path<(String, String)>,
) -> Response {
    decision_response(hub.agent.runs().decide(&who, &id, &call, false))
}

fn decision_response(waited: bool) -> Response {
    if waited {
        reply::empty(StatusCode::NO_CONTENT)
    } else {
        json_error(StatusCode::NOT_FOUND, "no such call waits", None)
    }
}

fn store_error_response(why: &maru_store::Error) -> Response {
    tracing::error!("the runs could not be read: {why}");
    json_error(StatusCode::SERVICE_UNAVAILABLE, &why.public_message(), None)
}
