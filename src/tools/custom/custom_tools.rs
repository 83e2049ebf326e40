//! The custom tools: kept in the store, offered in the catalog.

use std::{collections::BTreeMap, sync::Arc};

use maru_runtime::{clock, tasks::Tasks};
use maru_sources::DataSource;
use maru_store::{CustomToolRow, CustomVersionRow, Store};
use serde_json::{Value, json};
use tokio::{sync::Mutex, time::Instant};
use tracing::warn;

use super::{
    CustomToolDefinition, SaveError, ValidationError, result::CustomToolResult,
    runner::CustomToolRunner,
};
use crate::{
    observability::journal::RequestId,
    tools::{
        catalog::Catalog,
        entry::{CallArguments, CatalogEntry, OWN_SERVER_NAME},
    },
};

/// Makes, changes and offers tools. One change is made at a time.
#[derive(Debug)]
pub struct CustomTools {
    store: Store,
    catalog: Arc<Catalog>,
    sources: Arc<[DataSource]>,
    tasks: Tasks,
    /// What maru offers by itself.
    builtin_entries: Vec<Arc<CatalogEntry>>,
    tools: Mutex<BTreeMap<String, CustomTool>>,
}

/// A tool that someone made.
#[derive(Clone, Debug)]
pub struct CustomTool {
    /// What it is.
    pub definition: CustomToolDefinition,
    /// Counts the saves.
    pub version: i64,
    /// When it was made.
    pub reg_dt: String,
    /// When it was saved last.
    pub upd_dt: String,
    /// Who made it.
    pub created_by: String,
    /// Why it cannot run now.
    pub fault: Option<String>,
    entry: Arc<CatalogEntry>,
}

/// A saved state of a tool.
#[derive(Clone, Debug)]
pub struct SavedVersion {
    /// Its number.
    pub version: i64,
    /// The tool as the API has it.
    pub tool: Value,
    /// Who saved it.
    pub saved_by: String,
    /// When.
    pub saved_dt: String,
}

/// The most tools.
const MAX_CUSTOM_TOOLS: usize = 5000;
/// Words that stand in addresses where a name could.
const RESERVED_NAMES: &[&str] = &["test", "export", "import", "find_tools", "ask_agent"];

impl CustomTools {
    /// Offers what is stored beside `built_in`.
    pub async fn open(
        store: Store,
        catalog: Arc<Catalog>,
        built_in: Vec<Arc<CatalogEntry>>,
        sources: Arc<[DataSource]>,
        tasks: Tasks,
    ) -> Result<Self, SaveError> {
        let rows = store.custom_tools().await?;
        let workshop = Self {
            store,
            catalog,
            sources,
            tasks,
            builtin_entries: built_in,
            tools: Mutex::default(),
        };
        let loaded = rows
            .iter()
            .filter_map(|row| workshop.load_row(row))
            .collect();
        *workshop.tools.lock().await = loaded;
        workshop.publish(&*workshop.tools.lock().await);
        Ok(workshop)
    }

    /// Every tool, by name.
    pub async fn list(&self) -> Vec<CustomTool> {
        self.tools.lock().await.values().cloned().collect()
    }

    /// One tool.
    pub async fn get(&self, name: &str) -> Result<CustomTool, SaveError> {
        let made = self.tools.lock().await;
        made.get(name).cloned().ok_or_else(|| unknown_tool(name))
    }

    /// Makes a tool.
    pub async fn create(&self, json: &Value, by: &str) -> Result<CustomTool, SaveError> {
        let definition = CustomToolDefinition::from_json(json)?;
        let mut made = self.tools.lock().await;
        let name = definition.name.clone();
        if made.contains_key(&name) || self.is_built_in(&name) {
            return Err(SaveError::NameTaken(name));
        }
        if made.len() >= MAX_CUSTOM_TOOLS {
            return Err(SaveError::TooManyTools(MAX_CUSTOM_TOOLS));
        }
        self.save(&mut made, definition, by).await
    }

    /// Changes a tool; what `json` does not name stays as it is.
    pub async fn update(
        &self,
        name: &str,
        json: &Value,
        by: &str,
    ) -> Result<CustomTool, SaveError> {
        let mut made = self.tools.lock().await;
        let now = made.get(name).ok_or_else(|| unknown_tool(name))?;
        let definition = CustomToolDefinition::from_json(&merge_definition(&now.definition, json))?;
        if definition.name != name {
            let why = "the name stays; make a new tool and remove this one";
            return Err(ValidationError::for_field("name", why).into());
        }
        self.save(&mut made, definition, by).await
    }

    /// Brings back what was saved, also of a tool that is gone.
    pub async fn restore(
        &self,
        name: &str,
        version: i64,
        by: &str,
    ) -> Result<CustomTool, SaveError> {
        let saved = self.versions(name).await?;
        let saved = saved.into_iter().find(|it| it.version == version);
        let saved = saved.ok_or_else(|| SaveError::UnknownVersion(name.to_owned(), version))?;
        let definition = CustomToolDefinition::from_json(&saved.tool)?;
        let mut made = self.tools.lock().await;
        self.save(&mut made, definition, by).await
    }

    /// Switches a tool on or off. That is no new version.
    pub async fn set_active(&self, name: &str, active: bool) -> Result<CustomTool, SaveError> {
        let mut made = self.tools.lock().await;
        if !made.contains_key(name) {
            return Err(unknown_tool(name));
        }
        self.store.set_custom_tool_active(name, active).await?;
        let tool = made.get_mut(name).ok_or_else(|| unknown_tool(name))?;
        tool.definition.is_active = active;
        let tool = tool.clone();
        self.publish(&made);
        Ok(tool)
    }

