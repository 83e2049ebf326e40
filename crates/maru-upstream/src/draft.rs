//! Parses descriptions of servers into one form: requests to the API, entries of
//! `maru.yaml` and `mcp.json`, and the `mcpServers` of desktop clients.

use maru_protocol::ProtocolVersion;
use serde_json::{Map, Value, json};

use super::{
    server::{InvalidField, RegisteredServer, invalid_field, parse_required_version},
    transport::Transport,
    trust::TrustPolicy,
};
use maru_config::{McpAuthSettings, McpServerDefinition, SecretString};

/// The unchecked description of a server to register.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerDraft {
    /// The server's name.
    pub name: String,
    /// A description for people.
    pub description: Option<String>,
    /// `STDIO`, `SSE` or `HTTP`.
    pub kind: String,
    /// The transport's configuration.
    pub config: Value,
    /// The server's own version.
    pub version: Option<String>,
    /// Whether to connect the server when the hub starts.
    pub auto_connect: bool,
    /// Whether the server may change its tools; `None` keeps the current policy.
    pub trust: Option<TrustPolicy>,
    /// Whether the user accepts warnings, such as about a shell or code on the command
    /// line.
    pub accept_warnings: bool,
    /// The only protocol version to accept from the server.
    pub required_version: Option<String>,
    /// Whether the server is enabled; `None` keeps the current state.
    pub enabled: Option<bool>,
}

impl ServerDraft {
    /// Describes a server by its URL alone.
    pub fn from_url(name: &str, url: &str) -> Self {
        Self {
            name: name.to_owned(),
            description: None,
            kind: transport_kind_of_url(url).to_owned(),
            config: json!({"url": url}),
            version: None,
            auto_connect: true,
            trust: None,
            accept_warnings: false,
            required_version: None,
            enabled: None,
        }
    }

    /// Parses the body of an API request.
    pub fn from_api(body: &Value) -> Result<Self, InvalidField> {
        let known = [
            "name",
            "description",
            "transportType",
            "config",
            "version",
            "autoConnect",
            "trust",
            "acceptWarnings",
            "requiredProtocolVersion",
            "id",
            "enabled",
        ];
        let body = known_members(body, &known)?;
        Ok(Self {
            name: required_text(body, "name")?,
            description: optional_text(body, "description")?,
            kind: required_text(body, "transportType")?.to_uppercase(),
            config: body.get("config").cloned().unwrap_or_else(|| json!({})),
            version: optional_text(body, "version")?,
            auto_connect: optional_bool(body, "autoConnect")?.unwrap_or(false),
            trust: optional_trust(body)?,
            accept_warnings: optional_bool(body, "acceptWarnings")?.unwrap_or(false),
            required_version: optional_text(body, "requiredProtocolVersion")?,
            enabled: optional_bool(body, "enabled")?,
        })
    }

    /// Parses an entry of `mcp.json`.
    pub fn from_list_entry(entry: &Value) -> Result<Self, InvalidField> {
        let entry = known_members(entry, &[&["name", "autoConnect"], ENTRY_MEMBERS].concat())?;
        let name = required_text(entry, "name")?;
        Self::from_entry(&name, entry)
    }

    /// Parses a member of `mcpServers` and normalizes its name.
    pub fn from_client_entry(name: &str, entry: &Value) -> Result<Self, InvalidField> {
        let client_only = [
            "disabled",
            "autoApprove",
            "alwaysAllow",
            "timeout",
            "gallery",
            "envFile",
            "dev",
            "tools",
            "note",
        ];
        let entry = known_members(entry, &[&client_only, ENTRY_MEMBERS].concat())?;
        let mut draft = Self::from_entry(&normalize_name(name), entry)?;
        draft.auto_connect = optional_bool(entry, "disabled")? != Some(true);
        Ok(draft)
    }

    fn from_entry(name: &str, entry: &Map<String, Value>) -> Result<Self, InvalidField> {
        let config = |names: &[&str]| -> Value {
            let chosen = names
                .iter()
                .filter_map(|it| Some(((*it).to_owned(), entry.get(*it)?.clone())));
            Value::Object(chosen.collect())
        };
        let url = optional_text(entry, "url")?.or(optional_text(entry, "serverUrl")?);
        let (kind, config) = match (url, entry.contains_key("command")) {
            (Some(_), true) => {
                return Err(invalid_field(
                    "url",
                    "cannot be combined with command; a server has one of them",
                ));
            }
            (None, false) => {
                return Err(invalid_field(
                    "url",
                    "is missing, and so is command; a server has one of them",
                ));
            }
            (None, true) => ("STDIO", config(&["command", "args", "env", "cwd", "run"])),
            (Some(url), false) => {
                let mut config = config(&["headers", "auth"]);
                config["url"] = url.as_str().into();
                (
                    declared_transport_kind(entry)?.unwrap_or_else(|| transport_kind_of_url(&url)),
                    config,
                )
            }
        };
        if let Some(field) = find_placeholder(&config) {
            return Err(invalid_field(
                field,
                "holds a placeholder ${…}; write the value itself",
            ));
        }
        Ok(Self {
            name: name.to_owned(),
            description: optional_text(entry, "description")?,
            kind: kind.to_owned(),
            config,
            version: None,
            auto_connect: optional_bool(entry, "autoConnect")?.unwrap_or(true),
            trust: None,
            accept_warnings: false,
            required_version: optional_text(entry, "protocolVersion")?,
            enabled: None,
        })
    }
}

