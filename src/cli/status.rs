//! `maru status`: the hub, its servers, tools and models at a glance.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::{Value, json};

use super::{client::HubClient, context::CliContext, serve::block_on, terminal};

pub(super) fn run(context: &CliContext) -> Result<ExitCode> {
    let Some(hub) = HubClient::find(context)? else {
        let directory = context.config().data_dir.display().to_string();
        let value = json!({"running": false, "dataDir": directory});
        context.print(&value, |_| {
            format!("no hub runs on the data directory {directory}; start one with: maru\n")
        })?;
        return Ok(ExitCode::FAILURE);
    };
    block_on(async {
        let (status, ready) = hub.send_rest("GET", "/readyz", None).await?;
        if !matches!(status, 200 | 503) {
            anyhow::bail!("{}", hub.refusal(status, &ready));
        }
        let servers = hub.request_json("GET", "/api/mcp/servers", None).await?;
        let models = hub.request_json("GET", "/v1/models", None).await;
        let count = |state: &str| {
            let servers = servers.as_array().into_iter().flatten();
            servers.filter(|it| it["status"] == state).count()
        };
        let total = servers.as_array().map_or(0, Vec::len);
        let models = models
            .ok()
            .and_then(|it| it["data"].as_array().map(Vec::len));
        let value = json!({
            "running": true,
            "address": hub.origin(),
            "status": ready["status"],
            "reason": ready["reason"],
            "servers": {"total": total, "connected": count("CONNECTED"), "failed": count("FAILED")},
            "tools": ready["tools"],
            "models": models,
            "sessions": ready["sessions"],
            "unreachableSources": ready["unreachable_sources"],
        });
        context.print(&value, format_status)?;
        Ok(ExitCode::from(u8::from(status != 200)))
    })
}

fn format_status(value: &Value) -> String {
    let servers = &value["servers"];
    let reason = terminal::text_of(value, "reason");
    let unreachable = value["unreachableSources"].as_object();
    let unreachable = unreachable.into_iter().flatten();
    let unreachable: Vec<String> = unreachable
        .map(|(name, why)| format!("{name}: {}", why.as_str().unwrap_or_default()))
        .collect();
    let rows = [
        ("hub", terminal::text_of(value, "address")),
        ("status", terminal::text_of(value, "status")),
        ("reason", reason),
        (
            "servers",
            format!(
                "{} of {} connected, {} failed",
                servers["connected"], servers["total"], servers["failed"]
            ),
        ),
        ("tools", terminal::text_of(value, "tools")),
        ("models", terminal::text_of(value, "models")),
        ("sessions", terminal::text_of(value, "sessions")),
        ("unreachable sources", unreachable.join("; ")),
    ];
    let rows = rows.into_iter().filter(|(_, value)| !value.is_empty());
    let rows: Vec<Vec<String>> = rows
        .map(|(name, value)| vec![name.to_owned(), value])
        .collect();
    terminal::format_table(&rows)
}
