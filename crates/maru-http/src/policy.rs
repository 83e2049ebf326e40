//! Which addresses maru may reach.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use maru_runtime::mask_secrets;

use super::{
    Error,
    allowed_url::{AddressScope, AllowedUrl, UrlHost},
};

/// The rules: this machine while we serve this machine only, other places when
/// they are listed, and some places never.
#[derive(Clone, Debug, Default)]
pub struct AddressPolicy {
    /// Whether maru itself listens on loopback only.
    pub serves_loopback_only: bool,
    /// Our own port: a hub that calls itself would never stop.
    pub own_port: Option<u16>,
    /// `outbound.allowed_hosts`: names, addresses, or `*.example.com`; a name or address
    /// of this machine may have a port.
    pub allowed_hosts: Vec<String>,
}

/// Ports of services that must not be talked into something by an HTTP request.
const BLOCKED_PORTS: [u16; 32] = [
    0, 7, 19, 21, 22, 23, 25, 53, 110, 111, 119, 135, 139, 143, 161, 389, 445, 465, 514, 587, 636,
    993, 995, 1433, 1521, 2049, 2375, 3306, 5432, 6379, 11211, 27017,
];
/// Names that mean some network of the reader's own.
const PRIVATE_DOMAIN_SUFFIXES: [&str; 14] = [
    "local",
    "localhost",
    "localdomain",
    "internal",
    "intranet",
    "lan",
    "home",
    "corp",
    "private",
    "svc",
    "arpa",
    "test",
    "invalid",
    "onion",
];

impl AddressPolicy {
    /// The place that `url` names, if we may go there.
    pub fn authorize(&self, url: &str) -> Result<AllowedUrl, Error> {
        let refused = |why: &str| {
            // The query may hold a secret.
            let plain = url.split('?').next().unwrap_or_default();
            let shown: String = mask_secrets(plain).chars().take(100).collect();
            Error::Refused(format!(
                "the address \"{}\" is refused: {why}",
                shown.escape_debug()
            ))
        };
        let mut target = AllowedUrl::parse(url).map_err(refused)?;
        if BLOCKED_PORTS.contains(&target.port) {
            return Err(refused("its port belongs to another kind of service"));
        }
        target.scope = self.scope_of(&target).map_err(|why| refused(&why))?;
        Ok(target)
    }

    /// The place that `url` names, where `url` comes from the settings: a model, an
    /// embedder, ChromaDB, a collector of traces or the keys of an issuer. Whoever writes a
    /// host there wants it to be reached, on this machine too, wherever maru listens.
    pub fn authorize_configured(&self, url: &str) -> Result<AllowedUrl, Error> {
        let mut policy = self.clone();
        if let Ok(target) = AllowedUrl::parse(url) {
            policy.allowed_hosts.push(target.host.to_string());
        }
        policy.authorize(url)
    }

    /// Allows the places on this machine that the settings name by address.
    pub fn allow_local_urls<'a>(&mut self, urls: impl Iterator<Item = &'a str>) {
        for target in urls.filter_map(|it| AllowedUrl::parse(it).ok()) {
            if is_loopback_host(&target.host) {
                self.allowed_hosts
                    .push(format!("{}:{}", target.host, target.port));
            }
        }
    }

    fn scope_of(&self, target: &AllowedUrl) -> Result<AddressScope, String> {
        if is_loopback_host(&target.host) {
            if !self.serves_loopback_only && !self.allows_local_port(target) {
                return Err(format!(
                    "this machine is off limits while maru listens on other addresses; to allow it, add \"{}:{}\" to outbound.allowed_hosts in maru.yaml",
                    target.host, target.port
                ));
            }
            return if self.own_port == Some(target.port) {
                Err("it is maru's own address".to_owned())
            } else {
                Ok(AddressScope::Loopback)
            };
        }
        let listed = self.scope_if_listed(&target.host);
        match &target.host {
            UrlHost::Address(address) if is_forbidden_address(*address) => {
                Err("no server is at such an address".to_owned())
            }
            _ if listed == Some(AddressScope::Private) => Ok(AddressScope::Private),
            UrlHost::Address(address) if is_private_address(*address) => {
                Err(allow_hint(&target.host, "a private address"))
            }
            UrlHost::Name(name) if is_private_name(name) => {
                Err(allow_hint(&target.host, "a private name"))
            }
            host => listed.ok_or_else(|| allow_hint(host, "not a listed host")),
        }
    }

    /// Whether the settings name this port of this machine, or all of its ports.
    fn allows_local_port(&self, target: &AllowedUrl) -> bool {
        let host = target.host.to_string();
        let with_port = format!("{host}:{}", target.port);
        let mut allowed = self.allowed_hosts.iter();
        allowed.any(|it| it.eq_ignore_ascii_case(&host) || it.eq_ignore_ascii_case(&with_port))
    }

    fn scope_if_listed(&self, host: &UrlHost) -> Option<AddressScope> {
        let host = host.to_string();
        let by_name = self
            .allowed_hosts
            .iter()
            .any(|it| it.eq_ignore_ascii_case(&host));
        let by_domain = || {
            self.allowed_hosts
                .iter()
                .filter_map(|it| it.strip_prefix('*'))
                .any(|domain| {
                    let domain = domain.to_ascii_lowercase();
                    domain.starts_with('.') && host.len() > domain.len() && host.ends_with(&domain)
                })
        };
        if by_name {
            Some(AddressScope::Private)
        } else {
            by_domain().then_some(AddressScope::Public)
        }
    }
}

