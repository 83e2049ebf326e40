//! Compares the file with the hub, and prepares what a dry run checks with.

use std::{
    collections::{BTreeSet, HashSet},
    sync::Arc,
};

use maru_config::BudgetDefinition;
use maru_http::AddedHosts;
use maru_tools::SourcePreview;
use serde::Deserialize as _;
use serde_json::{Map, Value, json};

use super::{
    super::HubState,
    differences::differences,
    export,
    import::ImportRequest,
    import_item::{ImportItem, ItemKind},
    placeholders::PlaceholderValues,
};

/// The hub as the file would leave it, so that a dry run finds no fault with a thing because
/// another thing of the file is not there yet.
pub(super) struct ImportPreview {
    pub(super) sources: SourcePreview,
    /// The sources whose secrets are not filled in.
    pub(super) incomplete_sources: HashSet<String>,
    /// The hosts that the file allows.
    pub(super) new_hosts: HashSet<String>,
}

impl ImportPreview {
    pub(super) async fn open(hub: &HubState, plan: &[ImportItem]) -> Self {
        let of_kind = |kind| plan.iter().filter(move |it| it.kind == kind);
        let new_hosts = of_kind(ItemKind::AllowedHost).filter(|it| it.is_change());
        let new_hosts: HashSet<String> = new_hosts.map(|it| it.name.clone()).collect();
        let mut hosts = hub.address_policy.added_hosts.list();
        hosts.extend(new_hosts.iter().cloned());
        let mut policy = hub.address_policy.clone();
        policy.added_hosts = AddedHosts::default();
        policy.added_hosts.replace(hosts);
        let changed = of_kind(ItemKind::Source).filter(|it| it.is_change());
        let (incomplete, complete): (Vec<_>, Vec<_>) = changed.partition(|it| it.is_incomplete);
        let definitions: Vec<Value> = complete.iter().map(|it| it.value.clone()).collect();
        Self {
            sources: hub.sources.preview(&definitions, &policy).await,
            incomplete_sources: incomplete.iter().map(|it| it.name.clone()).collect(),
            new_hosts,
        }
    }
}

/// Compares everything in the file with the hub and fills in the placeholders.
pub(super) async fn plan_import(
    request: &ImportRequest,
    hub: &HubState,
    missing: &mut BTreeSet<String>,
) -> Vec<ImportItem> {
    let mut plan = Vec::with_capacity(request.items.len());
    for item in &request.items {
        plan.push(compare_item(&request.values, hub, item, missing).await);
    }
    plan
}

async fn compare_item(
    values: &Map<String, Value>,
    hub: &HubState,
    item: &(ItemKind, Value),
    missing: &mut BTreeSet<String>,
) -> ImportItem {
    let (kind, value) = (item.0, &item.1);
    let name = kind.name_of(value);
    let text = |member: &str| value[member].as_str().unwrap_or_default();
    let mut own_missing = BTreeSet::new();
    let mut filled = match kind {
        // A budget is replaced whole: what the file does not say is null.
        ItemKind::Budget => {
            BudgetDefinition::deserialize(value).map_or(value.clone(), |it| json!(it))
        }
        _ => value.clone(),
    };
    let mut fill = |member: &str, exported: Option<&Value>, masked: Option<&Value>| {
        let values = PlaceholderValues {
            values,
            current: exported.zip(masked),
        };
        if value.get(member).is_some() {
            filled[member] = values.fill(&value[member], "", &mut own_missing);
        }
    };
    let current = match kind {
        ItemKind::Server => hub.servers.get(&name).ok().map(|view| {
            let exported = export::server(&view);
            let masked = view.server.transport.masked_config();
            fill("config", Some(&exported["config"]), Some(&masked));
            exported
        }),
        ItemKind::Model => hub.model_manager.show(&name).await.ok().map(|masked| {
            let exported = export::model(&masked);
            fill(
                "api_key",
                Some(&exported["api_key"]),
                Some(&masked["api_key"]),
            );
            exported
        }),
        ItemKind::Source => hub.sources.show(&name).await.ok().map(|masked| {
            let exported = export::source(&masked);
            fill("url", Some(&exported["url"]), Some(&masked["url"]));
            exported
        }),
        ItemKind::Tool => {
            let record = hub.custom_tools.get(&name).await.ok();
            record.map(|it| export::tool(&name, &it))
        }
        ItemKind::Limit => {
            let limits = hub.quota.list().await.unwrap_or_default();
            let mut limits = limits.iter().map(export::limit);
            limits.find(|it| {
                it["target_type"] == value["target_type"] && it["target_id"] == value["target_id"]
            })
        }
        ItemKind::DisabledTool => {
            let snapshot = hub.engine.catalog().snapshot();
            let disabled = snapshot.disabled_tools();
            disabled
                .is_disabled(text("server"), text("tool"))
                .then(|| value.clone())
        }
        ItemKind::AllowedHost => {
            let hosts = hub.address_policy.added_hosts.list();
            hosts.contains(&name).then(|| value.clone())
        }
        ItemKind::Toolset => {
            let snapshot = hub.engine.catalog().snapshot();
            let toolset = snapshot.toolsets().get(name.as_str());
            toolset.map(|it| json!(it.definition()))
        }
        ItemKind::ToolOverride => {
            let (server, tool) = (text("server"), text("tool"));
            let snapshot = hub.engine.catalog().snapshot();
            let key = (Arc::from(server), Arc::from(tool));
            let change = snapshot.tool_overrides().get(&key);
            change.map(|it| export::tool_override(server, tool, it))
        }
        ItemKind::Budget => {
            let budgets = hub.usage.budgets();
            let budget = budgets.iter().find(|it| it.definition.name == name);
            budget.map(|it| json!(it.definition))
        }
        ItemKind::Token => {
            let tokens = hub.access.list_tokens().await.unwrap_or_default();
            tokens
                .iter()
                .any(|it| it.name == name)
                .then(|| value.clone())
        }
        ItemKind::SampleData => {
            let sources = hub.sources.list().await;
            let mode = sources.iter().find_map(|it| it.get("mode"));
            mode.map(|it| json!({"mode": it}))
        }
    };
    if current.is_none() {
        fill("config", None, None);
        fill("url", None, None);
        fill("api_key", None, None);
    }
    let is_incomplete = !own_missing.is_empty();
    missing.append(&mut own_missing);
    // Of the others, `filled` has the secrets.
    let after = if kind == ItemKind::Budget {
        &filled
    } else {
        value
    };
    let differences = current.as_ref().map(|it| differences(it, after));
    ImportItem {
        kind,
        name,
        differences,
        current,
        is_incomplete,
        value: filled,
    }
}
