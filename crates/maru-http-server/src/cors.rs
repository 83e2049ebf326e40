//! Requests of web pages on other origins (CORS), which `http.allowed_origins` names. A
//! browser asks before such a request, and shows the page only responses that allow it.
//! Cookies are never allowed: such a page sends a token.

use axum::{
    body::Body,
    http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, header},
};

use super::{origin_policy::OriginPolicy, routes::RouteMatch};

/// The first segments of the paths that other pages may use.
const SHARED_PATHS: [&str; 9] = [
    "v1",
    "v0.1",
    "api",
    "mcp",
    "sse",
    "generate",
    "generate_with_mcp",
    "oauth",
    ".well-known",
];
/// Headers of responses that a page may read.
const EXPOSED_HEADERS: HeaderValue = HeaderValue::from_static(
    "mcp-session-id, mcp-protocol-version, retry-after, www-authenticate, x-maru-queue-place",
);
/// How many seconds a browser remembers the answer to a preflight.
const PREFLIGHT_MAX_AGE: HeaderValue = HeaderValue::from_static("600");
/// Chrome's question whether a public page may use a server on this machine.
const REQUEST_PRIVATE_NETWORK: HeaderName =
    HeaderName::from_static("access-control-request-private-network");
const ALLOW_PRIVATE_NETWORK: HeaderName =
    HeaderName::from_static("access-control-allow-private-network");

/// The origin of a page that may use the path of `request`; `None` if the request is not
/// from a page, from one of the hub's own, or not allowed.
pub(super) fn allowed_origin<B>(
    policy: &OriginPolicy,
    request: &Request<B>,
) -> Option<HeaderValue> {
    let origin = request.headers().get(header::ORIGIN)?;
    let first = request.uri().path().split('/').nth(1).unwrap_or_default();
    let is_allowed = SHARED_PATHS.contains(&first)
        && policy.names_origin(origin)
        && policy.check(request.uri(), request.headers()).is_ok();
    is_allowed.then(|| origin.clone())
}

/// The response to a preflight; `None` if `request` is none, or no route has its path.
pub(super) fn preflight_response<B>(
    route: &RouteMatch<'_>,
    request: &Request<B>,
) -> Option<Response<Body>> {
    let headers = request.headers();
    let RouteMatch::MethodNotAllowed(methods) = route else {
        return None;
    };
    if *request.method() != Method::OPTIONS
        || !headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
    {
        return None;
    }
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let answer = response.headers_mut();
    if let Ok(methods) = HeaderValue::from_str(methods) {
        answer.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    }
    // Clients send headers of their own; none of them means more than on another client.
    if let Some(names) = headers.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
        answer.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names.clone());
    }
    if headers.contains_key(REQUEST_PRIVATE_NETWORK) {
        answer.insert(ALLOW_PRIVATE_NETWORK, HeaderValue::from_static("true"));
    }
    answer.insert(header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_MAX_AGE);
    Some(response)
}

/// A response that the page on `origin` may read.
pub(super) fn with_cors_headers<B>(mut response: Response<B>, origin: HeaderValue) -> Response<B> {
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED_HEADERS);
    headers.append(header::VARY, HeaderValue::from_static("origin"));
    response
}
