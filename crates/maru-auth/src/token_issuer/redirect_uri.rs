//! Which redirects a client may register, and which a request may use. Pure.

/// Schemes that run or read something in the browser instead of reaching a program.
const REFUSED_SCHEMES: [&str; 13] = [
    "about",
    "blob",
    "chrome",
    "data",
    "file",
    "filesystem",
    "ftp",
    "intent",
    "javascript",
    "vbscript",
    "view-source",
    "ws",
    "wss",
];
const MAX_REDIRECT_BYTES: usize = 1000;

/// Checks a redirect that a client registers: https, this machine, or the scheme of a
/// program.
pub(super) fn check_redirect_uri(uri: &str) -> Result<(), &'static str> {
    if uri.len() > MAX_REDIRECT_BYTES || !uri.bytes().all(is_uri_byte) {
        return Err("a redirect URI is too long or has characters that a URI cannot have");
    }
    if uri.contains('#') {
        return Err("a redirect URI cannot have a fragment");
    }
    let Some((scheme, rest)) = uri.split_once(':') else {
        return Err("a redirect URI must be absolute");
    };
    let scheme = scheme.to_ascii_lowercase();
    let is_scheme = scheme.starts_with(|it: char| it.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|it| it.is_ascii_alphanumeric() || matches!(it, b'+' | b'-' | b'.'));
    if !is_scheme || REFUSED_SCHEMES.contains(&scheme.as_str()) {
        return Err("a redirect URI has a scheme that is not accepted");
    }
    match (scheme.as_str(), authority(rest)) {
        ("https", Some(authority)) if is_host(authority) => Ok(()),
        ("http", Some(authority)) if is_host(authority) && is_loopback(authority) => Ok(()),
        ("http", _) => Err("a redirect URI with http must be on this machine"),
        ("https", _) => Err("a redirect URI has no valid host"),
        _ => Ok(()),
    }
}

/// Whether a request may use `requested`, because it is one of `registered`. On this
/// machine the port is free (RFC 8252).
pub(super) fn is_registered(registered: &[String], requested: &str) -> bool {
    let without_port = loopback_without_port(requested);
    registered.iter().any(|it| {
        it == requested || without_port.is_some() && loopback_without_port(it) == without_port
    })
}

/// Returns what a person is shown of a redirect: its host, or its scheme.
pub fn redirect_host(uri: &str) -> &str {
    let (scheme, rest) = uri.split_once(':').unwrap_or((uri, ""));
    match authority(rest) {
        Some(authority) if is_web(scheme) => authority,
        _ => scheme,
    }
}

/// Returns the source by which a content security policy allows a redirect.
pub fn redirect_source(uri: &str) -> String {
    let (scheme, rest) = uri.split_once(':').unwrap_or((uri, ""));
    match authority(rest) {
        Some(authority) if is_web(scheme) => format!("{scheme}://{authority}"),
        _ => format!("{scheme}:"),
    }
}

fn is_web(scheme: &str) -> bool {
    scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https")
}

/// Returns a redirect to this machine without its port.
fn loopback_without_port(uri: &str) -> Option<(&str, &str)> {
    let rest = uri.strip_prefix("http://")?;
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let is_local = is_host(authority) && is_loopback(authority);
    is_local.then(|| (host_of(authority), path))
}

fn authority(rest: &str) -> Option<&str> {
    let rest = rest.strip_prefix("//")?;
    rest.split(['/', '?']).next()
}

fn is_host(authority: &str) -> bool {
    let host = host_of(authority);
    let port = &authority[host.len()..];
    let is_port = port.is_empty()
        || port
            .strip_prefix(':')
            .is_some_and(|it| it.parse::<u16>().is_ok());
    let is_byte = |it: u8| it.is_ascii_alphanumeric() || b"-._[]:".contains(&it);
    !host.is_empty() && is_port && host.bytes().all(is_byte)
}

fn is_loopback(authority: &str) -> bool {
    matches!(host_of(authority), "localhost" | "127.0.0.1" | "[::1]")
}

fn host_of(authority: &str) -> &str {
    match authority.rfind(']') {
        Some(end) => &authority[..=end],
        None => authority.split(':').next().unwrap_or_default(),
    }
}

/// What a URI may have: no quotes, brackets or separators of headers and policies.
fn is_uri_byte(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"\"'<>\\^`{|};,".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_reach_a_site_by_https_this_machine_or_a_program() {
        for good in [
            "https://claude.ai/api/mcp/auth_callback",
            "https://a.example:8443/cb?x=1",
            "http://127.0.0.1:33418/",
            "http://localhost/callback",
            "http://[::1]:9/cb",
            "cursor://anysphere.cursor-retrieval/oauth/callback",
            "com.example.app:/cb",
        ] {
            assert_eq!(check_redirect_uri(good), Ok(()), "{good}");
        }
        for bad in [
            "http://a.example/cb",
            "http://localhost.evil.example/cb",
            "http://127.0.0.1@evil.example/cb",
            "https://user@a.example/",
            "https://a.example/#x",
            "https:///cb",
            "https:cb",
            "https://a.example:99999/",
            "https://a.example/;script-src *",
            "//a.example/cb",
            "/cb",
            "javascript:alert(1)",
            "JavaScript:alert(1)",
            "data:text/html,x",
            "https://a.example/\r\nset-cookie: x",
            "https://a.example/ x",
            "https://a.example/<script>",
            "1x:cb",
            "",
            &format!("https://a.example/{}", "x".repeat(1000)),
        ] {
            assert!(check_redirect_uri(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_the_port_of_this_machine_may_differ_from_the_registered_redirect() {
        let registered = ["https://a.example/cb", "http://127.0.0.1:1/cb"].map(str::to_owned);
        for good in [
            "https://a.example/cb",
            "http://127.0.0.1:1/cb",
            "http://127.0.0.1:55/cb",
            "http://127.0.0.1/cb",
        ] {
            assert!(is_registered(&registered, good), "{good}");
        }
        for bad in [
            "https://a.example/cb/",
            "https://a.example/cb?x",
            "https://a.example:444/cb",
            "https://A.example/cb",
            "http://localhost:1/cb",
            "http://127.0.0.1:1/other",
            "http://127.0.0.1:1@evil.example/cb",
            "https://127.0.0.1:1/cb",
            "",
        ] {
            assert!(!is_registered(&registered, bad), "{bad}");
        }
    }

    #[test]
    fn people_see_the_host_and_policies_the_origin() {
        assert_eq!(redirect_host("https://a.example:1/x"), "a.example:1");
        assert_eq!(redirect_host("cursor://x/y"), "cursor");
        assert_eq!(
            redirect_source("https://a.example:1/x"),
            "https://a.example:1"
        );
        assert_eq!(redirect_source("cursor://x/y"), "cursor:");
    }
}
