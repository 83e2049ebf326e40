//! The hub that `--hub` names.

use std::net::IpAddr;

use anyhow::{Result, bail};

use super::hub_endpoint::HubEndpoint;
use crate::config::Config;

const DEFAULT_PORT: u16 = 20006;

/// A hub by its URL.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct RemoteHub {
    is_encrypted: bool,
    /// Host and port.
    pub(super) address: String,
}

impl RemoteHub {
    /// Parses `https://hub.example`, `http://127.0.0.1:20006` or `host:port`. Without a
    /// scheme, an address of this machine is plain and every other one encrypted.
    pub(super) fn parse(url: &str) -> Result<Self> {
        let (scheme, rest) = match url.split_once("://") {
            Some((scheme, rest)) => (Some(scheme.to_ascii_lowercase()), rest),
            None => (None, url),
        };
        let rest = rest.trim_end_matches('/');
        let unusable = |c: char| c.is_whitespace() || c.is_control() || "/?#@".contains(c);
        if rest.is_empty() || rest.contains(unusable) {
            bail!(
                "--hub {url:?} is not the address of a hub; example: --hub https://hub.example:20006"
            );
        }
        let (host, port) = split_port(rest);
        let is_encrypted = match scheme.as_deref() {
            Some("http") => false,
            Some("https") => true,
            None => !is_loopback(host),
            Some(other) => bail!("--hub {url:?}: {other} is not supported; use http or https"),
        };
        let default = match (&scheme, is_encrypted) {
            (Some(_), true) => 443,
            (Some(_), false) => 80,
            (None, _) => DEFAULT_PORT,
        };
        let port = match port {
            None => default,
            Some(port) => match port.parse() {
                Ok(port) if port > 0 => port,
                _ => bail!("--hub {url:?}: {port:?} is not a port"),
            },
        };
        Ok(Self {
            is_encrypted,
            address: format!("{host}:{port}"),
        })
    }

    /// Refuses to send a token unencrypted over a network.
    pub(super) fn check_token(&self, token: Option<&str>) -> Result<()> {
        let (host, _) = split_port(&self.address);
        if token.is_some() && !self.is_encrypted && !is_loopback(host) {
            bail!(
                "a token is not sent to {} without encryption; use --hub https://{}",
                self.origin(),
                self.address
            );
        }
        Ok(())
    }

    pub(super) fn origin(&self) -> String {
        let scheme = if self.is_encrypted { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    pub(super) fn endpoint(&self, config: &Config) -> HubEndpoint {
        let address = self.address.clone();
        if self.is_encrypted {
            let certificate = config.tls.certificate.clone();
            HubEndpoint::Tls {
                address,
                certificate,
            }
        } else {
            HubEndpoint::Tcp { address }
        }
    }
}

/// Host and port; an IPv6 address stands in brackets.
fn split_port(address: &str) -> (&str, Option<&str>) {
    match address.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (address, None),
    }
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|it| it.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_scheme_and_a_port() {
        let origin = |url: &str| RemoteHub::parse(url).map(|it| it.origin()).ok();
        for (url, expected) in [
            ("https://hub.example", Some("https://hub.example:443")),
            ("http://127.0.0.1:1/", Some("http://127.0.0.1:1")),
            ("localhost:20006", Some("http://localhost:20006")),
            ("hub.example", Some("https://hub.example:20006")),
            ("[::1]:5", Some("http://[::1]:5")),
            ("ftp://hub.example", None),
            ("https://hub.example/console", None),
            ("http://a@b", None),
            ("http://x:0", None),
            ("http://x:y", None),
            ("", None),
        ] {
            assert_eq!(origin(url).as_deref(), expected, "{url}");
        }
    }

    #[test]
    fn token_needs_encryption_outside_this_machine() {
        let check = |url: &str| RemoteHub::parse(url).unwrap().check_token(Some("t"));
        assert!(check("http://127.0.0.1:20006").is_ok());
        assert!(check("https://hub.example").is_ok());
        assert!(check("http://hub.example").is_err());
    }
}
