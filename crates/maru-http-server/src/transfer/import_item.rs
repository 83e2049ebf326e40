//! The things of a file: what each of them is, and how it is checked and imported.

use std::{collections::HashSet, sync::Arc};

use axum::http::Uri;
use maru_config::{BudgetDefinition, ToolsetDefinition};
use maru_tools::{QuotaTarget, SampleMode, ToolOverride};
use maru_upstream::{RegistrationError, ServerDraft, ServerOrigin, ServerView};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::{
    super::{HubState, allowed_hosts, servers::merge_update},
    differences::merge,
    import::ImportRequest,
    import_error::ImportError,
    import_plan::ImportPreview,
};

/// The lists of a file, in the order in which they are imported: sources need their hosts,
/// and tools their sources.
pub(super) const FILE_SECTIONS: [(&str, ItemKind); 11] = [
    ("allowedHosts", ItemKind::AllowedHost),
    ("models", ItemKind::Model),
    ("sources", ItemKind::Source),
    ("servers", ItemKind::Server),
    ("tools", ItemKind::Tool),
    ("toolOverrides", ItemKind::ToolOverride),
    ("toolsets", ItemKind::Toolset),
    ("limits", ItemKind::Limit),
    ("budgets", ItemKind::Budget),
    ("disabledTools", ItemKind::DisabledTool),
    ("tokens", ItemKind::Token),
];
const NOTE_OF_SECRETS: &str = "it is checked once its secrets are filled in";
const NOTE_OF_SOURCE: &str = "it is checked once the secrets of its source are filled in";
const NOTE_OF_HOST: &str = "it is checked once its host is allowed";

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum ItemKind {
    AllowedHost,
    Model,
    Source,
    Server,
    Tool,
    ToolOverride,
    Toolset,
    Limit,
    Budget,
    DisabledTool,
    Token,
    SampleData,
}

/// One thing of the file, compared with the hub.
pub(super) struct ImportItem {
    pub(super) kind: ItemKind,
    pub(super) name: String,
    /// With its secrets.
    pub(super) value: Value,
    /// How the hub would export it, if it has it.
    pub(super) current: Option<Value>,
    /// How what the hub has would change.
    pub(super) differences: Option<Vec<Value>>,
    /// Whether a secret of it has no value.
    pub(super) is_incomplete: bool,
}

impl ImportItem {
    /// Whether importing it changes the hub.
    pub(super) fn is_change(&self) -> bool {
        self.differences.as_ref().is_none_or(|it| !it.is_empty())
    }

