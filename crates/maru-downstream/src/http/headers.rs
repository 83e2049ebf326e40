//! Checks and parses the headers of a request.

use std::borrow::Cow;

use axum::{
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::Response,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use maru_protocol::{ProtocolVersion, RpcError};

use super::reply;
use crate::modern_client::unsupported_version;

/// The protocol version of a request.
pub(super) static PROTOCOL_VERSION_HEADER: HeaderName =
    HeaderName::from_static("mcp-protocol-version");
/// Since 2026-07-28: the method of the body.
pub(super) static METHOD_HEADER: HeaderName = HeaderName::from_static("mcp-method");
/// Since 2026-07-28: the name or URI in the body.
pub(super) static NAME_HEADER: HeaderName = HeaderName::from_static("mcp-name");
/// The event after which a stream is resumed.
pub(super) static LAST_EVENT_ID_HEADER: HeaderName = HeaderName::from_static("last-event-id");

/// The content types that the client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AcceptedTypes {
    pub(super) json: bool,
    pub(super) events: bool,
}

/// Refuses bodies that are not plain JSON.
pub fn require_json(headers: &HeaderMap) -> Result<(), Response> {
    check_content_headers(headers).map_err(|(status, message)| reply::reject(status, message))
}

/// Like [`require_json`], for endpoints with another form of errors.
pub fn check_content_headers(headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
    let refused = |message| Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    let kind = single_header(headers, &header::CONTENT_TYPE).unwrap_or_default();
    if !is_json(kind) {
        return refused("Content-Type must be application/json, in UTF-8");
    }
    let encoding = headers.get(header::CONTENT_ENCODING);
    if encoding.is_some_and(|it| !it.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return refused("Content-Encoding is not supported");
    }
    Ok(())
}

fn is_json(kind: &str) -> bool {
    if kind == "application/json" {
        return true;
    }
    let mut parts = kind.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default();
    essence.eq_ignore_ascii_case("application/json")
        && parts.all(|parameter| match parameter.split_once('=') {
            Some((name, value)) if name.eq_ignore_ascii_case("charset") => {
                value.trim_matches('"').eq_ignore_ascii_case("utf-8")
            }
            _ => true,
        })
}

/// The content types that the client accepts; without an Accept header JSON. `None` if it
/// accepts neither.
pub(super) fn accepted_types(headers: &HeaderMap) -> Option<AcceptedTypes> {
    let (json, events) = match headers.get(header::ACCEPT).map(HeaderValue::as_bytes) {
        None => (true, false),
        // The value that nearly every client sends.
        Some(b"application/json, text/event-stream") => (true, true),
        Some(_) => return read_accept(headers),
    };
    Some(AcceptedTypes { json, events })
}

fn read_accept(headers: &HeaderMap) -> Option<AcceptedTypes> {
    let mut found = AcceptedTypes {
        json: false,
        events: false,
    };
    let values = headers.get_all(header::ACCEPT).iter();
    for kind in values
        .filter_map(|it| it.to_str().ok())
        .flat_map(|it| it.split(','))
    {
        match kind.split(';').next().unwrap_or_default().trim() {
            "*/*" => {
                return Some(AcceptedTypes {
                    json: true,
                    events: true,
                });
            }
            "application/json" | "application/*" => found.json = true,
            "text/event-stream" | "text/*" => found.events = true,
            _ => (),
        }
    }
    (found.json || found.events).then_some(found)
}

/// The version in the `MCP-Protocol-Version` header, if the request has it.
pub(super) fn protocol_version(headers: &HeaderMap) -> Result<Option<ProtocolVersion>, RpcError> {
    let mut values = headers.get_all(&PROTOCOL_VERSION_HEADER).iter().peekable();
    if values.peek().is_none() {
        return Ok(None);
    }
    let requested = single_value(values).unwrap_or_default();
    ProtocolVersion::parse(requested)
        .map(Some)
        .ok_or_else(|| unsupported_version(requested))
}

/// The value of a header that appears exactly once.
pub(super) fn single_header<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    single_value(headers.get_all(name).iter())
}

fn single_value<'a>(mut values: impl Iterator<Item = &'a HeaderValue>) -> Option<&'a str> {
    let first = values.next()?;
    if values.next().is_some() {
        return None;
    }
    first.to_str().ok().map(str::trim)
}

/// The decoded value of a header of 2026-07-28 that mirrors the body.
pub(super) fn mirrored_header<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Option<Cow<'a, str>> {
    let text = single_header(headers, name)?;
    let encoded = text
        .strip_prefix("=?base64?")
        .and_then(|it| it.strip_suffix("?="));
    let Some(encoded) = encoded else {
        return Some(Cow::Borrowed(text));
    };
    let bytes = BASE64_STANDARD.decode(encoded).ok()?;
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_json_in_utf8_is_accepted() {
        for kind in [
            "application/json",
            "Application/JSON; charset=UTF-8",
            "application/json; charset=\"utf-8\"",
        ] {
            assert!(is_json(kind), "{kind}");
        }
        for kind in [
            "",
            "text/plain",
            "application/jsonx",
            "application/json; charset=utf-16",
        ] {
            assert!(!is_json(kind), "{kind}");
        }
    }

    fn accept(value: &'static str) -> Option<(bool, bool)> {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, value.parse().unwrap());
        accepted_types(&headers).map(|it| (it.json, it.events))
    }

    #[test]
    fn accept_header_is_read_liberally() {
        assert_eq!(
            accept("application/json, text/event-stream"),
            Some((true, true))
        );
        assert_eq!(accept("application/json"), Some((true, false)));
        assert_eq!(accept("text/event-stream;q=0.9"), Some((false, true)));
        assert_eq!(accept("*/*"), Some((true, true)));
        assert_eq!(accept("text/html"), None);
    }

    #[test]
    fn mirrored_headers_are_decoded_and_must_appear_once() {
        let mut headers = HeaderMap::new();
        headers.insert("mcp-name", "=?base64?6rCA?=".parse().unwrap());
        assert_eq!(
            mirrored_header(&headers, &NAME_HEADER).as_deref(),
            Some("가")
        );
        headers.append("mcp-name", "x".parse().unwrap());
        assert_eq!(mirrored_header(&headers, &NAME_HEADER), None);
    }
}
