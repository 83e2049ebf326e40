//! `maru audit`: who did what.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde_json::Value;

use super::{CANNOT, client::Remote, out, serve::block_on};
use crate::{clock, config::Loaded};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  maru audit                                        the last hundred
  maru audit --principal bot --outcome failed
  maru audit --target fx__echo --limit 1000 --json")]
pub(super) struct Options {
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

pub(super) fn run(loaded: &Loaded, options: &Options) -> Result<ExitCode> {
    let hub = Remote::open(loaded)?;
    let path = options.path();
    let (status, answer) = block_on(hub.rest("GET", &path, None))?;
    if status != 200 {
        let why = answer["error"]
            .as_str()
            .or(answer["error"]["message"].as_str());
        out::complain(why.unwrap_or("the hub refused, without saying why"));
        return Ok(ExitCode::from(CANNOT));
    }
    let text = match options.json {
        true => format!("{}\n", serde_json::to_string_pretty(&answer)?),
        false => table(answer.as_array().map_or(&[], Vec::as_slice)),
    };
    out::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

impl Options {
    fn path(&self) -> String {
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
            .map(|(name, value)| format!("&{name}={}", super::servers::escaped(value)))
            .collect();
        format!("/api/audit?limit={}{filters}", self.limit)
    }
}

fn table(records: &[Value]) -> String {
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
            clock::text(it["at"].as_i64().unwrap_or(0)),
            text(it, "principal"),
            text(it, "from"),
            text(it, "action"),
            text(it, "target"),
            text(it, "outcome"),
            format!("{}.{:03}", micros / 1000, micros % 1000),
            text(it, "arguments").chars().take(80).collect(),
        ]
    }));
    out::table(&rows)
}
