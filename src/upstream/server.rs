//! A server as it is registered: checked once, here.

use std::{fmt, sync::Arc};

use serde_json::Value;
use thiserror::Error;

use super::{command::ProgramRules, transport::Transport, trust::Trust};
use crate::{mcp::Version, outbound::Policy};

pub(super) use crate::config::MASK;

/// A registered server.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
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
    pub origin: Origin,
    /// Whether it may change its tools.
    pub trust: Trust,
    /// The only protocol version that is spoken with it; any, if absent.
    pub required_version: Option<Version>,
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
pub enum Origin {
    /// `mcp.servers` of `maru.yaml`.
    File,
    /// The REST API or the command line.
    Api,
    /// The console.
    Console,
    /// A file of another program, or `mcp.json`.
    Import,
}

/// A description of a server that cannot be taken.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{field}: {why}")]
pub struct Invalid {
    /// Which part is wrong.
    pub field: String,
    /// What is wrong with it, and what would be right.
    pub why: String,
}

/// What registrations are checked against.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// `mcp.security.allowed-server-names`; empty allows every name.
    pub names: Vec<String>,
    /// Which programs may be started.
    pub programs: ProgramRules,
    /// Whether requests may not say which program is started.
    pub programs_refused: bool,
    /// Which addresses may be reached.
    pub policy: Policy,
}

/// Names that mean something else somewhere.
const RESERVED: [&str; 26] = [
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

pub(super) fn invalid(field: impl Into<String>, why: impl Into<String>) -> Invalid {
    Invalid {
        field: field.into(),
        why: why.into(),
    }
}

impl ServerName {
    /// Reads a name.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
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
            return Err(invalid("name", why));
        }
        match RESERVED.contains(&text) {
            true => Err(invalid(
                "name",
                format!("\"{shown}\" is reserved; choose another name"),
            )),
            false => Ok(Self(text.into())),
        }
    }

    /// The name as shared text.
    pub fn shared(&self) -> &Arc<str> {
        &self.0
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Rules {
    /// Reads a name that may be registered here.
    pub fn name(&self, text: &str) -> Result<ServerName, Invalid> {
        let name = ServerName::parse(text)?;
        match self.names.is_empty() || self.names.iter().any(|it| it == text) {
            true => Ok(name),
            false => {
                let why = format!("\"{text}\" is not in mcp.security.allowed-server-names");
                Err(invalid("name", why))
            }
        }
    }

    /// Reads `config`, the part of a registration that depends on its transport,
    /// and judges it. Masked secrets are taken from `before`.
    pub fn transport(
        &self,
        kind: &str,
        config: &Value,
        before: Option<&Transport>,
    ) -> Result<Transport, Invalid> {
        let transport = Transport::read(kind, config, before)?;
        match &transport {
            Transport::Stdio(program) => self.programs.check(program)?,
            Transport::Sse(remote) | Transport::Http(remote) => {
                let judged = self.policy.judge(&remote.url);
                judged.map_err(|why| invalid("config.url", why.to_string()))?;
            }
        }
        Ok(transport)
    }

    /// Checks a registered server before it is connected: the settings may have
    /// changed since it was registered. Addresses are judged when they are dialled.
    pub(super) fn check_start(&self, server: &Server) -> Result<(), Invalid> {
        self.name(server.name.as_str())?;
        match &server.transport {
            Transport::Stdio(program) => self.programs.check(program),
            Transport::Sse(_) | Transport::Http(_) => Ok(()),
        }
    }

    /// The member of a description that has to be accepted before it is used.
    pub(super) fn unaccepted(&self, transport: &Transport) -> Option<String> {
        match transport {
            Transport::Stdio(program) => self.programs.unaccepted(program),
            Transport::Sse(_) | Transport::Http(_) => None,
        }
    }

    /// What a person should know of a server that may be started.
    pub(super) fn warnings(&self, transport: &Transport) -> Vec<String> {
        match transport {
            Transport::Stdio(program) => self.programs.warnings(program),
            Transport::Sse(_) | Transport::Http(_) => Vec::new(),
        }
    }
}

impl Origin {
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
pub(super) fn required_version(name: &str) -> Result<Version, Invalid> {
    Version::parse(name).ok_or_else(|| {
        let known = Version::ALL.map(Version::as_str).join(", ");
        let why = format!("is no version that maru speaks; use one of {known}");
        invalid("requiredProtocolVersion", why)
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
        let rules = Rules {
            policy: Policy {
                local: true,
                ..Policy::default()
            },
            ..Rules::default()
        };
        let config =
            json!({"url": "http://127.0.0.1:9/mcp", "headers": {"Authorization": "Bearer s3cret"}});
        let first = rules.transport("HTTP", &config, None).unwrap();
        assert!(!format!("{first:?}{}", first.shown()).contains("s3cret"));
        let again = rules
            .transport("HTTP", &first.shown(), Some(&first))
            .unwrap();
        assert_eq!(again, first);
    }

    #[test]
    fn wrong_configurations_name_their_field() {
        let rules = Rules {
            policy: Policy {
                local: true,
                ..Policy::default()
            },
            ..Rules::default()
        };
        let field =
            |kind: &str, config: Value| rules.transport(kind, &config, None).unwrap_err().field;
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
