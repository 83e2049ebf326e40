//! Reads the file: of this version, of older ones, or of a desktop client.

use std::{collections::BTreeSet, sync::Arc};

use maru_tools::{QuotaTarget, SampleMode};
use maru_upstream::{RegistrationError, ServerDraft, ServerOrigin, ServerView, drafts_from_import};
use serde_json::{Map, Value, json};

use super::{
    super::{HubState, servers::merge_update},
    FILE_VERSION,
    differences::differences,
    export,
    import_error::ImportError,
    placeholders::{PlaceholderValues, escape},
    without_nulls,
};

/// The lists of a file, in the order in which they are imported: tools need their sources.
const SECTIONS: [(&str, ItemKind); 7] = [
    ("models", ItemKind::Model),
    ("sources", ItemKind::Source),
    ("servers", ItemKind::Server),
    ("tools", ItemKind::Tool),
    ("limits", ItemKind::Limit),
    ("disabledTools", ItemKind::DisabledTool),
    ("tokens", ItemKind::Token),
];
/// The most things that a file may have.
const MAX_ITEMS: usize = 20_000;

/// What should be imported, and how.
pub(super) struct ImportRequest {
    items: Vec<(ItemKind, Value)>,
    values: Map<String, Value>,
    pub(super) dry_run: bool,
    /// `true`, or the names of the servers whose warnings are accepted.
    accept_warnings: Value,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ItemKind {
    Model,
    Source,
    Server,
    Tool,
    Limit,
    DisabledTool,
    Token,
    SampleData,
}

/// One thing of the file, compared with the hub.
pub(super) struct ImportItem {
    kind: ItemKind,
    name: String,
    /// With its secrets.
    value: Value,
    /// Whether the hub has it, and how it would change.
    differences: Option<Vec<Value>>,
}

impl ImportRequest {
    /// Parses the body of a request; an error says what is wrong with the document.
    /// The placeholders of a client's file that have no value go into `missing`.
    pub(super) fn parse(body: &Value, missing: &mut BTreeSet<String>) -> Result<Self, String> {
        let values = body["values"].as_object().cloned().unwrap_or_default();
        let items = parse_document(&body["document"], &values, missing)?;
        if items.len() > MAX_ITEMS {
            return Err(format!("the file has more than {MAX_ITEMS} entries"));
        }
        Ok(Self {
            items,
            values,
            dry_run: body["dryRun"] == true,
            accept_warnings: body["acceptWarnings"].clone(),
        })
    }

    fn accepts_warnings_of(&self, server: &str) -> bool {
        let names = self.accept_warnings.as_array();
        self.accept_warnings == true || names.is_some_and(|it| it.iter().any(|name| name == server))
    }

    /// Compares everything with the hub and fills in the placeholders.
    pub(super) async fn plan(
        &self,
        hub: &HubState,
        missing: &mut BTreeSet<String>,
    ) -> Vec<ImportItem> {
        let mut plan = Vec::with_capacity(self.items.len());
        for (kind, value) in &self.items {
            plan.push(self.compare(hub, *kind, value, missing).await);
        }
        plan
    }

