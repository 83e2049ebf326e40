//! `/api/runs`: the recorded runs of the agent.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use serde_json::Value;

use super::{HubState, servers::json_error};
use maru_agent::CallDecision;
use maru_auth::Principal;
use maru_downstream::http::reply;

/// `GET /api/runs`.
pub(super) async fn list(
    State(hub): State<Arc<HubState>>,
    Extension(principal): Extension<Principal>,
) -> Response {
    match hub.agent.runs().list(&principal).await {
        Ok(runs) => reply::json(StatusCode::OK, Value::from(runs).to_string()),
        Err(error) => store_error_response(&error),
    }
}

/// `GET /api/runs/{id}`.
pub(super) async fn show(
    State(hub): State<Arc<HubState>>,
    Extension(principal): Extension<Principal>,
    Path(id): Path<String>,
) -> Response {
    match hub.agent.runs().get(&principal, &id).await {
        Ok(Some(run)) => reply::json(StatusCode::OK, run.to_string()),
        Ok(None) => json_error(StatusCode::NOT_FOUND, "there is no such run", None),
        Err(error) => store_error_response(&error),
    }
}

/// `POST /api/runs/{id}/calls/{call}/approve`.
pub(super) async fn approve(
    State(hub): State<Arc<HubState>>,
    Extension(principal): Extension<Principal>,
    Path((id, call)): Path<(String, String)>,
) -> Response {
    let decision = CallDecision {
        run: &id,
        call: &call,
        is_approved: true,
    };
    decide(&hub, &principal, decision).await
}

/// `POST /api/runs/{id}/calls/{call}/refuse`.
pub(super) async fn refuse(
    State(hub): State<Arc<HubState>>,
    Extension(principal): Extension<Principal>,
    Path((id, call)): Path<(String, String)>,
) -> Response {
    let decision = CallDecision {
        run: &id,
        call: &call,
        is_approved: false,
    };
    decide(&hub, &principal, decision).await
}

async fn decide(hub: &HubState, principal: &Principal, decision: CallDecision<'_>) -> Response {
    if hub.agent.runs().decide(principal, decision).await {
        reply::empty(StatusCode::NO_CONTENT)
    } else {
        json_error(
            StatusCode::NOT_FOUND,
            "no such call waits for approval",
            None,
        )
    }
}

fn store_error_response(error: &maru_store::Error) -> Response {
    tracing::error!("failed to read the runs: {error}");
    json_error(
        StatusCode::SERVICE_UNAVAILABLE,
        &error.public_message(),
        None,
    )
}
