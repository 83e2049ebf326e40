//! `maru servers`: manages the MCP servers of the running hub.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use maru_runtime::clock;
use serde_json::{Map, Value, json};
use tokio::time::{self, Instant};

use super::{
    EXIT_CANNOT_RUN,
    client::{HubClient, error_message},
    serve::block_on,
    terminal,
};
use crate::{config::LoadedConfig, upstream::ServerDraft};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  maru servers add files -- npx -y @modelcontextprotocol/server-filesystem /data
  maru servers add github --env GITHUB_TOKEN=… -- npx -y @modelcontextprotocol/server-github
  maru servers add remote --url http://127.0.0.1:8081/sse
  maru servers add old --protocol-version 2025-06-18 --trust pin --cwd /srv -- node server.js
  maru servers import ~/.cursor/mcp.json
  maru servers list
  maru servers show files")]
pub(super) struct ServersArgs {
    #[command(subcommand)]
    action: ServersAction,
    /// Print the hub's response as JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum ServersAction {
    /// Register a server and connect it
    Add(AddServer),
    /// List the servers and their states
    List,
    /// Show one server with its tools
    Show(ServerArg),
    /// Connect a server now
    Connect(ServerArg),
    /// Disconnect a server, which stays registered
    Disconnect(ServerArg),
    /// Enable a server
    Enable(ServerArg),
    /// Disable a server: it stays registered but is never connected
    Disable(ServerArg),
    /// Accept tools whose definition has changed, which makes them available again
    Accept {
        /// The name of the server
        name: String,
        /// The name of the tool, as in `maru servers show`
        #[arg(required_unless_present = "all")]
        tool: Option<String>,
        /// Accept all withheld tools
        #[arg(long, conflicts_with = "tool")]
        all: bool,
    },
    /// Remove a server
    Remove(ServerArg),
    /// Register the servers of a file that Claude Desktop, Cursor or VS Code wrote
    Import {
        /// The file
        file: PathBuf,
        /// Also import entries that start a shell, run code from their arguments, or similar
        #[arg(long)]
        accept_warnings: bool,
    },
}

#[derive(Debug, Args)]
struct ServerArg {
    /// The name of the server
    name: String,
}

#[derive(Debug, Args)]
struct AddServer {
    /// The name of the server: a-z, 0-9, - and _
    name: String,
    /// URL of a server that is reached over HTTP
    #[arg(long, conflicts_with = "command")]
    url: Option<String>,
    /// sse or http [default: sse if the URL ends in /sse, else http]
    #[arg(long, requires = "url")]
    transport: Option<String>,
    /// A header for every request, such as "Authorization: Bearer TOKEN"
    #[arg(long = "header", value_name = "NAME: VALUE", requires = "url")]
    headers: Vec<String>,
    /// An environment variable of the program
    #[arg(long = "env", value_name = "NAME=VALUE", conflicts_with = "url")]
    env: Vec<String>,
    /// Working directory of the program
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    cwd: Option<String>,
    /// Description for people
    #[arg(long)]
    description: Option<String>,
    /// Required protocol version, such as 2025-06-18, for a server that fails in a version that it claims to support
    #[arg(long, value_name = "VERSION")]
    protocol_version: Option<String>,
    /// What happens to a tool whose definition changes: pin withholds it until you accept it, follow keeps it available
    #[arg(long, value_name = "pin|follow")]
    trust: Option<String>,
    /// Register only; do not connect now or at start
    #[arg(long)]
    no_connect: bool,
    /// Start the program although it is a shell, runs code from its arguments, or similar
    #[arg(long, conflicts_with = "url")]
    accept_warnings: bool,
    /// The program of a stdio server and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

pub(super) const SERVERS_ROUTE: &str = "/api/mcp/servers";
const CONNECTION_POLL_INTERVAL: Duration = Duration::from_millis(200);

pub(super) fn run(loaded: &LoadedConfig, options: &ServersArgs) -> Result<ExitCode> {
    let hub = HubClient::open(loaded)?;
    let connect_timeout = Duration::from_millis(loaded.config.mcp.connect_timeout_ms);
    let (status, response) = block_on(async {
        let (status, response) = options.action.send(&hub).await?;
        if options.action.waits_for_connection() && response["status"] == "CONNECTING" {
            let connected = wait_for_connection(&hub, &response["name"], connect_timeout).await?;
            return Ok((status, connected.unwrap_or(response)));
        }
        Ok((status, response))
    })?;
    if !(200..300).contains(&status) {
        terminal::print_error(error_message(&response));
        return Ok(ExitCode::from(EXIT_CANNOT_RUN));
    }
    let text = if options.json {
        format!("{}\n", serde_json::to_string_pretty(&response)?)
    } else {
        options.action.format_response(&response)
    };
    terminal::print(&text)?;
    Ok(ExitCode::from(u8::from(
        options.action.has_failed(&response),
    )))
}

/// Waits until a server is connected or has failed: the hub answers before that. `None`
/// when it is still being connected after `timeout`.
async fn wait_for_connection(
    hub: &HubClient,
    name: &Value,
    timeout: Duration,
) -> Result<Option<Value>> {
    let deadline = Instant::now() + timeout;
    while Instant::now() < deadline {
        time::sleep(CONNECTION_POLL_INTERVAL).await;
        let (_, servers) = hub.send_rest("GET", SERVERS_ROUTE, None).await?;
        let mut servers = servers.as_array().into_iter().flatten();
        let server = servers.find(|it| it["name"] == *name);
        if let Some(server) = server.filter(|it| it["status"] != "CONNECTING") {
            return Ok(Some(server.clone()));
        }
    }
    Ok(None)
}

impl ServersAction {
    /// Whether the command is done only when the server is connected or has failed.
    fn waits_for_connection(&self) -> bool {
        matches!(self, Self::Add(_) | Self::Connect(_) | Self::Enable(_))
    }

