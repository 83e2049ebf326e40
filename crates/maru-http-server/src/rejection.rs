//! Responses to requests that access control rejects.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::Response,
};

use super::{
    anthropic::MessageWriter, model_api::ApiError, openai::ChatCompletionWriter, routes::RouteRule,
    servers::json_error,
};
use maru_auth::{AccessControl, AccessRole, Error, Principal};
use maru_downstream::http::reply;
use maru_tools::QuotaExceeded;

/// Paths beside MCP's own that answer as REST.
const REST_PATHS: [&str; 3] = ["/mcp/add", "/mcp/remove", "/mcp/list"];

/// An error response in the format of the API at `path`.
pub(super) fn error_response(path: &str, status: StatusCode, message: &str) -> Response {
    if path.starts_with("/v1/messages") {
        ApiError::rejected(status, message).into_response::<MessageWriter>()
    } else if path.starts_with("/v1/") {
        ApiError::rejected(status, message).into_response::<ChatCompletionWriter>()
    } else if path.starts_with("/api/") || REST_PATHS.contains(&path) {
        json_error(status, message, None)
    } else {
        reply::reject(status, message.to_owned())
    }
}

/// 401: the caller could not be authenticated.
pub(super) fn unauthorized(path: &str, access: &AccessControl, error: &Error) -> Response {
    // Without a scope, clients would ask for all that are listed.
    let scopes = access.token_issuer().map_or(String::new(), |it| {
        let scopes = it.scopes_of(AccessRole::Agent).join(" ");
        format!(", scope=\"{scopes}\"")
    });
    let parameters = match error {
        Error::MissingToken => scopes,
        _ => format!(", error=\"invalid_token\"{scopes}"),
    };
    let response = error_response(path, StatusCode::UNAUTHORIZED, &error.to_string());
    with_challenge(access, response, path, &parameters)
}

/// 403: the role or the grants of the principal do not allow the request.
pub(super) fn forbidden(
    path: &str,
    access: &AccessControl,
    rule: &RouteRule,
    principal: &Principal,
) -> Response {
    let required = rule.min_role.unwrap_or(AccessRole::Admin);
    let message = if principal.role() >= required {
        "the token is limited to some servers or tools, but this route concerns all of them"
            .to_owned()
    } else {
        format!(
            "the token does not allow this; it needs the role {}",
            required.as_str()
        )
    };
    let response = error_response(path, StatusCode::FORBIDDEN, &message);
    let scopes = match access.token_issuer() {
        Some(issuer) => Some(issuer.scopes_of(required).join(" ")),
        None => access.oauth().map(|it| it.scopes_of(required).join(" ")),
    };
    let parameters = scopes.map_or(String::new(), |scopes| {
        format!(", error=\"insufficient_scope\", scope=\"{scopes}\"")
    });
    with_challenge(access, response, path, &parameters)
}

/// 405: the path exists with the methods of `allowed`.
pub(super) fn method_not_allowed(path: &str, allowed: &str) -> Response {
    let mut response = error_response(
        path,
        StatusCode::METHOD_NOT_ALLOWED,
        "this path does not support this method",
    );
    if let Ok(allowed) = HeaderValue::from_str(allowed) {
        response.headers_mut().insert(header::ALLOW, allowed);
    }
    response
}

/// 404: no route has this path.
pub(super) fn not_found(path: &str) -> Response {
    error_response(
        path,
        StatusCode::NOT_FOUND,
        "not found; MCP clients use /mcp or /sse, OpenAI clients /v1",
    )
}

/// 503: the maximum number of connections is open.
pub(super) fn too_many_connections(path: &str) -> Response {
    let message = "too many connections are open; close some, try again later, or raise limits.max_connections";
    let mut response = error_response(path, StatusCode::SERVICE_UNAVAILABLE, message);
    let one_second = HeaderValue::from_static("1");
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, one_second);
    response
}

/// 429: a limit of the principal is used up.
pub(super) fn too_many_requests(path: &str, exceeded: &QuotaExceeded) -> Response {
    let mut response = error_response(path, StatusCode::TOO_MANY_REQUESTS, &exceeded.message);
    let seconds = HeaderValue::from(exceeded.retry_after_seconds);
    response.headers_mut().insert(header::RETRY_AFTER, seconds);
    response
}

/// Adds `WWW-Authenticate` (RFC 6750) with the URL of the resource metadata (RFC 9728).
fn with_challenge(
    access: &AccessControl,
    mut response: Response,
    path: &str,
    parameters: &str,
) -> Response {
    let url = match access.token_issuer() {
        Some(issuer) => Some(issuer.resource_metadata_url(path)),
        None => access.oauth().map(|it| it.metadata_url()),
    };
    let metadata = url.map_or(String::new(), |it| format!(", resource_metadata=\"{it}\""));
    let text = format!("Bearer realm=\"maru\"{metadata}{parameters}");
    let value =
        HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("Bearer realm=\"maru\""));
    response
        .headers_mut()
        .insert(header::WWW_AUTHENTICATE, value);
    response
}
