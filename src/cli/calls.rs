//! `maru calls`: the kept calls of tools, with the reason of those that failed.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use maru_runtime::clock;
use serde_json::Value;

use super::{
    client::{HubClient, query_text},
    context::CliContext,
    known_names::{NameKind, parse_call_outcomes, print_similar_names},
    serve::block_on,
    terminal::{self, text_of},
};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  maru calls                                    the last hundred calls
  maru calls --since 24h --failed               what failed since yesterday, and why
  maru calls --tool files__read_file --slower 500
  maru calls --show 41                          arguments and result of one call")]
pub(super) struct CallsArgs {
    /// Maximum number of calls, newest first
    #[arg(long, default_value_t = 100)]
    limit: u32,
    #[command(flatten)]
    time: TimeArgs,
    /// Only calls of this tool
    #[arg(long)]
    tool: Option<String>,
    /// Only calls of tools of this server
    #[arg(long)]
    server: Option<String>,
    /// Only calls of this token
    #[arg(long)]
    caller: Option<String>,
    /// Only calls with this outcome: ok, failed, refused, cancelled or `timed_out`
    #[arg(long, conflicts_with = "failed", value_parser = parse_call_outcomes)]
    outcome: Option<String>,
    /// Only calls that failed, were refused or timed out, with the reason
    #[arg(long)]
    failed: bool,
    /// Only calls with this text in arguments or error
    #[arg(long)]
    text: Option<String>,
    /// Only calls that took longer
    #[arg(long, value_name = "MS")]
    slower: Option<u32>,
    /// Show one call with its arguments and result
    #[arg(long, value_name = "ID")]
    show: Option<u64>,
}

/// From when to when.
#[derive(Debug, Args)]
pub(super) struct TimeArgs {
    /// Only since then: 15m, 24h or 7d ago, or milliseconds since 1970
    #[arg(long, value_name = "TIME")]
    pub(super) since: Option<String>,
    /// Only until then
    #[arg(long, value_name = "TIME")]
    pub(super) until: Option<String>,
}

const CALLS_ROUTE: &str = "/api/calls";

/// Runs `maru calls`.
pub(super) fn run(context: &CliContext, options: &CallsArgs) -> Result<ExitCode> {
    let hub = HubClient::open(context)?;
    block_on(async {
        if let Some(id) = options.show {
            let path = format!("{CALLS_ROUTE}/{id}");
            let call = hub.request_json("GET", &path, None).await?;
            context.print(&call, format_call)?;
        } else {
            options.print_calls(context, &hub).await?;
        }
        Ok(ExitCode::SUCCESS)
    })
}

impl CallsArgs {
    async fn print_calls(&self, context: &CliContext, hub: &HubClient) -> Result<()> {
        let slower = self.slower.map(|it| it.to_string());
        let outcome = self.outcome.as_deref();
        let filters = [
            ("tool", self.tool.as_deref()),
            ("server", self.server.as_deref()),
            ("caller", self.caller.as_deref()),
            ("outcome", outcome.or(self.failed.then_some("error"))),
            ("text", self.text.as_deref()),
            ("slower", slower.as_deref()),
            ("since", self.time.since.as_deref()),
            ("until", self.time.until.as_deref()),
        ];
        let path = format!("{CALLS_ROUTE}?limit={}{}", self.limit, query_text(&filters));
        let page = hub.request_json("GET", &path, None).await?;
        context.print(&page["calls"], |calls| format_calls(calls, self.failed))?;
        if page["kept"] == false {
            terminal::print_note("the hub keeps no calls; these are the ones since its start");
        }
        if page["calls"].as_array().is_some_and(Vec::is_empty) {
            let names = [
                (NameKind::Tool, self.tool.as_deref()),
                (NameKind::Server, self.server.as_deref()),
                (NameKind::Token, self.caller.as_deref()),
            ];
            print_similar_names(hub, &names).await;
        }
        Ok(())
    }
}

fn format_calls(calls: &Value, failed: bool) -> String {
    if calls.as_array().is_some_and(Vec::is_empty) {
        return "no call matches\n".to_owned();
    }
    let mut header = vec!["ID", "WHEN", "WHO", "TOOL", "OUTCOME", "MS"];
    if failed {
        header.push("REASON");
    }
    let cells = |it: &Value| {
        let at = it["time"].as_i64().unwrap_or(0);
        let mut cells = vec![
            text_of(it, "id"),
            clock::format_rfc3339(at),
            text_of(it, "principal"),
            text_of(it, "tool"),
            text_of(it, "outcome"),
            text_of(it, "milliseconds"),
        ];
        if failed {
            cells.push(text_of(it, "error"));
        }
        cells
    };
    // The reason is what was asked for.
    if failed {
        terminal::wrapped_table(&header, calls, cells)
    } else {
        terminal::table(&header, calls, cells)
    }
}

fn format_call(call: &Value) -> String {
    let members = call.as_object().into_iter().flatten();
    let rows: Vec<Vec<String>> = members
        .filter(|(_, it)| !it.is_null() && !it.is_object())
        .map(|(name, _)| vec![name.clone(), text_of(call, name)])
        .collect();
    terminal::format_wrapped_table(&rows)
}
