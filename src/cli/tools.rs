//! `maru tools`.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde_json::Value;

use super::{client::Client, out, serve::block_on};
use crate::config::Loaded;

#[derive(Debug, Args)]
pub(super) struct Options {
    /// Print the whole list as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(loaded: Loaded, options: &Options) -> Result<ExitCode> {
    let tools = block_on(async { Client::open(loaded).await?.tools().await })?;
    if options.json {
        out::print(&format!("{}\n", serde_json::to_string_pretty(&tools)?))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = vec![
        ["NAME", "ARGUMENTS", "DESCRIPTION"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(tools.iter().map(row));
    out::print(&out::table(&rows))?;
    Ok(ExitCode::SUCCESS)
}

fn row(tool: &Value) -> Vec<String> {
    let text = |name: &str| tool[name].as_str().unwrap_or_default().to_owned();
    let arguments = tool["inputSchema"]["properties"].as_object();
    let arguments: Vec<&str> =
        arguments.map_or(Vec::new(), |it| it.keys().map(String::as_str).collect());
    vec![text("name"), arguments.join(", "), text("description")]
}
