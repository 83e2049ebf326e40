//! OAuth protected resource metadata (RFC 9728), which tells clients where to get a token.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};

use super::{HubState, servers::json_error};
use maru_downstream::http::reply;

/// `GET /.well-known/oauth-protected-resource`, with or without the path of the resource.
pub(super) async fn show(State(hub): State<Arc<HubState>>) -> Response {
    match hub.access.oauth() {
        Some(oauth) => reply::json(StatusCode::OK, oauth.metadata().to_string()),
        None => json_error(
            StatusCode::NOT_FOUND,
            "no authorization server is configured; create a token with: maru token create",
            None,
        ),
    }
}
