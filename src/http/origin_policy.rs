//! Host and Origin: who the request was meant for, and which page sent it.
//!
//! A web page anywhere can send requests to this machine. The browser tells us
//! the page's origin, and the name it thinks it talks to; both must be ours.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};

use crate::config::HttpSettings;

/// Names and origins that are ours.
#[derive(Debug)]
pub struct OriginPolicy {
    hosts: Vec<String>,
    origins: Vec<String>,
}

const LOOPBACK_HOSTS: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

impl OriginPolicy {
    /// Our own names on `address`, and those of the configuration. Where
    /// connections are encrypted, pages of our own names are ours too.
    pub fn new(address: SocketAddr, secure: bool, http: &HttpSettings) -> Self {
        let (ip, port) = (address.ip(), address.port());
        let own = match ip {
            _ if ip.is_unspecified() || ip.is_loopback() => None,
            IpAddr::V4(ip) => Some(ip.to_string()),
            IpAddr::V6(ip) => Some(format!("[{ip}]")),
        };
        let local = LOOPBACK_HOSTS.iter().map(|it| (*it).to_owned());
        let hosts: Vec<String> = local.chain(own).collect();
        let scheme = if secure { "https" } else { "http" };
        let named = http.allowed_hosts.iter().filter(|_| secure);
        let origins: Vec<String> = hosts
            .iter()
            .map(|host| format!("{scheme}://{host}:{port}"))
            .chain(
                named
                    .clone()
                    .map(|host| format!("https://{}", host.to_lowercase())),
            )
            .chain(named.map(|host| format!("https://{}:{port}", host.to_lowercase())))
            .collect();
        Self {
            hosts: hosts
                .into_iter()
                .chain(http.allowed_hosts.iter().map(|it| it.to_lowercase()))
                .collect(),
            origins: origins
                .into_iter()
                .chain(http.allowed_origins.iter().map(|it| it.to_lowercase()))
                .collect(),
        }
    }

    /// Refuses a request that was not meant for us or came from a foreign page.
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
        let mut named = headers.get_all(header::HOST).iter();
        let host = named
            .next()
            .and_then(|it| it.to_str().ok())
            .unwrap_or_default();
        let elsewhere = uri
            .authority()
            .is_some_and(|it| !self.is_own_host(it.as_str()));
        if named.next().is_some() || elsewhere || !self.is_own_host(host) {
            let why = "this Host is not ours; see http.allowed_hosts in the configuration";
            return Err((StatusCode::FORBIDDEN, why));
        }
        let foreign = |origin: &HeaderValue| {
            let origin = origin.to_str().unwrap_or_default().to_lowercase();
            !self.origins.contains(&origin)
        };
        if headers.get_all(header::ORIGIN).iter().any(foreign) {
            let why = "this Origin is not ours; see http.allowed_origins in the configuration";
            return Err((StatusCode::FORBIDDEN, why));
        }
        Ok(())
    }

    fn is_own_host(&self, authority: &str) -> bool {
        let is_port = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
        let host = match authority.rsplit_once(':') {
            Some((host, after)) if is_port(after) => host,
            _ => authority,
        };
        self.hosts
            .iter()
            .any(|ours| host.eq_ignore_ascii_case(ours))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(host: &str, origin: Option<&str>) -> bool {
        let http = HttpSettings {
            allowed_hosts: vec!["maru.example".to_owned()],
            allowed_origins: vec!["https://chat.example".to_owned()],
        };
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().unwrap());
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().unwrap());
        }
        OriginPolicy::new(([127, 0, 0, 1], 20006).into(), false, &http)
            .check(&Uri::from_static("/mcp"), &headers)
            .is_ok()
    }

    #[test]
    fn our_own_names_pass() {
        for host in [
            "127.0.0.1:20006",
            "localhost",
            "LOCALHOST:1",
            "[::1]:20006",
            "[::1]",
            "maru.example",
        ] {
            assert!(passes(host, None), "{host}");
        }
        for origin in [
            "http://localhost:20006",
            "http://127.0.0.1:20006",
            "https://chat.example",
        ] {
            assert!(passes("localhost", Some(origin)), "{origin}");
        }
    }

    #[test]
    fn foreign_names_and_pages_do_not() {
        for host in [
            "evil.test",
            "localhost.evil.test",
            "127.0.0.1/healthz",
            "127.0.0.1:",
            "127.0.0.1:x",
            "",
            "evil@localhost",
        ] {
            assert!(!passes(host, None), "{host}");
        }
        for origin in [
            "null",
            "http://evil.test",
            "http://localhost",
            "http://localhost:1",
            "https://localhost:20006",
            "http://evil.test#localhost",
            "file://",
            "http://localhost:20006.evil.test",
        ] {
            assert!(!passes("localhost", Some(origin)), "{origin}");
        }
    }
}