impl ServerDraft {
    /// Whether the draft differs from the registered `server`.
    pub(super) fn differs_from(&self, server: &RegisteredServer) -> bool {
        let transport = Transport::parse(&self.kind, &self.config, None);
        transport.as_ref() != Ok(&server.transport)
            || self.description != server.description
            || self.auto_connect != server.auto_connect
            || self.version != server.version
    }

    /// Parses the only protocol version to accept from the server.
    pub(super) fn parse_required_version(&self) -> Result<Option<ProtocolVersion>, InvalidField> {
        let version = self.required_version.as_deref();
        version.map(parse_required_version).transpose()
    }
}

const ENTRY_MEMBERS: &[&str] = &[
    "url",
    "serverUrl",
    "headers",
    "auth",
    "command",
    "args",
    "env",
    "cwd",
    "run",
    "type",
    "transport",
    "description",
    "protocolVersion",
];

impl From<&McpServerDefinition> for ServerDraft {
    fn from(server: &McpServerDefinition) -> Self {
        let secrets = |all: &std::collections::BTreeMap<String, SecretString>| -> Value {
            all.iter()
                .map(|(name, it)| (name.clone(), Value::from(it.reveal())))
                .collect()
        };
        let kind = server.transport.to_uppercase();
        let mut config = match kind.as_str() {
            "STDIO" => json!({"args": server.args, "env": secrets(&server.env)}),
            _ => json!({"headers": secrets(&server.headers)}),
        };
        if let Some(auth) = &server.auth {
            config["auth"] = auth_json(auth);
        }
        for (name, value) in [
            ("command", &server.command),
            ("url", &server.url),
            ("cwd", &server.cwd),
            ("run", &server.run),
        ] {
            if let Some(value) = value {
                config[name] = value.as_str().into();
            }
        }
        Self {
            name: server.name.clone(),
            description: server.description.clone(),
            kind,
            config,
            version: server.version.clone(),
            auto_connect: server.auto_connect,
            trust: server.trust.as_deref().and_then(TrustPolicy::parse),
            // Whoever may edit the settings can run any program already.
            accept_warnings: true,
            required_version: server.protocol_version.clone(),
            enabled: None,
        }
    }
}

fn auth_json(auth: &McpAuthSettings) -> Value {
    let secret = |it: &Option<SecretString>| it.as_ref().map(|it| it.reveal().to_owned());
    json!({
        "type": auth.r#type,
        "per_user": auth.per_user,
        "client_id": auth.client_id,
        "client_secret": secret(&auth.client_secret),
        "private_key": secret(&auth.private_key),
        "token": secret(&auth.token),
        "scopes": (!auth.scopes.is_empty()).then_some(&auth.scopes),
    })
}

/// An entry's name as written, and the draft parsed from it.
pub type NamedDraft = (String, Result<ServerDraft, InvalidField>);

/// Parses the servers in a desktop client's file. Entries that share a name are all
/// rejected.
pub fn drafts_from_import(file: &Value) -> Result<Vec<NamedDraft>, InvalidField> {
    let mut all = drafts_from_client_file(file)?;
    let name_of = |it: &NamedDraft| it.1.as_ref().ok().map(|draft| draft.name.clone());
    let names: Vec<Option<String>> = all.iter().map(name_of).collect();
    let keys: Vec<String> = all.iter().map(|(key, _)| key.clone()).collect();
    for (at, (_, draft)) in all.iter_mut().enumerate() {
        let is_same = |other: &usize| *other != at && names[*other] == names[at];
        let other = (0..names.len()).find(is_same);
        if let (Some(name), Some(other)) = (&names[at], other) {
            let (first, second) = (&keys[at.min(other)], &keys[at.max(other)]);
            let reason = format!(
                "the entries {first:?} and {second:?} are both named {name:?}; rename or remove one"
            );
            *draft = Err(invalid_field("name", reason));
        }
    }
    Ok(all)
}

/// Parses a desktop client's file: `mcpServers`, or `servers` in VS Code.
pub(super) fn drafts_from_client_file(file: &Value) -> Result<Vec<NamedDraft>, InvalidField> {
    if let Some(list) = file.as_array() {
        let name = |entry: &Value| entry["name"].as_str().unwrap_or("?").to_owned();
        return Ok(list
            .iter()
            .map(|entry| (name(entry), ServerDraft::from_list_entry(entry)))
            .collect());
    }
    let pointers = [
        "/mcpServers",
        "/servers",
        "/mcp/servers",
        "/mcp/mcpServers",
        "/context_servers",
    ];
    let servers = pointers
        .iter()
        .find_map(|it| file.pointer(it))
        .and_then(Value::as_object);
    let servers = servers.ok_or_else(|| {
        invalid_field(
            "mcpServers",
            "is missing: this is not a list of MCP servers",
        )
    })?;
    Ok(servers
        .iter()
        .map(|(name, entry)| (name.clone(), ServerDraft::from_client_entry(name, entry)))
        .collect())
}