    async fn compare(
        &self,
        hub: &HubState,
        kind: ItemKind,
        value: &Value,
        missing: &mut BTreeSet<String>,
    ) -> ImportItem {
        let name = kind.name_of(value);
        let mut filled = value.clone();
        let mut fill = |member: &str, exported: Option<&Value>, masked: Option<&Value>| {
            let values = PlaceholderValues {
                values: &self.values,
                current: exported.zip(masked),
            };
            if value.get(member).is_some() {
                filled[member] = values.fill(&value[member], "", missing);
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
                    it["target_type"] == value["target_type"]
                        && it["target_id"] == value["target_id"]
                })
            }
            ItemKind::DisabledTool => {
                let snapshot = hub.engine.catalog().snapshot();
                let mut tools = snapshot.tools_with_state();
                let is_off = tools.any(|(tool, enabled)| {
                    !enabled
                        && **tool.server() == *value["server"].as_str().unwrap_or_default()
                        && tool.key() == value["tool"]
                });
                is_off.then(|| value.clone())
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
        ImportItem {
            kind,
            name,
            differences: current.map(|it| differences(&it, value)),
            value: filled,
        }
    }
}

impl ImportItem {
    /// Imports it, or in a dry run only checks it; returns what was or would be done.
    pub(super) async fn run(
        self,
        hub: &Arc<HubState>,
        request: &ImportRequest,
        user: &str,
    ) -> Value {
        let change = match &self.differences {
            None => "create",
            Some(found) if found.is_empty() => "unchanged",
            Some(_) => "update",
        };
        let mut shown = json!({"kind": self.kind.as_str(), "name": self.name, "change": change});
        if let Some(found) = self.differences.as_ref().filter(|it| !it.is_empty()) {
            shown["differences"] = json!(found);
        }
        if change == "unchanged" {
            return shown;
        }
        let done = if request.dry_run {
            self.check(hub, request).await
        } else {
            self.apply(hub, request, user).await
        };
        match done {
            Ok(Some(note)) => shown["note"] = note.into(),
            Ok(None) => (),
            Err(ImportError { message, warnings }) => {
                shown["error"] = message.into();
                if !warnings.is_empty() {
                    shown["warnings"] = json!(warnings);
                }
            }
        }
        shown
    }

    async fn check(
        &self,
        hub: &HubState,
        request: &ImportRequest,
    ) -> Result<Option<String>, ImportError> {
        match self.kind {
            ItemKind::Server => {
                let draft = self.server_draft(hub, request)?;
                hub.servers.check(&draft).map_err(ImportError::from)?;
            }
            ItemKind::Model => {
                let checked = hub.model_manager.check(&self.value).await;
                checked.map_err(ImportError::new)?;
            }
            ItemKind::Tool if self.value.get("definition").is_some() => {
                let tool = self.tool_without_draft();
                hub.custom_tools
                    .check(&tool)
                    .await
                    .map_err(ImportError::new)?;
            }
            ItemKind::Limit if QuotaTarget::parse(&self.text("target_type")).is_none() => {
                return Err(ImportError::new("use USER or TOOL as target_type"));
            }
            ItemKind::Token => return Ok(Some(self.token_note())),
            _ => (),
        }
        Ok(None)
    }

    async fn apply(
        &self,
        hub: &Arc<HubState>,
        request: &ImportRequest,
        user: &str,
    ) -> Result<Option<String>, ImportError> {
        let exists = self.differences.is_some();
        match self.kind {
            ItemKind::Server => {
                let draft = self.server_draft(hub, request)?;
                let view = if exists {
                    hub.servers.update(&self.name, &draft).await
                } else {
                    hub.servers.register(&draft, ServerOrigin::Import).await
                };
                Ok(Some(connection_note(&view?)))
            }
            ItemKind::Model => {
                let saved = if exists {
                    hub.model_manager.update(&self.name, &self.value).await
                } else {
                    hub.model_manager.add(&self.value).await
                };
                saved.map(|_| None).map_err(ImportError::new)
            }
            ItemKind::Source => {
                let saved = if exists {
                    hub.sources.update(&self.name, &self.value).await
                } else {
                    hub.sources.add(&self.value).await
                };
                saved.map(|_| None).map_err(ImportError::new)
            }
            ItemKind::Tool => self.apply_tool(hub, user).await,
            ItemKind::Limit => {
                let target = QuotaTarget::parse(&self.text("target_type"));
                let target =
                    target.ok_or_else(|| ImportError::new("use USER or TOOL as target_type"))?;
                let count = |name: &str| self.value[name].as_i64().filter(|it| *it >= 0);
                let (day, minute) = (count("max_count"), count("max_per_minute"));
                if day.is_none() && minute.is_none() {
                    return Err(ImportError::new(
                        "max_count or max_per_minute must be a number",
                    ));
                }
                let id = self.text("target_id");
                let set = hub.quota.set_limit(target, &id, day, minute).await;
                set.map(|_| None)
                    .map_err(|error| ImportError::new(error.public_message()))
            }
            ItemKind::DisabledTool => {
                let key = (self.text("server"), self.text("tool"));
                let set = hub.custom_tools.set_tools_enabled(&[key], false).await;
                set.map(|_| None)
                    .map_err(|_| ImportError::new("the store could not save the change"))
            }
            ItemKind::SampleData => {
                let mode = SampleMode::parse(&self.text("mode"));
                let set = hub.sources.set_sample_mode(mode).await;
                set.map(|()| None).map_err(ImportError::new)
            }
            ItemKind::Token => Ok(Some(self.token_note())),
        }
    }

