//! What every command gets: settings, hub, token and output format.

use anyhow::Result;
use clap::ValueEnum;
use serde_json::Value;

use super::{terminal, yaml};
use crate::config::{Config, LoadedConfig};

/// The global options of a command line.
#[derive(Debug)]
pub(super) struct CliContext {
    pub(super) loaded: LoadedConfig,
    /// The hub of `--hub`.
    pub(super) hub: Option<String>,
    /// The token of `--token`.
    pub(super) token: Option<String>,
    pub(super) output: OutputFormat,
}

/// How a command prints what it found.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, ValueEnum)]
pub(super) enum OutputFormat {
    #[default]
    Table,
    Json,
    Yaml,
}

impl CliContext {
    pub(super) fn config(&self) -> &Config {
        &self.loaded.config
    }

    /// Prints `value` as `-o` says; `text` writes it for people.
    pub(super) fn print(&self, value: &Value, text: impl FnOnce(&Value) -> String) -> Result<()> {
        let text = match self.output {
            OutputFormat::Table => text(value),
            OutputFormat::Json => format!("{}\n", serde_json::to_string_pretty(value)?),
            OutputFormat::Yaml => yaml::write(value)?,
        };
        terminal::print(&text)?;
        Ok(())
    }
}
