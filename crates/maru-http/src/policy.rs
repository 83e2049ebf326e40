//! Which hosts and ports maru may connect to.

use maru_runtime::mask_secrets;

use super::{
    AddedHosts, Error,
    allowed_url::{AddressScope, AllowedUrl, UrlHost},
    ip_ranges::{is_forbidden_address, is_private_address},
};

/// The rules for outgoing connections: this machine while maru serves only this machine,
/// other hosts when they are listed, and some addresses and ports never.
#[derive(Clone, Debug, Default)]
pub struct AddressPolicy {
    /// Whether maru itself listens on loopback only.
    pub serves_loopback_only: bool,
    /// maru's own port, which is refused: a hub that calls itself would never stop.
    pub own_port: Option<u16>,
    /// `outbound.allowed_hosts`: names, addresses, or `*.example.com`; a name or address
    /// of this machine may have a port.
    pub allowed_hosts: Vec<String>,
    /// Public hosts that an admin allowed while the hub runs. A server may name the host that
    /// it wants to be allowed, so private ones need the settings.
    pub added_hosts: AddedHosts,
    /// Whether private addresses and names need not be listed.
    pub allows_private: bool,
}

/// Ports of other protocols, whose servers an HTTP request might trick into something.
const BLOCKED_PORTS: [u16; 32] = [
    0, 7, 19, 21, 22, 23, 25, 53, 110, 111, 119, 135, 139, 143, 161, 389, 445, 465, 514, 587, 636,
    993, 995, 1433, 1521, 2049, 2375, 3306, 5432, 6379, 11211, 27017,
];
/// Top-level names that are resolved within a private network.
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
    /// Parses `url` and checks that maru may connect to it.
    pub fn authorize(&self, url: &str) -> Result<AllowedUrl, Error> {
        let refused = |reason: &str| {
            // The query may contain a secret.
            let without_query = url.split('?').next().unwrap_or_default();
            let shown: String = mask_secrets(without_query).chars().take(100).collect();
            Error::Refused(format!(
                "the address \"{}\" is refused: {reason}",
                shown.escape_debug()
            ))
        };
        let mut target = AllowedUrl::parse(url).map_err(refused)?;
        if BLOCKED_PORTS.contains(&target.port) {
            return Err(refused("its port belongs to another kind of service"));
        }
        target.scope = self.scope_of(&target).map_err(|reason| refused(&reason))?;
        Ok(target)
    }

    /// Parses a URL from the settings (a model, an embedder, ChromaDB, a trace collector, a
    /// JWKS) and allows its host, even if that is this machine: the administrator wrote it.
    pub fn authorize_configured(&self, url: &str) -> Result<AllowedUrl, Error> {
        let mut policy = self.clone();
        if let Ok(target) = AllowedUrl::parse(url) {
            policy.allowed_hosts.push(target.host.to_string());
        }
        policy.authorize(url)
    }

    /// Allows those of `urls` that are on this machine, by host and port.
    pub fn allow_local_urls<'a>(&mut self, urls: impl Iterator<Item = &'a str>) {
        for target in urls.filter_map(|it| AllowedUrl::parse(it).ok()) {
            if target.host.is_loopback() {
                self.allowed_hosts
                    .push(format!("{}:{}", target.host, target.port));
            }
        }
    }

    /// Returns `host` as it is written in a list if an admin may allow it while the hub
    /// runs, or why not.
    pub fn check_added_host(&self, host: &str) -> Result<String, Error> {
        let invalid = |reason: &str| Error::Refused(format!("the host {host:?} {reason}"));
        // With a port of its own a host cannot bring another one.
        let url = format!("http://{host}:80/");
        let target = AllowedUrl::parse(&url).map_err(invalid)?;
        if target.path != "/" {
            return Err(invalid("has more than a name or an address"));
        }
        if target.host.is_loopback() {
            return Err(invalid("is this machine; list it in maru.yaml"));
        }
        let name = target.host.to_string();
        let mut policy = self.clone();
        policy.added_hosts = AddedHosts::default();
        policy.added_hosts.replace(vec![name.clone()]);
        policy.authorize(&url).map(|_| name)
    }

    fn scope_of(&self, target: &AllowedUrl) -> Result<AddressScope, String> {
        if target.host.is_loopback() {
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
        let listed_scope = self.listed_scope(&target.host);
        match &target.host {
            UrlHost::Address(address) if is_forbidden_address(*address) => {
                Err("servers cannot have such an address".to_owned())
            }
            _ if listed_scope == Some(AddressScope::Private) => Ok(AddressScope::Private),
            host if self.allows_private && is_private_host(host) => Ok(AddressScope::Private),
            UrlHost::Address(address) if is_private_address(*address) => {
                Err(Self::allow_hint(&target.host, "a private address"))
            }
            UrlHost::Name(name) if is_private_name(name) => {
                Err(Self::allow_hint(&target.host, "a private name"))
            }
            host => listed_scope.ok_or_else(|| Self::allow_hint(host, "not a listed host")),
        }
    }

    /// Whether the settings list this port of this machine, or all of its ports.
    fn allows_local_port(&self, target: &AllowedUrl) -> bool {
        let host = target.host.to_string();
        let with_port = format!("{host}:{}", target.port);
        let mut allowed = self.allowed_hosts.iter();
        allowed.any(|it| it.eq_ignore_ascii_case(&host) || it.eq_ignore_ascii_case(&with_port))
    }

    /// Returns what the settings allow for `host`: a listed name also private addresses, a
    /// listed domain only public ones.
    fn listed_scope(&self, host: &UrlHost) -> Option<AddressScope> {
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
        } else if self.added_hosts.contains(&host) {
            Some(AddressScope::Public)
        } else {
            by_domain().then_some(AddressScope::Public)
        }
    }

    fn allow_hint(host: &UrlHost, what: &str) -> String {
        let remedy = if is_private_host(host) {
            "to allow it, add it to outbound.allowed_hosts in maru.yaml"
        } else {
            "allow it in the console, or add it to outbound.allowed_hosts in maru.yaml"
        };
        format!("{host} is {what}; {remedy}")
    }
}