    async fn send(&self, hub: &HubClient) -> Result<(u16, Value)> {
        let action_path =
            |server: &ServerArg, action: &str| format!("{SERVERS_ROUTE}/{}/{action}", server.name);
        match self {
            Self::Add(add) => {
                hub.send_rest("POST", SERVERS_ROUTE, Some(&add.request_body()?))
                    .await
            }
            Self::List => hub.send_rest("GET", SERVERS_ROUTE, None).await,
            Self::Show(name) => {
                hub.send_rest("GET", &format!("{SERVERS_ROUTE}/{}", name.name), None)
                    .await
            }
            Self::Connect(server) => {
                hub.send_rest("POST", &action_path(server, "connect"), None)
                    .await
            }
            Self::Disconnect(server) => {
                hub.send_rest("POST", &action_path(server, "disconnect"), None)
                    .await
            }
            Self::Enable(server) => {
                hub.send_rest("POST", &action_path(server, "enable"), None)
                    .await
            }
            Self::Disable(server) => {
                hub.send_rest("POST", &action_path(server, "disable"), None)
                    .await
            }
            Self::Accept { name, tool, .. } => {
                let path = match tool {
                    Some(tool) => format!(
                        "{SERVERS_ROUTE}/{name}/tools/{}/accept",
                        percent_encode(tool)
                    ),
                    None => format!("{SERVERS_ROUTE}/{name}/accept"),
                };
                hub.send_rest("POST", &path, None).await
            }
            Self::Remove(name) => {
                hub.send_rest("DELETE", &format!("{SERVERS_ROUTE}/{}", name.name), None)
                    .await
            }
            Self::Import {
                file,
                accept_warnings,
            } => {
                let mut body = read_json_file(file)?;
                if let (true, Value::Object(members)) = (*accept_warnings, &mut body) {
                    members.insert("acceptWarnings".to_owned(), true.into());
                }
                hub.send_rest("POST", "/api/mcp/import", Some(&body)).await
            }
        }
    }

    /// Whether a server that the action should connect has failed.
    fn has_failed(&self, response: &Value) -> bool {
        let is_failed = |it: &Value| it["status"] == "FAILED" || it.get("error").is_some();
        match self {
            Self::Add(_) | Self::Connect(_) => is_failed(response),
            Self::Import { .. } => response["servers"]
                .as_array()
                .is_some_and(|servers| servers.iter().any(is_failed)),
            _ => false,
        }
    }

