//! `maru tools`: what can be called, and the custom tools of the running hub.

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{
    client::{CatalogClient, HubClient},
    serve::block_on,
    servers::percent_encode,
    terminal, yaml,
};
use crate::config::LoadedConfig;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  maru tools                               list what can be called
  maru tools show get_user_daily_limit     a custom tool as YAML, with its state
  maru tools test get_user_daily_limit '{\"user_name\": \"hong\"}'
  maru tools deactivate get_user_daily_limit
  maru tools export > tools.yaml           custom tools, to keep in git
  maru tools import tools.yaml --dry-run   say what an import would change
  maru tools import tools.yaml             create tools, or change those of the same name")]
pub(super) struct ToolsArgs {
    #[command(subcommand)]
    action: Option<ToolsAction>,
    /// Print the answer as JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum ToolsAction {
    /// Show a custom tool: its definition, version, state and draft
    Show(CustomToolArg),
    /// Run the definition of a custom tool, also of one that is switched off
    Test {
        /// The custom tool
        name: String,
        /// Its arguments as a JSON object
        #[arg(default_value = "{}")]
        arguments: String,
        /// Run the draft instead of the published version
        #[arg(long)]
        draft: bool,
    },
    /// Switch a custom tool on
    Activate(CustomToolArg),
    /// Switch a custom tool off: clients neither list nor call it
    Deactivate(CustomToolArg),
    /// Remove a custom tool and its draft; its versions are kept
    Remove(CustomToolArg),
    /// Print custom tools as YAML; drafts are left out
    Export {
        /// Only these
        names: Vec<String>,
    },
    /// Create the tools of a YAML file, or change those of the same name
    Import {
        /// The file
        file: PathBuf,
        /// Check the file and say what would change; change nothing
        #[arg(long)]
        dry_run: bool,
    },
}

#[derive(Debug, Args)]
struct CustomToolArg {
    /// The custom tool
    name: String,
}

const CUSTOM_TOOLS_ROUTE: &str = "/api/custom-tools";
/// Members that the hub sets and a file does not have.
const READ_ONLY_FIELDS: &[&str] = &[
    "version",
    "reg_dt",
    "upd_dt",
    "created_by",
    "fault",
    "draft",
    "change",
];

pub(super) fn run(loaded: LoadedConfig, options: &ToolsArgs) -> Result<ExitCode> {
    let Some(action) = &options.action else {
        return list_tools(loaded, options.json);
    };
    let hub = HubClient::open(&loaded)?;
    let as_json = options.json;
    match action {
        ToolsAction::Show(tool) => {
            let tool = block_on(custom_tool(&hub, &tool.name))?;
            print_tool(&tool, as_json)
        }
        ToolsAction::Test {
            name,
            arguments,
            draft,
        } => {
            let arguments: Value = serde_json::from_str(arguments)
                .ok()
                .filter(Value::is_object)
                .context("the arguments are no JSON object")?;
            let tested = block_on(test(&hub, name, &arguments, *draft))?;
            print_tested(&tested, as_json)
        }
        ToolsAction::Activate(tool) => switch(&hub, &tool.name, "activate", as_json),
        ToolsAction::Deactivate(tool) => switch(&hub, &tool.name, "deactivate", as_json),
        ToolsAction::Remove(tool) => remove(&hub, &tool.name, as_json),
        ToolsAction::Export { names } => {
            let tools = block_on(export(&hub, names))?;
            terminal::print(&yaml::write(&json!({"tools": tools}))?)?;
            Ok(ExitCode::SUCCESS)
        }
        ToolsAction::Import { file, dry_run } => {
            let tools = read_tools_file(file)?;
            let outcomes = if *dry_run {
                block_on(check_import(&hub, &tools))?
            } else {
                block_on(import(&hub, &tools))?
            };
            print_imported(&outcomes, as_json)
        }
    }
}

