//! `maru tools`: what can be called, and the custom tools of the running hub.

mod listed_tools;

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{
    call::{self, CallArgs},
    catalog_client::CatalogClient,
    client::HubClient,
    context::{CliContext, OutputFormat},
    limits::names_of,
    serve::block_on,
    servers::percent_encode,
    suggestion::did_you_mean,
    terminal, yaml,
};

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  maru tools                               list what can be called
  maru tools search send a mail            find tools by what they do
  maru tools override fx__echo '{\"name\": \"repeat\", \"parameters\": {\"tenant\": {\"fixed\": \"acme\"}}}'
  maru tools show search_docs              its description and arguments
  maru tools call search_docs '{\"query\": \"deploy\"}'
  maru tools show get_user_daily_limit     a custom tool as YAML, with its state
  maru tools test get_user_daily_limit '{\"user_name\": \"hong\"}'
  maru tools deactivate get_user_daily_limit
  maru tools export > tools.yaml           custom tools, to keep in git
  maru tools import tools.yaml --dry-run   say what an import would change
  maru tools import tools.yaml             create tools, or change those of the same name")]
pub(super) struct ToolsArgs {
    #[command(subcommand)]
    action: Option<ToolsAction>,
}

#[derive(Debug, Subcommand)]
enum ToolsAction {
    /// List the available tools (the default)
    List,
    /// Show a tool: its description and arguments; of a custom tool its definition and state
    Show {
        /// The tool
        name: String,
    },
    /// Find tools by what they do, the best first, as clients that search do
    Search {
        /// What the tool should do, in a few words
        #[arg(required = true)]
        query: Vec<String>,
        /// How many tools are shown
        #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=20))]
        limit: u8,
    },
    /// Show or change how a tool is described to clients
    Override {
        /// The tool, by the name that its server gives it
        name: String,
        /// The override as a JSON object, such as '{"description": "…"}'
        #[arg(conflicts_with = "remove")]
        change: Option<String>,
        /// Show clients the server's description again
        #[arg(long)]
        remove: bool,
    },
    /// Call a tool, like `maru call`
    Call(CallArgs),
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

pub(super) fn run(context: &CliContext, options: &ToolsArgs) -> Result<ExitCode> {
    match options.action.as_ref().unwrap_or(&ToolsAction::List) {
        ToolsAction::List => list_tools(context),
        ToolsAction::Show { name } => show_tool(context, name),
        ToolsAction::Call(options) => call::run(context, options),
        ToolsAction::Search { query, limit } => {
            listed_tools::search(context, &query.join(" "), *limit)
        }
        action => change_custom_tools(context, action),
    }
}

fn change_custom_tools(context: &CliContext, action: &ToolsAction) -> Result<ExitCode> {
    let hub = HubClient::open(context)?;
    match action {
        ToolsAction::List
        | ToolsAction::Show { .. }
        | ToolsAction::Search { .. }
        | ToolsAction::Call(_) => {
            bail!("this action needs no hub")
        }
        ToolsAction::Override {
            name,
            change,
            remove,
        } => listed_tools::override_tool(context, &hub, name, change.as_deref(), *remove),
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
            print_tested(context, &tested)
        }
        ToolsAction::Activate(tool) => switch(context, &hub, &tool.name, "activate"),
        ToolsAction::Deactivate(tool) => switch(context, &hub, &tool.name, "deactivate"),
        ToolsAction::Remove(tool) => remove(context, &hub, &tool.name),
        ToolsAction::Export { names } => {
            let tools = block_on(export(&hub, names))?;
            context.print(&json!({"tools": tools}), |it| {
                yaml::write(it).unwrap_or_default()
            })?;
            Ok(ExitCode::SUCCESS)
        }
        ToolsAction::Import { file, dry_run } => {
            let tools = read_tools_file(file)?;
            let outcomes = if *dry_run {
                block_on(check_import(&hub, &tools))?
            } else {
                block_on(import(&hub, &tools))?
            };
            print_imported(context, &outcomes)
        }
    }
}

