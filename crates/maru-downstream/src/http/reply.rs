//! HTTP responses that are not streams.

use std::borrow::Cow;

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use maru_protocol::{RpcError, RpcId, code};

/// One JSON message.
pub fn json(status: StatusCode, text: impl Into<Body>) -> Response {
    let mut response = Response::new(text.into());
    *response.status_mut() = status;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    response
}

/// Plain text.
pub(crate) fn text(status: StatusCode, text: String) -> Response {
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = status;
    response
}

/// A stream cannot be read any more.
pub(crate) fn stream_gone() -> Response {
    reject(
        StatusCode::GONE,
        "this stream has ended, or another reader holds it",
    )
}

/// A JSON-RPC error.
pub fn rpc_error(status: StatusCode, id: Option<&RpcId>, error: &RpcError) -> Response {
    json(status, maru_protocol::write_error(id, error))
}

/// The response to a request that is refused before its message is handled.
pub fn reject(status: StatusCode, message: impl Into<Cow<'static, str>>) -> Response {
    rpc_error(status, None, &RpcError::new(code::INVALID_REQUEST, message))
}

/// The response to a notification or a response.
pub(crate) fn accepted() -> Response {
    empty(StatusCode::ACCEPTED)
}

/// A response without a body.
pub fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}
