//! A parsed URL in the one form that every parser reads alike.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use super::ip_ranges::{is_forbidden_address, is_private_address};

/// A URL that the policy allows. Only [`AddressPolicy`](super::AddressPolicy) creates it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedUrl {
    /// Whether the scheme is `https`.
    pub is_https: bool,
    pub(super) host: UrlHost,
    pub(super) port: u16,
    /// Path and query.
    pub path: String,
    pub(super) scope: AddressScope,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum UrlHost {
    Name(String),
    Address(IpAddr),
}

/// Which IP addresses the host name may resolve to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddressScope {
    /// Loopback addresses only.
    Loopback,
    /// Public addresses only.
    Public,
    /// Public and private addresses: the settings list this very name or address.
    Private,
}

impl AllowedUrl {
    /// Parses `http(s)://host[:port]/path?query`; anything unusual is an error.
    pub(super) fn parse(url: &str) -> Result<Self, &'static str> {
        if url.len() > 2048 {
            return Err("it is longer than 2048 characters");
        }
        if !url.bytes().all(|byte| byte.is_ascii_graphic()) || url.contains(['\\', '#']) {
            return Err("it has a character that is not allowed in a URL");
        }
        let (is_https, rest) = match url.split_once("://") {
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            _ => return Err("it must begin with http:// or https://"),
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err("it must not hold a user name or password; use headers");
        }
        let (host, port) = split_port(authority)?;
        let path = match path {
            "" => "/".to_owned(),
            path if path.starts_with('?') => format!("/{path}"),
            path => path.to_owned(),
        };
        Ok(Self {
            is_https,
            host: UrlHost::parse(host)?,
            port: port.unwrap_or(if is_https { 443 } else { 80 }),
            path,
            scope: AddressScope::Public,
        })
    }

    /// Resolves `reference` against this URL; `None` if that is another origin.
    pub fn join(&self, reference: &str) -> Option<Self> {
        let path = match reference.split_once("://") {
            Some(_) => {
                let other = Self::parse(reference).ok()?;
                let is_same_origin = other.is_https == self.is_https
                    && other.host == self.host
                    && other.port == self.port;
                return is_same_origin.then(|| self.with_path(other.path));
            }
            None if reference.starts_with("//")
                || reference.contains(':') && !reference.contains('/') =>
            {
                return None;
            }
            None if reference.starts_with('/') => reference.to_owned(),
            None => {
                let base = self.path.split('?').next().unwrap_or("/");
                let directory = base.rsplit_once('/').map_or("", |(directory, _)| directory);
                format!("{directory}/{reference}")
            }
        };
        let is_valid =
            path.bytes().all(|byte| byte.is_ascii_graphic()) && !path.contains(['\\', '#']);
        is_valid.then(|| self.with_path(path))
    }

    fn with_path(&self, path: String) -> Self {
        Self {
            path,
            ..self.clone()
        }
    }

    /// Returns host and port as in the `Host` header.
    pub fn authority(&self) -> String {
        match self.port {
            443 if self.is_https => self.host.to_string(),
            80 if !self.is_https => self.host.to_string(),
            port => format!("{}:{port}", self.host),
        }
    }
}

impl AddressScope {
    /// Whether a host of this scope may have `address`.
    pub(super) fn contains(self, address: IpAddr) -> bool {
        match self {
            Self::Loopback => address.is_loopback(),
            Self::Public => {
                !is_forbidden_address(address)
                    && !is_private_address(address)
                    && !address.is_loopback()
            }
            Self::Private => !is_forbidden_address(address) && !address.is_loopback(),
        }
    }
}

impl UrlHost {
    /// Whether the host is this machine.
    pub(super) fn is_loopback(&self) -> bool {
        match self {
            Self::Name(name) => name == "localhost",
            Self::Address(address) => address.is_loopback(),
        }
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        if let Some(inner) = text.strip_prefix('[') {
            let inner = inner.strip_suffix(']').ok_or("a [ is not closed")?;
            let address: Ipv6Addr = inner.parse().map_err(|_| "its IPv6 address is not valid")?;
            return Ok(Self::Address(address.into()));
        }
        let last = text.rsplit('.').next().unwrap_or_default();
        if last.starts_with(|c: char| c.is_ascii_digit()) {
            let address: Ipv4Addr = text
                .parse()
                .map_err(|_| "write an IPv4 address as four decimal numbers")?;
            return Ok(Self::Address(address.into()));
        }
        let is_valid_label = |label: &str| {
            let inner = label.strip_prefix("xn--").unwrap_or(label);
            (1..=63).contains(&label.len())
                && !inner.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        };
        if text.len() <= 253 && text.split('.').all(is_valid_label) {
            Ok(Self::Name(text.to_ascii_lowercase()))
        } else {
            Err("its host name is not valid")
        }
    }
}

fn split_port(authority: &str) -> Result<(&str, Option<u16>), &'static str> {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => {
            let is_number = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
            let port = port.parse().ok().filter(|_| is_number);
            port.map(|port| (host, Some(port)))
                .ok_or("its port is not a number up to 65535")
        }
        _ => Ok((authority, None)),
    }
}

impl fmt::Display for UrlHost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => out.write_str(name),
            Self::Address(IpAddr::V4(address)) => write!(out, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(out, "[{address}]"),
        }
    }
}

impl fmt::Display for AllowedUrl {
    /// Leaves out the query, which may contain a secret.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.is_https { "https" } else { "http" };
        let path = self.path.split('?').next().unwrap_or("/");
        write!(out, "{scheme}://{}{path}", self.authority())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_stay_on_their_origin() {
        let base = AllowedUrl::parse("http://127.0.0.1:9/a/sse?x=1").unwrap();
        let path = |reference: &str| base.join(reference).map(|it| it.path);
        assert_eq!(path("/m?s=1").as_deref(), Some("/m?s=1"));
        assert_eq!(path("m").as_deref(), Some("/a/m"));
        assert_eq!(path("http://127.0.0.1:9/m").as_deref(), Some("/m"));
        for other in [
            "http://127.0.0.1:10/m",
            "https://127.0.0.1:9/m",
            "//evil.example.com/m",
            "javascript:alert(1)",
            "/a\r\nb",
        ] {
            assert_eq!(path(other), None, "{other}");
        }
    }
}
