//! Which requests come from a program on this machine, and not from a web page or from
//! somewhere else through a proxy. Only such a request is an admin by `local_admin`.
//!
//! A page anywhere can make a browser of this machine send requests to maru. Host and
//! Origin are checked before ([`origin_policy`](super::origin_policy)); this check holds
//! also for pages of allowed origins, for requests without an Origin (`GET`, navigation)
//! and for browsers that send none.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName, header};

use super::origin_policy::is_sent_to_loopback;

/// Headers of browsers; a script can leave out none of them that matter.
const BROWSER_HEADERS: [HeaderName; 3] = [header::ORIGIN, header::REFERER, header::COOKIE];
/// Only browsers send headers of this prefix, such as `Sec-Fetch-Site`.
const BROWSER_HEADER_PREFIX: &str = "sec-";
/// Headers of proxies, which bring requests of other machines.
const PROXY_HEADERS: [HeaderName; 2] = [header::FORWARDED, header::VIA];
const PROXY_HEADER_PREFIX: &str = "x-forwarded-";

/// Whether a request was sent by a program on this machine, directly. `from` is absent
/// for the socket in the data directory.
pub(super) fn is_local_program(from: Option<IpAddr>, headers: &HeaderMap) -> bool {
    let is_suspicious = |name: &HeaderName| {
        BROWSER_HEADERS.contains(name)
            || PROXY_HEADERS.contains(name)
            || name.as_str().starts_with(BROWSER_HEADER_PREFIX)
            || name.as_str().starts_with(PROXY_HEADER_PREFIX)
    };
    from.is_none_or(|it| it.to_canonical().is_loopback())
        && is_sent_to_loopback(headers)
        && !headers.keys().any(is_suspicious)
}

#[cfg(test)]
mod tests {
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
        ] {
            check("127.0.0.1", &[host, line], false);
        }
    }
}
