//! OAuth protected resource metadata (RFC 9728), which tells clients where to get a token.

use std::sync::Arc;

use axum::{
    extract::State,
    http::{StatusCode, Uri},
    response::Response,
};

use super::{HubState, servers::json_error};
use maru_downstream::http::reply;

const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";

/// `GET /.well-known/oauth-protected-resource`, with or without the path of the resource.
pub(super) async fn show(State(hub): State<Arc<HubState>>, uri: Uri) -> Response {
    if let Some(issuer) = hub.access.token_issuer() {
        let path = uri.path().strip_prefix(WELL_KNOWN).unwrap_or_default();
        let metadata = issuer.resource_metadata(path.trim_end_matches('/'));
        return reply::json(StatusCode::OK, metadata.to_string());
    }
    match hub.access.oauth() {
        Some(oauth) => reply::json(StatusCode::OK, oauth.metadata().to_string()),
        None => json_error(
            StatusCode::NOT_FOUND,
            "no authorization server is configured; create a token with: maru token create",
            None,
        ),
    }
}
