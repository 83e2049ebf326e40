//! Answers to requests that are not let in. Each says what would help.

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::Response,
};

use super::{openai, routes::Rule};
use crate::{
    access::{Access, Denied, Principal, Role},
    downstream::http::reply,
    tool::TooMany,
};

/// In the form of the door that was knocked at.
pub(super) fn plain(path: &str, status: StatusCode, why: &str) -> Response {
    match path.starts_with("/v1/") {
        true => openai::refuse(status, why),
        false => reply::refuse(status, why.to_owned()),
    }
}

/// 401: who asks is not known.
pub(super) fn unauthorized(path: &str, access: &Access, denied: &Denied) -> Response {
    let error = match denied {
        Denied::Missing => "",
        _ => ", error=\"invalid_token\"",
    };
    let response = plain(path, StatusCode::UNAUTHORIZED, &denied.to_string());
    challenge(access, response, error)
}

/// 403: they are known and may not.
pub(super) fn forbidden(
    path: &str,
    access: &Access,
    rule: &Rule,
    principal: &Principal,
) -> Response {
    let needed = rule.needs.unwrap_or(Role::Admin);
    let why = match principal.role() >= needed {
        true => "the token is good for some servers or tools only, and this is about all of them"
            .to_owned(),
        false => format!(
            "the token does not allow this; it needs the role {}",
            needed.name()
        ),
    };
    let response = plain(path, StatusCode::FORBIDDEN, &why);
    let scopes = access.oauth().map(|it| it.scopes_of(needed).join(" "));
    let error = scopes.map_or(String::new(), |scopes| {
        format!(", error=\"insufficient_scope\", scope=\"{scopes}\"")
    });
    challenge(access, response, &error)
}

pub(super) fn other_methods(path: &str, known: &str) -> Response {
    let mut response = plain(
        path,
        StatusCode::METHOD_NOT_ALLOWED,
        "this address does not take this method",
    );
    if let Ok(known) = HeaderValue::from_str(known) {
        response.headers_mut().insert(header::ALLOW, known);
    }
    response
}

pub(super) fn nothing_here(path: &str) -> Response {
    plain(
        path,
        StatusCode::NOT_FOUND,
        "nothing is here; MCP clients use /mcp or /sse, OpenAI clients /v1",
    )
}

/// 503: as many connections as may be are open.
pub(super) fn too_many_connections(path: &str) -> Response {
    let why = "too many connections are open; close some, try again later, or raise limits.max_connections";
    let mut response = plain(path, StatusCode::SERVICE_UNAVAILABLE, why);
    let second = HeaderValue::from_static("1");
    response.headers_mut().insert(header::RETRY_AFTER, second);
    response
}

/// 429: not now.
pub(super) fn too_many(path: &str, refused: &TooMany) -> Response {
    let mut response = plain(path, StatusCode::TOO_MANY_REQUESTS, &refused.why);
    let seconds = HeaderValue::from(refused.seconds);
    response.headers_mut().insert(header::RETRY_AFTER, seconds);
    response
}

/// Says how to come in (RFC 6750), and where tokens are given out (RFC 9728).
fn challenge(access: &Access, mut response: Response, error: &str) -> Response {
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