    /// Imports it, or with a preview only checks it; returns what was or would be done.
    pub(super) async fn run(
        self,
        hub: &Arc<HubState>,
        request: &ImportRequest,
        preview: Option<&ImportPreview>,
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
        let done = match preview {
            Some(preview) => self.check(hub, request, preview).await,
            None => self.apply(hub, request, user).await,
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
        preview: &ImportPreview,
    ) -> Result<Option<String>, ImportError> {
        match self.kind {
            ItemKind::AllowedHost => self.allowed_host(hub).map(drop)?,
            ItemKind::Server | ItemKind::Model if self.is_at_one_of(&preview.new_hosts) => {
                return Ok(Some(NOTE_OF_HOST.to_owned()));
            }
            ItemKind::Server => {
                let draft = self.server_draft(hub, request)?;
                hub.servers.check(&draft).map_err(ImportError::from)?;
            }
            ItemKind::Model => {
                let checked = hub.model_manager.check(&self.value).await;
                checked.map_err(ImportError::new)?;
            }
            ItemKind::Source if self.is_incomplete => {
                return Ok(Some(NOTE_OF_SECRETS.to_owned()));
            }
            ItemKind::Source => {
                if let Some(error) = preview.sources.errors.get(&self.name) {
                    return Err(ImportError::new(error));
                }
            }
            ItemKind::Tool if self.reads_one_of(&preview.incomplete_sources) => {
                return Ok(Some(NOTE_OF_SOURCE.to_owned()));
            }
            ItemKind::Tool if self.value.get("definition").is_some() => {
                let tool = self.tool_without_draft();
                let sources = Some(&preview.sources.sources);
                let checked = hub.custom_tools.check(&tool, sources).await;
                checked.map_err(ImportError::new)?;
            }
            ItemKind::ToolOverride => self.tool_override().map(drop)?,
            ItemKind::Toolset => {
                let checked = hub.toolsets.check(&self.toolset()?);
                checked.map_err(ImportError::new)?;
            }
            ItemKind::Limit => self.limit().map(drop)?,
            ItemKind::Budget => {
                let checked = hub.usage.check_budget(&self.budget()?);
                checked.map_err(ImportError::new)?;
            }
            ItemKind::Token => return Ok(Some(self.token_note())),
            ItemKind::Tool | ItemKind::DisabledTool | ItemKind::SampleData => (),
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
            ItemKind::AllowedHost => {
                let host = self.allowed_host(hub)?;
                match allowed_hosts::add(hub, &host).await {
                    Ok(true) => Ok(None),
                    Ok(false) => Err(ImportError::new("there is no room for another host")),
                    Err(error) => Err(ImportError::new(error.public_message())),
                }
            }
            ItemKind::ToolOverride => {
                let change = self.tool_override()?;
                let (server, tool) = (self.text("server"), self.text("tool"));
                let saved = hub.tool_overrides.save(&server, &tool, &change).await;
                saved
                    .map(|()| None)
                    .map_err(|error| ImportError::new(error.public_message()))
            }
            ItemKind::Toolset => {
                let saved = hub.toolsets.save(self.toolset()?).await;
                saved.map(|()| None).map_err(ImportError::new)
            }
            ItemKind::Budget => {
                let saved = hub.usage.save_budget(&self.budget()?).await;
                saved.map(|()| None).map_err(ImportError::new)
            }
            ItemKind::Limit => {
                let (target, day, minute) = self.limit()?;
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

    fn allowed_host(&self, hub: &HubState) -> Result<String, ImportError> {
        let checked = hub.address_policy.check_added_host(&self.name);
        checked.map_err(ImportError::new)
    }

    fn tool_override(&self) -> Result<ToolOverride, ImportError> {
        if self.text("server").is_empty() || self.text("tool").is_empty() {
            return Err(ImportError::new(
                "an override names its server and its tool",
            ));
        }
        let merged = merge(self.current.as_ref(), &self.value);
        ToolOverride::parse(&merged["override"]).map_err(ImportError::new)
    }

    fn toolset(&self) -> Result<ToolsetDefinition, ImportError> {
        let merged = merge(self.current.as_ref(), &self.value);
        ToolsetDefinition::deserialize(merged).map_err(ImportError::new)
    }

    fn budget(&self) -> Result<BudgetDefinition, ImportError> {
        BudgetDefinition::deserialize(&self.value).map_err(ImportError::new)
    }

    /// What it limits, and the calls per day and minute.
    fn limit(&self) -> Result<(QuotaTarget, Option<i64>, Option<i64>), ImportError> {
        let target = QuotaTarget::parse(&self.text("target_type"));
        let target = target.ok_or_else(|| ImportError::new("use USER or TOOL as target_type"))?;
        let count = |name: &str| self.value[name].as_i64().filter(|it| *it >= 0);
        match (count("max_count"), count("max_per_minute")) {
            (None, None) => Err(ImportError::new(
                "max_count or max_per_minute must be a number",
            )),
            (day, minute) => Ok((target, day, minute)),
        }
    }

    /// Whether it is a server or a model at one of these hosts.
    fn is_at_one_of(&self, hosts: &HashSet<String>) -> bool {
        let url = match self.kind {
            ItemKind::Server => &self.value["config"]["url"],
            _ => &self.value["base_url"],
        };
        let url = url.as_str().and_then(|it| it.parse::<Uri>().ok());
        url.and_then(|it| hosts.contains(it.host()?).then_some(()))
            .is_some()
    }

    /// Whether it is a SQL tool on one of these sources, or on whichever is the first.
    fn reads_one_of(&self, sources: &HashSet<String>) -> bool {
        self.value["tool_type"] == "SQL"
            && match self.value["source"].as_str() {
                Some(name) => sources.contains(name),
                None => !sources.is_empty(),
            }
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
            Self::AllowedHost => "allowed host",
            Self::Model => "model",
            Self::Source => "source",
            Self::Server => "server",
            Self::Tool => "tool",
            Self::ToolOverride => "tool override",
            Self::Toolset => "toolset",
            Self::Limit => "limit",
            Self::Budget => "budget",
            Self::DisabledTool => "disabled tool",
            Self::Token => "token",
            Self::SampleData => "sample data",
        }
    }

    pub(super) fn name_of(self, value: &Value) -> String {
        let text = |name: &str| value[name].as_str().unwrap_or_default();
        match self {
            Self::Limit => format!(
                "{} {}",
                text("target_type").to_lowercase(),
                text("target_id")
            ),
            Self::AllowedHost => value.as_str().unwrap_or_default().to_owned(),
            Self::DisabledTool | Self::ToolOverride => {
                format!("{}.{}", text("server"), text("tool"))
            }
            Self::SampleData => text("mode").to_owned(),
            _ => text("name").to_owned(),
        }
    }
}
