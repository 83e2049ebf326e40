//! Reading a request body, bounded in size and time.

use std::time::Duration;

use axum::{
    body::{Body, Bytes},
    extract::Request,
    http::{HeaderMap, StatusCode, header},
    response::Response,
};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde_json::Value;
use tokio::time;

use super::{Hub, servers::error};
use crate::{
    downstream::http::{check, reply},
    mcp,
};

const LIMIT: Duration = Duration::from_secs(30);

/// A body of JSON, or the answer that refuses it.
pub(super) async fn json(hub: &Hub, request: Request) -> Result<Value, Response> {
    let (parts, body) = request.into_parts();
    check(&parts.headers)?;
    let bytes = read(&parts.headers, body, hub.max_body_bytes).await?;
    let bad = |why: &str| error(StatusCode::BAD_REQUEST, why, None);
    let text = mcp::check(&bytes).map_err(|why| bad(&why.to_string()))?;
    match serde_json::from_str(text) {
        Ok(value @ (Value::Object(_) | Value::Array(_))) => Ok(value),
        _ => Err(bad("the body must be a JSON object")),
    }
}

/// The whole body, or the answer that refuses it.
pub(super) async fn read(headers: &HeaderMap, body: Body, max: usize) -> Result<Bytes, Response> {
    let too_large = || {
        reply::refuse(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the body may have {max} bytes at most"),
        )
    };
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|it| it.to_str().ok());
    if announced
        .and_then(|it| it.parse().ok())
        .is_some_and(|length: u64| length > max as u64)
    {
        return Err(too_large());
    }
    match time::timeout(LIMIT, Limited::new(body, max).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) => Err(reply::refuse(
            StatusCode::BAD_REQUEST,
            "the body could not be read",
        )),
        Err(_) => Err(reply::refuse(
            StatusCode::REQUEST_TIMEOUT,
            "the body did not arrive in time",
        )),
    }
}
