//! `maru tools`: what can be called, and the custom tools as a file.

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{
    client::{CatalogClient, HubClient},
    serve::block_on,
    terminal, yaml,
};
use crate::config::LoadedConfig;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  maru tools                              what can be called
  maru tools export > tools.yaml          the tools that people made, to keep in git
  maru tools export get_user_daily_limit  one of them
  maru tools import tools.yaml            make them, or change those of the same name")]
pub(super) struct ToolsArgs {
    #[command(subcommand)]
    action: Option<ToolsAction>,
    /// Print the whole list, or what was imported, as JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum ToolsAction {
    /// Print custom tools as YAML
    Export {
        /// Only these
        names: Vec<String>,
    },
    /// Make the tools of a YAML file, or change those of the same name
    Import {
        /// The file
        file: PathBuf,
    },
}

const CUSTOM_TOOLS_ROUTE: &str = "/api/custom-tools";
/// What the hub says about a tool and nobody sets.
const READ_ONLY_FIELDS: &[&str] = &["version", "reg_dt", "upd_dt", "created_by", "fault"];

pub(super) fn run(loaded: LoadedConfig, options: &ToolsArgs) -> Result<ExitCode> {
    match &options.action {
        None => list_tools(loaded, options.json),
        Some(ToolsAction::Export { names }) => {
            let hub = HubClient::open(&loaded)?;
            let tools = block_on(export(&hub, names))?;
            terminal::print(&yaml::write(&json!({"tools": tools}))?)?;
            Ok(ExitCode::SUCCESS)
        }
        Some(ToolsAction::Import { file }) => {
            let hub = HubClient::open(&loaded)?;
            let done = block_on(import(&hub, &read_tools_file(file)?))?;
            print_imported(&done, options.json)
        }
    }
}

fn list_tools(loaded: LoadedConfig, as_json: bool) -> Result<ExitCode> {
    let tools = block_on(async { CatalogClient::open(loaded).await?.tools().await })?;
    if as_json {
        terminal::print(&format!("{}\n", serde_json::to_string_pretty(&tools)?))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut rows = vec![
        ["NAME", "ARGUMENTS", "DESCRIPTION"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(tools.iter().map(tool_row));
    terminal::print(&terminal::format_table(&rows))?;
    Ok(ExitCode::SUCCESS)
}

fn tool_row(tool: &Value) -> Vec<String> {
    let text = |name: &str| tool[name].as_str().unwrap_or_default().to_owned();
    let arguments = tool["inputSchema"]["properties"].as_object();
    let arguments: Vec<&str> =
        arguments.map_or(Vec::new(), |it| it.keys().map(String::as_str).collect());
    vec![text("name"), arguments.join(", "), text("description")]
}

async fn export(hub: &HubClient, names: &[String]) -> Result<Vec<Value>> {
    let (status, all) = hub.send_rest("GET", CUSTOM_TOOLS_ROUTE, None).await?;
    let Some(all) = all.as_array().filter(|_| status == 200) else {
        bail!(
            "the hub did not list its custom tools: {}",
            error_text(&all)
        );
    };
    let named = |tool: &Value, name: &String| tool["name"] == name.as_str();
    if let Some(missing) = names
        .iter()
        .find(|name| !all.iter().any(|it| named(it, name)))
    {
        bail!("there is no custom tool named {missing:?}");
    }
    let chosen = all
        .iter()
        .filter(|tool| names.is_empty() || names.iter().any(|it| named(tool, it)));
    Ok(chosen.map(writable_definition).collect())
}

/// A tool as people write it.
fn writable_definition(tool: &Value) -> Value {
    let members = tool.as_object().into_iter().flatten();
    let told = |name: &str| READ_ONLY_FIELDS.contains(&name);
    let members = members.filter(|(name, value)| !told(name) && !value.is_null());
    Value::Object(
        members
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
    )
}

fn read_tools_file(file: &PathBuf) -> Result<Vec<Value>> {
    let shown = file.display();
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
    let mut value = yaml::read(&text).with_context(|| format!("cannot use {shown}"))?;
    match value.get_mut("tools").map(Value::take) {
        Some(Value::Array(tools)) => Ok(tools),
        _ => bail!("{shown} has no list \"tools\""),
    }
}

async fn import(hub: &HubClient, tools: &[Value]) -> Result<Vec<Value>> {
    let mut done = Vec::with_capacity(tools.len());
    for tool in tools {
        let name = tool["name"].as_str().unwrap_or_default();
        let (mut status, mut answer) = hub
            .send_rest("POST", CUSTOM_TOOLS_ROUTE, Some(tool))
            .await?;
        let mut made = "made";
        if status == 409 {
            let route = format!("{CUSTOM_TOOLS_ROUTE}/{name}");
            (status, answer) = hub.send_rest("PUT", &route, Some(tool)).await?;
            made = "changed";
        }
        done.push(match status {
            200 | 201 => json!({"name": name, "done": made, "version": answer["version"]}),
            _ => json!({"name": name, "error": error_text(&answer), "field": answer["field"], "line": answer["line"], "column": answer["column"]}),
        });
    }
    Ok(done)
}

fn error_text(answer: &Value) -> String {
    answer["error"]
        .as_str()
        .unwrap_or("it did not say why")
        .to_owned()
}

fn print_imported(done: &[Value], as_json: bool) -> Result<ExitCode> {
    let text = if as_json {
        format!("{}\n", serde_json::to_string_pretty(done)?)
    } else {
        done.iter().map(format_imported).collect()
    };
    terminal::print(&text)?;
    let failed = done.iter().any(|it| it.get("error").is_some());
    Ok(ExitCode::from(u8::from(failed)))
}

fn format_imported(done: &Value) -> String {
    let name = done["name"].as_str().unwrap_or_default();
    match done["error"].as_str() {
        None => format!(
            "{name} is {} (version {})\n",
            done["done"].as_str().unwrap_or_default(),
            done["version"]
        ),
        Some(why) => {
            let place = match (&done["line"], &done["column"]) {
                (Value::Number(line), Value::Number(column)) => {
                    format!(" (line {line}, column {column})")
                }
                _ => String::new(),
            };
            format!("{name} is not imported: {why}{place}\n")
        }
    }
}
