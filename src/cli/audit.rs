//! `maru audit`: prints records of the audit log.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use maru_runtime::clock;
use serde_json::Value;

use super::{
    calls::{CallTimeArgs, print_calls},
    client::HubClient,
    context::CliContext,
    serve::block_on,
    terminal,
};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  maru audit                                        the last hundred records
  maru audit --principal bot --outcome failed
  maru audit --since 24h --failed                   failed calls with their reason
  maru audit --target fx__echo --limit 1000 --json")]
pub(super) struct AuditArgs {
    /// Maximum number of records, newest first
    #[arg(long, default_value_t = 100)]
    limit: u32,
    /// Only records of this token
    #[arg(long)]
    principal: Option<String>,
    /// Only records of this action, such as tools/call
    #[arg(long)]
    action: Option<String>,
    /// Only records of this tool or path
    #[arg(long)]
    target: Option<String>,
    /// Only records with this outcome: ok, failed, refused, cancelled, `timed_out`, or an HTTP status
    #[arg(long, conflicts_with_all = ["since", "until", "failed"])]
    outcome: Option<String>,
    #[command(flatten)]
    time: CallTimeArgs,
    /// Only records of this request id
    #[arg(long)]
    request: Option<String>,
}

pub(super) fn run(context: &CliContext, options: &AuditArgs) -> Result<ExitCode> {
    if options.time.is_given() {
        // The reason of a call is kept with the call.
        let filters = [
            ("caller", options.principal.as_deref()),
            ("tool", options.target.as_deref()),
        ];
        return print_calls(context, options.limit, &options.time, &filters);
    }
    let hub = HubClient::open(context)?;
    let records = block_on(hub.request_json("GET", &options.query_path(), None))?;
    context.print(&records, format_records)?;
    Ok(ExitCode::SUCCESS)
}

impl AuditArgs {
    fn query_path(&self) -> String {
        let filters = [
            ("principal", &self.principal),
            ("action", &self.action),
            ("target", &self.target),
            ("outcome", &self.outcome),
            ("request", &self.request),
        ];
        let filters: String = filters
            .iter()
            .filter_map(|(name, value)| Some((name, value.as_ref()?)))
            .map(|(name, value)| format!("&{name}={}", super::servers::percent_encode(value)))
            .collect();
        format!("/api/audit?limit={}{filters}", self.limit)
    }
}

fn format_records(records: &Value) -> String {
    let header = [
        "WHEN",
        "WHO",
        "FROM",
        "WHAT",
        "ON",
        "OUTCOME",
        "MS",
        "ARGUMENTS",
    ];
    terminal::table(&header, records, |it| {
        let text = |name: &str| terminal::text_of(it, name);
        let micros = it["tookMicroseconds"].as_i64().unwrap_or(0);
        vec![
            clock::format_rfc3339(it["at"].as_i64().unwrap_or(0)),
            text("principal"),
            text("from"),
            text("action"),
            text("target"),
            text("outcome"),
            format!("{}.{:03}", micros / 1000, micros % 1000),
            text("arguments").chars().take(80).collect(),
        ]
    })
}
