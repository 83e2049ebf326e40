//! 2026-07-28 over HTTP: headers that mirror the body, and no session.

use std::sync::Arc;

use axum::{
    http::{HeaderName, StatusCode},
    response::Response,
};
use maru_protocol::{RequestParams, RpcError, RpcRequest, code};
use maru_runtime::message_queue;

use super::{
    StreamableRequest,
    exchange::HttpExchange,
    headers::{
        AcceptedTypes, METHOD_HEADER, NAME_HEADER, PROTOCOL_VERSION_HEADER, mirrored_header,
        single_header,
    },
    reply,
};
use crate::{
    downstream::{dispatch::OwnedRequest, modern_client::ModernClient, subscriptions},
    tools::CallArguments,
};

pub(super) async fn post(
    arrival: StreamableRequest,
    accepts: AcceptedTypes,
    request: &RpcRequest<'_>,
) -> Response {
    let client = match read_client(&arrival, request) {
        Ok(client) => client,
        Err(why) => return reply::rpc_error(StatusCode::BAD_REQUEST, Some(&request.id), &why),
    };
    let owned = OwnedRequest::new(request);
    if owned.method == "subscriptions/listen" {
        return subscriptions::http_response(&arrival, accepts.events, &owned);
    }
    let (out, messages) = message_queue::channel();
    let engine = Arc::clone(&arrival.engine);
    let (caller, sender) = (arrival.caller, out.clone());
    let work = async move {
        let outcome = client.answer(&engine, &caller, &sender, &owned).await;
        Some((status(&outcome), owned.to_response(&outcome)))
    };
    HttpExchange {
        engine: arrival.engine,
        accepts,
        session: None,
        out,
        messages,
    }
    .run(Box::pin(work))
    .await
}

/// Checks body and headers against each other.
fn read_client(
    arrival: &StreamableRequest,
    request: &RpcRequest<'_>,
) -> Result<ModernClient, RpcError> {
    let params = RequestParams::parse(request.params)?;
    let version = params.meta()?.version();
    if version.is_some()
        && single_header(&arrival.headers, &PROTOCOL_VERSION_HEADER) != version.as_deref()
    {
        return Err(mismatch("MCP-Protocol-Version"));
    }
    let client = ModernClient::read(&params)?;
    if mirrored_header(&arrival.headers, &METHOD_HEADER).as_deref() != Some(&*request.method) {
        return Err(mismatch("Mcp-Method"));
    }
    let mirror = match &*request.method {
        "tools/call" | "prompts/get" => Some(RequestParams::require_string(params.name, "name")?),
        "resources/read" => Some(RequestParams::require_string(params.uri, "uri")?),
        _ => None,
    };
    if mirror.is_some() && mirrored_header(&arrival.headers, &NAME_HEADER) != mirror {
        return Err(mismatch("Mcp-Name"));
    }
    if request.method == "tools/call" {
        check_mirrors(arrival, &params)?;
    }
    Ok(client)
}

/// Parameters that the tool mirrors in headers of their own.
fn check_mirrors(arrival: &StreamableRequest, params: &RequestParams<'_>) -> Result<(), RpcError> {
    let snapshot = arrival.engine.catalog().snapshot();
    let view = snapshot.visible_to(&arrival.caller)?;
    let Some(offer) = view
        .tools
        .get(&RequestParams::require_string(params.name, "name")?)
    else {
        return Ok(());
    };
    if offer.header_parameters().is_empty() {
        return Ok(());
    }
    let arguments = CallArguments::parse(params.arguments)?;
    let wrong = offer.header_parameters().iter().find(|mirror| {
        let header = HeaderName::try_from(format!("mcp-param-{}", mirror.header)).ok();
        let said = header.and_then(|it| mirrored_header(&arrival.headers, &it));
        !mirror.matches_header(said.as_deref(), &arguments)
    });
    match wrong {
        None => Ok(()),
        Some(mirror) => Err(mismatch(&format!("Mcp-Param-{}", mirror.header))),
    }
}

fn mismatch(header: &str) -> RpcError {
    let why = format!("the header {header} must be there once and say the same as the body");
    RpcError::new(code::HEADER_MISMATCH, why)
}

/// Errors about the request itself also show in the status.
fn status(outcome: &Result<String, RpcError>) -> StatusCode {
    match outcome {
        Err(why) if why.code == code::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        Err(why) if why.code == code::FORBIDDEN => StatusCode::FORBIDDEN,
        Err(why) if why.code == code::MISSING_CAPABILITY => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}
