//! 2026-07-28 over HTTP: headers that mirror the body, and no session.

use std::sync::Arc;

use axum::{
    http::{HeaderName, StatusCode},
    response::Response,
};

use super::{
    Arrival,
    exchange::Exchange,
    headers::{Accepts, METHOD, NAME, VERSION, mirrored, one},
    reply,
};
use crate::{
    downstream::{dispatch::Owned, listen, modern::Client},
    mcp::{Params, Request, RpcError, code},
    queue,
    tool::Input,
};

pub(super) async fn post(arrival: Arrival, accepts: Accepts, request: &Request<'_>) -> Response {
    let client = match read(&arrival, request) {
        Ok(client) => client,
        Err(why) => return reply::error(StatusCode::BAD_REQUEST, Some(&request.id), &why),
    };
    let owned = Owned::new(request);
    if owned.method == "subscriptions/listen" {
        return listen::http(&arrival, accepts.events, &owned);
    }
    let (out, messages) = queue::channel();
    let engine = Arc::clone(&arrival.engine);
    let (caller, sender) = (arrival.caller, out.clone());
    let work = async move {
        let outcome = client.answer(&engine, &caller, &sender, &owned).await;
        Some((status(&outcome), owned.reply(&outcome)))
    };
    Exchange {
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
fn read(arrival: &Arrival, request: &Request<'_>) -> Result<Client, RpcError> {
    let params = Params::read(request.params)?;
    let version = params.meta()?.version();
    if version.is_some() && one(&arrival.headers, &VERSION) != version.as_deref() {
        return Err(mismatch("MCP-Protocol-Version"));
    }
    let client = Client::read(&params)?;
    if mirrored(&arrival.headers, &METHOD).as_deref() != Some(&*request.method) {
        return Err(mismatch("Mcp-Method"));
    }
    let mirror = match &*request.method {
        "tools/call" | "prompts/get" => Some(Params::text(params.name, "name")?),
        "resources/read" => Some(Params::text(params.uri, "uri")?),
        _ => None,
    };
    if mirror.is_some() && mirrored(&arrival.headers, &NAME) != mirror {
        return Err(mismatch("Mcp-Name"));
    }
    if request.method == "tools/call" {
        check_mirrors(arrival, &params)?;
    }
    Ok(client)
}

/// Parameters that the tool mirrors in headers of their own.
fn check_mirrors(arrival: &Arrival, params: &Params<'_>) -> Result<(), RpcError> {
    let snapshot = arrival.engine.catalog().snapshot();
    let view = snapshot.seen(&arrival.caller)?;
    let Some(offer) = view.tools.get(&Params::text(params.name, "name")?) else {
        return Ok(());
    };
    if offer.mirrors().is_empty() {
        return Ok(());
    }
    let arguments = Input::read(params.arguments)?;
    let wrong = offer.mirrors().iter().find(|mirror| {
        let header = HeaderName::try_from(format!("mcp-param-{}", mirror.header)).ok();
        let said = header.and_then(|it| mirrored(&arrival.headers, &it));
        !mirror.agrees(said.as_deref(), &arguments)
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