fn is_private_host(host: &UrlHost) -> bool {
    match host {
        UrlHost::Address(address) => is_private_address(*address),
        UrlHost::Name(name) => is_private_name(name),
    }
}

fn is_private_name(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    !name.contains('.') || PRIVATE_DOMAIN_SUFFIXES.contains(&last)
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
            added_hosts: AddedHosts::default(),
            allows_private: false,
        }
    }

    #[test]
    fn host_that_an_admin_added_is_reached_by_every_clone() {
        let (local, exposed) = (policy(true, &[]), policy(false, &[]));
        for (host, may_be_added) in [
            ("mcp.example.com", true),
            ("MCP.Example.com", true),
            ("db.internal", false),
            ("10.0.0.7", false),
            ("127.0.0.1", false),
            ("169.254.169.254", false),
            ("example.com:8080", false),
            ("example.com:80", false),
            ("example.com/path", false),
            ("user@example.com", false),
            ("*.example.com", false),
            ("", false),
        ] {
            for policy in [&local, &exposed] {
                let checked = policy.check_added_host(host);
                assert_eq!(checked.is_ok(), may_be_added, "{host}");
            }
        }
        let clone = local.clone();
        let refused = clone.authorize("https://mcp.example.com/mcp").unwrap_err();
        assert!(
            refused.to_string().contains("allow it in the console"),
            "{refused}"
        );
        local
            .added_hosts
            .replace(vec!["mcp.example.com".to_owned()]);
        assert!(clone.authorize("https://mcp.example.com/mcp").is_ok());
        assert!(clone.authorize("https://example.com/mcp").is_err());
        // The list alone opens nothing private, also if it is forged.
        for policy in [&local, &exposed] {
            policy.added_hosts.replace(vec!["10.0.0.7".to_owned()]);
            let refused = policy.authorize("http://10.0.0.7/mcp").unwrap_err();
            assert!(
                refused.to_string().contains("to allow it, add it"),
                "{refused}"
            );
        }
    }

    #[test]
    fn every_url_of_the_corpus_gets_its_verdict() {
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
    fn exposed_hub_reaches_only_listed_ports_of_its_machine() {
        let listing = policy(false, &["127.0.0.1:8081", "[::1]:8082", "localhost"]);
        for allowed in [
            "http://127.0.0.1:8081/sse",
            "http://[::1]:8082/mcp",
            "http://localhost:9000/mcp",
        ] {
            assert!(listing.authorize(allowed).is_ok(), "{allowed}");
        }
        for refused in [
            "http://127.0.0.1:8082/sse",
            "http://[::1]:8081/mcp",
            "http://localhost:20006/mcp",
        ] {
            assert!(listing.authorize(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn configured_hosts_are_allowed_wherever_the_hub_listens() {
        for local in [true, false] {
            let policy = policy(local, &[]);
            for allowed in [
                "http://127.0.0.1:11434/v1",
                "http://localhost:8000",
                "http://[::1]:4318",
                "http://192.168.0.18:8080/v1/embeddings",
                "http://[fd12::1]:8080/",
                "https://keys.example.com/jwks",
                "http://chroma:8000/",
            ] {
                assert!(policy.authorize_configured(allowed).is_ok(), "{allowed}");
            }
            for refused in [
                "http://127.0.0.1:20006/v1",
                "http://[::1]:20006/v1",
                "http://169.254.169.254/latest",
                "http://127.0.0.1:22/",
                "http://a@127.0.0.1/",
                "file:///etc/passwd",
            ] {
                assert!(policy.authorize_configured(refused).is_err(), "{refused}");
            }
        }
    }

    #[test]
    fn unlisted_private_hosts_are_allowed_where_all_are() {
        let open = AddressPolicy {
            allows_private: true,
            ..policy(true, &[])
        };
        for good in [
            "http://192.168.0.18:23016/sse",
            "http://[fd12::1]:8080/mcp",
            "http://mcp-server.internal:3000/sse",
            "http://nas/mcp",
        ] {
            let allowed = open.authorize(good).unwrap();
            assert!(!allowed.scope.contains("127.0.0.1".parse().unwrap()));
        }
        for bad in [
            "http://169.254.169.254/latest",
            "http://100.100.100.200/",
            "http://192.168.0.18:22/",
            "https://mcp.example.com/mcp",
            "http://203.0.113.9/mcp",
            "http://127.0.0.1:20006/mcp",
        ] {
            assert!(open.authorize(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn listed_private_hosts_are_allowed_and_metadata_addresses_never() {
        let listing = policy(
            true,
            &[
                "192.168.0.18",
                "db.internal",
                "*.example.com",
                "169.254.169.254",
            ],
        );
        assert!(listing.authorize("http://192.168.0.18:23016/sse").is_ok());
        assert!(listing.authorize("http://db.internal:3000/sse").is_ok());
        assert!(listing.authorize("http://192.168.0.19:23016/sse").is_err());
        assert!(listing.authorize("http://169.254.169.254/").is_err());
        let by_domain = listing.authorize("https://a.example.com/").unwrap();
        assert!(!by_domain.scope.contains("10.0.0.1".parse().unwrap()));
        assert!(listing.authorize("https://aexample.com/").is_err());
    }
}
