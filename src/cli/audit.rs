//! `maru audit`: who did what.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use maru_runtime::clock;
use serde_json::Value;

use super::{EXIT_CANNOT_RUN, client::HubClient, serve::block_on, terminal};
use crate::config::LoadedConfig;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  maru audit                                        the last hundred
  maru audit --principal bot --outcome failed
  maru audit --target fx__echo --limit 1000 --json")]
pub(super) struct AuditArgs {
    /// How many, newest first
    #[arg(long, default_value_t = 100)]
    limit: u32,
    /// Only this token's
    #[arg(long)]
    principal: Option<String>,
    /// Only this action, such as tools/call
    #[arg(long)]
    action: Option<String>,
    /// Only this tool or path
    #[arg(long)]
    target: Option<String>,
    /// Only what ended so: ok, failed, refused, cancelled, `timed_out`, or a status
    #[arg(long)]
    outcome: Option<String>,
    /// Only this request
    #[arg(long)]
    request: Option<String>,
    /// Print what the hub answers as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(loaded: &LoadedConfig, options: &AuditArgs) -> Result<ExitCode> {
    let hub = HubClient::open(loaded)?;
    let path = options.query_path();
    let (status, answer) = block_on(hub.send_rest("GET", &path, None))?;
    if status != 200 {
        let why = answer["error"]
            .as_str()
            .or(answer["error"]["message"].as_str());
        terminal::print_error(why.unwrap_or("the hub refused, without saying why"));
        return Ok(ExitCode::from(EXIT_CANNOT_RUN));
    }
    let text = if options.json {
        format!("{}\n", serde_json::to_string_pretty(&answer)?)
    } else {
        format_records(answer.as_array().map_or(&[], Vec::as_slice))
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
    let head = [
        "WHEN",
        "WHO",
        "FROM",
        "WHAT",
        "ON",
        "OUTCOME",
        "MS",
        "ARGUMENTS",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
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
