//! `maru calls`: the kept calls of tools, with the reason of those that failed.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use maru_runtime::clock;
use serde_json::Value;

use super::{
    client::HubClient,
    context::CliContext,
    serve::block_on,
    servers::percent_encode,
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
    time: CallTimeArgs,
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
    #[arg(long, conflicts_with = "failed")]
    outcome: Option<String>,
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

/// Which calls by time and outcome.
#[derive(Debug, Args)]
pub(super) struct CallTimeArgs {
    /// Only calls since then: 15m, 24h or 7d ago, or milliseconds since 1970
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only calls until then
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only calls that failed, were refused or timed out, with the reason
    #[arg(long)]
    failed: bool,
}

const CALLS_ROUTE: &str = "/api/calls";

/// Runs `maru calls`.
pub(super) fn run(context: &CliContext, options: &CallsArgs) -> Result<ExitCode> {
    if let Some(id) = options.show {
        let hub = HubClient::open(context)?;
        let path = format!("{CALLS_ROUTE}/{id}");
        let call = block_on(hub.request_json("GET", &path, None))?;
        context.print(&call, format_call)?;
        return Ok(ExitCode::SUCCESS);
    }
    let slower = options.slower.map(|it| it.to_string());
    let filters = [
        ("tool", options.tool.as_deref()),
        ("server", options.server.as_deref()),
        ("caller", options.caller.as_deref()),
        ("outcome", options.outcome.as_deref()),
        ("text", options.text.as_deref()),
        ("slower", slower.as_deref()),
    ];
    print_calls(context, options.limit, &options.time, &filters)
}

/// Prints the calls that match.
pub(super) fn print_calls(
    context: &CliContext,
    limit: u32,
    time: &CallTimeArgs,
    filters: &[(&str, Option<&str>)],
) -> Result<ExitCode> {
    let times = [
        ("since", time.since.as_deref()),
        ("until", time.until.as_deref()),
        ("outcome", time.failed.then_some("error")),
    ];
    let query: String = filters
        .iter()
        .chain(&times)
        .filter_map(|(name, value)| Some(format!("&{name}={}", percent_encode((*value)?))))
        .collect();
    let hub = HubClient::open(context)?;
    let path = format!("{CALLS_ROUTE}?limit={limit}{query}");
    let page = block_on(hub.request_json("GET", &path, None))?;
    context.print(&page["calls"], |calls| format_calls(calls, time.failed))?;
    if page["kept"] == false {
        terminal::print_note("the hub keeps no calls; these are the ones since its start");
    }
    Ok(ExitCode::SUCCESS)
}

impl CallTimeArgs {
    /// Whether any of them is given.
    pub(super) fn is_given(&self) -> bool {
        self.since.is_some() || self.until.is_some() || self.failed
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
    let header = header.into_iter().map(str::to_owned).collect();
    let rows: Vec<_> = calls.as_array().into_iter().flatten().map(cells).collect();
    let table = [vec![header], rows].concat();
    // The reason is what was asked for.
    if failed {
        terminal::format_wrapped_table(&table)
    } else {
        terminal::format_table(&table)
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