    fn format_response(&self, response: &Value) -> String {
        match self {
            Self::List => format_servers(response.as_array().map_or(&[], Vec::as_slice)),
            Self::Show(_) | Self::Accept { .. } => format_detail(response),
            Self::Remove(server) => format!("{} is removed\n", server.name),
            Self::Import { .. } => {
                let servers = response["servers"].as_array();
                let servers = servers.map_or(&[][..], Vec::as_slice);
                servers.iter().map(format_imported).collect()
            }
            _ => format_status(response),
        }
    }
}

impl AddServer {
    fn request_body(&self) -> Result<Value> {
        let pairs = |texts: &[String], separator: char| -> Result<Map<String, Value>> {
            let pair = |it: &String| {
                let (name, value) = it
                    .split_once(separator)
                    .with_context(|| format!("{it:?} has no {separator:?}"))?;
                Ok((name.trim().to_owned(), Value::from(value.trim())))
            };
            texts.iter().map(pair).collect()
        };
        let (kind, config) = match (&self.url, self.command.split_first()) {
            (Some(url), None) => {
                let guessed = ServerDraft::from_url(&self.name, url).kind;
                let kind = self.transport.as_ref().unwrap_or(&guessed).to_uppercase();
                (
                    kind,
                    json!({"url": url, "headers": pairs(&self.headers, ':')?}),
                )
            }
            (None, Some((command, args))) => {
                self.check_separate_words(command)?;
                let mut config =
                    json!({"command": command, "args": args, "env": pairs(&self.env, '=')?});
                if let Some(cwd) = &self.cwd {
                    config["cwd"] = cwd.as_str().into();
                }
                ("STDIO".to_owned(), config)
            }
            _ => bail!("name the server's URL or program: --url URL, or -- COMMAND ARGUMENTS"),
        };
        Ok(json!({
            "name": self.name,
            "description": self.description,
            "transportType": kind,
            "config": config,
            "autoConnect": !self.no_connect,
            "acceptWarnings": self.accept_warnings,
            "requiredProtocolVersion": self.protocol_version,
            "trust": self.trust,
        }))
    }

    /// Refuses a whole command line in quotes as the name of a program.
    fn check_separate_words(&self, command: &str) -> Result<()> {
        let is_line = self.command.len() == 1 && command.contains(char::is_whitespace);
        if is_line && !Path::new(command).exists() {
            bail!(
                "{command:?} is one word; write the program and its arguments as separate words: maru servers add {} -- {command}",
                self.name
            );
        }
        Ok(())
    }
}

/// Encodes a path segment or query value, because names of tools may contain any visible
/// character.
pub(super) fn percent_encode(text: &str) -> String {
    let is_unreserved =
        |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_' | b'.' | b'~');
    text.bytes()
        .map(|it| {
            if is_unreserved(it) {
                char::from(it).to_string()
            } else {
                format!("%{it:02X}")
            }
        })
        .collect()
}

fn read_json_file(path: &PathBuf) -> Result<Value> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let invalid = || format!("{} is not valid", path.display());
    let without_bom = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let text = maru_protocol::validate_json(without_bom).with_context(invalid)?;
    serde_json::from_str(text).with_context(invalid)
}

