//! `maru audit`: prints records of the audit log.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use maru_runtime::clock;
use serde_json::Value;

use super::{
    EXIT_CANNOT_RUN,
    client::{HubClient, error_message},
    serve::block_on,
    terminal,
};
use crate::config::LoadedConfig;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  maru audit                                        the last hundred records
  maru audit --principal bot --outcome failed
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
    #[arg(long)]
    outcome: Option<String>,
    /// Only records of this request id
    #[arg(long)]
    request: Option<String>,
    /// Print the hub's response as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(loaded: &LoadedConfig, options: &AuditArgs) -> Result<ExitCode> {
    let hub = HubClient::open(loaded)?;
    let path = options.query_path();
    let (status, records) = block_on(hub.send_rest("GET", &path, None))?;
    if status != 200 {
        terminal::print_error(error_message(&records));
        return Ok(ExitCode::from(EXIT_CANNOT_RUN));
    }
    let text = if options.json {
        format!("{}\n", serde_json::to_string_pretty(&records)?)
    } else {
        format_records(records.as_array().map_or(&[], Vec::as_slice))
    };
    terminal::print(&text)?;
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

fn format_records(records: &[Value]) -> String {
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
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    let text = |it: &Value, name: &str| it[name].as_str().unwrap_or_default().to_owned();
    rows.extend(records.iter().map(|it| {
        let micros = it["tookMicroseconds"].as_i64().unwrap_or(0);
        vec![
            clock::format_rfc3339(it["at"].as_i64().unwrap_or(0)),
            text(it, "principal"),
            text(it, "from"),
            text(it, "action"),
            text(it, "target"),
            text(it, "outcome"),
            format!("{}.{:03}", micros / 1000, micros % 1000),
            text(it, "arguments").chars().take(80).collect(),
        ]
    }));
    terminal::format_table(&rows)
}
