//! 2026-07-28 over HTTP: headers that parameter the body, and no session.

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
    reply, too_large_status,
};
use crate::{modern_client::ModernClient, owned_request::OwnedRequest, subscriptions};
use maru_tools::CallArguments;

pub(super) async fn post(
    http_request: StreamableRequest,
    accepts: AcceptedTypes,
    request: &RpcRequest<'_>,
) -> Response {
    let client = match read_client(&http_request, request).await {
        Ok(client) => client,
        Err(error) => return reply::rpc_error(StatusCode::BAD_REQUEST, Some(&request.id), &error),
    };
    let owned = match OwnedRequest::new(&http_request.caller, request).await {
        Ok(owned) => owned,
        Err(error) => return reply::rpc_error(too_large_status(&error), Some(&request.id), &error),
    };
    if owned.method == "subscriptions/listen" {
        return subscriptions::http_response(&http_request, accepts.events, &owned);
    }
    let (out, messages) = message_queue::channel();
    let engine = Arc::clone(&http_request.engine);
    let (caller, sender) = (http_request.caller, out.clone());
    let work = async move {
        let outcome = client.answer(&engine, &caller, &sender, &owned).await;
        Some((status(&outcome), owned.to_response(&outcome)))
    };
    HttpExchange {
        engine: http_request.engine,
        accepts,
        session: None,
        out,
        messages,
    }
    .run(Box::pin(work))
    .await
}

/// Reads the client from the body, and checks that headers and body agree.
async fn read_client(
    http_request: &StreamableRequest,
    request: &RpcRequest<'_>,
) -> Result<ModernClient, RpcError> {
    let params = RequestParams::parse(request.params)?;
    let version = params.meta()?.version();
    if version.is_some()
        && single_header(&http_request.headers, &PROTOCOL_VERSION_HEADER) != version.as_deref()
    {
        return Err(mismatch("MCP-Protocol-Version"));
    }
    let client = ModernClient::read(&params)?;
    if mirrored_header(&http_request.headers, &METHOD_HEADER).as_deref() != Some(&*request.method) {
        return Err(mismatch("Mcp-Method"));
    }
    let parameter = match &*request.method {
        "tools/call" | "prompts/get" => Some(RequestParams::require_string(params.name, "name")?),
        "resources/read" => Some(RequestParams::require_string(params.uri, "uri")?),
        _ => None,
    };
    if parameter.is_some() && mirrored_header(&http_request.headers, &NAME_HEADER) != parameter {
        return Err(mismatch("Mcp-Name"));
    }
    if request.method == "tools/call" {
        check_mirrors(http_request, &params).await?;
    }
    Ok(client)
}

/// Checks the headers that mirror parameters of the tool.
async fn check_mirrors(
    http_request: &StreamableRequest,
    params: &RequestParams<'_>,
) -> Result<(), RpcError> {
    let snapshot = http_request.engine.catalog().snapshot();
    let view = snapshot.visible_to(&http_request.caller)?;
    let Some(tool) = view
        .tools
        .get(&RequestParams::require_string(params.name, "name")?)
    else {
        return Ok(());
    };
    if tool.header_parameters().is_empty() {
        return Ok(());
    }
    let arguments = CallArguments::parse(params.arguments).await?;
    let wrong = tool.header_parameters().iter().find(|parameter| {
        let header = HeaderName::try_from(format!("mcp-param-{}", parameter.header)).ok();
        let sent = header.and_then(|it| mirrored_header(&http_request.headers, &it));
        !parameter.matches_header(sent.as_deref(), &arguments)
    });
    match wrong {
        None => Ok(()),
        Some(parameter) => Err(mismatch(&format!("Mcp-Param-{}", parameter.header))),
    }
}

fn mismatch(header: &str) -> RpcError {
    let error = format!("the header {header} must appear once and match the body");
    RpcError::new(code::HEADER_MISMATCH, error)
}

/// The HTTP status: errors in the request itself have one.
fn status(outcome: &Result<String, RpcError>) -> StatusCode {
    match outcome {
        Err(error) if error.code == code::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        Err(error) if error.code == code::FORBIDDEN => StatusCode::FORBIDDEN,
        Err(error) if error.code == code::MISSING_CAPABILITY => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}
