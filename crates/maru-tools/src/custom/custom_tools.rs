//! All custom tools: saved in the store, published in the catalog.

use std::{collections::BTreeMap, mem, sync::Arc};

use maru_runtime::{clock, tasks::Tasks};
use maru_sources::DataSource;
use maru_store::{CustomDraftRow, CustomToolRow, CustomVersionRow, Store};
use serde_json::{Value, json};
use tokio::{sync::Mutex, time::Instant};

use super::{
    CustomToolDefinition, SaveError, ValidationError,
    draft::ToolDraft,
    record::{CustomTool, SavedTool, SavedVersion, ToolChange, ToolRecord},
    result::CustomToolResult,
    runner::{CustomToolRunner, ToolResources},
    tool_state::{
        ToolState, check_reserved, check_same_name, compile_with, short_name, unknown_tool,
    },
};
use crate::{
    call_arguments::CallArguments,
    caller::ToolCaller,
    catalog::Catalog,
    disabled_tools::DisabledTools,
    entry::{CatalogEntry, OWN_SERVER_NAME},
};
use maru_auth::Principal;

/// Creates, changes, publishes and removes custom tools, one change at a time.
#[derive(Debug)]
pub struct CustomTools {
    store: Store,
    catalog: Arc<Catalog>,
    tasks: Tasks,
    state: Mutex<ToolState>,
}

/// What saving does with the draft of the tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DraftHandling {
    Keep,
    Delete,
}

impl CustomTools {
    /// Loads the stored tools and publishes them beside `builtin_entries`.
    pub async fn open(
        store: Store,
        catalog: Arc<Catalog>,
        builtin_entries: Vec<Arc<CatalogEntry>>,
        resources: ToolResources,
        tasks: Tasks,
    ) -> Result<Self, SaveError> {
        let state = ToolState {
            builtin_entries,
            resources,
            tools: BTreeMap::new(),
        };
        let custom_tools = Self {
            store,
            catalog,
            tasks,
            state: Mutex::new(state),
        };
        {
            let mut state = custom_tools.state.lock().await;
            custom_tools.load_stored(&mut state).await?;
            custom_tools.publish_entries(&state, None);
        }
        Ok(custom_tools)
    }

    /// Loads the tools, drafts and switches from the store, where another hub may have
    /// changed them, and publishes what differs.
    pub async fn reload(&self) -> Result<(), maru_store::Error> {
        let mut state = self.state.lock().await;
        if self.load_stored(&mut state).await? {
            self.publish_entries(&state, None);
        }
        Ok(())
    }

    /// Reads the store; returns whether what clients see differs.
    async fn load_stored(&self, state: &mut ToolState) -> Result<bool, maru_store::Error> {
        let rows = self.store.custom_tools().await?;
        let drafts = self.store.custom_tool_drafts().await?;
        let disabled = self.store.disabled_tools().await?;
        let before = mem::take(&mut state.tools).into_iter();
        let mut before: BTreeMap<String, CustomTool> = before
            .filter_map(|(name, record)| Some((name, record.published?)))
            .collect();
        let mut differs = false;
        for row in &rows {
            let known = before.remove(&row.name);
            let known = known.filter(|it| it.is_loaded_from(row));
            differs |= known.is_none();
            if let Some(tool) = known.or_else(|| state.load_row(row, &self.tasks)) {
                state.tools.entry(row.name.clone()).or_default().published = Some(tool);
            }
        }
        for row in drafts {
            let name = row.name.clone();
            state.tools.entry(name).or_default().draft = Some(ToolDraft::from(row));
        }
        let inactive = rows.iter().filter(|it| !it.is_active);
        let inactive = inactive.map(|it| (OWN_SERVER_NAME.to_owned(), it.name.clone()));
        let disabled: DisabledTools = disabled.into_iter().chain(inactive).collect();
        if *self.catalog.snapshot().disabled_tools() != disabled {
            self.catalog.set_disabled_tools(disabled);
        }
        Ok(differs || !before.is_empty())
    }

