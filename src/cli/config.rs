//! `maru config`: prints the settings, their schema or their reference.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use super::{
    context::{CliContext, OutputFormat},
    terminal,
};
use crate::config::{config_rows, reference_markdown, schema};

#[derive(Debug, Args)]
pub(super) struct ConfigArgs {
    /// Print the JSON Schema of maru.yaml, for editors
    #[arg(long, conflicts_with = "reference")]
    schema: bool,
    /// Print the reference of every key (docs/config.md)
    #[arg(long)]
    reference: bool,
}

pub(super) fn run(context: &CliContext, options: &ConfigArgs) -> Result<ExitCode> {
    let rows = config_rows(&context.loaded);
    let text = if options.reference {
        reference_markdown()
    } else if options.schema {
        format!("{}\n", serde_json::to_string_pretty(schema())?)
    } else if context.output != OutputFormat::Table {
        context.print(&serde_json::to_value(&rows)?, |_| String::new())?;
        return Ok(ExitCode::SUCCESS);
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
