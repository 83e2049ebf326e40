//! `maru audit`: prints records of the audit log.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use maru_runtime::clock;
use serde_json::Value;

use super::{
    calls::TimeArgs,
    client::{HubClient, query_text},
    context::CliContext,
    known_names::{NameKind, parse_audit_outcome, print_similar_names},
    serve::block_on,
    terminal,
};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  maru audit                                        the last hundred records
  maru audit --principal bot --outcome failed
  maru audit --since 24h --failed                   what failed since yesterday, and why
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
    /// Only records with this outcome: ok, failed, refused, cancelled, `timed_out`, unknown, or an HTTP status
    #[arg(long, conflicts_with = "failed", value_parser = parse_audit_outcome)]
    outcome: Option<String>,
    #[command(flatten)]
    time: TimeArgs,
    /// Only what failed, was refused or timed out, with the reason
    #[arg(long)]
    failed: bool,
    /// Only records of this request id
    #[arg(long)]
    request: Option<String>,
}

pub(super) fn run(context: &CliContext, options: &AuditArgs) -> Result<ExitCode> {
    let hub = HubClient::open(context)?;
    block_on(async {
        let records = hub.request_json("GET", &options.query_path(), None).await?;
        context.print(&records, |it| format_records(it, options.failed))?;
        if records.as_array().is_some_and(Vec::is_empty) {
            let names = [
                (NameKind::Token, options.principal.as_deref()),
                (NameKind::Tool, options.target.as_deref()),
            ];
            print_similar_names(&hub, &names).await;
        }
        Ok(ExitCode::SUCCESS)
    })
}

impl AuditArgs {
    fn query_path(&self) -> String {
        let filters = [
            ("principal", self.principal.as_deref()),
            ("action", self.action.as_deref()),
            ("target", self.target.as_deref()),
            ("outcome", self.outcome.as_deref()),
            ("since", self.time.since.as_deref()),
            ("until", self.time.until.as_deref()),
            ("failed", self.failed.then_some("true")),
            ("request", self.request.as_deref()),
        ];
        format!("/api/audit?limit={}{}", self.limit, query_text(&filters))
    }
}

fn format_records(records: &Value, failed: bool) -> String {
    if records.as_array().is_some_and(Vec::is_empty) {
        return "no record matches\n".to_owned();
    }
    let mut header = vec!["WHEN", "WHO", "FROM", "WHAT", "ON", "OUTCOME", "MS"];
    header.push(if failed { "REASON" } else { "ARGUMENTS" });
    let cells = |it: &Value| {
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
            if failed {
                text("error")
            } else {
                text("arguments").chars().take(80).collect()
            },
        ]
    };
    // The reason is what was asked for.
    if failed {
        terminal::wrapped_table(&header, records, cells)
    } else {
        terminal::table(&header, records, cells)
    }
}