/// Guesses the transport: a path that ends in `/sse` means HTTP+SSE.
fn transport_kind_of_url(url: &str) -> &'static str {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    if path.trim_end_matches('/').ends_with("/sse") {
        "SSE"
    } else {
        "HTTP"
    }
}

fn declared_transport_kind(
    entry: &Map<String, Value>,
) -> Result<Option<&'static str>, InvalidField> {
    let named = optional_text(entry, "type")?.or(optional_text(entry, "transport")?);
    let named = named.map(|it| it.to_ascii_lowercase().replace(['-', '_'], ""));
    match named.as_deref() {
        None => Ok(None),
        Some("sse") => Ok(Some("SSE")),
        Some("http" | "streamablehttp") => Ok(Some("HTTP")),
        Some(_) => Err(invalid_field("type", "is unknown; use sse or http")),
    }
}

fn find_placeholder(config: &Value) -> Option<String> {
    let groups = ["env", "headers"]
        .iter()
        .filter_map(|it| Some((*it, config.get(*it)?.as_object()?)));
    groups
        .flat_map(|(group, members)| {
            members
                .iter()
                .map(move |(name, value)| (group, name, value))
        })
        .find(|(_, _, value)| value.as_str().is_some_and(|it| it.contains("${")))
        .map(|(group, name, _)| format!("{group}.{name}"))
}

/// Turns a display name into a server name: `My Server` becomes `my-server`.
pub(super) fn normalize_name(name: &str) -> String {
    let mut fit = String::new();
    for c in name.to_lowercase().chars() {
        match c {
            'a'..='z' | '0'..='9' => fit.push(c),
            _ if fit.ends_with('-') || fit.is_empty() => (),
            _ => fit.push('-'),
        }
    }
    let fit: String = fit.chars().take(63).collect();
    match fit.trim_end_matches('-') {
        "" => name.to_owned(),
        fit => fit.to_owned(),
    }
}

fn known_members<'a>(
    value: &'a Value,
    known: &[&str],
) -> Result<&'a Map<String, Value>, InvalidField> {
    let members = value
        .as_object()
        .ok_or_else(|| invalid_field("entry", "must be an object"))?;
    match members.keys().find(|it| !known.contains(&it.as_str())) {
        None => Ok(members),
        Some(unknown) => Err(invalid_field(
            unknown.chars().take(60).collect::<String>(),
            "is unknown",
        )),
    }
}

fn required_text(members: &Map<String, Value>, name: &str) -> Result<String, InvalidField> {
    optional_text(members, name)?.ok_or_else(|| invalid_field(name, "is missing"))
}

fn optional_text(members: &Map<String, Value>, name: &str) -> Result<Option<String>, InvalidField> {
    match members.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(invalid_field(name, "must be text")),
    }
}

fn optional_trust(members: &Map<String, Value>) -> Result<Option<TrustPolicy>, InvalidField> {
    let Some(named) = optional_text(members, "trust")? else {
        return Ok(None);
    };
    let known = TrustPolicy::parse(&named)
        .ok_or_else(|| invalid_field("trust", "must be pin or follow"))?;
    Ok(Some(known))
}

fn optional_bool(members: &Map<String, Value>, name: &str) -> Result<Option<bool>, InvalidField> {
    match members.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(_) => Err(invalid_field(name, "must be true or false")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_desktop_clients_are_understood() {
        let file = json!({"mcpServers": {
            "My Files": {"command": "npx", "args": ["-y", "fs"], "env": {"A": "b"}, "disabled": true},
            "remote": {"url": "https://mcp.example.com/mcp", "headers": {"Authorization": "Bearer x"}},
            "old": {"type": "sse", "url": "http://127.0.0.1:1/events"},
            "both": {"command": "x", "url": "http://127.0.0.1:1/"},
            "asks": {"command": "x", "env": {"KEY": "${input:key}"}},
        }});
        let found = drafts_from_client_file(&file).unwrap();
        let kinds: Vec<_> = found
            .iter()
            .map(|(_, it)| {
                it.as_ref()
                    .map(|it| (it.name.as_str(), it.kind.as_str(), it.auto_connect))
                    .map_err(|reason| reason.field.as_str())
            })
            .collect();
        let expected = [
            Ok(("my-files", "STDIO", false)),
            Ok(("remote", "HTTP", true)),
            Ok(("old", "SSE", true)),
            Err("url"),
            Err("env.KEY"),
        ];
        assert_eq!(kinds, expected);
        assert!(drafts_from_client_file(&json!({"x": 1})).is_err());
    }
}