    /// Replaces maru's own tools and the sources; every custom tool is compiled again.
    pub async fn replace_sources(
        &self,
        builtin_entries: Vec<Arc<CatalogEntry>>,
        sources: Arc<[DataSource]>,
    ) {
        let mut state = self.state.lock().await;
        // A custom tool keeps its name even if the sample tools come back.
        let mut entries = builtin_entries;
        entries.retain(|it| state.published(it.key()).is_none());
        state.builtin_entries = entries;
        state.resources.sources = sources;
        let resources = state.resources.clone();
        for tool in state
            .tools
            .values_mut()
            .filter_map(|it| it.published.as_mut())
        {
            let runner = CustomToolRunner::load(tool.definition.clone(), &resources);
            tool.set_runner(&Arc::new(runner), &self.tasks);
        }
        self.publish_entries(&state, None);
    }

    /// All tools and drafts, by name.
    pub async fn list(&self) -> Vec<(String, ToolRecord)> {
        let state = self.state.lock().await;
        let tools = state.tools.iter();
        tools.map(|(name, it)| (name.clone(), it.clone())).collect()
    }

    /// A tool with its draft, or a draft alone.
    pub async fn get(&self, name: &str) -> Result<ToolRecord, SaveError> {
        let state = self.state.lock().await;
        let record = state.tools.get(name).cloned();
        record.ok_or_else(|| unknown_tool(name))
    }

    /// Creates a tool.
    pub async fn create(&self, json: &Value, user: &str) -> Result<SavedTool, SaveError> {
        let definition = CustomToolDefinition::from_json(json)?;
        let mut state = self.state.lock().await;
        state.check_new_name(&definition.name)?;
        self.save(&mut state, definition, user, DraftHandling::Keep)
            .await
    }

    /// Changes a tool; members that `json` does not name stay as they are.
    pub async fn update(
        &self,
        name: &str,
        json: &Value,
        user: &str,
    ) -> Result<SavedTool, SaveError> {
        let mut state = self.state.lock().await;
        let definition = state.merge_definition(name, json)?;
        self.save(&mut state, definition, user, DraftHandling::Keep)
            .await
    }

    /// Publishes `json`, or else the draft of the tool, as its new active version, and
    /// deletes the draft.
    pub async fn publish(
        &self,
        name: &str,
        json: Option<&Value>,
        user: &str,
    ) -> Result<SavedTool, SaveError> {
        let mut state = self.state.lock().await;
        let draft = state.tools.get(name).and_then(|it| it.draft.as_ref());
        let mut tool = match (json, draft) {
            (Some(json), _) => json.clone(),
            (None, Some(draft)) => draft.tool.clone(),
            (None, None) => return Err(SaveError::NoDraft(short_name(name))),
        };
        if let Some(members) = tool.as_object_mut() {
            members.insert("is_active".to_owned(), true.into());
        }
        let definition = CustomToolDefinition::from_json(&tool)?;
        check_same_name(name, &definition.name)?;
        if state.published(name).is_none() {
            state.check_new_name(name)?;
        }
        self.save(&mut state, definition, user, DraftHandling::Delete)
            .await
    }

    /// Saves `json` as the draft of a tool. Clients see no change, and the draft may be
    /// incomplete.
    pub async fn save_draft(
        &self,
        name: &str,
        json: &Value,
        user: &str,
    ) -> Result<ToolRecord, SaveError> {
        let draft = ToolDraft::parse(name, json, user)?;
        let mut state = self.state.lock().await;
        if !state.tools.contains_key(name) {
            state.check_new_name(name)?;
        }
        check_reserved(name)?;
        let row = CustomDraftRow {
            name: name.to_owned(),
            tool: draft.tool.to_string(),
            saved_by: draft.saved_by.clone(),
            saved_dt: draft.saved_dt.clone(),
        };
        self.store.put_custom_tool_draft(&row).await?;
        let record = state.tools.entry(name.to_owned()).or_default();
        record.draft = Some(draft);
        Ok(record.clone())
    }

    /// Deletes the draft of a tool; the published version stays.
    pub async fn discard_draft(&self, name: &str) -> Result<(), SaveError> {
        let mut state = self.state.lock().await;
        if !self.store.delete_custom_tool_draft(name).await? {
            return Err(SaveError::NoDraft(short_name(name)));
        }
        state.forget_draft(name);
        Ok(())
    }

