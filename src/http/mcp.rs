//! Routes to the MCP doors.

use std::{net::IpAddr, sync::Arc};

use axum::{
    body::{Bytes, HttpBody},
    extract::{Path, RawQuery, Request, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use hyper::body::Incoming;

use super::{
    HubState,
    body::{self, BodyError},
    router::ClientAddress,
};
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

/// `POST /mcp`, for a caller who is known already.
pub(super) fn post_identified(
    hub: Arc<HubState>,
    (principal, from): (Principal, Option<IpAddr>),
    request: axum::http::Request<Incoming>,
) -> impl Future<Output = Response> + Send {
    let scope = CatalogScope::All;
    let (parts, body) = request.into_parts();
    let caller = Caller {
        principal,
        scope,
        remote_ip: from,
    };
    let arrival = streamable_request(&hub, caller, false, parts.headers);
    async move { post(&hub, arrival, body).await }
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
    let arrival = streamable_request(hub, caller, lenient, parts.headers);
    match parts.method.as_str() {
        "GET" => http::get(arrival).await,
        "DELETE" => http::delete(&arrival),
        _ => post(hub, arrival, body).await,
    }
}

fn streamable_request(
    hub: &HubState,
    caller: Caller,
    lenient: bool,
    headers: HeaderMap,
) -> StreamableRequest {
    StreamableRequest {
        engine: Arc::clone(&hub.engine),
        caller,
        allows_no_session: lenient,
        headers,
    }
}

async fn post<B>(hub: &HubState, arrival: StreamableRequest, body: B) -> Response
where
    B: HttpBody<Data = Bytes, Error: Into<BodyError>> + Unpin,
{
    match body::read(body, hub.max_body_bytes()).await {
        Ok(body) => http::post(arrival, body).await,
        Err(refusal) => refusal,
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
