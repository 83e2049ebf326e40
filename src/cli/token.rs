//! `maru token`: creates, lists and revokes tokens.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use maru_runtime::clock;
use serde_json::{Value, json};

use super::{
    client::HubClient, context::CliContext, limits::names_of, serve::block_on,
    servers::percent_encode, suggestion::did_you_mean, terminal,
};

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
    /// What the token may do
    #[arg(long, default_value = "agent")]
    role: TokenRole,
    /// Limit the token to this server; can be repeated. maru's own tools belong to the server `maru`
    #[arg(long = "server", value_name = "NAME")]
    servers: Vec<String>,
    /// Limit the token to this tool; can be repeated
    #[arg(long = "tool", value_name = "NAME")]
    tools: Vec<String>,
    /// Lifetime, such as 12h or 30d [default: unlimited]
    #[arg(long, value_name = "TIME")]
    expires: Option<String>,
    /// Accept servers and tools that do not exist yet
    #[arg(long)]
    allow_unknown: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum TokenRole {
    /// Lists
    Reader,
    /// Lists and calls tools
    Agent,
    /// Changes maru
    Admin,
}

const TOKENS_ROUTE: &str = "/api/tokens";

pub(super) fn run(context: &CliContext, options: &TokenArgs) -> Result<ExitCode> {
    let hub = HubClient::open(context)?;
    let response = block_on(options.action.send(&hub))?;
    context.print(&response, |it| options.action.format_response(it))?;
    Ok(ExitCode::SUCCESS)
}

impl TokenAction {
    async fn send(&self, hub: &HubClient) -> Result<Value> {
        match self {
            Self::Create(create) => {
                let body = create.request_body()?;
                let (status, response) = hub.send_rest("POST", TOKENS_ROUTE, Some(&body)).await?;
                match (status, response["field"].as_str()) {
                    (200..300, _) => Ok(response),
                    (400, Some("servers" | "tools")) => bail!(
                        "{}; --allow-unknown creates the token all the same",
                        hub.refusal(status, &response)
                    ),
                    _ => bail!("{}", hub.refusal(status, &response)),
                }
            }
            Self::List => hub.request_json("GET", TOKENS_ROUTE, None).await,
            Self::Revoke { name } => {
                let path = format!("{TOKENS_ROUTE}/{}", percent_encode(name));
                let (status, response) = hub.send_rest("DELETE", &path, None).await?;
                match status {
                    204 => Ok(response),
                    404 => {
                        let tokens = hub.request_json("GET", TOKENS_ROUTE, None).await?;
                        bail!(
                            "no token is named {name:?}{}; see maru token list",
                            did_you_mean(name, names_of(&tokens, "name"))
                        );
                    }
                    _ => bail!("{}", hub.refusal(status, &response)),
                }
            }
        }
    }

    fn format_response(&self, response: &Value) -> String {
        match self {
            Self::Create(_) => format!("{}\n", response["token"].as_str().unwrap_or_default()),
            Self::List => format_tokens(response),
            Self::Revoke { name } => format!("{name} is revoked\n"),
        }
    }
}

impl TokenRole {
    fn name(self) -> &'static str {
        match self {
            Self::Reader => "reader",
            Self::Agent => "agent",
            Self::Admin => "admin",
        }
    }
}

impl CreateToken {
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
            "role": self.role.name(),
            "servers": list(&self.servers),
            "tools": list(&self.tools),
            "allowUnknown": self.allow_unknown,
            "expiresAt": expires.map(|it| clock::now_ms().saturating_add(it)),
        }))
    }
}

/// Parses `30m`, `12h` or `30d` into milliseconds.
pub(super) fn parse_duration_ms(text: &str) -> Result<i64> {
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

fn format_tokens(tokens: &Value) -> String {
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
    terminal::table(&header, tokens, |it| {
        vec![
            terminal::text_of(it, "name"),
            terminal::text_of(it, "role"),
            names(&it["servers"]),
            names(&it["tools"]),
            time(&it["createdAt"]),
            time(&it["expiresAt"]),
        ]
    })
}
