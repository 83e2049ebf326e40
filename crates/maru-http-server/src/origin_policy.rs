//! Checks of the `Host` and `Origin` headers.
//!
//! Any web page can send requests to this machine. The browser sends the origin of the page
//! and the host name it connected to. Both must be known, which stops cross-site requests
//! and DNS rebinding.

use std::net::{IpAddr, SocketAddr};

use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};

use maru_config::HttpSettings;

/// The accepted host names and origins.
#[derive(Debug)]
pub struct OriginPolicy {
    hosts: Vec<String>,
    origins: Vec<String>,
    /// The origins of the configuration.
    named_origins: Vec<String>,
}

/// How a container calls the machine that it runs on.
const CONTAINER_HOST: &str = "host.docker.internal";

const LOOPBACK_HOSTS: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

impl OriginPolicy {
    /// Accepts the names of `address` and those of the configuration. If connections are
    /// encrypted, pages of the configured hosts are accepted as origins too.
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
        let named_origins: Vec<String> = http
            .allowed_origins
            .iter()
            .map(|it| it.to_lowercase())
            .collect();
        Self {
            hosts: hosts
                .into_iter()
                .chain(http.allowed_hosts.iter().map(|it| it.to_lowercase()))
                .collect(),
            origins: origins
                .into_iter()
                .chain(named_origins.iter().cloned())
                .collect(),
            named_origins,
        }
    }

    /// Refuses a request for another host or from a foreign page.
    pub fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), (StatusCode, &'static str)> {
        let mut hosts = headers.get_all(header::HOST).iter();
        let host = hosts
            .next()
            .and_then(|it| it.to_str().ok())
            .unwrap_or_default();
        let is_for_other_host = uri
            .authority()
            .is_some_and(|it| !self.is_allowed_host(it.as_str()));
        if hosts.next().is_some() || is_for_other_host || !self.is_allowed_host(host) {
            let message = if without_port(host).eq_ignore_ascii_case(CONTAINER_HOST) {
                "the Host host.docker.internal is not allowed; containers may call once it is in http.allowed_hosts of the configuration"
            } else {
                "this Host is not allowed; see http.allowed_hosts in the configuration"
            };
            return Err((StatusCode::FORBIDDEN, message));
        }
        let is_foreign = |origin: &HeaderValue| {
            let origin = origin.to_str().unwrap_or_default().to_lowercase();
            !self.origins.contains(&origin)
        };
        if headers.get_all(header::ORIGIN).iter().any(is_foreign) {
            let message =
                "this Origin is not allowed; see http.allowed_origins in the configuration";
            return Err((StatusCode::FORBIDDEN, message));
        }
        Ok(())
    }

    /// Whether the configuration names this origin of a page.
    pub(super) fn names_origin(&self, origin: &HeaderValue) -> bool {
        let origin = origin.to_str().unwrap_or_default().to_lowercase();
        self.named_origins.contains(&origin)
    }

    fn is_allowed_host(&self, authority: &str) -> bool {
        let host = without_port(authority);
        self.hosts
            .iter()
            .any(|allowed| host.eq_ignore_ascii_case(allowed))
    }
}

/// Whether a request was sent to a name that always means this machine.
pub(super) fn is_sent_to_loopback(headers: &HeaderMap) -> bool {
    let host = headers.get(header::HOST).and_then(|it| it.to_str().ok());
    let host = without_port(host.unwrap_or_default());
    LOOPBACK_HOSTS
        .iter()
        .any(|it| host.eq_ignore_ascii_case(it))
}

fn without_port(authority: &str) -> &str {
    let is_port = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    match authority.rsplit_once(':') {
        Some((host, after)) if is_port(after) => host,
        _ => authority,
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
    fn allowed_hosts_and_origins_pass() {
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
    fn foreign_hosts_and_origins_are_refused() {
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
