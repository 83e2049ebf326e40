//! `maru toolsets`: named selections of tools.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::{
    client::HubClient, context::CliContext, limits::names_of, serve::block_on,
    servers::percent_encode, suggestion::did_you_mean, terminal,
};

#[derive(Debug, Args)]
#[command(
    after_help = "A toolset has an endpoint of its own, /mcp/t/NAME, and can limit a token
(maru token create bot --toolset NAME) or a client of maru stdio.

Examples:
  maru toolsets                                    list the toolsets
  maru toolsets set support --include 'files__*' --include 'get_*'
  maru toolsets set reports --include annotation:readOnlyHint --tools search
  maru toolsets set crm --include server:crm --exclude '*delete*' --calls-per-minute 60
  maru toolsets show support
  maru toolsets remove support"
)]
pub(super) struct ToolsetsArgs {
    #[command(subcommand)]
    action: Option<ToolsetsAction>,
}

#[derive(Debug, Subcommand)]
enum ToolsetsAction {
    /// List the toolsets (the default)
    List,
    /// Show a toolset and its tools
    Show {
        /// The toolset
        name: String,
    },
    /// Add a toolset, or replace the one with its name
    Set(SetToolset),
    /// Remove a toolset
    Remove {
        /// The toolset
        name: String,
    },
}

#[derive(Debug, Args)]
struct SetToolset {
    /// The toolset: a-z, 0-9, - and _
    name: String,
    /// What it contains: a name of tools with * for any text, server:NAME, tag:NAME or annotation:NAME; can be repeated
    #[arg(long, value_name = "TOOLS", required = true)]
    include: Vec<String>,
    /// What it does not contain all the same; can be repeated
    #[arg(long, value_name = "TOOLS")]
    exclude: Vec<String>,
    /// What it is for, for people
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,
    /// What clients tell their model about it
    #[arg(long, value_name = "TEXT")]
    instructions: Option<String>,
    /// Whether its clients list or search tools
    #[arg(long)]
    tools: Option<ListingArg>,
    /// A tool that a search lists all the same; can be repeated
    #[arg(long = "favorite", value_name = "TOOL")]
    favorites: Vec<String>,
    /// Calls per minute of all its callers together
    #[arg(long, value_name = "N")]
    calls_per_minute: Option<u32>,
    /// Calls per day of all its callers together
    #[arg(long, value_name = "N")]
    calls_per_day: Option<u32>,
}

/// Whether clients list or search tools.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum ListingArg {
    /// They list all tools
    List,
    /// They list a tool that finds others, and one that calls them
    Search,
    /// They search if the schemas of all tools are large
    Auto,
}

const TOOLSETS_ROUTE: &str = "/api/toolsets";

pub(super) fn run(context: &CliContext, options: &ToolsetsArgs) -> Result<ExitCode> {
    let hub = HubClient::open(context)?;
    block_on(async {
        match options.action.as_ref().unwrap_or(&ToolsetsAction::List) {
            ToolsetsAction::List => {
                let toolsets = hub.request_json("GET", TOOLSETS_ROUTE, None).await?;
                context.print(&toolsets, format_toolsets)?;
            }
            ToolsetsAction::Show { name } => {
                let toolset = send(&hub, "GET", name, None).await?;
                context.print(&toolset, format_toolset)?;
            }
            ToolsetsAction::Set(set) => {
                let toolset = send(&hub, "PUT", &set.name, Some(&set.body())).await?;
                context.print(&toolset, format_toolset)?;
            }
            ToolsetsAction::Remove { name } => {
                send(&hub, "DELETE", name, None).await?;
                context.print(&json!({"removed": name}), |_| {
                    format!("{name} is removed\n")
                })?;
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

async fn send(hub: &HubClient, method: &str, name: &str, body: Option<&Value>) -> Result<Value> {
    let path = format!("{TOOLSETS_ROUTE}/{}", percent_encode(name));
    let (status, response) = hub.send_rest(method, &path, body).await?;
    match status {
        200..300 => Ok(response),
        404 => {
            let toolsets = hub.request_json("GET", TOOLSETS_ROUTE, None).await?;
            bail!(
                "no toolset is named {name:?}{}; see maru toolsets",
                did_you_mean(name, names_of(&toolsets, "name"))
            )
        }
        _ => bail!("{}", hub.refusal(status, &response)),
    }
}

impl SetToolset {
    fn body(&self) -> Value {
        let mut body = json!({
            "include": self.include,
            "exclude": self.exclude,
            "favorites": self.favorites,
        });
        let texts = [
            ("description", &self.description),
            ("instructions", &self.instructions),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                body[name] = text.as_str().into();
            }
        }
        if let Some(listing) = self.tools {
            body["tools"] = listing.name().into();
        }
        let limits = [
            ("calls_per_minute", self.calls_per_minute),
            ("calls_per_day", self.calls_per_day),
        ];
        for (name, limit) in limits {
            if let Some(limit) = limit {
                body[name] = limit.into();
            }
        }
        body
    }
}

impl ListingArg {
    /// Its name in the API.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Search => "search",
            Self::Auto => "auto",
        }
    }
}

fn format_toolsets(toolsets: &Value) -> String {
    if toolsets.as_array().is_some_and(Vec::is_empty) {
        return "there is no toolset; see maru toolsets set --help\n".to_owned();
    }
    let header = [
        "NAME",
        "TOOLS",
        "TOKENS",
        "LISTING",
        "ENDPOINT",
        "FROM",
        "DESCRIPTION",
    ];
    let members = [
        "name",
        "toolCount",
        "estimatedTokens",
        "tools",
        "endpoint",
        "from",
        "description",
    ];
    terminal::table(&header, toolsets, |it| {
        members.map(|name| terminal::text_of(it, name)).to_vec()
    })
}

fn format_toolset(toolset: &Value) -> String {
    let names = names_of_tools(toolset);
    let mut text = format!(
        "{}: {} tools at {}\n",
        terminal::text_of(toolset, "name"),
        names.len(),
        terminal::text_of(toolset, "endpoint")
    );
    for name in names {
        text.push_str(&format!("  {name}\n"));
    }
    text
}

fn names_of_tools(toolset: &Value) -> Vec<&str> {
    let names = toolset["toolNames"].as_array().into_iter().flatten();
    names.filter_map(Value::as_str).collect()
}
