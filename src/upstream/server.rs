//! A server as it is registered: checked once, here.

use std::{fmt, sync::Arc};

use maru_http::AddressPolicy;
use maru_protocol::ProtocolVersion;
use serde_json::Value;
use thiserror::Error;

use super::{program_rules::ProgramRules, transport::Transport, trust::TrustPolicy};

pub(super) use crate::config::MASK;

/// A registered server.
#[derive(Clone, Debug, PartialEq)]
pub struct RegisteredServer {
    /// A UUID.
    pub id: String,
    /// Unique.
    pub name: ServerName,
    /// For people.
    pub description: Option<String>,
    /// How it is reached.
    pub transport: Transport,
    /// Its own version, as registered.
    pub version: Option<String>,
    /// Whether it is connected at start.
    pub auto_connect: bool,
    /// False when a person switched it off.
    pub enabled: bool,
    /// Who registered it.
    pub origin: ServerOrigin,
    /// Whether it may change its tools.
    pub trust: TrustPolicy,
    /// The only protocol version that is spoken with it; any, if absent.
    pub required_version: Option<ProtocolVersion>,
    /// Epoch milliseconds.
    pub created_at: i64,
    /// Epoch milliseconds.
    pub updated_at: i64,
}

/// The name of a server: lower case letters, digits, `-` and `_`, at most 63.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerName(Arc<str>);

/// Who registered a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerOrigin {
    /// `mcp.servers` of `maru.yaml`.
    File,
    /// The REST API, the command line or a program that embeds maru.
    Api,
    /// The console.
    Console,
    /// A file of another program, or `mcp.json`.
    Import,
}

/// A description of a server that cannot be taken.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{field}: {why}")]
pub struct InvalidField {
    /// Which part is wrong.
    pub field: String,
    /// What is wrong with it, and what would be right.
    pub why: String,
}

/// What registrations are checked against.
#[derive(Clone, Debug, Default)]
pub struct RegistrationRules {
    /// `mcp.security.allowed-server-names`; empty allows every name.
    pub allowed_names: Vec<String>,
    /// Which programs may be started.
    pub program_rules: ProgramRules,
    /// Whether requests may not say which program is started.
    pub programs_refused: bool,
    /// Which addresses may be reached.
    pub address_policy: AddressPolicy,
}

/// Names that mean something else somewhere.
const RESERVED_SERVER_NAMES: [&str; 26] = [
    "maru",
    "admin",
    "api",
    "mcp",
    "sse",
    "health",
    "healthz",
    "ready",
    "readyz",
    "metrics",
    "system",
    "root",
    "true",
    "false",
    "null",
    "none",
    "undefined",
    "con",
    "prn",
    "aux",
    "nul",
    "com1",
    "lpt1",
    "constructor",
    "prototype",
    "localhost",
];

pub(super) fn invalid_field(field: impl Into<String>, why: impl Into<String>) -> InvalidField {
    InvalidField {
        field: field.into(),
        why: why.into(),
    }
}

impl ServerName {
    /// Reads a name.
    pub fn parse(text: &str) -> Result<Self, InvalidField> {
        let inner = |byte: u8| {
            byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_')
        };
        let ends_well = |text: &str| !text.starts_with(['-', '_']) && !text.ends_with(['-', '_']);
        let shown: String = text.chars().take(70).collect();
        let shown = shown.escape_debug();
        if !(1..=63).contains(&text.len())
            || !text.bytes().all(inner)
            || !ends_well(text)
            || text.contains("__")
        {
            let why = format!(
                "\"{shown}\" is no server name: use 1 to 63 of a-z, 0-9, - and _, with a letter or digit at both ends"
            );
            return Err(invalid_field("name", why));
        }
        if RESERVED_SERVER_NAMES.contains(&text) {
            Err(invalid_field(
                "name",
                format!("\"{shown}\" is reserved; choose another name"),
            ))
        } else {
            Ok(Self(text.into()))
        }
    }

