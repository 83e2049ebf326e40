//! Writes the file.

use maru_config::BudgetDefinition;
use maru_protocol::ProtocolVersion;
use maru_store::CallLimitRow;
use maru_tools::{ToolOverride, custom::ToolRecord};
use maru_upstream::ServerView;
use serde_json::{Value, json};

use super::{
    super::HubState,
    FILE_VERSION,
    placeholders::{name_masks, variable_name},
    without_nulls,
};

/// The origin of sources that are kept in the store.
const STORED_SOURCE: &str = "console";
/// The name of the token in the data directory.
const ADMIN_TOKEN_NAME: &str = "admin";
/// Members of a custom tool that the hub sets.
pub(super) const READ_ONLY_MEMBERS: [&str; 7] = [
    "version",
    "reg_dt",
    "upd_dt",
    "created_by",
    "fault",
    "draft",
    "change",
];

/// Everything that people set in this hub.
pub(super) async fn document(hub: &HubState) -> Result<Value, maru_store::Error> {
    let servers = hub.servers.list();
    let tools = hub.custom_tools.list().await;
    let limits = hub.quota.list().await?;
    let tokens = hub.access.list_tokens().await?;
    // The token of the data directory belongs to this hub.
    let issued = tokens.iter().filter(|it| it.name != ADMIN_TOKEN_NAME);
    let tokens = issued.map(|it| {
        without_nulls(json!({
            "name": it.name,
            "role": it.role,
            "servers": it.servers,
            "tools": it.tools,
            "toolset": it.toolset,
            "toolListing": it.tool_listing,
            "expiresAt": it.expires_at,
        }))
    });
    let models = hub.model_manager.list().await;
    let (sources, sample) = sources(hub).await;
    Ok(without_nulls(json!({
        "maru": FILE_VERSION,
        "allowedHosts": hub.address_policy.added_hosts.list(),
        "servers": servers.iter().map(server).collect::<Value>(),
        "tools": tools.iter().map(|(name, it)| tool(name, it)).collect::<Value>(),
        "models": models.iter().map(model).collect::<Value>(),
        "sources": sources,
        "sampleData": sample,
        "limits": limits.iter().map(limit).collect::<Value>(),
        "toolOverrides": tool_overrides(hub),
        "toolsets": toolsets(hub),
        "budgets": budgets(hub),
        "disabledTools": disabled_tools(hub),
        "tokens": tokens.collect::<Value>(),
    })))
}

/// A server with placeholders in place of its secrets.
pub(super) fn server(view: &ServerView) -> Value {
    let server = &view.server;
    let name = server.name.as_str();
    without_nulls(json!({
        "name": name,
        "description": server.description,
        "transportType": server.transport.kind(),
        "config": name_masks(&server.transport.masked_config(), &variable_name(name)),
        "version": server.version,
        "autoConnect": server.auto_connect,
        "enabled": server.enabled,
        "trust": server.trust.as_str(),
        "requiredProtocolVersion": server.required_version.map(ProtocolVersion::as_str),
    }))
}

/// A custom tool with its draft, or a draft alone.
pub(super) fn tool(name: &str, record: &ToolRecord) -> Value {
    let shown = record.to_json(name);
    let draft = shown["draft"]["tool"].clone();
    if shown["version"] == 0 {
        return json!({"name": name, "draft": draft});
    }
    let members = shown.as_object().into_iter().flatten();
    let members = members.filter(|(name, _)| !READ_ONLY_MEMBERS.contains(&name.as_str()));
    let mut tool: Value = members
        .map(|(name, it)| (name.clone(), it.clone()))
        .collect();
    tool["draft"] = draft;
    without_nulls(tool)
}

/// A model that is kept in the store, with a placeholder in place of its key.
pub(super) fn model(masked: &Value) -> Value {
    let name = masked["name"].as_str().unwrap_or_default();
    let mut model = masked.clone();
    model["api_key"] = name_masks(
        &masked["api_key"],
        &format!("{}_API_KEY", variable_name(name)),
    );
    without_nulls(model)
}

/// A source that is kept in the store, with a placeholder in place of its password.
pub(super) fn source(masked: &Value) -> Value {
    let name = masked["name"].as_str().unwrap_or_default();
    let mut source = masked.clone();
    source["url"] = name_masks(&masked["url"], &format!("{}_PASSWORD", variable_name(name)));
    without_nulls(source)
}

async fn sources(hub: &HubState) -> (Vec<Value>, Option<Value>) {
    let (mut stored, mut sample) = (Vec::new(), None);
    for listed in hub.sources.list().await {
        let name = listed["name"].as_str().unwrap_or_default();
        if listed["origin"] == STORED_SOURCE {
            if let Ok(masked) = hub.sources.show(name).await {
                stored.push(source(&masked));
            }
        } else if let Some(mode) = listed.get("mode") {
            sample = Some(mode.clone());
        }
    }
    (stored, sample)
}

/// A limit without what was used of it.
pub(super) fn limit(row: &CallLimitRow) -> Value {
    without_nulls(json!({
        "target_type": row.target_type,
        "target_id": row.target_id,
        "max_count": row.max_count,
        "max_per_minute": row.max_per_minute,
    }))
}

fn tool_overrides(hub: &HubState) -> Value {
    let snapshot = hub.engine.catalog().snapshot();
    let overrides = snapshot.tool_overrides().iter();
    overrides
        .map(|((server, tool), change)| tool_override(server, tool, change))
        .collect()
}

/// How a tool is described to clients.
pub(super) fn tool_override(server: &str, tool: &str, change: &ToolOverride) -> Value {
    json!({"server": server, "tool": tool, "override": change})
}

fn toolsets(hub: &HubState) -> Value {
    let snapshot = hub.engine.catalog().snapshot();
    let toolsets = snapshot.toolsets().values().map(|it| it.definition());
    let saved = toolsets.filter(|it| !hub.toolsets.is_from_settings(&it.name));
    saved.map(|it| json!(it)).collect()
}

fn budgets(hub: &HubState) -> Value {
    let budgets = hub.usage.budgets();
    let saved = budgets.iter().filter(|it| !it.from_settings);
    saved.map(|it| budget(&it.definition)).collect()
}

/// A budget without what was used of it.
pub(super) fn budget(definition: &BudgetDefinition) -> Value {
    without_nulls(json!(definition))
}

fn disabled_tools(hub: &HubState) -> Value {
    let snapshot = hub.engine.catalog().snapshot();
    let disabled = snapshot.disabled_tools().list().into_iter();
    disabled
        .map(|(server, tool)| json!({"server": server, "tool": tool}))
        .collect()
}
