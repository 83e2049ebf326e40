//! The validated registration of a server.

use std::{fmt, sync::Arc};

use maru_protocol::ProtocolVersion;
use thiserror::Error;

use super::{remote_auth::RemoteAuth, transport::Transport, trust::TrustPolicy};

pub(super) use maru_config::MASK;

/// A registered server.
#[derive(Clone, Debug, PartialEq)]
pub struct RegisteredServer {
    /// A UUID.
    pub id: String,
    /// The unique name.
    pub name: ServerName,
    /// A description for people.
    pub description: Option<String>,
    /// How the server is reached.
    pub transport: Transport,
    /// The server's own version, as registered.
    pub version: Option<String>,
    /// Whether to connect it when the hub starts.
    pub auto_connect: bool,
    /// Whether the server is enabled.
    pub enabled: bool,
    /// Who registered it.
    pub origin: ServerOrigin,
    /// Whether the server may change its tools.
    pub trust: TrustPolicy,
    /// The only protocol version to accept; `None` accepts any.
    pub required_version: Option<ProtocolVersion>,
    /// Unix milliseconds.
    pub created_at: i64,
    /// Unix milliseconds.
    pub updated_at: i64,
}

/// The name of a server: at most 63 lower-case letters, digits, `-` and `_`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerName(Arc<str>);

/// Who registered a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerOrigin {
    /// `mcp.servers` of `maru.yaml`.
    File,
    /// The REST API, the command line, or a program that embeds maru.
    Api,
    /// The console.
    Console,
    /// An imported file of another program, or `mcp.json`.
    Import,
}

/// An invalid field in the description of a server.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{field}: {reason}")]
pub struct InvalidField {
    /// The field's path.
    pub field: String,
    /// What is wrong, and what is expected.
    pub reason: String,
}

/// Reserved names.
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

pub(super) fn invalid_field(field: impl Into<String>, reason: impl Into<String>) -> InvalidField {
    InvalidField {
        field: field.into(),
        reason: reason.into(),
    }
}

impl RegisteredServer {
    /// Returns how maru gets and renews tokens for the server; `None` where it does not.
    pub(super) fn managed_auth(&self) -> Option<&RemoteAuth> {
        let (Transport::Sse(remote) | Transport::Http(remote)) = &self.transport else {
            return None;
        };
        let is_managed = matches!(
            remote.auth,
            RemoteAuth::SignIn(_) | RemoteAuth::ClientCredentials(_)
        );
        // A server that is only tested has no id, and its tokens would have no place.
        (is_managed && !remote.has_authorization_header() && !self.id.is_empty())
            .then_some(&remote.auth)
    }
}

impl ServerName {
    /// Parses and validates a name.
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
            let reason = format!(
                "\"{shown}\" is no server name: use 1 to 63 of a-z, 0-9, - and _, with a letter or digit at both ends"
            );
            return Err(invalid_field("name", reason));
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

    /// Returns the name as a shared string.
    pub fn as_arc(&self) -> &Arc<str> {
        &self.0
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ServerOrigin {
    /// Returns the name used in the store and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Api => "api",
            Self::Console => "console",
            Self::Import => "import",
        }
    }

    /// Parses the stored name.
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

/// Checks that the text has at most `limit` characters.
pub(super) fn check_length(
    text: Option<&String>,
    field: &str,
    limit: usize,
) -> Result<Option<String>, InvalidField> {
    match text {
        Some(text) if text.chars().count() > limit => {
            let reason = format!("may have {limit} characters at most");
            Err(invalid_field(field, reason))
        }
        text => Ok(text.cloned()),
    }
}

/// Parses the required protocol version of a server.
pub(super) fn parse_required_version(name: &str) -> Result<ProtocolVersion, InvalidField> {
    ProtocolVersion::parse(name).ok_or_else(|| {
        let known = ProtocolVersion::ALL.map(ProtocolVersion::as_str).join(", ");
        let reason = format!("is no version that maru speaks; use one of {known}");
        invalid_field("requiredProtocolVersion", reason)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_accepted_and_refused_as_listed() {
        let text = include_str!("../../../tests/security/bad_names.txt");
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
}
