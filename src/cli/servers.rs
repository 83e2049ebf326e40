//! `maru servers`: manages the MCP servers of the running hub.

mod add_server;
mod allowed_host;
pub(super) mod jsonc;
mod server_edit;
mod server_log;
mod server_text;
mod sign_in;

use std::{path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use serde_json::Value;
use tokio::time::{self, Instant};

use self::{
    add_server::AddServer,
    server_text::{format_detail, format_found, format_imported, format_servers, format_status},
    sign_in::LoginArgs,
};
use super::{
    client::HubClient, context::CliContext, limits::names_of, serve::block_on,
    suggestion::did_you_mean,
};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  maru servers add files -- npx -y @modelcontextprotocol/server-filesystem /data
  maru servers add github --env GITHUB_TOKEN=… -- npx -y @modelcontextprotocol/server-github
  maru servers add remote --url http://127.0.0.1:8081/sse
  maru servers add old --protocol-version 2025-06-18 --trust pin --cwd /srv -- node server.js
  maru servers import ~/.cursor/mcp.json
  maru servers add files --replace -- npx -y @modelcontextprotocol/server-filesystem /srv
  maru servers search weather
  maru servers login remote
  maru servers list
  maru servers logs files -f
  maru servers edit files
  maru servers show files")]
pub(super) struct ServersArgs {
    #[command(subcommand)]
    action: ServersAction,
}

#[derive(Debug, Subcommand)]
enum ServersAction {
    /// Register a server and connect it
    Add(AddServer),
    /// List the servers and their states
    List,
    /// Find servers to add in the MCP registry of the setting mcp.registry
    Search {
        /// What to find in names and descriptions
        word: String,
    },
    /// Show one server with its tools
    Show(ServerArg),
    /// Disconnect a server and connect it again
    Restart(ServerArg),
    /// Sign in to a server: print the link to open, and wait
    Login(LoginArgs),
    /// Sign out of a server: delete its tokens, and revoke them where that is offered
    Logout {
        /// The name of the server
        name: String,
        /// Sign out your own account, on a server where each caller has one
        #[arg(long)]
        own: bool,
    },
    /// Edit the registration of a server in $VISUAL or $EDITOR
    Edit {
        /// The name of the server
        name: String,
        /// Read the members from this JSON file instead; `-` is stdin. What it does not name stays as it is
        #[arg(long)]
        file: Option<PathBuf>,
    },
    /// Print what a server wrote to stderr, and how its connection changed
    Logs {
        /// The name of the server
        name: String,
        /// Print new lines as they come, until Ctrl-C
        #[arg(short, long)]
        follow: bool,
        /// Messages between maru and the server instead
        #[arg(long)]
        messages: bool,
    },
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

const SERVERS_ROUTE: &str = "/api/mcp/servers";
const CONNECTION_POLL_INTERVAL: Duration = Duration::from_millis(200);

pub(super) fn run(context: &CliContext, options: &ServersArgs) -> Result<ExitCode> {
    let hub = HubClient::open(context)?;
    let timeout = Duration::from_millis(context.config().mcp.connect_timeout_ms);
    block_on(async {
        let action = &options.action;
        if let Some(name) = action.existing_server() {
            check_exists(&hub, name).await?;
        }
        let response = match action {
            ServersAction::Logs {
                name,
                follow,
                messages,
            } => return server_log::print(context, &hub, name, *follow, *messages).await,
            ServersAction::Login(login) => return login.run(&hub).await,
            ServersAction::Add(add) => return Box::pin(add.run(context, &hub, timeout)).await,
            ServersAction::Edit { name, file } => {
                match server_edit::edit(&hub, name, file.as_deref()).await? {
                    None => return Ok(ExitCode::SUCCESS),
                    Some(changed) => wait_for_connection(&hub, changed, timeout).await?,
                }
            }
            action => {
                let response = action.send(&hub).await?;
                match action.waits_for_connection() {
                    Some(name) => {
                        let connecting = wait_for_connection(&hub, response, timeout);
                        Box::pin(server_log::show_while(&hub, name, connecting)).await?
                    }
                    None => response,
                }
            }
        };
        context.print(&response, |it| action.format_response(it))?;
        Ok(ExitCode::from(u8::from(action.has_failed(&response))))
    })
}

/// Refuses the name of a server that does not exist, with the most similar one.
async fn check_exists(hub: &HubClient, name: &str) -> Result<()> {
    let known = names_of(&hub.request_json("GET", SERVERS_ROUTE, None).await?, "name");
    if known.iter().any(|it| it == name) {
        return Ok(());
    }
    match did_you_mean(name, &known) {
        similar if similar.is_empty() => {
            bail!("no server is named {name:?}; see maru servers list")
        }
        similar => bail!("no server is named {name:?}{similar}"),
    }
}

/// Waits until a server is connected or has failed: the hub answers before that. Returns
/// `response` when it is still being connected after `timeout`.
async fn wait_for_connection(hub: &HubClient, response: Value, timeout: Duration) -> Result<Value> {
    let deadline = Instant::now() + timeout;
    while response["status"] == "CONNECTING" && Instant::now() < deadline {
        time::sleep(CONNECTION_POLL_INTERVAL).await;
        let servers = hub.request_json("GET", SERVERS_ROUTE, None).await?;
        let mut servers = servers.as_array().into_iter().flatten();
        let server = servers.find(|it| it["name"] == response["name"]);
        if let Some(server) = server.filter(|it| it["status"] != "CONNECTING") {
            return Ok(server.clone());
        }
    }
    Ok(response)
}

impl ServersAction {
    /// The server that must exist.
    fn existing_server(&self) -> Option<&str> {
        match self {
            Self::Add(_) | Self::List | Self::Search { .. } | Self::Import { .. } => None,
            Self::Login(login) => Some(&login.name),
            Self::Edit { name, .. }
            | Self::Logout { name, .. }
            | Self::Logs { name, .. }
            | Self::Accept { name, .. } => Some(name),
            Self::Show(server)
            | Self::Restart(server)
            | Self::Connect(server)
            | Self::Disconnect(server)
            | Self::Enable(server)
            | Self::Disable(server)
            | Self::Remove(server) => Some(&server.name),
        }
    }

    /// The server whose connection ends the command.
    fn waits_for_connection(&self) -> Option<&str> {
        match self {
            Self::Connect(server) | Self::Enable(server) | Self::Restart(server) => {
                Some(&server.name)
            }
            _ => None,
        }
    }

    async fn send(&self, hub: &HubClient) -> Result<Value> {
        let action_path =
            |server: &ServerArg, action: &str| format!("{SERVERS_ROUTE}/{}/{action}", server.name);
        match self {
            Self::Add(_) | Self::Login(_) | Self::Edit { .. } | Self::Logs { .. } => {
                bail!("this action has its own requests")
            }
            Self::Restart(server) => {
                let disconnect = action_path(server, "disconnect");
                hub.request_json("POST", &disconnect, None).await?;
                hub.request_json("POST", &action_path(server, "connect"), None)
                    .await
            }
            Self::List => hub.request_json("GET", SERVERS_ROUTE, None).await,
            Self::Search { word } => {
                let path = format!("/api/mcp/registry?search={}", percent_encode(word));
                hub.request_json("GET", &path, None).await
            }
            Self::Show(name) => {
                hub.request_json("GET", &format!("{SERVERS_ROUTE}/{}", name.name), None)
                    .await
            }
            Self::Connect(server) => {
                hub.request_json("POST", &action_path(server, "connect"), None)
                    .await
            }
            Self::Disconnect(server) => {
                hub.request_json("POST", &action_path(server, "disconnect"), None)
                    .await
            }
            Self::Enable(server) => {
                hub.request_json("POST", &action_path(server, "enable"), None)
                    .await
            }
            Self::Disable(server) => {
                hub.request_json("POST", &action_path(server, "disable"), None)
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
                hub.request_json("POST", &path, None).await
            }
            Self::Logout { name, own } => {
                let (method, action) = if *own {
                    ("DELETE", "account")
                } else {
                    ("POST", "logout")
                };
                let path = format!("{SERVERS_ROUTE}/{name}/{action}");
                hub.request_json(method, &path, None).await
            }
            Self::Remove(name) => {
                hub.request_json("DELETE", &format!("{SERVERS_ROUTE}/{}", name.name), None)
                    .await
            }
            Self::Import {
                file,
                accept_warnings,
            } => {
                let mut body = jsonc::read_file(file)?;
                if let (true, Value::Object(members)) = (*accept_warnings, &mut body) {
                    members.insert("acceptWarnings".to_owned(), true.into());
                }
                hub.request_json("POST", "/api/mcp/import", Some(&body))
                    .await
            }
        }
    }

    /// Whether a server that the action should connect has failed.
    fn has_failed(&self, response: &Value) -> bool {
        let is_failed = |it: &Value| it["status"] == "FAILED" || it.get("error").is_some();
        match self {
            Self::Connect(_) | Self::Restart(_) => is_failed(response),
            Self::Import { .. } => response["servers"]
                .as_array()
                .is_some_and(|servers| servers.iter().any(is_failed)),
            _ => false,
        }
    }

    fn format_response(&self, response: &Value) -> String {
        match self {
            Self::List => format_servers(response),
            Self::Search { .. } => format_found(response),
            Self::Show(_) | Self::Accept { .. } => format_detail(response),
            Self::Remove(server) => format!("{} is removed\n", server.name),
            Self::Logout { name, .. } if response["revoked"] == true => {
                format!("signed out of {name}; its tokens are revoked and deleted\n")
            }
            Self::Logout { name, .. } => {
                format!("signed out of {name}; its tokens are deleted\n")
            }
            Self::Import { .. } => {
                let servers = response["servers"].as_array();
                let servers = servers.map_or(&[][..], Vec::as_slice);
                servers.iter().map(format_imported).collect()
            }
            _ => format_status(response),
        }
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