    async fn apply_tool(&self, hub: &HubState, user: &str) -> Result<Option<String>, ImportError> {
        let tools = &hub.custom_tools;
        if self.value.get("definition").is_some() {
            let tool = self.tool_without_draft();
            let published = tools.get(&self.name).await;
            let exists = published.is_ok_and(|it| it.published.is_some());
            let saved = if exists {
                tools.update(&self.name, &tool, user).await
            } else {
                tools.create(&tool, user).await
            };
            saved.map_err(ImportError::new)?;
        }
        if let Some(draft) = self.value.get("draft") {
            let saved = tools.save_draft(&self.name, draft, user).await;
            saved.map_err(ImportError::new)?;
        }
        Ok(None)
    }

    fn server_draft(
        &self,
        hub: &HubState,
        request: &ImportRequest,
    ) -> Result<ServerDraft, ImportError> {
        let mut body = match hub.servers.get(&self.name) {
            Ok(current) => merge_update(&current, &self.value),
            Err(_) => self.value.clone(),
        };
        body["acceptWarnings"] = request.accepts_warnings_of(&self.name).into();
        let draft = ServerDraft::from_api(&body).map_err(RegistrationError::from)?;
        Ok(ServerDraft {
            enabled: self.value["enabled"].as_bool(),
            ..draft
        })
    }

    fn tool_without_draft(&self) -> Value {
        let members = self.value.as_object().into_iter().flatten();
        let members = members.filter(|(name, _)| *name != "draft");
        members
            .map(|(name, it)| (name.clone(), it.clone()))
            .collect()
    }

    fn text(&self, name: &str) -> String {
        self.value[name].as_str().unwrap_or_default().to_owned()
    }

    /// Tokens are not imported, because they would be new ones.
    fn token_note(&self) -> String {
        let list = |name: &str, flag: &str| -> String {
            let names = self.value[name].as_array().into_iter().flatten();
            let names = names.filter_map(Value::as_str);
            names.map(|it| format!(" --{flag} {it}")).collect()
        };
        let option = |name: &str, flag: &str| match self.value[name].as_str() {
            Some(value) => format!(" --{flag} {value}"),
            None => String::new(),
        };
        format!(
            "tokens are not imported; make a new one: maru token create {} --role {}{}{}{}{}",
            self.name,
            self.text("role"),
            list("servers", "server"),
            list("tools", "tool"),
            option("toolset", "toolset"),
            option("toolListing", "listing"),
        )
    }
}

fn connection_note(view: &ServerView) -> String {
    match &view.status.cause {
        Some(cause) => format!(
            "{}: {}",
            view.status.state.as_str(),
            view.server.transport.redact(cause)
        ),
        None => view.status.state.as_str().to_owned(),
    }
}

impl ItemKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Source => "source",
            Self::Server => "server",
            Self::Tool => "tool",
            Self::Limit => "limit",
            Self::DisabledTool => "disabled tool",
            Self::Token => "token",
            Self::SampleData => "sample data",
        }
    }

    fn name_of(self, value: &Value) -> String {
        let text = |name: &str| value[name].as_str().unwrap_or_default();
        match self {
            Self::Limit => format!(
                "{} {}",
                text("target_type").to_lowercase(),
                text("target_id")
            ),
            Self::DisabledTool => format!("{}.{}", text("server"), text("tool")),
            Self::SampleData => text("mode").to_owned(),
            _ => text("name").to_owned(),
        }
    }
}

