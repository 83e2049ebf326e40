//! `maru token`: creates, lists and revokes tokens.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Subcommand};
use maru_runtime::clock;
use serde_json::{Value, json};

use super::{
    EXIT_CANNOT_RUN,
    client::{HubClient, error_message},
    serve::block_on,
    servers::SERVERS_ROUTE,
    terminal,
};
use crate::{config::LoadedConfig, tools::OWN_SERVER_NAME};

#[derive(Debug, Args)]
#[command(
    after_help = "Roles: a reader lists, an agent also calls tools, an admin changes maru.

Examples:
  maru token create laptop                          may list and call all tools
  maru token create dashboard --role reader
  maru token create bot --server files --tool files__read_file --expires 30d
  maru token list
  maru token revoke bot"
)]
pub(super) struct TokenArgs {
    #[command(subcommand)]
    action: TokenAction,
    /// Print the hub's response as JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum TokenAction {
    /// Create a token and print it; it is not shown again
    Create(CreateToken),
    /// List the tokens without their secrets
    List,
    /// Revoke a token immediately
    Revoke {
        /// The name of the token
        name: String,
    },
}

#[derive(Debug, Args)]
struct CreateToken {
    /// The name of the token in logs and the audit log
    name: String,
    /// reader, agent or admin
    #[arg(long, default_value = "agent")]
    role: String,
    /// Limit the token to this server; can be repeated. maru's own tools belong to the server `maru`
    #[arg(long = "server", value_name = "NAME")]
    servers: Vec<String>,
    /// Limit the token to this tool; can be repeated
    #[arg(long = "tool", value_name = "NAME")]
    tools: Vec<String>,
    /// Lifetime, such as 12h or 30d [default: unlimited]
    #[arg(long, value_name = "TIME")]
    expires: Option<String>,
}

const TOKENS_ROUTE: &str = "/api/tokens";

pub(super) fn run(loaded: &LoadedConfig, options: &TokenArgs) -> Result<ExitCode> {
    let hub = HubClient::open(loaded)?;
    let (status, response) = block_on(options.action.send(&hub))?;
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
    if let TokenAction::Create(create) = &options.action {
        block_on(create.warn_of_unknown_servers(&hub))?;
    }
    Ok(ExitCode::SUCCESS)
}

impl TokenAction {
    async fn send(&self, hub: &HubClient) -> Result<(u16, Value)> {
        match self {
            Self::Create(create) => {
                hub.send_rest("POST", TOKENS_ROUTE, Some(&create.request_body()?))
                    .await
            }
            Self::List => hub.send_rest("GET", TOKENS_ROUTE, None).await,
            Self::Revoke { name } => {
                hub.send_rest("DELETE", &format!("{TOKENS_ROUTE}/{name}"), None)
                    .await
            }
        }
    }

    fn format_response(&self, response: &Value) -> String {
        match self {
            Self::Create(_) => format!("{}\n", response["token"].as_str().unwrap_or_default()),
            Self::List => format_tokens(response.as_array().map_or(&[], Vec::as_slice)),
            Self::Revoke { name } => format!("{name} is revoked\n"),
        }
    }
}

impl CreateToken {
    /// Warns of unknown servers. They are accepted, because they may be registered later.
    async fn warn_of_unknown_servers(&self, hub: &HubClient) -> Result<()> {
        if self.servers.is_empty() {
            return Ok(());
        }
        let (_, known) = hub.send_rest("GET", SERVERS_ROUTE, None).await?;
        let known: Vec<&str> = known.as_array().map_or(Vec::new(), |all| {
            all.iter().filter_map(|it| it["name"].as_str()).collect()
        });
        let is_unknown = |it: &&String| *it != OWN_SERVER_NAME && !known.contains(&it.as_str());
        for name in self.servers.iter().filter(is_unknown) {
            terminal::print_error(&format!(
                "warning: no server is named {name:?} now; see maru servers list"
            ));
        }
        Ok(())
    }

    fn request_body(&self) -> Result<Value> {
        let list = |it: &[String]| {
            if it.is_empty() {
                Value::Null
            } else {
                json!(it)
            }
        };
        let expires = self.expires.as_deref().map(parse_duration_ms).transpose()?;
        Ok(json!({
            "name": self.name,
            "role": self.role,
            "servers": list(&self.servers),
            "tools": list(&self.tools),
            "expiresAt": expires.map(|it| clock::now_ms().saturating_add(it)),
        }))
    }
}

/// Parses `30m`, `12h` or `30d` into milliseconds.
fn parse_duration_ms(text: &str) -> Result<i64> {
    let (number, unit) = text.split_at(text.len().saturating_sub(1));
    let unit = match unit {
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => clock::DAY_MS,
        _ => bail!("{text:?} is not a duration; write 30m, 12h or 30d"),
    };
    match number.parse::<i64>() {
        Ok(number @ 1..=1_000_000) => Ok(number * unit),
        _ => bail!("{text:?} is not a duration; write 30m, 12h or 30d"),
    }
}

fn format_tokens(tokens: &[Value]) -> String {
    let names = |value: &Value| match value.as_array() {
        None => "all".to_owned(),
        Some(all) if all.is_empty() => "none".to_owned(),
        Some(all) => {
            let all: Vec<&str> = all.iter().filter_map(Value::as_str).collect();
            all.join(",")
        }
    };
    let time = |value: &Value| {
        value
            .as_i64()
            .map_or("never".to_owned(), clock::format_rfc3339)
    };
    let header = ["NAME", "ROLE", "SERVERS", "TOOLS", "CREATED", "EXPIRES"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    rows.extend(tokens.iter().map(|it| {
        vec![
            it["name"].as_str().unwrap_or_default().to_owned(),
            it["role"].as_str().unwrap_or_default().to_owned(),
            names(&it["servers"]),
            names(&it["tools"]),
            time(&it["createdAt"]),
            time(&it["expiresAt"]),
        ]
    }));
    terminal::format_table(&rows)
}
