//! Routes to the MCP endpoints.

use std::sync::Arc;

use axum::{
    extract::{Path, RawQuery, Request, State},
    http::StatusCode,
    response::Response,
};

use super::{HubState, body, router::ClientAddress};
use crate::{
    auth::Principal,
    downstream::{
        http::{self, SESSION_ID_HEADER, StreamableRequest, reply},
        sse,
    },
    tools::{Caller, CatalogScope},
};

/// `POST`, `GET` and `DELETE /mcp`.
pub(super) async fn all_servers(State(hub): State<Arc<HubState>>, request: Request) -> Response {
    streamable_http(&hub, CatalogScope::All, false, request).await
}

/// The same for one server, under its own names.
pub(super) async fn one_server(
    State(hub): State<Arc<HubState>>,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    let theirs = caller(&request, CatalogScope::All)
        .principal
        .may_reach(&name);
    if !theirs || !hub.engine.catalog().snapshot().has_server(&name) {
        return reply::reject(StatusCode::NOT_FOUND, "no server of this name is connected");
    }
    streamable_http(&hub, CatalogScope::Server(name.into()), false, request).await
}

/// `/sse`: the stream of 2024-11-05, and Streamable HTTP for those who send it here.
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
        Ok(body) => sse::post(&hub.engine, &principal, session, &body),
        Err(refusal) => refusal,
    }
}

async fn streamable_http(
    hub: &HubState,
    scope: CatalogScope,
    lenient: bool,
    request: Request,
) -> Response {
    let caller = caller(&request, scope);
    let (parts, body) = request.into_parts();
    let arrival = StreamableRequest {
        engine: Arc::clone(&hub.engine),
        caller,
        allows_no_session: lenient,
        headers: parts.headers,
    };
    match parts.method.as_str() {
        "GET" => http::get(arrival).await,
        "DELETE" => http::delete(&arrival),
        _ => match body::read(body, hub.max_body_bytes()).await {
            Ok(body) => http::post(arrival, body).await,
            Err(refusal) => refusal,
        },
    }
}

fn caller(request: &Request, scope: CatalogScope) -> Caller {
    let principal = request.extensions().get::<Principal>();
    Caller {
        principal: principal
            .expect("the gate identifies every request")
            .clone(),
        scope,
        remote_ip: request
            .extensions()
            .get::<ClientAddress>()
            .and_then(|it| it.0),
    }
}
