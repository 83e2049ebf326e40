//! The parts of a URL that rules of OAuth compare. Pure.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// What a form and a query leave unescaped.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Returns the origin and the path of an HTTP URL, without query and trailing slash.
pub(super) fn split_url(url: &str) -> Option<(String, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let (authority, path) = match rest.find('/') {
        Some(at) => rest.split_at(at),
        None => (rest, ""),
    };
    let scheme = scheme.to_ascii_lowercase();
    let default_port = match scheme.as_str() {
        "https" => ":443",
        "http" => ":80",
        _ => return None,
    };
    let authority = authority.to_ascii_lowercase();
    let authority = authority.strip_suffix(default_port).unwrap_or(&authority);
    let is_host = !authority.is_empty() && !authority.contains('@');
    is_host.then(|| {
        (
            format!("{scheme}://{authority}"),
            path.trim_end_matches('/'),
        )
    })
}

/// Whether a URL is encrypted, or stays on this machine.
pub fn is_secure_url(url: &str) -> bool {
    let Some((origin, _)) = split_url(url) else {
        return false;
    };
    match origin.split_once("://") {
        Some(("https", _)) => true,
        Some(("http", authority)) => is_loopback(authority),
        _ => false,
    }
}

/// Whether both URLs have the same scheme, host and port.
pub(super) fn is_same_origin(one: &str, other: &str) -> bool {
    match (split_url(one), split_url(other)) {
        (Some((one, _)), Some((other, _))) => one == other,
        _ => false,
    }
}

/// Writes the parameters in the form of `application/x-www-form-urlencoded`.
pub(super) fn encode_form(parameters: &[(&str, &str)]) -> String {
    let pair = |(name, value): &(&str, &str)| format!("{name}={}", encode(value));
    parameters.iter().map(pair).collect::<Vec<_>>().join("&")
}

/// Escapes a value for a form or a query.
pub(super) fn encode(value: &str) -> String {
    utf8_percent_encode(value, UNRESERVED).to_string()
}

fn is_loopback(authority: &str) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    let address = host.parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|it| it.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secure_urls_are_encrypted_or_on_this_machine() {
        for secure in [
            "https://a.example/x",
            "http://localhost:9/",
            "http://127.0.0.1:9/a",
            "http://[::1]:9",
        ] {
            assert!(is_secure_url(secure), "{secure}");
        }
        for insecure in [
            "http://a.example/",
            "http://localhost.evil.example/",
            "http://127.0.0.1@evil.example/",
            "ftp://localhost/",
            "javascript:alert(1)",
            "https://",
            "",
        ] {
            assert!(!is_secure_url(insecure), "{insecure}");
        }
    }

    #[test]
    fn origins_are_compared_without_case_and_default_port() {
        assert!(is_same_origin(
            "https://A.example:443/x",
            "https://a.example"
        ));
        assert!(!is_same_origin(
            "https://a.example:8443",
            "https://a.example"
        ));
        assert!(!is_same_origin("http://a.example", "https://a.example"));
    }

    #[test]
    fn form_escapes_everything_that_is_not_unreserved() {
        let form = encode_form(&[("a", "x y&=한"), ("b", "-._~")]);
        assert_eq!(form, "a=x%20y%26%3D%ED%95%9C&b=-._~");
    }
}
