//! Routes to the MCP doors.

use std::sync::Arc;

use axum::{
    body::Body,
    extract::{Path, RawQuery, Request, State},
    http::StatusCode,
    response::Response,
};

use super::{Hub, body};
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
pub(super) async fn post_all(hub: Arc<Hub>, principal: Principal, request: Request) -> Response {
    let scope = Scope::All;
    arrive(&hub, Caller { principal, scope }, false, request).await
}

/// The same for one server, under its own names.
pub(super) async fn server(
    State(hub): State<Arc<Hub>>,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    if !hub.engine.catalog().snapshot().has_server(&name) {
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
    let (parts, body) = request.into_parts();
    match body::read(&parts.headers, body, hub.max_body_bytes).await {
        Ok(body) => sse::post(&hub.engine, &principal, session, &body),
        Err(refusal) => refusal,
    }
}

async fn streamable(hub: &Hub, scope: Scope, lenient: bool, request: Request) -> Response {
    arrive(hub, caller(&request, scope), lenient, request).await
}

async fn arrive(hub: &Hub, caller: Caller, lenient: bool, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let arrival = Arrival {
        engine: Arc::clone(&hub.engine),
        caller,
        lenient,
        headers: parts.headers,
    };
    match parts.method.as_str() {
        "GET" => http::get(arrival).await,
        "DELETE" => http::delete(&arrival),
        _ => post(hub, arrival, body).await,
    }
}

async fn post(hub: &Hub, arrival: Arrival, body: Body) -> Response {
    match body::read(&arrival.headers, body, hub.max_body_bytes).await {
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
    }
}
