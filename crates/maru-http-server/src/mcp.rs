//! Handlers of the MCP endpoints.

use std::sync::Arc;

use axum::{
    extract::{Path, RawQuery, Request, State},
    http::StatusCode,
    response::Response,
};

use super::{HubState, body, router::ClientAddress};
use maru_auth::Principal;
use maru_downstream::{
    http::{self, SESSION_ID_HEADER, StreamableRequest, reply},
    sse,
};
use maru_tools::{Caller, CatalogScope};

/// `POST`, `GET` and `DELETE /mcp`.
pub(super) async fn all_servers(State(hub): State<Arc<HubState>>, request: Request) -> Response {
    streamable_http(&hub, CatalogScope::All, false, request).await
}

/// `POST`, `GET` and `DELETE /mcp/s/{name}`: one server's tools under their own names.
pub(super) async fn one_server(
    State(hub): State<Arc<HubState>>,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    let may_reach = caller(&request, CatalogScope::All)
        .principal
        .may_reach(&name);
    if !may_reach || !hub.engine.catalog().snapshot().has_server(&name) {
        return reply::reject(StatusCode::NOT_FOUND, "no server of this name is connected");
    }
    streamable_http(&hub, CatalogScope::Server(name.into()), false, request).await
}

/// `/sse`: the event stream of HTTP+SSE, and Streamable HTTP for clients that send it here.
pub(super) async fn sse(State(hub): State<Arc<HubState>>, request: Request) -> Response {
    if request.method() == axum::http::Method::GET
        && !request.headers().contains_key(&SESSION_ID_HEADER)
    {
        return sse::get(&hub.engine, caller(&request, CatalogScope::All));
    }
    streamable_http(&hub, CatalogScope::All, true, request).await
}

/// `POST /sse/message`.
pub(super) async fn sse_message(
    State(hub): State<Arc<HubState>>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Response {
    let principal = caller(&request, CatalogScope::All).principal;
    let query = query.unwrap_or_default();
    let session = query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .find(|(name, _)| matches!(*name, "session_id" | "sessionId"))
        .map_or("", |(_, value)| value);
    match body::read(request.into_body(), hub.max_body_bytes()).await {
        Ok(body) => sse::post(&hub.engine, &principal, session, body).await,
        Err(rejection) => rejection,
    }
}

async fn streamable_http(
    hub: &HubState,
    scope: CatalogScope,
    allows_no_session: bool,
    request: Request,
) -> Response {
    let caller = caller(&request, scope);
    let (parts, body) = request.into_parts();
    let request = StreamableRequest {
        engine: Arc::clone(&hub.engine),
        caller,
        allows_no_session,
        headers: parts.headers,
    };
    match parts.method.as_str() {
        "GET" => http::get(request).await,
        "DELETE" => http::delete(&request).await,
        _ => match body::read(body, hub.max_body_bytes()).await {
            Ok(body) => http::post(request, body).await,
            Err(rejection) => rejection,
        },
    }
}

fn caller(request: &Request, scope: CatalogScope) -> Caller {
    let principal = request.extensions().get::<Principal>();
    Caller {
        principal: principal
            .expect("the router authenticates every request of these routes")
            .clone(),
        scope,
        remote_ip: request
            .extensions()
            .get::<ClientAddress>()
            .and_then(|it| it.0),
    }
}
