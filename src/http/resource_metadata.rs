//! Where clients get a token: metadata of a protected resource (RFC 9728).

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};

use super::{HubState, servers::json_error};
use crate::downstream::http::reply;

/// `GET /.well-known/oauth-protected-resource`, with or without our path behind it.
pub(super) async fn show(State(hub): State<Arc<HubState>>) -> Response {
    match hub.access.oauth() {
        Some(oauth) => reply::json(StatusCode::OK, oauth.metadata().to_string()),
        None => json_error(
            StatusCode::NOT_FOUND,
            "maru has no authorisation server; tokens are made with: maru token create",
            None,
        ),
    }
}
