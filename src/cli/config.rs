//! `maru config`: prints the settings, their schema or their reference.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::terminal;
use crate::config::{LoadedConfig, config_rows, reference_markdown, schema};

#[derive(Debug, Args)]
pub(super) struct ConfigArgs {
    /// Print keys, values and origins as JSON
    #[arg(long)]
    json: bool,
    /// Print the JSON Schema of maru.yaml, for editors
    #[arg(long, conflicts_with = "json")]
    schema: bool,
    /// Print the reference of every key (docs/config.md)
    #[arg(long, conflicts_with_all = ["json", "schema"])]
    reference: bool,
}

pub(super) fn run(loaded: &LoadedConfig, options: &ConfigArgs) -> Result<ExitCode> {
    let rows = config_rows(loaded);
    let text = if options.reference {
        reference_markdown()
    } else if options.schema {
        format!("{}\n", serde_json::to_string_pretty(schema())?)
    } else if options.json {
        format!("{}\n", serde_json::to_string_pretty(&rows)?)
    } else {
        let mut table = vec![["KEY", "VALUE", "FROM"].map(str::to_owned).to_vec()];
        table.extend(
            rows.into_iter()
                .map(|row| vec![row.key, row.value.to_string(), row.origin]),
        );
        terminal::format_table(&table)
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
