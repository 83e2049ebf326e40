//! `maru limits`: the limits of calls per day and minute.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::{
    client::HubClient, context::CliContext, known_names::NameKind, serve::block_on,
    servers::percent_encode, suggestion::did_you_mean, terminal,
};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  maru limits                                      list the limits
  maru limits set user bot --per-day 200
  maru limits set tool search_docs --per-minute 30
  maru limits remove user bot")]
pub(super) struct LimitsArgs {
    #[command(subcommand)]
    action: Option<LimitsAction>,
}

#[derive(Debug, Subcommand)]
enum LimitsAction {
    /// List the limits (the default)
    List,
    /// Set the limit of a user (the name of a token) or of a tool
    Set {
        #[command(flatten)]
        target: LimitTarget,
        /// Calls per day (UTC)
        #[arg(long, value_name = "N", required_unless_present = "per_minute")]
        per_day: Option<u32>,
        /// Calls per minute
        #[arg(long, value_name = "N")]
        per_minute: Option<u32>,
        /// Accept a name that does not exist yet
        #[arg(long)]
        allow_unknown: bool,
    },
    /// Remove a limit
    Remove(LimitTarget),
}

#[derive(Debug, Args)]
struct LimitTarget {
    /// What the limit applies to
    kind: LimitKind,
    /// The name of the user or tool
    name: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LimitKind {
    /// The name of a token
    User,
    /// The name of a tool
    Tool,
}

const LIMITS_ROUTE: &str = "/api/limits";

pub(super) fn run(context: &CliContext, options: &LimitsArgs) -> Result<ExitCode> {
    let hub = HubClient::open(context)?;
    block_on(async {
        match options.action.as_ref().unwrap_or(&LimitsAction::List) {
            LimitsAction::List => {
                let limits = hub.request_json("GET", LIMITS_ROUTE, None).await?;
                context.print(&limits, format_limits)?;
            }
            LimitsAction::Set {
                target,
                per_day,
                per_minute,
                allow_unknown,
            } => {
                if !allow_unknown {
                    target.check_name(&hub).await?;
                }
                let body = json!({
                    "max_count": per_day,
                    "max_per_minute": per_minute,
                    "allow_unknown": true,
                });
                let limits = hub.request_json("PUT", &target.path(), Some(&body)).await?;
                context.print(&limits, format_limits)?;
            }
            LimitsAction::Remove(target) => {
                let (status, response) = hub.send_rest("DELETE", &target.path(), None).await?;
                match status {
                    204 => context.print(&json!({"removed": target.name}), |_| {
                        format!("the limit of {} is removed\n", target.name)
                    })?,
                    404 => bail!(
                        "{} has no limit{}; see maru limits",
                        target.name,
                        target.similar_limit(&hub).await
                    ),
                    _ => bail!("{}", hub.refusal(status, &response)),
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

impl LimitTarget {
    fn path(&self) -> String {
        let kind = match self.kind {
            LimitKind::User => "USER",
            LimitKind::Tool => "TOOL",
        };
        format!("{LIMITS_ROUTE}/{kind}/{}", percent_encode(&self.name))
    }

    /// Refuses the name of a token or tool that does not exist.
    async fn check_name(&self, hub: &HubClient) -> Result<()> {
        let kind = match self.kind {
            LimitKind::User => NameKind::Token,
            LimitKind::Tool => NameKind::Tool,
        };
        let known = kind.known(hub).await?;
        if !known.contains(&self.name) {
            bail!(
                "no {} is named {:?}{}; --allow-unknown sets the limit all the same",
                kind.noun(),
                self.name,
                did_you_mean(&self.name, &known)
            );
        }
        Ok(())
    }

    async fn similar_limit(&self, hub: &HubClient) -> String {
        let limits = hub.request_json("GET", LIMITS_ROUTE, None).await;
        let limits = limits.unwrap_or_default();
        let names = limits.as_array().into_iter().flatten();
        did_you_mean(&self.name, names.filter_map(|it| it["target_id"].as_str()))
    }
}

/// The values of `member` in a list of the hub.
pub(super) fn names_of(list: &Value, member: &str) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(|it| it[member].as_str().map(str::to_owned))
        .collect()
}

fn format_limits(limits: &Value) -> String {
    if limits.as_array().is_some_and(Vec::is_empty) {
        return "no limit is set; see maru limits set --help\n".to_owned();
    }
    let header = ["APPLIES TO", "NAME", "PER DAY", "USED TODAY", "PER MINUTE"];
    terminal::table(&header, limits, |it| {
        vec![
            terminal::text_of(it, "target_type").to_lowercase(),
            terminal::text_of(it, "target_id"),
            terminal::text_of(it, "max_count"),
            terminal::text_of(it, "used_today"),
            terminal::text_of(it, "max_per_minute"),
        ]
    })
}
