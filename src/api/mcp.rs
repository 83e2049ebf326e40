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
    Hub,
    body::{self, Failure},
    router::Address,
};
use crate::{
    access::Principal,
    downstream::{
        http::{self, Arrival, SESSION_ID, reply},
        sse,
    },
    tool::{Caller, Scope},
};

/// `POST`, `GET` and `DELETE /mcp`.
pub(super) async fn all(State(hub): State<Arc<Hub>>, request: Request) -> Response {
    streamable(&hub, Scope::All, false, request).await
}

/// `POST /mcp`, for a caller who is known already.
pub(super) fn post_all(
    hub: Arc<Hub>,
    (principal, from): (Principal, Option<IpAddr>),
    request: axum::http::Request<Incoming>,
) -> impl Future<Output = Response> + Send {
    let scope = Scope::All;
    let (parts, body) = request.into_parts();
    let caller = Caller {
        principal,
        scope,
        from,
    };
    let arrival = arrival(&hub, caller, false, parts.headers);
    async move { post(&hub, arrival, body).await }
}

/// The same for one server, under its own names.
pub(super) async fn server(
    State(hub): State<Arc<Hub>>,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    let theirs = caller(&request, Scope::All).principal.may_reach(&name);
    if !theirs || !hub.engine.catalog().snapshot().has_server(&name) {
        return reply::refuse(StatusCode::NOT_FOUND, "no server of this name is connected");
    }
    streamable(&hub, Scope::Server(name.into()), false, request).await
}

/// `/sse`: the stream of 2024-11-05, and Streamable HTTP for those who send it here.
pub(super) async fn sse(State(hub): State<Arc<Hub>>, request: Request) -> Response {
    if request.method() == axum::http::Method::GET && !request.headers().contains_key(&SESSION_ID) {
        return sse::get(&hub.engine, caller(&request, Scope::All));
    }
    streamable(&hub, Scope::All, true, request).await
}

/// `POST /sse/message`.
pub(super) async fn sse_message(
    State(hub): State<Arc<Hub>>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Response {
    let principal = caller(&request, Scope::All).principal;
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

async fn streamable(hub: &Hub, scope: Scope, lenient: bool, request: Request) -> Response {
    let caller = caller(&request, scope);
    let (parts, body) = request.into_parts();
    let arrival = arrival(hub, caller, lenient, parts.headers);
    match parts.method.as_str() {
        "GET" => http::get(arrival).await,
        "DELETE" => http::delete(&arrival),
        _ => post(hub, arrival, body).await,
    }
}

fn arrival(hub: &Hub, caller: Caller, lenient: bool, headers: HeaderMap) -> Arrival {
    Arrival {
        engine: Arc::clone(&hub.engine),
        caller,
        lenient,
        headers,
    }
}

async fn post<B>(hub: &Hub, arrival: Arrival, body: B) -> Response
where
    B: HttpBody<Data = Bytes, Error: Into<Failure>> + Unpin,
{
    match body::read(body, hub.max_body_bytes()).await {
        Ok(body) => http::post(arrival, body).await,
        Err(refusal) => refusal,
    }
}

fn caller(request: &Request, scope: Scope) -> Caller {
    let principal = request.extensions().get::<Principal>();
    Caller {
        principal: principal
            .expect("the gate identifies every request")
            .clone(),
        scope,
        from: request.extensions().get::<Address>().and_then(|it| it.0),
    }
}
