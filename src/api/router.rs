//! Every route, and the gate that all of them stand behind.

use std::{convert::Infallible, future::ready, sync::Arc};

use axum::{
    Router,
    body::Body,
    http::{HeaderValue, Method, Request, StatusCode, Uri, header},
    response::Response,
    routing::{delete, future::RouteFuture, get, post, put},
};
use futures_util::{
    FutureExt as _,
    future::{BoxFuture, Either},
};
use hyper::body::Incoming;
use tower_service::Service as _;

use super::{
    Hub, calls, console, custom, generate, health, limits, look, mcp, openai, registry, roles,
    runs, servers, sources, tools,
};
use crate::{
    access::{Denied, Principal, Role},
    downstream::http::reply,
};

const OPENAPI: &str = include_str!("../../docs/openapi.json");

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
        .route("/mcp/add", post(registry::add))
        .route("/mcp/remove", delete(registry::remove))
        .route("/mcp/list", get(registry::list))
        .route(
            "/api/mcp/servers",
            get(servers::list).post(servers::register),
        )
        .route(
            "/api/mcp/servers/{name}",
            get(servers::show)
                .put(servers::update)
                .delete(servers::remove),
        )
        .route(
            "/api/mcp/servers/{name}/{action}",
            get(look::server).post(servers::act),
        )
        .route("/api/mcp/import", post(servers::import))
        .route("/api/mcp/test", post(look::test))
        .route("/api/tools", get(tools::list).put(tools::switch_many))
        .route("/api/tools/{name}", get(tools::show).put(tools::switch))
        .route("/api/tools/{name}/call", post(tools::call))
        .route("/api/calls", get(calls::list))
        .route("/api/calls/{id}", get(calls::show))
        .route("/api/stats", get(calls::stats))
        .route("/api/config", get(look::config))
        .route(
            "/api/session",
            get(console::show)
                .post(console::sign_in)
                .delete(console::end),
        )
        .route("/api/session/link", post(console::new_link))
        .route("/api/events", get(console::stream))
        .route("/api/sources", get(sources::list))
        .route("/api/sources/{name}/tables", get(sources::tables))
        .route("/api/sources/{name}/tables/{table}", get(sources::columns))
        .route("/api/custom-tools", get(custom::list).post(custom::create))
        .route("/api/custom-tools/test", post(custom::test))
        .route(
            "/api/custom-tools/{name}",
            get(custom::show).put(custom::update).delete(custom::remove),
        )
        .route("/api/custom-tools/{name}/activate", post(custom::activate))
        .route(
            "/api/custom-tools/{name}/deactivate",
            post(custom::deactivate),
        )
        .route("/api/custom-tools/{name}/versions", get(custom::versions))
        .route(
            "/api/custom-tools/{name}/versions/{version}/restore",
            post(custom::restore),
        )
        .route("/api/limits", get(limits::list))
        .route(
            "/api/limits/{target_type}/{target_id}",
            put(limits::set).delete(limits::remove),
        )
        .route("/v1/chat/completions", post(openai::post))
        .route("/v1/models", get(openai::list))
        .route("/v1/models/{*name}", get(openai::show))
        .route("/v1/embeddings", post(openai::embed))
        .route("/api/models", get(openai::status))
        .route("/generate", post(generate::plain))
        .route("/generate_with_mcp", post(generate::with_tools))
        .route("/api/runs", get(runs::list))
        .route("/api/runs/{id}", get(runs::show))
        .route("/api/runs/{id}/calls/{call}/{decision}", post(runs::decide))
        .route("/api/openapi.json", get(openapi))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/assets/v/{build}/{name}", get(console::asset))
        .merge(pages())
        .fallback(nothing_here)
        .method_not_allowed_fallback(not_so)
        .with_state(Arc::clone(hub))
}