impl AddressScope {
    /// Whether a host of this reach may have `address`.
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

fn is_loopback_host(host: &UrlHost) -> bool {
    match host {
        UrlHost::Name(name) => name == "localhost",
        UrlHost::Address(address) => address.is_loopback(),
    }
}

fn allow_hint(host: &UrlHost, what: &str) -> String {
    format!("{host} is {what}; to allow it, add it to outbound.allowed_hosts in maru.yaml")
}

fn is_private_name(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    !name.contains('.') || PRIVATE_DOMAIN_SUFFIXES.contains(&last)
}

/// Addresses that no listing makes good: nobody's, everybody's, or the cloud's own.
fn is_forbidden_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(it) => {
            let metadata =
                it == Ipv4Addr::new(100, 100, 100, 200) || it == Ipv4Addr::new(192, 0, 0, 192);
            it.octets()[0] == 0
                || it.is_link_local()
                || it.is_multicast()
                || it.octets()[0] >= 240
                || metadata
        }
        IpAddr::V6(it) => {
            let first = it.segments()[0];
            let link_local = first & 0xffc0 == 0xfe80;
            let metadata = it == Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254);
            it.is_unspecified() || it.is_multicast() || link_local || metadata || embeds_ipv4(it)
        }
    }
}

/// Mapped, compatible, translated or tunnelled IPv4.
fn embeds_ipv4(address: Ipv6Addr) -> bool {
    let parts = address.segments();
    let old =
        parts[..5].iter().all(|it| *it == 0) && !address.is_loopback() && !address.is_unspecified();
    old || parts[..2] == [0x64, 0xff9b] || parts[0] == 0x2002 || parts[..2] == [0x2001, 0]
}

fn is_private_address(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(it) => {
            let [a, b, c, _] = it.octets();
            let shared = a == 100 && (64..128).contains(&b);
            let benchmark = a == 198 && (18..20).contains(&b);
            it.is_private() || shared || benchmark || (a, b, c) == (192, 0, 0)
        }
        IpAddr::V6(it) => {
            it.segments()[0] & 0xfe00 == 0xfc00 || it.segments()[0] & 0xffc0 == 0xfec0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTS: [&str; 3] = ["example.com", "mcp.example.com", "203.0.113.9"];

    fn policy(local: bool, allowed: &[&str]) -> AddressPolicy {
        AddressPolicy {
            serves_loopback_only: local,
            own_port: Some(20006),
            allowed_hosts: allowed.iter().map(|it| (*it).to_owned()).collect(),
        }
    }

    #[test]
    fn every_listed_address_gets_its_verdict() {
        let text = include_str!("../../../tests/security/ssrf_urls.txt");
        let mut count = 0;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let mut parts = line.split('\t');
            let (verdict, url) = (parts.next().unwrap(), parts.next().unwrap());
            let url: String = serde_json::from_str(url).unwrap();
            let allowed = |local, hosts: &[&str]| policy(local, hosts).authorize(&url).is_ok();
            let found = (
                allowed(true, &[]),
                allowed(false, &[]),
                allowed(true, &HOSTS),
            );
            let expected = match verdict {
                "deny" => (false, false, false),
                "local" => (true, false, true),
                "allow-if-listed" => (false, false, true),
                other => panic!("{other}"),
            };
            assert_eq!(found, expected, "{line}");
            count += 1;
        }
        assert!(count > 50);
    }

    #[test]
    fn exposed_hub_reaches_the_ports_of_its_machine_that_are_named() {
        let named = policy(false, &["127.0.0.1:8081", "[::1]:8082", "localhost"]);
        for good in [
            "http://127.0.0.1:8081/sse",
            "http://[::1]:8082/mcp",
            "http://localhost:9000/mcp",
        ] {
            assert!(named.authorize(good).is_ok(), "{good}");
        }
        for bad in [
            "http://127.0.0.1:8082/sse",
            "http://[::1]:8081/mcp",
            "http://localhost:20006/mcp",
        ] {
            assert!(named.authorize(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn hosts_of_the_settings_are_reached_wherever_the_hub_listens() {
        for local in [true, false] {
            let policy = policy(local, &[]);
            for good in [
                "http://127.0.0.1:11434/v1",
                "http://localhost:8000",
                "http://[::1]:4318",
                "http://192.168.0.18:8080/v1/embeddings",
                "http://[fd12::1]:8080/",
                "https://keys.example.com/jwks",
                "http://chroma:8000/",
            ] {
                assert!(policy.authorize_configured(good).is_ok(), "{good}");
            }
            for bad in [
                "http://127.0.0.1:20006/v1",
                "http://[::1]:20006/v1",
                "http://169.254.169.254/latest",
                "http://127.0.0.1:22/",
                "http://a@127.0.0.1/",
                "file:///etc/passwd",
            ] {
                assert!(policy.authorize_configured(bad).is_err(), "{bad}");
            }
        }
    }

    #[test]
    fn private_places_are_reached_when_they_are_named_and_metadata_never() {
        let named = policy(
            true,
            &[
                "192.168.0.18",
                "db.internal",
                "*.example.com",
                "169.254.169.254",
            ],
        );
        assert!(named.authorize("http://192.168.0.18:23016/sse").is_ok());
        assert!(named.authorize("http://db.internal:3000/sse").is_ok());
        assert!(named.authorize("http://192.168.0.19:23016/sse").is_err());
        assert!(named.authorize("http://169.254.169.254/").is_err());
        let wide = named.authorize("https://a.example.com/").unwrap();
        assert!(!wide.scope.contains("10.0.0.1".parse().unwrap()));
        assert!(named.authorize("https://aexample.com/").is_err());
    }
}