fn list_tools(loaded: LoadedConfig, as_json: bool) -> Result<ExitCode> {
    let tools = block_on(async { CatalogClient::open(loaded).await?.tools().await })?;
    if as_json {
        return print_json(&tools.into());
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

fn tool_route(name: &str) -> String {
    format!("{CUSTOM_TOOLS_ROUTE}/{}", percent_encode(name))
}

async fn custom_tool(hub: &HubClient, name: &str) -> Result<Value> {
    let (status, tool) = hub.send_rest("GET", &tool_route(name), None).await?;
    if status != 200 {
        bail!("{}", error_text(&tool));
    }
    Ok(tool)
}

fn print_tool(tool: &Value, as_json: bool) -> Result<ExitCode> {
    if as_json {
        return print_json(tool);
    }
    let text = |member: &Value| member.as_str().unwrap_or_default().to_owned();
    let state = match (tool["version"].as_i64(), tool["is_active"].as_bool()) {
        (Some(0), _) => "draft only".to_owned(),
        (_, Some(true)) => "on".to_owned(),
        _ => "off".to_owned(),
    };
    let mut comments = vec![format!("# version {}, {state}", tool["version"])];
    if let Some(fault) = tool["fault"].as_str() {
        comments.push(format!("# cannot run: {fault}"));
    }
    if tool["draft"].is_object() {
        let draft = &tool["draft"];
        let (by, when) = (text(&draft["saved_by"]), text(&draft["saved_dt"]));
        comments.push(format!("# has a draft of {by}, saved {when}"));
    }
    let definition = yaml::write(&json!({"tools": [writable_definition(tool)]}))?;
    terminal::print(&format!("{}\n{definition}", comments.join("\n")))?;
    Ok(ExitCode::SUCCESS)
}

async fn test(hub: &HubClient, name: &str, arguments: &Value, draft: bool) -> Result<Value> {
    let tool = custom_tool(hub, name).await?;
    let definition = match (draft, &tool["draft"]["tool"]) {
        (true, Value::Null) => bail!("the tool {name:?} has no draft"),
        (true, draft) => draft.clone(),
        (false, _) => writable_definition(&tool),
    };
    let body = json!({"tool": definition, "arguments": arguments});
    let route = format!("{CUSTOM_TOOLS_ROUTE}/test");
    let (status, answer) = hub.send_rest("POST", &route, Some(&body)).await?;
    if status != 200 {
        bail!("{}", error_text(&answer));
    }
    Ok(answer)
}

fn print_tested(answer: &Value, as_json: bool) -> Result<ExitCode> {
    let failed = answer["ok"] != true;
    if as_json {
        print_json(answer)?;
    } else if failed {
        let error = &answer["error"];
        let message = error["message"].as_str().unwrap_or("the run failed");
        terminal::print_error(&format!("{message}{}", position_text(error)));
    } else {
        let text = answer["text"].as_str().unwrap_or_default();
        terminal::print(&format!("{text}\n"))?;
    }
    Ok(ExitCode::from(u8::from(failed)))
}

fn switch(hub: &HubClient, name: &str, action: &str, as_json: bool) -> Result<ExitCode> {
    let route = format!("{}/{action}", tool_route(name));
    let (status, tool) = block_on(hub.send_rest("POST", &route, None))?;
    if status != 200 {
        bail!("{}", error_text(&tool));
    }
    if as_json {
        return print_json(&tool);
    }
    let state = if tool["is_active"] == true {
        "on"
    } else {
        "off"
    };
    terminal::print(&format!("{name} is {state}\n"))?;
    Ok(ExitCode::SUCCESS)
}

fn remove(hub: &HubClient, name: &str, as_json: bool) -> Result<ExitCode> {
    let (status, answer) = block_on(hub.send_rest("DELETE", &tool_route(name), None))?;
    if status != 204 {
        bail!("{}", error_text(&answer));
    }
    if as_json {
        return print_json(&json!({"name": name, "done": "removed"}));
    }
    terminal::print(&format!("{name} is removed; its versions are kept\n"))?;
    Ok(ExitCode::SUCCESS)
}

async fn export(hub: &HubClient, names: &[String]) -> Result<Vec<Value>> {
    let (status, all) = hub.send_rest("GET", CUSTOM_TOOLS_ROUTE, None).await?;
    let Some(all) = all.as_array().filter(|_| status == 200) else {
        bail!(
            "the hub did not list its custom tools: {}",
            error_text(&all)
        );
    };
    let published: Vec<&Value> = all.iter().filter(|it| it["version"] != 0).collect();
    let is_named = |tool: &Value, name: &String| tool["name"] == name.as_str();
    if let Some(missing) = names
        .iter()
        .find(|name| !published.iter().any(|it| is_named(it, name)))
    {
        bail!("there is no custom tool named {missing:?}");
    }
    let chosen = published
        .into_iter()
        .filter(|tool| names.is_empty() || names.iter().any(|it| is_named(tool, it)));
    Ok(chosen.map(writable_definition).collect())
}

/// The members of a tool that people set.
fn writable_definition(tool: &Value) -> Value {
    let members = tool.as_object().into_iter().flatten();
    let members = members
        .filter(|(name, value)| !READ_ONLY_FIELDS.contains(&name.as_str()) && !value.is_null());
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
    let mut outcomes = Vec::with_capacity(tools.len());
    for tool in tools {
        let name = tool["name"].as_str().unwrap_or_default();
        let (mut status, mut answer) = hub
            .send_rest("POST", CUSTOM_TOOLS_ROUTE, Some(tool))
            .await?;
        if status == 409 {
            (status, answer) = hub.send_rest("PUT", &tool_route(name), Some(tool)).await?;
        }
        outcomes.push(match status {
            200 | 201 => {
                json!({"name": name, "done": answer["change"], "version": answer["version"]})
            }
            _ => refused(name, &error_text(&answer), &answer),
        });
    }
    Ok(outcomes)
}

/// What an import would do with each tool, without doing it.
async fn check_import(hub: &HubClient, tools: &[Value]) -> Result<Vec<Value>> {
    let mut outcomes = Vec::with_capacity(tools.len());
    let route = format!("{CUSTOM_TOOLS_ROUTE}/test");
    for tool in tools {
        let name = tool["name"].as_str().unwrap_or_default();
        let body = json!({"tool": tool, "run": false});
        let (status, answer) = hub.send_rest("POST", &route, Some(&body)).await?;
        let error = &answer["error"];
        outcomes.push(match (status, answer["ok"].as_bool()) {
            (200, Some(true)) => json!({"name": name, "would_be": answer["change"]}),
            (200, _) => refused(name, error["message"].as_str().unwrap_or_default(), error),
            _ => bail!("{}", error_text(&answer)),
        });
    }
    Ok(outcomes)
}

fn refused(name: &str, message: &str, error: &Value) -> Value {
    json!({"name": name, "error": message, "field": error["field"], "line": error["line"], "column": error["column"]})
}

fn error_text(answer: &Value) -> String {
    answer["error"]
        .as_str()
        .unwrap_or("the hub gave no reason")
        .to_owned()
}

fn print_json(value: &Value) -> Result<ExitCode> {
    terminal::print(&format!("{}\n", serde_json::to_string_pretty(value)?))?;
    Ok(ExitCode::SUCCESS)
}

fn print_imported(outcomes: &[Value], as_json: bool) -> Result<ExitCode> {
    let text = if as_json {
        format!("{}\n", serde_json::to_string_pretty(outcomes)?)
    } else {
        outcomes.iter().map(format_imported).collect()
    };
    terminal::print(&text)?;
    let failed = outcomes.iter().any(|it| it.get("error").is_some());
    Ok(ExitCode::from(u8::from(failed)))
}

fn format_imported(outcome: &Value) -> String {
    let name = outcome["name"].as_str().unwrap_or_default();
    if let Some(message) = outcome["error"].as_str() {
        return format!(
            "{name} is not imported: {message}{}\n",
            position_text(outcome)
        );
    }
    if let Some(change) = outcome["would_be"].as_str() {
        return format!("{name} would be {change}\n");
    }
    let change = outcome["done"].as_str().unwrap_or_default();
    format!("{name} is {change} (version {})\n", outcome["version"])
}

fn position_text(error: &Value) -> String {
    match (&error["line"], &error["column"]) {
        (Value::Number(line), Value::Number(column)) => {
            format!(" (line {line}, column {column})")
        }
        _ => String::new(),
    }
}
