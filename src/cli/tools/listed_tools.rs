//! Tools as clients find and see them.

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::{
    super::{
        catalog_client::{CatalogClient, CliCallOutcome},
        client::HubClient,
        context::CliContext,
        serve::block_on,
        servers::percent_encode,
        terminal,
    },
    tool_row,
};

pub(super) fn search(context: &CliContext, query: &str, limit: u8) -> Result<ExitCode> {
    let arguments = json!({"query": query, "limit": limit});
    let found = block_on(async {
        let client = CatalogClient::open(context).await?;
        client.call("find_tools", arguments, |_| ()).await
    })?;
    let result: Value = match found {
        CliCallOutcome::Result(result) => serde_json::from_str(result.as_json())?,
        CliCallOutcome::Refused(reason) => bail!("{reason}"),
    };
    let tools = &result["structuredContent"]["tools"];
    if !tools.is_array() {
        bail!("{}", terminal::text_of(&result["content"][0], "text"));
    }
    context.print(tools, |tools| {
        if tools.as_array().is_some_and(Vec::is_empty) {
            return "no tool fits\n".to_owned();
        }
        terminal::table(&["NAME", "ARGUMENTS", "DESCRIPTION"], tools, tool_row)
    })?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn override_tool(
    context: &CliContext,
    hub: &HubClient,
    name: &str,
    change: Option<&str>,
    remove: bool,
) -> Result<ExitCode> {
    let route = format!("/api/tools/{}/override", percent_encode(name));
    let body: Option<Value> = change
        .map(serde_json::from_str)
        .transpose()
        .context("the override is no JSON object")?;
    let method = match &body {
        Some(_) => "PUT",
        None if remove => "DELETE",
        None => "GET",
    };
    let (status, answer) = block_on(hub.send_rest(method, &route, body.as_ref()))?;
    match status {
        204 => context.print(&json!({"removed": name}), |_| {
            format!("clients see {name} as its server describes it\n")
        })?,
        200 => context.print(&answer, format_override)?,
        _ => bail!("{}", hub.refusal(status, &answer)),
    }
    Ok(ExitCode::SUCCESS)
}

fn format_override(shown: &Value) -> String {
    let differences = &shown["differences"];
    if differences.as_array().is_some_and(Vec::is_empty) {
        return format!(
            "clients see {} as its server describes it\n",
            terminal::text_of(shown, "name")
        );
    }
    let mut text = terminal::table(&["PATH", "ORIGINAL", "SHOWN"], differences, |it| {
        let value = |name: &str| match &it[name] {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        vec![value("path"), value("original"), value("shown")]
    });
    if let Some(name) = shown["refusedName"].as_str() {
        text.push_str(&format!(
            "\nthe name {name} is not used: another tool has it\n"
        ));
    }
    text
}
