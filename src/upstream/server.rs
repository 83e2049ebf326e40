//! A server as it is registered: checked once, here.

use std::{collections::BTreeMap, fmt, sync::Arc};

use serde_json::{Map, Value, json};
use thiserror::Error;

use super::{command, trust::Trust};
use crate::{config::Secret, outbound::Policy};

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
    /// Epoch milliseconds.
    pub created_at: i64,
    /// Epoch milliseconds.
    pub updated_at: i64,
}

/// The name of a server: lower case letters, digits, `-` and `_`, at most 63.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerName(Arc<str>);

/// How a server is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transport {
    /// A child process.
    Stdio(Program),
    /// HTTP+SSE of 2024-11-05.
    Sse(Remote),
    /// Streamable HTTP.
    Http(Remote),
}

/// What to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// A program of the search path, or an absolute path.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Variables it gets besides a few harmless ones of ours.
    pub env: BTreeMap<String, Secret>,
    /// Where it starts.
    pub cwd: Option<String>,
}

/// Where to connect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// The endpoint.
    pub url: String,
    /// Sent with every request.
    pub headers: BTreeMap<String, Secret>,
}

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
    /// `mcp.security.allowed-commands`; empty allows every program but shells.
    pub commands: Vec<String>,
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

/// What a secret is shown as; given back, it means "as it was".
pub const MASK: &str = "***";

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
            Transport::Stdio(program) => command::check(program, &self.commands)?,
            Transport::Sse(remote) | Transport::Http(remote) => {
                let judged = self.policy.judge(&remote.url);
                judged.map_err(|why| invalid("config.url", why.to_string()))?;
            }
        }
        Ok(transport)
    }
}

impl Transport {
    /// Reads what was judged before. Masked secrets are taken from `before`.
    pub(super) fn read(kind: &str, config: &Value, before: Option<&Self>) -> Result<Self, Invalid> {
        let members = config
            .as_object()
            .ok_or_else(|| invalid("config", "must be an object"))?;
        let known: &[&str] = match kind {
            "STDIO" => &["command", "args", "env", "cwd"],
            "SSE" | "HTTP" => &["url", "headers"],
            _ => {
                return Err(invalid(
                    "transportType",
                    format!("{kind:?} is unknown; use STDIO, SSE or HTTP"),
                ));
            }
        };
        if let Some(unknown) = members.keys().find(|it| !known.contains(&it.as_str())) {
            let why = format!("unknown for {kind}; known are {}", known.join(", "));
            return Err(invalid(format!("config.{unknown}"), why));
        }
        Ok(match kind {
            "STDIO" => Self::Stdio(program(members, before)?),
            "SSE" => Self::Sse(remote(members, before)?),
            _ => Self::Http(remote(members, before)?),
        })
    }

    /// `STDIO`, `SSE` or `HTTP`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Stdio(_) => "STDIO",
            Self::Sse(_) => "SSE",
            Self::Http(_) => "HTTP",
        }
    }

    /// Where it is, if it is reached by an address.
    pub fn url(&self) -> Option<&str> {
        match self {
            Self::Stdio(_) => None,
            Self::Sse(remote) | Self::Http(remote) => Some(&remote.url),
        }
    }

    /// The `config` of the document, with secrets as they are: for the store only.
    pub fn revealed(&self) -> Value {
        self.config(|secret| secret.reveal().to_owned())
    }

    /// The same with secrets masked.
    pub fn shown(&self) -> Value {
        self.config(|_| MASK.to_owned())
    }

    fn config(&self, text: impl Fn(&Secret) -> String) -> Value {
        let map = |all: &BTreeMap<String, Secret>| -> Map<String, Value> {
            all.iter()
                .map(|(name, it)| (name.clone(), text(it).into()))
                .collect()
        };
        match self {
            Self::Stdio(it) => {
                let mut config =
                    json!({"command": it.command, "args": it.args, "env": map(&it.env)});
                if let Some(cwd) = &it.cwd {
                    config["cwd"] = cwd.as_str().into();
                }
                config
            }
            Self::Sse(it) | Self::Http(it) => json!({"url": it.url, "headers": map(&it.headers)}),
        }
    }

    fn secrets(&self) -> Option<&BTreeMap<String, Secret>> {
        match self {
            Self::Stdio(it) => Some(&it.env),
            Self::Sse(it) | Self::Http(it) => Some(&it.headers),
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

fn program(members: &Map<String, Value>, before: Option<&Transport>) -> Result<Program, Invalid> {
    let args = match members.get("args").unwrap_or(&Value::Null) {
        Value::Null => Vec::new(),
        Value::Array(items) => items
            .iter()
            .map(|it| plain(it, "config.args"))
            .collect::<Result<_, _>>()?,
        _ => return Err(invalid("config.args", "must be a list of texts")),
    };
    let program = Program {
        command: required(members, "command")?,
        args,
        env: secrets(members, "env", before.and_then(Transport::secrets))?,
        cwd: members
            .get("cwd")
            .filter(|it| !it.is_null())
            .map(|it| plain(it, "config.cwd"))
            .transpose()?,
    };
    Ok(program)
}

fn remote(members: &Map<String, Value>, before: Option<&Transport>) -> Result<Remote, Invalid> {
    let remote = Remote {
        url: required(members, "url")?,
        headers: secrets(members, "headers", before.and_then(Transport::secrets))?,
    };
    for (name, value) in &remote.headers {
        let good = hyper::header::HeaderName::from_bytes(name.as_bytes()).is_ok()
            && hyper::header::HeaderValue::from_str(value.reveal()).is_ok();
        let ours = [
            "host",
            "content-length",
            "transfer-encoding",
            "connection",
            "accept",
            "content-type",
        ];
        if !good || ours.contains(&name.to_ascii_lowercase().as_str()) {
            return Err(invalid(
                format!("config.headers.{name}"),
                "is no header that can be set",
            ));
        }
    }
    Ok(remote)
}

fn required(members: &Map<String, Value>, name: &str) -> Result<String, Invalid> {
    let field = format!("config.{name}");
    let value = members
        .get(name)
        .ok_or_else(|| invalid(&field, "is missing"))?;
    let text = plain(value, &field)?;
    match text.trim().is_empty() {
        true => Err(invalid(&field, "is empty")),
        false => Ok(text),
    }
}

fn plain(value: &Value, field: &str) -> Result<String, Invalid> {
    match value.as_str() {
        None => Err(invalid(field, "must be text")),
        Some(text) if text.contains('\0') => Err(invalid(field, "has a NUL character")),
        Some(text) => Ok(text.to_owned()),
    }
}

fn secrets(
    members: &Map<String, Value>,
    name: &str,
    before: Option<&BTreeMap<String, Secret>>,
) -> Result<BTreeMap<String, Secret>, Invalid> {
    let field = format!("config.{name}");
    let given = match members.get(name).unwrap_or(&Value::Null) {
        Value::Null => return Ok(BTreeMap::new()),
        Value::Object(given) => given,
        _ => return Err(invalid(field, "must be an object of texts")),
    };
    let read = |(key, value): (&String, &Value)| {
        let text = plain(value, &format!("{field}.{key}"))?;
        let kept = before.and_then(|it| it.get(key)).filter(|_| text == MASK);
        Ok((
            key.clone(),
            kept.cloned().unwrap_or_else(|| Secret::from(text)),
        ))
    };
    given.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
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