    /// Makes an earlier version the current one, also of a tool that was removed. A tool
    /// that is switched off stays off.
    pub async fn restore(
        &self,
        name: &str,
        version: i64,
        user: &str,
    ) -> Result<SavedTool, SaveError> {
        let versions = self.versions(name).await?;
        let saved = versions.into_iter().find(|it| it.version == version);
        let saved = saved.ok_or_else(|| SaveError::UnknownVersion(short_name(name), version))?;
        let mut definition = CustomToolDefinition::from_json(&saved.tool)?;
        let mut state = self.state.lock().await;
        if let Some(current) = state.published(name) {
            definition.is_active = current.definition.is_active;
        }
        self.save(&mut state, definition, user, DraftHandling::Keep)
            .await
    }

    /// Switches a published tool on or off, without a new version.
    pub async fn set_active(&self, name: &str, active: bool) -> Result<ToolRecord, SaveError> {
        let mut state = self.state.lock().await;
        state.published(name).ok_or_else(|| unknown_tool(name))?;
        let tools = [(OWN_SERVER_NAME.to_owned(), name.to_owned())];
        self.switch(&mut state, &tools, active).await?;
        let record = state.tools.get(name).cloned();
        record.ok_or_else(|| unknown_tool(name))
    }

    /// Switches tools of any server, each given by its server and its name there; all of
    /// them or none. The switch of a custom tool is its `is_active`.
    pub async fn set_tools_enabled(
        &self,
        tools: &[(String, String)],
        on: bool,
    ) -> Result<(), maru_store::Error> {
        let mut state = self.state.lock().await;
        self.switch(&mut state, tools, on).await
    }

    /// Removes a tool and its draft; its versions are kept.
    pub async fn remove(&self, name: &str) -> Result<(), SaveError> {
        let mut state = self.state.lock().await;
        if !state.tools.contains_key(name) {
            return Err(unknown_tool(name));
        }
        self.store.delete_custom_tool(name).await?;
        state.tools.remove(name);
        self.publish_entries(&state, Some(name));
        Ok(())
    }

    /// The kept versions of the tool of this name, newest first.
    pub async fn versions(&self, name: &str) -> Result<Vec<SavedVersion>, SaveError> {
        let rows = self.store.custom_tool_versions(name).await?;
        if rows.is_empty() {
            self.get(name).await?;
        }
        Ok(rows.into_iter().map(SavedVersion::from).collect())
    }

    /// Runs a definition without saving it; returns the duration in milliseconds too.
    pub async fn run_unsaved(
        &self,
        json: &Value,
        arguments: &Value,
        principal: &Principal,
    ) -> Result<(CustomToolResult, f64), ValidationError> {
        let definition = CustomToolDefinition::from_json(json)?;
        let resources = self.state.lock().await.resources.clone();
        let runner = Arc::new(CustomToolRunner::compile(definition, &resources).await?);
        let entry = runner.catalog_entry(&self.tasks);
        let arguments = CallArguments::from(arguments.clone());
        entry.validate_arguments(&arguments).map_err(|message| {
            ValidationError::for_field("arguments", format!("wrong arguments: {message}"))
        })?;
        let started = Instant::now();
        let caller = ToolCaller::new(principal.clone());
        let result = runner.run(&arguments, &caller, &self.tasks).await?;
        Ok((result, started.elapsed().as_secs_f64() * 1000.0))
    }

    /// What saving a definition would change, or why it would be refused; with `sources`
    /// instead of the hub's, if any are given.
    pub async fn check(
        &self,
        json: &Value,
        sources: Option<&Arc<[DataSource]>>,
    ) -> Result<ToolChange, SaveError> {
        let state = self.state.lock().await;
        let name = json["name"].as_str().unwrap_or_default();
        let definition = match state.published(name) {
            Some(_) => state.merge_definition(name, json)?,
            None => CustomToolDefinition::from_json(json)?,
        };
        let before = state.published(&definition.name);
        if before.is_none() {
            state.check_new_name(&definition.name)?;
        }
        let mut resources = state.resources.clone();
        if let Some(sources) = sources {
            resources.sources = Arc::clone(sources);
        }
        compile_with(&definition, &resources).await?;
        Ok(ToolChange::between(before, &definition))
    }

