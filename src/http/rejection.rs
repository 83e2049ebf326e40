//! Answers to requests that are not let in. Each says what would help.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::Response,
};

use super::{openai, routes::RouteRule};
use crate::{
    auth::{AccessControl, AccessRole, Error, Principal},
    downstream::http::reply,
    tools::QuotaExceeded,
};

/// In the form of the endpoint that was knocked at.
pub(super) fn error_response(path: &str, status: StatusCode, why: &str) -> Response {
    if path.starts_with("/v1/") {
        openai::rejection_response(status, why)
    } else {
        reply::reject(status, why.to_owned())
    }
}

/// 401: who asks is not known.
pub(super) fn unauthorized(path: &str, access: &AccessControl, denied: &Error) -> Response {
    let error = match denied {
        Error::MissingToken => "",
        _ => ", error=\"invalid_token\"",
    };
    let response = error_response(path, StatusCode::UNAUTHORIZED, &denied.to_string());
    with_challenge(access, response, error)
}

/// 403: they are known and may not.
pub(super) fn forbidden(
    path: &str,
    access: &AccessControl,
    rule: &RouteRule,
    principal: &Principal,
) -> Response {
    let needed = rule.min_role.unwrap_or(AccessRole::Admin);
    let why = if principal.role() >= needed {
        "the token is good for some servers or tools only, and this is about all of them".to_owned()
    } else {
        format!(
            "the token does not allow this; it needs the role {}",
            needed.as_str()
        )
    };
    let response = error_response(path, StatusCode::FORBIDDEN, &why);
    let scopes = access.oauth().map(|it| it.scopes_of(needed).join(" "));
    let error = scopes.map_or(String::new(), |scopes| {
        format!(", error=\"insufficient_scope\", scope=\"{scopes}\"")
    });
    with_challenge(access, response, &error)
}

pub(super) fn method_not_allowed(path: &str, known: &str) -> Response {
    let mut response = error_response(
        path,
        StatusCode::METHOD_NOT_ALLOWED,
        "this address does not take this method",
    );
    if let Ok(known) = HeaderValue::from_str(known) {
        response.headers_mut().insert(header::ALLOW, known);
    }
    response
}

pub(super) fn not_found(path: &str) -> Response {
    error_response(
        path,
        StatusCode::NOT_FOUND,
        "nothing is here; MCP clients use /mcp or /sse, OpenAI clients /v1",
    )
}

/// 503: as many connections as may be are open.
pub(super) fn too_many_connections(path: &str) -> Response {
    let why = "too many connections are open; close some, try again later, or raise limits.max_connections";
    let mut response = error_response(path, StatusCode::SERVICE_UNAVAILABLE, why);
    let second = HeaderValue::from_static("1");
    response.headers_mut().insert(header::RETRY_AFTER, second);
    response
}

/// 429: not now.
pub(super) fn too_many_requests(path: &str, refused: &QuotaExceeded) -> Response {
    let mut response = error_response(path, StatusCode::TOO_MANY_REQUESTS, &refused.message);
    let seconds = HeaderValue::from(refused.retry_after_seconds);
    response.headers_mut().insert(header::RETRY_AFTER, seconds);
    response
}

/// Says how to come in (RFC 6750), and where tokens are given out (RFC 9728).
fn with_challenge(access: &AccessControl, mut response: Response, error: &str) -> Response {
    let metadata = access.oauth().map_or(String::new(), |it| {
        format!(", resource_metadata=\"{}\"", it.metadata_url())
    });
    let text = format!("Bearer realm=\"maru\"{metadata}{error}");
    let value =
        HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("Bearer realm=\"maru\""));
    response
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, value);
    response
}