fn list_tools(context: &CliContext) -> Result<ExitCode> {
    let tools = block_on(async { CatalogClient::open(context).await?.tools().await })?;
    context.print(&tools.into(), |tools| {
        terminal::table(&["NAME", "ARGUMENTS", "DESCRIPTION"], tools, tool_row)
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Shows a custom tool of the running hub, or any tool that can be called.
fn show_tool(context: &CliContext, name: &str) -> Result<ExitCode> {
    let (custom, tools) = block_on(async {
        if let Some(hub) = HubClient::find(context)? {
            let (status, tool) = hub.send_rest("GET", &tool_route(name), None).await?;
            if status == 200 {
                return Ok((Some(tool), Vec::new()));
            }
        }
        anyhow::Ok((None, CatalogClient::open(context).await?.tools().await?))
    })?;
    if let Some(tool) = custom {
        return print_tool(context, &tool);
    }
    let Some(tool) = tools.iter().find(|it| it["name"] == name) else {
        let known = tools.iter().filter_map(|it| it["name"].as_str());
        bail!(
            "no tool is named {name:?}{}; see maru tools",
            did_you_mean(name, known)
        );
    };
    context.print(tool, format_tool)?;
    Ok(ExitCode::SUCCESS)
}

fn format_tool(tool: &Value) -> String {
    let description = terminal::text_of(tool, "description");
    let mut text = format!("{}\n\n{description}\n", terminal::text_of(tool, "name"));
    let schema = &tool["inputSchema"];
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let Some(arguments) = schema["properties"].as_object().filter(|it| !it.is_empty()) else {
        return text + "\nIt has no arguments.\n";
    };
    let header = ["ARGUMENT", "TYPE", "REQUIRED", "DESCRIPTION"].map(str::to_owned);
    let rows = arguments.iter().map(|(name, it)| {
        let is_required = required.iter().any(|it| it == name.as_str());
        vec![
            name.clone(),
            terminal::text_of(it, "type"),
            if is_required { "yes" } else { "" }.to_owned(),
            terminal::text_of(it, "description"),
        ]
    });
    let rows: Vec<Vec<String>> = std::iter::once(header.to_vec()).chain(rows).collect();
    text.push_str(&format!("\n{}", terminal::format_wrapped_table(&rows)));
    text
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
    match status {
        200 => Ok(tool),
        404 => {
            let tools = hub.request_json("GET", CUSTOM_TOOLS_ROUTE, None).await?;
            bail!(
                "{}{}; see maru tools",
                error_text(&tool),
                did_you_mean(name, names_of(&tools, "name"))
            )
        }
        _ => bail!("{}", hub.refusal(status, &tool)),
    }
}

fn print_tool(context: &CliContext, tool: &Value) -> Result<ExitCode> {
    let definition = yaml::write(&json!({"tools": [writable_definition(tool)]}))?;
    context.print(tool, |tool| {
        format!("{}\n{definition}", custom_tool_comments(tool))
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The state of a custom tool as comments above its definition.
fn custom_tool_comments(tool: &Value) -> String {
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
    comments.join("\n")
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

fn print_tested(context: &CliContext, answer: &Value) -> Result<ExitCode> {
    let failed = answer["ok"] != true;
    if failed && context.output == OutputFormat::Table {
        let error = &answer["error"];
        let message = error["message"].as_str().unwrap_or("the run failed");
        terminal::print_error(&format!("{message}{}", position_text(error)));
    } else {
        context.print(answer, |it| format!("{}\n", terminal::text_of(it, "text")))?;
    }
    Ok(ExitCode::from(u8::from(failed)))
}

fn switch(context: &CliContext, hub: &HubClient, name: &str, action: &str) -> Result<ExitCode> {
    let route = format!("{}/{action}", tool_route(name));
    let tool = block_on(change(hub, name, "POST", &route))?;
    context.print(&tool, |tool| {
        let state = if tool["is_active"] == true {
            "on"
        } else {
            "off"
        };
        format!("{name} is {state}\n")
    })?;
    Ok(ExitCode::SUCCESS)
}

fn remove(context: &CliContext, hub: &HubClient, name: &str) -> Result<ExitCode> {
    block_on(change(hub, name, "DELETE", &tool_route(name)))?;
    context.print(&json!({"name": name, "done": "removed"}), |_| {
        format!("{name} is removed; its versions are kept\n")
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Sends a change of a custom tool that must exist.
async fn change(hub: &HubClient, name: &str, method: &str, route: &str) -> Result<Value> {
    let (status, answer) = hub.send_rest(method, route, None).await?;
    match status {
        200..300 => Ok(answer),
        404 => custom_tool(hub, name).await,
        _ => bail!("{}", hub.refusal(status, &answer)),
    }
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
        let known = published.iter().filter_map(|it| it["name"].as_str());
        bail!(
            "there is no custom tool named {missing:?}{}",
            did_you_mean(missing, known)
        );
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

fn print_imported(context: &CliContext, outcomes: &[Value]) -> Result<ExitCode> {
    context.print(&outcomes.into(), |_| {
        outcomes.iter().map(format_imported).collect()
    })?;
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