    /// The name as shared text.
    pub fn as_arc(&self) -> &Arc<str> {
        &self.0
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl RegistrationRules {
    /// Reads a name that may be registered here.
    pub fn parse_name(&self, text: &str) -> Result<ServerName, InvalidField> {
        let name = ServerName::parse(text)?;
        if self.allowed_names.is_empty() || self.allowed_names.iter().any(|it| it == text) {
            Ok(name)
        } else {
            let why = format!("\"{text}\" is not in mcp.security.allowed-server-names");
            Err(invalid_field("name", why))
        }
    }

    /// Reads `config`, the part of a registration that depends on its transport,
    /// and judges it. Masked secrets are taken from `before`.
    pub fn parse_transport(
        &self,
        kind: &str,
        config: &Value,
        before: Option<&Transport>,
    ) -> Result<Transport, InvalidField> {
        let transport = Transport::parse(kind, config, before)?;
        match &transport {
            Transport::Stdio(program) => self.program_rules.check(program)?,
            Transport::Sse(remote) | Transport::Http(remote) => {
                let judged = self.address_policy.authorize(&remote.url);
                judged.map_err(|why| invalid_field("config.url", why.to_string()))?;
            }
        }
        Ok(transport)
    }

    /// Checks a registered server before it is connected: the settings may have
    /// changed since it was registered. Addresses are judged when they are dialled.
    pub(super) fn check_start(&self, server: &RegisteredServer) -> Result<(), InvalidField> {
        self.parse_name(server.name.as_str())?;
        match &server.transport {
            Transport::Stdio(program) => self.program_rules.check(program),
            Transport::Sse(_) | Transport::Http(_) => Ok(()),
        }
    }

    /// The member of a description that has to be accepted before it is used.
    pub(super) fn unaccepted_field(&self, transport: &Transport) -> Option<String> {
        match transport {
            Transport::Stdio(program) => self.program_rules.unaccepted_field(program),
            Transport::Sse(_) | Transport::Http(_) => None,
        }
    }

    /// What a person should know of a server that may be started.
    pub(super) fn warnings(&self, transport: &Transport) -> Vec<String> {
        match transport {
            Transport::Stdio(program) => self.program_rules.warnings(program),
            Transport::Sse(_) | Transport::Http(_) => Vec::new(),
        }
    }
}

impl ServerOrigin {
    /// As it is stored and shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Api => "api",
            Self::Console => "console",
            Self::Import => "import",
        }
    }

    /// Reads what was stored.
    pub fn parse(text: &str) -> Self {
        match text {
            "file" => Self::File,
            "console" => Self::Console,
            "import" => Self::Import,
            _ => Self::Api,
        }
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl fmt::Debug for ServerName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Reads the version that a server is held to.
pub(super) fn parse_required_version(name: &str) -> Result<ProtocolVersion, InvalidField> {
    ProtocolVersion::parse(name).ok_or_else(|| {
        let known = ProtocolVersion::ALL.map(ProtocolVersion::as_str).join(", ");
        let why = format!("is no version that maru speaks; use one of {known}");
        invalid_field("requiredProtocolVersion", why)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_are_accepted_and_refused_as_listed() {
        let text = include_str!("../../tests/security/bad_names.txt");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let mut parts = line.split('\t');
            let (verdict, name) = (parts.next().unwrap(), parts.next().unwrap());
            let name: String = serde_json::from_str(name).unwrap();
            assert_eq!(
                ServerName::parse(&name).is_ok(),
                verdict == "accept",
                "{line:.100}"
            );
        }
    }

    #[test]
    fn secrets_go_in_and_do_not_come_out_and_a_mask_keeps_them() {
        let rules = RegistrationRules {
            address_policy: AddressPolicy {
                serves_loopback_only: true,
                ..AddressPolicy::default()
            },
            ..RegistrationRules::default()
        };
        let config =
            json!({"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": "Bearer s3cret"}});
        let first = rules.parse_transport("HTTP", &config, None).unwrap();
        assert!(!format!("{first:?}{}", first.masked_config()).contains("s3cret"));
        let again = rules
            .parse_transport("HTTP", &first.masked_config(), Some(&first))
            .unwrap();
        assert_eq!(again, first);
    }

    #[test]
    fn wrong_configurations_name_their_field() {
        let rules = RegistrationRules {
            address_policy: AddressPolicy {
                serves_loopback_only: true,
                ..AddressPolicy::default()
            },
            ..RegistrationRules::default()
        };
        let field = |kind: &str, config: Value| {
            rules
                .parse_transport(kind, &config, None)
                .unwrap_err()
                .field
        };
        assert_eq!(field("FTP", json!({})), "transportType");
        assert_eq!(field("SSE", json!({})), "config.url");
        assert_eq!(field("STDIO", json!({"args": []})), "config.command");
        assert_eq!(
            field("STDIO", json!({"command": "x", "args": "-c id"})),
            "config.args"
        );
        assert_eq!(
            field("STDIO", json!({"command": "x", "url": "y"})),
            "config.url"
        );
        assert_eq!(
            field("HTTP", json!({"url": "http://10.0.0.1/"})),
            "config.url"
        );
        assert_eq!(
            field(
                "HTTP",
                json!({"url": "http://127.0.0.1:9/", "headers": {"Host": "x"}})
            ),
            "config.headers.Host"
        );
    }
}
