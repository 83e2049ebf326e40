//! `maru token`: creates, lists and revokes tokens.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use maru_runtime::clock;
use serde_json::{Value, json};

use super::{
    client::HubClient, context::CliContext, limits::names_of, serve::block_on,
    servers::percent_encode, suggestion::did_you_mean, terminal, toolsets::ListingArg,
};

#[derive(Debug, Args)]
#[command(
    after_help = "Roles: a reader lists, an agent also calls tools, an admin changes maru.

Examples:
  maru token create laptop                          may list and call all tools
  maru token create dashboard --role reader
  maru token create bot --server files --tool files__read_file --expires 30d
  maru token create helpdesk --toolset support --listing search
  maru token list
  maru token revoke bot
  maru token invite kim --role agent                prints a link for a person
  maru token grants                                 what people allowed clients"
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
    /// Revoke a token or an account immediately
    Revoke {
        /// The name of the token or account
        name: String,
    },
    /// Create an account and print the link by which its person chooses a passphrase
    Invite(InvitePerson),
    /// List the accounts of people
    Accounts,
    /// List what people allowed clients that signed in
    Grants,
    /// End what a person allowed a client
    RevokeGrant {
        /// The id, see `maru token grants`
        #[arg(allow_hyphen_values = true)]
        id: String,
    },
    /// List the clients that registered
    Clients,
    /// Delete a client with everything that it was allowed
    RevokeClient {
        /// The id, see `maru token clients`
        #[arg(allow_hyphen_values = true)]
        id: String,
    },
}

#[derive(Debug, Args)]
struct InvitePerson {
    #[command(flatten)]
    account: CreateToken,
    /// Replace the forgotten passphrase of an account that exists
    #[arg(long)]
    again: bool,
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
    /// Limit the token to this toolset
    #[arg(long, value_name = "NAME")]
    toolset: Option<String>,
    /// Whether clients with the token list or search tools [default: what the endpoint does]
    #[arg(long)]
    listing: Option<ListingArg>,
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
const ACCOUNTS_ROUTE: &str = "/api/accounts";
const GRANTS_ROUTE: &str = "/api/oauth/grants";
const CLIENTS_ROUTE: &str = "/api/oauth/clients";

pub(super) fn run(context: &CliContext, options: &TokenArgs) -> Result<ExitCode> {
    let hub = HubClient::open(context)?;
    let response = block_on(options.action.send(&hub))?;
    context.print(&response, |it| options.action.format_response(it))?;
    Ok(ExitCode::SUCCESS)
}

impl TokenAction {
    async fn send(&self, hub: &HubClient) -> Result<Value> {
        match self {
            Self::Create(create) => create.send(hub, TOKENS_ROUTE).await,
            Self::Invite(invite) if invite.again => {
                let name = percent_encode(&invite.account.name);
                let path = format!("{ACCOUNTS_ROUTE}/{name}/invitation");
                hub.request_json("POST", &path, None).await
            }
            Self::Invite(invite) => invite.account.send(hub, ACCOUNTS_ROUTE).await,
            Self::Accounts => hub.request_json("GET", ACCOUNTS_ROUTE, None).await,
            Self::Grants => hub.request_json("GET", GRANTS_ROUTE, None).await,
            Self::Clients => hub.request_json("GET", CLIENTS_ROUTE, None).await,
            Self::RevokeGrant { id } => delete(hub, GRANTS_ROUTE, id).await,
            Self::RevokeClient { id } => delete(hub, CLIENTS_ROUTE, id).await,
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
            Self::Invite(_) => format!(
                "{}\nThe link works once, until {}.\n",
                response["invitationUrl"].as_str().unwrap_or_default(),
                time_of(&response["invitationExpiresAt"])
            ),
            Self::Accounts => format_accounts(response),
            Self::Grants => format_grants(response),
            Self::Clients => format_clients(response),
            Self::RevokeGrant { id } | Self::RevokeClient { id } => format!("{id} is revoked\n"),
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

async fn delete(hub: &HubClient, route: &str, id: &str) -> Result<Value> {
    let path = format!("{route}/{}", percent_encode(id));
    let (status, response) = hub.send_rest("DELETE", &path, None).await?;
    match status {
        204 => Ok(response),
        _ => bail!("{}", hub.refusal(status, &response)),
    }
}

impl CreateToken {
    async fn send(&self, hub: &HubClient, route: &str) -> Result<Value> {
        let body = self.request_body()?;
        let (status, response) = hub.send_rest("POST", route, Some(&body)).await?;
        match (status, response["field"].as_str()) {
            (200..300, _) => Ok(response),
            (400, Some("servers" | "tools" | "toolset")) => bail!(
                "{}; --allow-unknown creates it all the same",
                hub.refusal(status, &response)
            ),
            _ => bail!("{}", hub.refusal(status, &response)),
        }
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
            "role": self.role.name(),
            "servers": list(&self.servers),
            "tools": list(&self.tools),
            "toolset": self.toolset,
            "toolListing": self.listing.map(ListingArg::name),
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

/// The names of a list that limits; an absent one limits nothing.
fn limit_of(value: &Value) -> String {
    match value.as_array() {
        None => "all".to_owned(),
        Some(all) if all.is_empty() => "none".to_owned(),
        Some(all) => {
            let all: Vec<&str> = all.iter().filter_map(Value::as_str).collect();
            all.join(",")
        }
    }
}

fn time_of(value: &Value) -> String {
    let time = value.as_i64();
    time.map_or("never".to_owned(), clock::format_rfc3339)
}

fn format_accounts(accounts: &Value) -> String {
    let header = ["NAME", "ROLE", "SERVERS", "TOOLS", "STATE", "PERSON"];
    terminal::table(&header, accounts, |it| {
        vec![
            terminal::text_of(it, "name"),
            terminal::text_of(it, "role"),
            limit_of(&it["servers"]),
            limit_of(&it["tools"]),
            terminal::text_of(it, "state"),
            terminal::text_of(it, "label"),
        ]
    })
}

fn format_grants(grants: &Value) -> String {
    let header = [
        "ID",
        "ACCOUNT",
        "CLIENT",
        "ROLE",
        "SERVERS",
        "TOOLS",
        "LAST RENEWED",
    ];
    terminal::table(&header, grants, |it| {
        vec![
            terminal::text_of(it, "id"),
            terminal::text_of(it, "account"),
            terminal::text_of(it, "clientName"),
            terminal::text_of(it, "role"),
            limit_of(&it["servers"]),
            limit_of(&it["tools"]),
            time_of(&it["renewedAt"]),
        ]
    })
}

fn format_clients(clients: &Value) -> String {
    let header = ["ID", "NAME", "GRANTS", "REGISTERED"];
    terminal::table(&header, clients, |it| {
        vec![
            terminal::text_of(it, "id"),
            terminal::text_of(it, "name"),
            it["grants"].to_string(),
            time_of(&it["registeredAt"]),
        ]
    })
}

fn format_tokens(tokens: &Value) -> String {
    let header = [
        "NAME", "ROLE", "SERVERS", "TOOLS", "TOOLSET", "CREATED", "EXPIRES",
    ];
    terminal::table(&header, tokens, |it| {
        vec![
            terminal::text_of(it, "name"),
            terminal::text_of(it, "role"),
            limit_of(&it["servers"]),
            limit_of(&it["tools"]),
            terminal::text_of(it, "toolset"),
            time_of(&it["createdAt"]),
            time_of(&it["expiresAt"]),
        ]
    })
}
