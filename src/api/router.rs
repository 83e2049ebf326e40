//! Every route, and the gate that all of them stand behind.

use std::{convert::Infallible, future::ready, sync::Arc};

use axum::{
    Router,
    body::Body,
    http::{HeaderValue, Method, Request, StatusCode, header},
    response::Response,
    routing::{future::RouteFuture, get, post},
};
use futures_util::{
    FutureExt as _,
    future::{BoxFuture, Either},
};
use hyper::body::Incoming;
use tower_service::Service as _;

use super::{Hub, health, mcp};
use crate::{access::Principal, downstream::http::reply};

const OPEN: &str = "/healthz";

/// The router of the one port.
fn router(hub: &Arc<Hub>) -> Router {
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
        .with_state(Arc::clone(hub))
}

/// The router behind its gate: Host, Origin and token come before anything else.
#[derive(Clone, Debug)]
pub struct Guarded {
    hub: Arc<Hub>,
    router: Router,
}

impl Guarded {
    /// Every route, guarded.
    pub fn new(hub: Arc<Hub>) -> Self {
        let router = router(&hub);
        Self { hub, router }
    }

    /// Who asks; nobody in particular where everyone may.
    fn admit(&self, request: &Request<Body>) -> Result<Option<Principal>, Response> {
        let refuse = |(status, why)| reply::refuse(status, why);
        self.hub
            .gate
            .check(request.uri(), request.headers())
            .map_err(refuse)?;
        if request.uri().path() == OPEN {
            return Ok(None);
        }
        let token = request.headers().get(header::AUTHORIZATION);
        let principal = self.hub.access.identify(token.map(HeaderValue::as_bytes));
        principal
            .map(Some)
            .map_err(|denied| unauthorized(denied.to_string()))
    }
}

impl hyper::service::Service<Request<Incoming>> for Guarded {
    type Response = Response;
    type Error = Infallible;
    type Future = Either<BoxFuture<'static, Result<Response, Infallible>>, RouteFuture<Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let mut request = request.map(Body::new);
        let principal = match self.admit(&request) {
            Ok(principal) => principal,
            Err(refusal) => return Either::Left(ready(Ok(refusal)).boxed()),
        };
        let Some(principal) = principal else {
            return Either::Right(self.router.clone().call(request));
        };
        // The busiest address needs no routing.
        if request.method() == Method::POST && request.uri().path() == "/mcp" {
            let hub = Arc::clone(&self.hub);
            return Either::Left(mcp::post_all(hub, principal, request).map(Ok).boxed());
        }
        request.extensions_mut().insert(principal);
        Either::Right(self.router.clone().call(request))
    }
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
