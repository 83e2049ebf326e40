//! Every route, and the gate that all of them stand behind.

use std::sync::Arc;

use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    middleware::{self, Next},
    response::Response,
    routing::{get, post},
};

use super::{Hub, health, mcp};
use crate::downstream::http::reply;

const OPEN: &str = "/healthz";

/// The router of the one port.
pub fn router(hub: &Arc<Hub>) -> Router {
    let door = || get(mcp::all).post(mcp::all).delete(mcp::all);
    Router::new()
        .route("/mcp", door())
        .route(
            "/mcp/s/{name}",
            get(mcp::server).post(mcp::server).delete(mcp::server),
        )
        .route("/sse", get(mcp::sse).post(mcp::sse).delete(mcp::sse))
        .route("/sse/message", post(mcp::sse_message))
        .route(OPEN, get(health::alive))
        .route("/readyz", get(health::ready))
        .fallback(nothing_here)
        .method_not_allowed_fallback(not_so)
        .layer(middleware::from_fn_with_state(Arc::clone(hub), gate))
        .with_state(Arc::clone(hub))
}

/// Host, Origin and token, before anything else is looked at.
async fn gate(State(hub): State<Arc<Hub>>, mut request: Request, next: Next) -> Response {
    if let Err((status, why)) = hub.gate.check(request.uri(), request.headers()) {
        return reply::refuse(status, why);
    }
    if request.uri().path() != OPEN {
        let token = request
            .headers()
            .get(header::AUTHORIZATION)
            .map(HeaderValue::as_bytes);
        match hub.access.identify(token) {
            Ok(principal) => drop(request.extensions_mut().insert(principal)),
            Err(denied) => return unauthorized(denied.to_string()),
        }
    }
    next.run(request).await
}

fn unauthorized(why: String) -> Response {
    let mut response = reply::refuse(StatusCode::UNAUTHORIZED, why);
    let challenge = HeaderValue::from_static("Bearer realm=\"maru\"");
    response
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, challenge);
    response
}

async fn nothing_here() -> Response {
    reply::refuse(
        StatusCode::NOT_FOUND,
        "nothing is here; MCP clients use /mcp or /sse",
    )
}

async fn not_so() -> Response {
    reply::refuse(
        StatusCode::METHOD_NOT_ALLOWED,
        "this address does not take this method",
    )
}