fn text_of(value: &Value, name: &str) -> String {
    match &value[name] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn format_servers(servers: &[Value]) -> String {
    if servers.is_empty() {
        return "no server is registered; see maru servers add --help\n".to_owned();
    }
    let mut rows = vec![
        ["NAME", "STATUS", "TOOLS", "TRANSPORT", "FROM", "NOTE"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(servers.iter().map(|it| {
        let differs = it["differsFromFile"] == true;
        let note = if differs {
            "differs from maru.yaml ".to_owned()
        } else {
            String::new()
        };
        let note = format!("{note}{}", text_of(it, "cause"));
        vec![
            text_of(it, "name"),
            text_of(it, "status"),
            text_of(it, "toolCount"),
            text_of(it, "transportType"),
            text_of(it, "origin"),
            note,
        ]
    }));
    terminal::format_table(&rows)
}

fn format_status(server: &Value) -> String {
    let tools = if server["status"] == "CONNECTED" {
        let count = server["toolCount"].as_u64().unwrap_or_default();
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        format!(", {}", terminal::count_of(count, "tool", "tools"))
    } else {
        String::new()
    };
    let cause = match text_of(server, "cause") {
        cause if cause.is_empty() => String::new(),
        cause => format!(": {cause}"),
    };
    let warning = match warnings(server) {
        warning if warning.is_empty() => warning,
        warning => format!("warning: {warning}\n"),
    };
    format!(
        "{} is {}{tools}{cause}\n{warning}",
        text_of(server, "name"),
        text_of(server, "status")
    )
}

fn format_imported(entry: &Value) -> String {
    match entry.get("error") {
        Some(error) => format!(
            "{} is not imported: {}\n",
            text_of(entry, "name"),
            error.as_str().unwrap_or_default()
        ),
        None => {
            let mut server = entry.clone();
            server["name"] = entry["importedAs"].clone();
            format_status(&server)
        }
    }
}

fn warnings(server: &Value) -> String {
    let all = server["warnings"].as_array().into_iter().flatten();
    let all: Vec<&str> = all.filter_map(Value::as_str).collect();
    all.join("; ")
}

/// The resource usage of a server's program, with its limits.
fn format_program(program: &Value) -> String {
    let limit = |name: &str| match program["limits"][name].as_u64() {
        Some(limit) if name == "memoryBytes" => format!(" of {}", limit >> 20),
        Some(limit) => format!(" of {limit}"),
        None => String::new(),
    };
    let Some(memory) = program["memoryBytes"].as_u64() else {
        return String::new();
    };
    format!(
        "{}{} MiB of memory, {}{} processes, {}{} % of a core",
        memory >> 20,
        limit("memoryBytes"),
        program["processes"],
        limit("processes"),
        program["cpuPercent"],
        limit("cpuPercent"),
    )
}

/// The protocol version in use, and the required one.
fn format_protocol(server: &Value) -> String {
    let current = text_of(server, "protocolVersion");
    match server["requiredProtocolVersion"].as_str() {
        None => current,
        Some(required) if current.is_empty() => format!("requires {required}"),
        Some(required) => format!("{current} (requires {required})"),
    }
}

/// The attempts since the server was lost, and the time of the next one.
fn format_attempts(server: &Value) -> String {
    let attempts = server["attempts"].as_u64().unwrap_or_default();
    match server["nextAttemptAt"].as_i64() {
        Some(at) => format!("{attempts} made, next at {}", clock::format_rfc3339(at)),
        None if attempts > 0 => format!("{attempts} made, no more planned"),
        None => String::new(),
    }
}

fn format_detail(server: &Value) -> String {
    let tools: Vec<&str> = server["tools"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let rows = [
        ("name", text_of(server, "name")),
        ("status", text_of(server, "status")),
        ("cause", text_of(server, "cause")),
        ("warning", warnings(server)),
        ("program", format_program(&server["program"])),
        ("description", text_of(server, "description")),
        ("transport", text_of(server, "transportType")),
        ("config", text_of(server, "config")),
        ("protocol", format_protocol(server)),
        ("attempts", format_attempts(server)),
        ("changed tools", text_of(server, "trust")),
        ("connects at start", text_of(server, "autoConnect")),
        ("registered by", text_of(server, "origin")),
        ("tools", tools.join(", ")),
    ];
    let mut rows: Vec<Vec<String>> = rows
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| vec![name.to_owned(), value])
        .collect();
    for it in server["withheld"].as_array().into_iter().flatten() {
        rows.push(vec![
            "withheld".to_owned(),
            format!("{}: {}", text_of(it, "name"), text_of(it, "why")),
        ]);
        for change in it["differences"].as_array().into_iter().flatten() {
            let (before, now) = (text_of(change, "before"), text_of(change, "now"));
            rows.push(vec![
                String::new(),
                format!("  {} was: {before}", text_of(change, "at")),
            ]);
            rows.push(vec![
                String::new(),
                format!("  {} is now: {now}", text_of(change, "at")),
            ]);
        }
    }
    terminal::format_table(&rows)
}