    /// Removes a tool; what was saved of it stays.
    pub async fn remove(&self, name: &str) -> Result<(), SaveError> {
        let mut made = self.tools.lock().await;
        if !made.contains_key(name) {
            return Err(unknown_tool(name));
        }
        self.store.delete_custom_tool(name).await?;
        made.remove(name);
        self.publish(&made);
        Ok(())
    }

    /// What was saved under this name, newest first.
    pub async fn versions(&self, name: &str) -> Result<Vec<SavedVersion>, SaveError> {
        let rows = self.store.custom_tool_versions(name).await?;
        if rows.is_empty() {
            self.get(name).await?;
        }
        let saved = rows.into_iter().map(|row| SavedVersion {
            version: row.version,
            tool: serde_json::from_str(&row.tool).unwrap_or_default(),
            saved_by: row.saved_by,
            saved_dt: row.saved_dt,
        });
        Ok(saved.collect())
    }

    /// Runs a definition that need not be saved; also says how many milliseconds
    /// that took.
    pub async fn run_unsaved(
        &self,
        json: &Value,
        arguments: &Value,
    ) -> Result<(CustomToolResult, f64), ValidationError> {
        let definition = CustomToolDefinition::from_json(json)?;
        let runner = Arc::new(CustomToolRunner::compile(definition, &self.sources).await?);
        let offer = runner.catalog_entry(&self.tasks);
        let input = CallArguments::from(arguments.clone());
        offer.validate_arguments(&input).map_err(|why| {
            ValidationError::for_field("arguments", format!("wrong arguments: {why}"))
        })?;
        let started = Instant::now();
        let done = runner.run(&input, RequestId::next(), &self.tasks).await?;
        Ok((done, started.elapsed().as_secs_f64() * 1000.0))
    }

    async fn save(
        &self,
        made: &mut BTreeMap<String, CustomTool>,
        definition: CustomToolDefinition,
        by: &str,
    ) -> Result<CustomTool, SaveError> {
        if RESERVED_NAMES.contains(&definition.name.as_str()) {
            let why = format!("the name {} is reserved", definition.name);
            return Err(ValidationError::for_field("name", why).into());
        }
        let runner = CustomToolRunner::compile(definition.clone(), &self.sources).await?;
        runner.check_parameters_used()?;
        let saved = self.store.custom_tool_versions(&definition.name).await?;
        let version = saved.first().map_or(0, |it| it.version) + 1;
        let now = clock::format_rfc3339(clock::now_ms());
        let before = made.get(&definition.name);
        let tool = CustomTool {
            version,
            reg_dt: before.map_or_else(|| now.clone(), |it| it.reg_dt.clone()),
            upd_dt: now,
            created_by: before.map_or_else(|| by.to_owned(), |it| it.created_by.clone()),
            fault: None,
            entry: Arc::new(runner).catalog_entry(&self.tasks),
            definition,
        };
        self.write_to_store(&tool, by).await?;
        made.insert(tool.definition.name.clone(), tool.clone());
        self.publish(made);
        Ok(tool)
    }

    async fn write_to_store(&self, tool: &CustomTool, by: &str) -> Result<(), SaveError> {
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
            saved_by: by.to_owned(),
            saved_dt: tool.upd_dt.clone(),
        };
        Ok(self.store.put_custom_tool(&row, &saved).await?)
    }

    fn load_row(&self, row: &CustomToolRow) -> Option<(String, CustomTool)> {
        let definition = match CustomToolDefinition::from_row(row) {
            Ok(definition) => definition,
            Err(flaw) => {
                let (name, why) = (&row.name, flaw.message);
                warn!("the custom tool {name:?} is not used: {why}");
                return None;
            }
        };
        if self.is_built_in(&row.name) {
            warn!(
                "the custom tool {:?} is not used: maru has a tool of that name",
                row.name
            );
            return None;
        }
        let runner = Arc::new(CustomToolRunner::load(definition.clone(), &self.sources));
        let tool = CustomTool {
            version: row.version,
            reg_dt: row.reg_dt.clone(),
            upd_dt: row.upd_dt.clone(),
            created_by: row.created_by.clone(),
            fault: runner.compile_error().map(|it| it.message.clone()),
            entry: runner.catalog_entry(&self.tasks),
            definition,
        };
        Some((row.name.clone(), tool))
    }

    fn is_built_in(&self, name: &str) -> bool {
        self.builtin_entries.iter().any(|it| it.key() == name)
    }

    fn publish(&self, made: &BTreeMap<String, CustomTool>) {
        let active = made.values().filter(|it| it.definition.is_active);
        let offers = self
            .builtin_entries
            .iter()
            .chain(active.map(|it| &it.entry));
        let offers: Vec<Arc<CatalogEntry>> = offers.cloned().collect();
        self.catalog.publish(OWN_SERVER_NAME, &offers);
    }
}

impl CustomTool {
    /// As the API shows it.
    pub fn to_json(&self) -> Value {
        let mut shown = self.definition.to_json();
        shown["version"] = self.version.into();
        shown["reg_dt"] = self.reg_dt.as_str().into();
        shown["upd_dt"] = self.upd_dt.as_str().into();
        shown["created_by"] = self.created_by.as_str().into();
        shown["fault"] = json!(self.fault);
        shown
    }
}

fn merge_definition(now: &CustomToolDefinition, json: &Value) -> Value {
    let mut all = now.to_json();
    match json.as_object() {
        Some(given) => {
            for (name, value) in given {
                all[name] = value.clone();
            }
            all
        }
        None => json.clone(),
    }
}

fn unknown_tool(name: &str) -> SaveError {
    SaveError::UnknownTool(name.chars().take(100).collect())
}