/// Addresses of the console: one page, which knows them.
fn pages() -> Router<Arc<Hub>> {
    roles::PAGES.iter().fold(
        Router::new().route("/", get(console::page)),
        |router, page| {
            router
                .route(&format!("/{page}"), get(console::page))
                .route(&format!("/{page}/{{*rest}}"), get(console::page))
        },
    )
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
    fn admit(&self, request: &Request<Incoming>) -> Result<Option<Principal>, Response> {
        let path = request.uri().path();
        let refuse = |(status, why)| refusal(path, status, why);
        self.hub
            .gate
            .check(request.uri(), request.headers())
            .map_err(refuse)?;
        let Some(needed) = roles::needed(request.method(), path) else {
            return Ok(None);
        };
        let headers = request.headers();
        let token = headers.get(header::AUTHORIZATION);
        // OpenAI's clients cannot do without a key; this one stands for none.
        let token = token.filter(|it| !(path.starts_with("/v1/") && *it == "Bearer local"));
        // Cookies are for the console; whoever speaks MCP shows a token.
        let principal =
            match roles::takes_cookie(path) && !headers.contains_key(header::AUTHORIZATION) {
                true => self.hub.identify(headers),
                false => self.hub.access.identify(token.map(HeaderValue::as_bytes)),
            };
        let from_page = headers.contains_key(header::AUTHORIZATION)
            || headers.contains_key(roles::FROM_CONSOLE);
        let has_cookie = || console::cookie(&self.hub, headers).is_some();
        match principal {
            Err(denied) => Err(unauthorized(path, &denied.to_string())),
            Ok(_) if roles::changes(request.method()) && !from_page && has_cookie() => {
                let why = "a change by cookie needs the header x-maru-console";
                Err(reply::refuse(StatusCode::FORBIDDEN, why))
            }
            Ok(principal) if principal.role() >= needed => Ok(Some(principal)),
            Ok(_) if token.is_none() => Err(unauthorized(path, &Denied::Missing.to_string())),
            Ok(_) => {
                let role = if needed == Role::Agent {
                    "agent"
                } else {
                    "admin"
                };
                let why = format!("the token does not allow this; it needs the role {role}");
                Err(refusal(path, StatusCode::FORBIDDEN, &why))
            }
        }
    }
}

impl hyper::service::Service<Request<Incoming>> for Guarded {
    type Response = Response;
    type Error = Infallible;
    type Future = Either<BoxFuture<'static, Result<Response, Infallible>>, RouteFuture<Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let principal = match self.admit(&request) {
            Ok(principal) => principal,
            Err(refusal) => return Either::Left(ready(Ok(refusal)).boxed()),
        };
        let Some(principal) = principal else {
            return Either::Right(self.router.clone().call(request.map(Body::new)));
        };
        // The busiest addresses need no routing, and their bodies no box.
        if request.method() == Method::POST && request.uri().path() == "/mcp" {
            let hub = Arc::clone(&self.hub);
            return Either::Left(mcp::post_all(hub, principal, request).map(Ok).boxed());
        }
        if request.method() == Method::POST && request.uri().path() == "/v1/chat/completions" {
            let hub = Arc::clone(&self.hub);
            return Either::Left(openai::post_known(hub, principal, request).map(Ok).boxed());
        }
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(principal);
        Either::Right(self.router.clone().call(request))
    }
}

/// A refusal in the form of the door that was knocked at.
fn refusal(path: &str, status: StatusCode, why: &str) -> Response {
    match path.starts_with("/v1/") {
        true => openai::refuse(status, why),
        false => reply::refuse(status, why.to_owned()),
    }
}

fn unauthorized(path: &str, why: &str) -> Response {
    let mut response = refusal(path, StatusCode::UNAUTHORIZED, why);
    let challenge = HeaderValue::from_static("Bearer realm=\"maru\"");
    response
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, challenge);
    response
}

/// `GET /api/openapi.json`.
async fn openapi() -> Response {
    reply::json(StatusCode::OK, OPENAPI.to_owned())
}

async fn nothing_here(uri: Uri) -> Response {
    let why = "nothing is here; MCP clients use /mcp or /sse, OpenAI clients /v1";
    refusal(uri.path(), StatusCode::NOT_FOUND, why)
}

async fn not_so(uri: Uri) -> Response {
    let why = "this address does not take this method";
    refusal(uri.path(), StatusCode::METHOD_NOT_ALLOWED, why)
}
