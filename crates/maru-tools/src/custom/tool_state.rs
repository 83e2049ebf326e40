//! The custom tools in memory, and what they are compiled with.

use std::{collections::BTreeMap, sync::Arc};

use maru_runtime::tasks::Tasks;
use maru_store::CustomToolRow;
use serde_json::Value;
use tracing::warn;

use super::{
    CustomToolDefinition, SaveError, ValidationError,
    record::{CustomTool, ToolRecord},
    runner::{CustomToolRunner, ToolResources},
};
use crate::entry::CatalogEntry;

/// How many custom tools a hub may have, drafts included.
const MAX_CUSTOM_TOOLS: usize = 5000;
/// Names that would collide with routes or with maru's own tools.
const RESERVED_NAMES: &[&str] = &[
    "test",
    "export",
    "import",
    "find_tools",
    "call_tool",
    "call_read_only_tool",
    "ask_agent",
];

/// What the published tools are built from.
#[derive(Debug)]
pub(super) struct ToolState {
    /// maru's own tools, published beside the custom ones.
    pub(super) builtin_entries: Vec<Arc<CatalogEntry>>,
    pub(super) resources: ToolResources,
    pub(super) tools: BTreeMap<String, ToolRecord>,
}

impl ToolState {
    pub(super) fn published(&self, name: &str) -> Option<&CustomTool> {
        self.tools.get(name)?.published.as_ref()
    }

    pub(super) fn forget_draft(&mut self, name: &str) {
        if let Some(record) = self.tools.get_mut(name) {
            record.draft = None;
            if record.published.is_none() {
                self.tools.remove(name);
            }
        }
    }

    /// Refuses a name that is taken, and a tool above the limit.
    pub(super) fn check_new_name(&self, name: &str) -> Result<(), SaveError> {
        if self.published(name).is_some() || self.is_builtin(name) {
            return Err(SaveError::NameTaken(name.to_owned()));
        }
        if !self.tools.contains_key(name) && self.tools.len() >= MAX_CUSTOM_TOOLS {
            return Err(SaveError::TooManyTools(MAX_CUSTOM_TOOLS));
        }
        Ok(())
    }

    /// The published definition of a tool with the members of `json` put in.
    pub(super) fn merge_definition(
        &self,
        name: &str,
        json: &Value,
    ) -> Result<CustomToolDefinition, SaveError> {
        let current = self.published(name).ok_or_else(|| unknown_tool(name))?;
        let mut merged = current.definition.to_json();
        match json.as_object() {
            Some(members) => {
                for (member, value) in members {
                    merged[member] = value.clone();
                }
            }
            None => merged = json.clone(),
        }
        let definition = CustomToolDefinition::from_json(&merged)?;
        check_same_name(name, &definition.name)?;
        Ok(definition)
    }

    /// Compiles a definition that is to be saved, and checks it with its database.
    pub(super) async fn compile(
        &self,
        definition: &CustomToolDefinition,
    ) -> Result<CustomToolRunner, ValidationError> {
        compile_with(definition, &self.resources).await
    }

    pub(super) fn load_row(&self, row: &CustomToolRow, tasks: &Tasks) -> Option<CustomTool> {
        let name = &row.name;
        let definition = match CustomToolDefinition::from_row(row) {
            Ok(definition) => definition,
            Err(error) => {
                let reason = error.message;
                warn!("the custom tool {name:?} is not used: {reason}");
                return None;
            }
        };
        if self.is_builtin(name) {
            warn!("the custom tool {name:?} is not used: maru has a tool of that name");
            return None;
        }
        let runner = CustomToolRunner::load(definition.clone(), &self.resources);
        Some(CustomTool {
            version: row.version,
            reg_dt: row.reg_dt.clone(),
            upd_dt: row.upd_dt.clone(),
            created_by: row.created_by.clone(),
            fault: runner.compile_error().map(|it| it.message.clone()),
            entry: Arc::new(runner).catalog_entry(tasks),
            definition,
        })
    }

    pub(super) fn is_builtin(&self, name: &str) -> bool {
        self.builtin_entries.iter().any(|it| it.key() == name)
    }
}

/// Compiles a definition and checks it with its database, which is one of `resources`.
pub(super) async fn compile_with(
    definition: &CustomToolDefinition,
    resources: &ToolResources,
) -> Result<CustomToolRunner, ValidationError> {
    check_reserved(&definition.name)?;
    let runner = CustomToolRunner::compile(definition.clone(), resources).await?;
    runner.check_parameters_used()?;
    Ok(runner)
}

pub(super) fn check_reserved(name: &str) -> Result<(), ValidationError> {
    if RESERVED_NAMES.contains(&name) {
        let message = format!("the name {name} is reserved");
        return Err(ValidationError::for_field("name", message));
    }
    Ok(())
}

pub(super) fn check_same_name(current: &str, new: &str) -> Result<(), ValidationError> {
    if current == new {
        return Ok(());
    }
    let message = "a tool keeps its name; create a new tool and remove this one";
    Err(ValidationError::for_field("name", message))
}

pub(super) fn unknown_tool(name: &str) -> SaveError {
    SaveError::UnknownTool(short_name(name))
}

pub(super) fn short_name(name: &str) -> String {
    name.chars().take(100).collect()
}
