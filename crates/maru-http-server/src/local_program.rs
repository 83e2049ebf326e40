//! Which requests come from a program on this machine, and not from a web page or from
//! somewhere else through a proxy. Only such a request is an admin by `local_admin`.
//!
//! A page anywhere can make a browser of this machine send requests to maru. Host and
//! Origin are checked before ([`origin_policy`](super::origin_policy)); this check holds
//! also for pages of allowed origins, for requests without an Origin (`GET`, navigation)
//! and for browsers that send none.

use std::net::IpAddr;

use axum::http::HeaderMap;

use super::origin_policy::is_sent_to_loopback;

/// Headers that programs send. A request with any other one may come from a browser
/// (`Origin`, `Sec-Fetch-Site`, `Accept-Language`) or through a proxy (`X-Real-IP`, `Via`),
/// and the headers of all of them are unknown.
const PROGRAM_HEADERS: [&str; 18] = [
    "accept",
    "accept-charset",
    "accept-encoding",
    "baggage",
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "keep-alive",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "traceparent",
    "tracestate",
    "user-agent",
];

/// Whether a request was sent by a program on this machine, directly. `from` is absent
/// for the socket in the data directory.
pub(super) fn is_local_program(from: Option<IpAddr>, headers: &HeaderMap) -> bool {
    from.is_none_or(|it| it.to_canonical().is_loopback())
        && is_sent_to_loopback(headers)
        && headers
            .keys()
            .all(|it| PROGRAM_HEADERS.contains(&it.as_str()))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderName;

    use super::*;

    fn check(from: &str, lines: &[(&'static str, &'static str)], expected: bool) {
        let headers = lines
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        let found = is_local_program(Some(from.parse().unwrap()), &headers.collect());
        assert_eq!(found, expected, "{from} {lines:?}");
    }

    #[test]
    fn programs_are_told_from_pages_and_proxies() {
        let host = ("host", "localhost:20006");
        let curl = [host, ("user-agent", "curl/8.5.0"), ("accept", "*/*")];
        check("127.0.0.1", &curl, true);
        check("::1", &[("host", "[::1]:20006")], true);
        check("::ffff:127.0.0.1", &[host], true);
        check("192.0.2.1", &curl, false);
        check("127.0.0.1", &[("host", "maru.example")], false);
        check("127.0.0.1", &[], false);
        for line in [
            ("origin", "http://localhost:20006"),
            ("origin", "null"),
            ("sec-fetch-site", "same-origin"),
            ("sec-fetch-mode", "no-cors"),
            ("sec-ch-ua", "x"),
            ("cookie", "a=b"),
            ("referer", "http://localhost:3000/"),
            ("via", "1.1 proxy"),
            ("forwarded", "for=192.0.2.1"),
            ("x-forwarded-for", "192.0.2.1"),
            ("x-forwarded-host", "maru.example"),
            ("x-real-ip", "192.0.2.1"),
            ("cf-connecting-ip", "192.0.2.1"),
            ("tailscale-user-login", "a@b.example"),
            // Old browsers send neither Origin nor Sec-Fetch-Site with some requests.
            ("accept-language", "en-US"),
            ("upgrade-insecure-requests", "1"),
        ] {
            check("127.0.0.1", &[host, line], false);
        }
    }
}
