//! `maru export` and `maru import`: everything that people set in a hub, in one file.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde_json::{Map, Value, json};

use super::{
    client::HubClient,
    context::{CliContext, OutputFormat},
    serve::block_on,
    servers::jsonc,
    terminal::{self, text_of},
    yaml,
};
use crate::config::process_environment;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  maru export maru-export.yaml
  maru export -o json

The file has the servers, custom tools and their drafts, models, sources, allowed hosts, toolsets,
overrides, limits, budgets, disabled tools and the definitions of tokens. Secrets are placeholders
such as ${FILES_API_KEY}.")]
pub(super) struct ExportArgs {
    /// The file, in YAML, or JSON if it ends in .json; without it, stdout
    file: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  maru import maru-export.yaml --dry-run
  FILES_API_KEY=… maru import maru-export.yaml
  maru import ~/.cursor/mcp.json

Placeholders such as ${FILES_API_KEY} are read from the environment. If one has no value,
nothing is imported. Nothing is removed; what the hub has is changed only where it differs.")]
pub(super) struct ImportArgs {
    /// The file: of maru export, of maru tools export, or of an MCP client; `-` is stdin
    file: PathBuf,
    /// Say what would change; change nothing
    #[arg(long)]
    dry_run: bool,
    /// Also import servers that start a shell, run code from their arguments, or similar
    #[arg(long)]
    accept_warnings: bool,
}

/// Runs `maru export`.
pub(super) fn export(context: &CliContext, options: &ExportArgs) -> Result<ExitCode> {
    let hub = HubClient::open(context)?;
    let document = block_on(hub.request_json("GET", "/api/export", None))?;
    let Some(file) = &options.file else {
        let text = yaml::write(&document)?;
        context.print(&document, |_| text)?;
        return Ok(ExitCode::SUCCESS);
    };
    let is_json = file.extension().is_some_and(|it| it == "json");
    let text = if is_json || context.output == OutputFormat::Json {
        format!("{}\n", serde_json::to_string_pretty(&document)?)
    } else {
        yaml::write(&document)?
    };
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    let count = |name: &str| document[name].as_array().map_or(0, Vec::len);
    terminal::print_note(&format!(
        "{} has {}, {} and {}",
        file.display(),
        terminal::count_of(count("servers"), "server", "servers"),
        terminal::count_of(count("tools"), "custom tool", "custom tools"),
        terminal::count_of(count("sources"), "source", "sources"),
    ));
    Ok(ExitCode::SUCCESS)
}

/// Runs `maru import`.
pub(super) fn import(context: &CliContext, options: &ImportArgs) -> Result<ExitCode> {
    let document = read_document(&options.file)?;
    let hub = HubClient::open(context)?;
    let done = block_on(async {
        let mut body = json!({"document": document, "dryRun": true, "acceptWarnings": options.accept_warnings});
        let checked = hub.request_json("POST", "/api/import", Some(&body)).await?;
        let (values, missing) = values_from_environment(&checked["missing"]);
        if !missing.is_empty() && !options.dry_run {
            bail!(
                "nothing is imported; set these in the environment: {}",
                missing.join(", ")
            );
        }
        if values.is_empty() && options.dry_run {
            return Ok(checked);
        }
        body["values"] = Value::Object(values);
        body["dryRun"] = options.dry_run.into();
        hub.request_json("POST", "/api/import", Some(&body)).await
    })?;
    context.print(&done, format_import)?;
    let items = done["items"].as_array().into_iter().flatten();
    let failed = items.filter(|it| it.get("error").is_some()).count();
    Ok(ExitCode::from(u8::from(failed > 0)))
}

/// Reads YAML, or JSON with comments.
fn read_document(file: &Path) -> Result<Value> {
    let shown = file.display();
    let bytes = jsonc::read_bytes(file)?;
    let has_end = |end: &str| file.extension().is_some_and(|it| it == end);
    let first = bytes.trim_ascii_start().first();
    let is_json = has_end("json") || matches!(first, Some(b'{' | b'['));
    let parsed = if is_json {
        jsonc::parse(&bytes)
    } else {
        yaml::read(&String::from_utf8_lossy(&bytes))
    };
    let document = parsed.with_context(|| format!("{shown} is not valid"))?;
    if document.is_null() {
        bail!("{shown} is empty");
    }
    Ok(document)
}

/// The values of the missing names, and the names that the environment lacks.
fn values_from_environment(missing: &Value) -> (Map<String, Value>, Vec<String>) {
    let variables = process_environment();
    let mut values = Map::new();
    let mut unknown = Vec::new();
    for name in missing
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
    {
        match variables.get(name) {
            Some(value) => {
                values.insert(name.to_owned(), value.as_str().into());
            }
            None => unknown.push(name.to_owned()),
        }
    }
    (values, unknown)
}

fn format_import(done: &Value) -> String {
    let is_dry = done["dryRun"] == true;
    let mut text = String::new();
    for item in done["items"].as_array().into_iter().flatten() {
        text.push_str(&format_item(item, is_dry));
    }
    let missing: Vec<&str> = done["missing"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if !missing.is_empty() {
        text.push_str(&format!("to fill in first: {}\n", missing.join(", ")));
    }
    if text.is_empty() {
        "the file is empty\n".to_owned()
    } else {
        text
    }
}

fn format_item(item: &Value, is_dry: bool) -> String {
    let what = format!("{} {}", text_of(item, "kind"), text_of(item, "name"));
    if let Some(error) = item["error"].as_str() {
        return format!("{what}: not imported: {}\n", terminal::one_line(error));
    }
    let change = match (item["change"].as_str().unwrap_or_default(), is_dry) {
        ("create", true) => "would be created",
        ("update", true) => "would be changed",
        ("create", false) => "created",
        ("update", false) => "changed",
        (other, _) => other,
    };
    let note = match item["note"].as_str() {
        Some(note) => format!(" ({})", terminal::one_line(note)),
        None => String::new(),
    };
    let mut text = format!("{what}: {change}{note}\n");
    for it in item["differences"].as_array().into_iter().flatten() {
        let at = text_of(it, "at");
        text.push_str(&format!("  {at}\n"));
        for (sign, name) in [("-", "before"), ("+", "now")] {
            if !it[name].is_null() {
                let value = terminal::one_line(&text_of(it, name));
                text.push_str(&format!("    {sign} {value}\n"));
            }
        }
    }
    text
}