/// The things in a file of this version, in a list of tools, or in a client's file.
fn parse_document(
    document: &Value,
    values: &Map<String, Value>,
    missing: &mut BTreeSet<String>,
) -> Result<Vec<(ItemKind, Value)>, String> {
    if let Some(version) = document.get("maru") {
        if version.as_u64() != Some(FILE_VERSION) {
            return Err(format!(
                "the file has version {version}; this maru reads version {FILE_VERSION}"
            ));
        }
        return parse_sections(document);
    }
    let is_tool = |it: &Value| it.get("tool_type").is_some();
    let tools = document.as_array().or(document["tools"].as_array());
    if let Some(tools) = tools.filter(|it| !it.is_empty() && it.iter().all(is_tool)) {
        return Ok(tools
            .iter()
            .map(|it| (ItemKind::Tool, old_tool(it)))
            .collect());
    }
    let values = PlaceholderValues {
        values,
        current: None,
    };
    let filled = values.fill(document, "", missing);
    let drafts = drafts_from_import(&filled).map_err(|error| {
        format!("this is neither a file of maru export nor one of an MCP client: {error}")
    })?;
    let servers = drafts.into_iter().map(|(name, draft)| match draft {
        Ok(draft) => Ok((ItemKind::Server, server_value(&draft))),
        Err(error) => Err(format!("{name}: {error}")),
    });
    servers.collect()
}

fn parse_sections(document: &Value) -> Result<Vec<(ItemKind, Value)>, String> {
    let known = |name: &str| {
        matches!(name, "maru" | "sampleData") || SECTIONS.iter().any(|(it, _)| *it == name)
    };
    let members = document.as_object().ok_or("the file must be an object")?;
    if let Some(unknown) = members.keys().find(|it| !known(it)) {
        return Err(format!("unknown member {unknown:?}"));
    }
    let mut items = Vec::new();
    if let Some(mode) = members.get("sampleData") {
        items.push((ItemKind::SampleData, json!({"mode": mode})));
    }
    for (name, kind) in SECTIONS {
        let list = match members.get(name) {
            None => continue,
            Some(list) => list.as_array().ok_or(format!("{name} must be a list"))?,
        };
        if let Some(index) = list
            .iter()
            .position(|it| kind.name_of(it).trim().is_empty())
        {
            return Err(format!("entry {} of {name} has no name", index + 1));
        }
        items.extend(list.iter().map(|it| (kind, it.clone())));
    }
    Ok(items)
}

/// A custom tool of an older export, without the members that the hub sets.
fn old_tool(tool: &Value) -> Value {
    let read_only = [
        "version",
        "reg_dt",
        "upd_dt",
        "created_by",
        "fault",
        "draft",
        "change",
    ];
    let members = tool.as_object().into_iter().flatten();
    let members = members.filter(|(name, it)| !read_only.contains(&name.as_str()) && !it.is_null());
    members
        .map(|(name, it)| (name.clone(), it.clone()))
        .collect()
}

fn server_value(draft: &ServerDraft) -> Value {
    without_nulls(json!({
        "name": draft.name,
        "description": draft.description,
        "transportType": draft.kind,
        // Its placeholders are filled in.
        "config": escape(&draft.config),
        "version": draft.version,
        "autoConnect": draft.auto_connect,
        "enabled": draft.enabled,
        "trust": draft.trust.map(|it| it.as_str()),
        "requiredProtocolVersion": draft.required_version,
    }))
}
