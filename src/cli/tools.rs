//! `maru tools`: what can be called, and the tools that people made as a file.

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{
    client::{Client, Remote},
    out,
    serve::block_on,
    yaml,
};
use crate::config::Loaded;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  maru tools                              what can be called
  maru tools export > tools.yaml          the tools that people made, to keep in git
  maru tools export get_user_daily_limit  one of them
  maru tools import tools.yaml            make them, or change those of the same name")]
pub(super) struct Options {
    #[command(subcommand)]
    action: Option<Action>,
    /// Print the whole list, or what was imported, as JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Print tools that people made as YAML
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

const ROUTE: &str = "/api/custom-tools";
/// What the hub says about a tool and nobody sets.
const TOLD: &[&str] = &["version", "reg_dt", "upd_dt", "created_by", "fault"];

pub(super) fn run(loaded: Loaded, options: &Options) -> Result<ExitCode> {
    match &options.action {
        None => list(loaded, options.json),
        Some(Action::Export { names }) => {
            let hub = Remote::open(&loaded)?;
            let tools = block_on(export(&hub, names))?;
            out::print(&yaml::write(&json!({"tools": tools}))?)?;
            Ok(ExitCode::SUCCESS)
        }
        Some(Action::Import { file }) => {
            let hub = Remote::open(&loaded)?;
            let done = block_on(import(&hub, &read(file)?))?;
            show(&done, options.json)
        }
    }
}

fn list(loaded: Loaded, as_json: bool) -> Result<ExitCode> {
    let tools = block_on(async { Client::open(loaded).await?.tools().await })?;
    if as_json {
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

async fn export(hub: &Remote, names: &[String]) -> Result<Vec<Value>> {
    let (status, all) = hub.rest("GET", ROUTE, None).await?;
    let Some(all) = all.as_array().filter(|_| status == 200) else {
        bail!("the hub did not list its custom tools: {}", why(&all));
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
    Ok(chosen.map(definition).collect())
}

/// A tool as people write it.
fn definition(tool: &Value) -> Value {
    let members = tool.as_object().into_iter().flatten();
    let told = |name: &str| TOLD.contains(&name);
    let members = members.filter(|(name, value)| !told(name) && !value.is_null());
    Value::Object(
        members
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
    )
}

fn read(file: &PathBuf) -> Result<Vec<Value>> {
    let shown = file.display();
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
    let mut value = yaml::read(&text).with_context(|| format!("cannot use {shown}"))?;
    match value.get_mut("tools").map(Value::take) {
        Some(Value::Array(tools)) => Ok(tools),
        _ => bail!("{shown} has no list \"tools\""),
    }
}

async fn import(hub: &Remote, tools: &[Value]) -> Result<Vec<Value>> {
    let mut done = Vec::with_capacity(tools.len());
    for tool in tools {
        let name = tool["name"].as_str().unwrap_or_default();
        let (mut status, mut answer) = hub.rest("POST", ROUTE, Some(tool)).await?;
        let mut made = "made";
        if status == 409 {
            let route = format!("{ROUTE}/{name}");
            (status, answer) = hub.rest("PUT", &route, Some(tool)).await?;
            made = "changed";
        }
        done.push(match status {
            200 | 201 => json!({"name": name, "done": made, "version": answer["version"]}),
            _ => json!({"name": name, "error": why(&answer), "field": answer["field"], "line": answer["line"], "column": answer["column"]}),
        });
    }
    Ok(done)
}

fn why(answer: &Value) -> String {
    answer["error"]
        .as_str()
        .unwrap_or("it did not say why")
        .to_owned()
}

fn show(done: &[Value], as_json: bool) -> Result<ExitCode> {
    let text = match as_json {
        true => format!("{}\n", serde_json::to_string_pretty(done)?),
        false => done.iter().map(line).collect(),
    };
    out::print(&text)?;
    let failed = done.iter().any(|it| it.get("error").is_some());
    Ok(ExitCode::from(u8::from(failed)))
}

fn line(done: &Value) -> String {
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