    async fn save(
        &self,
        state: &mut ToolState,
        definition: CustomToolDefinition,
        user: &str,
        draft: DraftHandling,
    ) -> Result<SavedTool, SaveError> {
        let name = definition.name.clone();
        let runner = Arc::new(state.compile(&definition).await?);
        let before = state.published(&name);
        let change = ToolChange::between(before, &definition);
        let now = clock::format_rfc3339(clock::now_ms());
        let mut tool = CustomTool {
            version: before.map_or(0, |it| it.version),
            reg_dt: before.map_or_else(|| now.clone(), |it| it.reg_dt.clone()),
            upd_dt: before.map_or_else(|| now.clone(), |it| it.upd_dt.clone()),
            created_by: before.map_or_else(|| user.to_owned(), |it| it.created_by.clone()),
            fault: None,
            entry: runner.catalog_entry(&self.tasks),
            definition,
        };
        match change {
            ToolChange::Created | ToolChange::Changed => {
                let versions = self.store.custom_tool_versions(&name).await?;
                tool.version = versions.first().map_or(0, |it| it.version) + 1;
                tool.upd_dt = now;
                self.write_version(&tool, user, draft).await?;
            }
            ToolChange::Switched => {
                let active = tool.definition.is_active;
                let store = &self.store;
                store
                    .set_tools_enabled(vec![name.clone()], Vec::new(), active)
                    .await?;
            }
            ToolChange::Unchanged => (),
        }
        if draft == DraftHandling::Delete {
            if !change.is_new_version() {
                self.store.delete_custom_tool_draft(&name).await?;
            }
            state.forget_draft(&name);
        }
        let record = state.tools.entry(name).or_default();
        record.published = Some(tool);
        let record = record.clone();
        self.publish_entries(state, None);
        Ok(SavedTool { record, change })
    }

    async fn write_version(
        &self,
        tool: &CustomTool,
        user: &str,
        draft: DraftHandling,
    ) -> Result<(), SaveError> {
        let row = CustomToolRow {
            reg_dt: tool.reg_dt.clone(),
            upd_dt: tool.upd_dt.clone(),
            created_by: tool.created_by.clone(),
            version: tool.version,
            ..tool.definition.to_row()
        };
        let saved = CustomVersionRow {
            version: tool.version,
            tool: tool.definition.to_json().to_string(),
            saved_by: user.to_owned(),
            saved_dt: tool.upd_dt.clone(),
        };
        match draft {
            DraftHandling::Keep => self.store.put_custom_tool(&row, &saved).await?,
            DraftHandling::Delete => self.store.publish_custom_tool(&row, &saved).await?,
        }
        Ok(())
    }

    async fn switch(
        &self,
        state: &mut ToolState,
        tools: &[(String, String)],
        on: bool,
    ) -> Result<(), maru_store::Error> {
        let is_custom = |(server, name): &(String, String)| {
            server == OWN_SERVER_NAME && state.published(name).is_some()
        };
        let (custom, others): (Vec<_>, Vec<_>) = tools.iter().cloned().partition(is_custom);
        let custom: Vec<String> = custom.into_iter().map(|(_, name)| name).collect();
        self.store
            .set_tools_enabled(custom.clone(), others, on)
            .await?;
        for name in custom {
            let record = state.tools.get_mut(&name);
            if let Some(tool) = record.and_then(|it| it.published.as_mut()) {
                tool.definition.is_active = on;
            }
        }
        self.catalog.set_tools_enabled(tools, on);
        Ok(())
    }

    /// Publishes the tools and their switches, and clears the switch of `removed`.
    fn publish_entries(&self, state: &ToolState, removed: Option<&str>) {
        let published = || state.tools.values().filter_map(|it| it.published.as_ref());
        let entries = state.builtin_entries.iter();
        let entries = entries.chain(published().map(|it| &it.entry));
        let entries: Vec<Arc<CatalogEntry>> = entries.cloned().collect();
        let switches = published().map(|it| (it.definition.name.as_str(), it.definition.is_active));
        let switches = switches.chain(removed.map(|name| (name, true)));
        self.catalog
            .publish_with_switches(OWN_SERVER_NAME, &entries, switches);
    }
}

impl From<CustomVersionRow> for SavedVersion {
    fn from(row: CustomVersionRow) -> Self {
        Self {
            version: row.version,
            tool: serde_json::from_str(&row.tool).unwrap_or_else(|_| json!({})),
            saved_by: row.saved_by,
            saved_dt: row.saved_dt,
        }
    }
}
