//! `/api/runs`: what happened in runs of the agent.

use std::sync::Arc;

use axum::{
    Extension,
    extract::{Path, State},
    http::StatusCode,
    response::Response,
};
use serde_json::Value;

use super::{Hub, servers::error};
use crate::{access::Principal, downstream::http::reply, store};

/// `GET /api/runs`.
pub(super) async fn list(
    State(hub): State<Arc<Hub>>,
    Extension(who): Extension<Principal>,
) -> Response {
    match hub.agent.runs().list(&who).await {
        Ok(runs) => reply::json(StatusCode::OK, Value::from(runs).to_string()),
        Err(why) => failed(&why),
    }
}

/// `GET /api/runs/{id}`.
pub(super) async fn show(
    State(hub): State<Arc<Hub>>,
    Extension(who): Extension<Principal>,
    Path(id): Path<String>,
) -> Response {
    match hub.agent.runs().get(&who, &id).await {
        Ok(Some(run)) => reply::json(StatusCode::OK, run.to_string()),
        Ok(None) => error(StatusCode::NOT_FOUND, "there is no such run", None),
        Err(why) => failed(&why),
    }
}

/// `POST /api/runs/{id}/calls/{call}/approve`.
pub(super) async fn approve(
    State(hub): State<Arc<Hub>>,
    Extension(who): Extension<Principal>,
    Path((id, call)): Path<(String, String)>,
) -> Response {
    decided(hub.agent.runs().decide(&who, &id, &call, true))
}

/// `POST /api/runs/{id}/calls/{call}/refuse`.
pub(super) async fn refuse(
    State(hub): State<Arc<Hub>>,
    Extension(who): Extension<Principal>,
    Path((id, call)): Path<(String, String)>,
) -> Response {
    decided(hub.agent.runs().decide(&who, &id, &call, false))
}

fn decided(waited: bool) -> Response {
    match waited {
        true => reply::empty(StatusCode::NO_CONTENT),
        false => error(StatusCode::NOT_FOUND, "no such call waits", None),
    }
}

fn failed(why: &store::Error) -> Response {
    tracing::error!("the runs could not be read: {why}");
    error(StatusCode::SERVICE_UNAVAILABLE, &why.to_string(), None)
}
