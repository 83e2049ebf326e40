//! Handlers of the MCP endpoints.

use std::sync::Arc;

use axum::{
    extract::{Path, RawQuery, Request, State},
    http::StatusCode,
    response::Response,
};

use super::{
    HubState,
    body::{self, RequestMemory},
    router::ClientAddress,
};
use maru_auth::Principal;
use maru_config::ToolListing;
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
    let may_reach = principal(&request).may_reach(&name);
    if !may_reach || !hub.engine.catalog().snapshot().has_server(&name) {
        return reply::reject(StatusCode::NOT_FOUND, "no server of this name is connected");
    }
    streamable_http(&hub, CatalogScope::Server(name.into()), false, request).await
}

/// `POST`, `GET` and `DELETE /mcp/t/{name}`: a toolset.
pub(super) async fn toolset(
    State(hub): State<Arc<HubState>>,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    match toolset_scope(&hub, name, &request) {
        Ok(scope) => streamable_http(&hub, scope, false, request).await,
        Err(rejection) => rejection,
    }
}

/// `/sse`: the event stream of HTTP+SSE, and Streamable HTTP for clients that send it here.
pub(super) async fn sse(State(hub): State<Arc<HubState>>, request: Request) -> Response {
    sse_endpoint(&hub, CatalogScope::All, request).await
}

/// `/sse/t/{name}`: a toolset.
pub(super) async fn sse_toolset(
    State(hub): State<Arc<HubState>>,
    Path(name): Path<String>,
    request: Request,
) -> Response {
    match toolset_scope(&hub, name, &request) {
        Ok(scope) => sse_endpoint(&hub, scope, request).await,
        Err(rejection) => rejection,
    }
}

async fn sse_endpoint(hub: &HubState, scope: CatalogScope, request: Request) -> Response {
    if request.method() == axum::http::Method::GET
        && !request.headers().contains_key(&SESSION_ID_HEADER)
    {
        return match caller(&request, scope) {
            Ok(caller) => sse::get(&hub.engine, caller),
            Err(rejection) => rejection,
        };
    }
    streamable_http(hub, scope, true, request).await
}

/// The scope of a toolset. A token that is limited to a toolset learns of no other.
fn toolset_scope(
    hub: &HubState,
    name: String,
    request: &Request,
) -> Result<CatalogScope, Response> {
    let own = principal(request).toolset();
    let may_reach = own.is_none_or(|it| **it == *name);
    if may_reach
        && hub
            .engine
            .catalog()
            .snapshot()
            .toolsets()
            .contains_key(name.as_str())
    {
        Ok(CatalogScope::Toolset(name.into()))
    } else {
        let message = "there is no toolset of this name";
        Err(reply::reject(StatusCode::NOT_FOUND, message))
    }
}

/// `POST /sse/message`.
pub(super) async fn sse_message(
    State(hub): State<Arc<HubState>>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Response {
    let principal = principal(&request).clone();
    let query = query.unwrap_or_default();
    let session = query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .find(|(name, _)| matches!(*name, "session_id" | "sessionId"))
        .map_or("", |(_, value)| value);
    let memory = RequestMemory::of(request.extensions());
    match body::read(&memory, request.into_body(), hub.max_body_bytes()).await {
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
    let caller = match caller(&request, scope) {
        Ok(caller) => caller,
        Err(rejection) => return rejection,
    };
    let (parts, body) = request.into_parts();
    let memory = RequestMemory::of(&parts.extensions);
    let request = StreamableRequest {
        engine: Arc::clone(&hub.engine),
        caller,
        allows_no_session,
        headers: parts.headers,
    };
    match parts.method.as_str() {
        "GET" => http::get(request).await,
        "DELETE" => http::delete(&request).await,
        _ => match body::read(&memory, body, hub.max_body_bytes()).await {
            Ok(body) => {
                let response = http::post(request, body).await;
                // A call that goes on in its stream has its own copy, which is counted there.
                memory.release();
                response
            }
            Err(rejection) => rejection,
        },
    }
}

fn principal(request: &Request) -> &Principal {
    let principal = request.extensions().get::<Principal>();
    principal.expect("the router authenticates every request of these routes")
}

fn caller(request: &Request, scope: CatalogScope) -> Result<Caller, Response> {
    let address = request.extensions().get::<ClientAddress>();
    Ok(Caller {
        principal: principal(request).clone(),
        scope,
        tool_listing: tool_listing(request.uri().query())?,
        remote_ip: address.and_then(|it| it.0),
    })
}

/// What `?tools=` says.
fn tool_listing(query: Option<&str>) -> Result<Option<ToolListing>, Response> {
    let mut pairs = query.unwrap_or_default().split('&');
    let Some(value) = pairs.find_map(|it| it.strip_prefix("tools=")) else {
        return Ok(None);
    };
    let invalid = || {
        let message = "tools must be list, search or auto";
        reply::reject(StatusCode::BAD_REQUEST, message)
    };
    ToolListing::parse(value).map(Some).ok_or_else(invalid)
}
