//! A custom tool in memory: the published version, its draft, its saved versions.

use std::sync::Arc;

use maru_runtime::tasks::Tasks;
use maru_store::CustomToolRow;
use serde_json::{Value, json};

use super::{CustomToolDefinition, draft::ToolDraft, runner::CustomToolRunner};
use crate::entry::CatalogEntry;

/// A published tool, a draft, or both under one name.
#[derive(Clone, Debug, Default)]
pub struct ToolRecord {
    /// The version that clients see while it is active.
    pub published: Option<CustomTool>,
    /// The draft beside it.
    pub draft: Option<ToolDraft>,
}

/// The published version of a custom tool.
#[derive(Clone, Debug)]
pub struct CustomTool {
    /// Its definition.
    pub definition: CustomToolDefinition,
    /// Number of the version, from 1.
    pub version: i64,
    /// When the tool was created.
    pub reg_dt: String,
    /// When this version was saved.
    pub upd_dt: String,
    /// Who created the tool.
    pub created_by: String,
    /// Why it cannot run now.
    pub fault: Option<String>,
    pub(super) entry: Arc<CatalogEntry>,
}

/// A tool after it was saved.
#[derive(Clone, Debug)]
pub struct SavedTool {
    /// The tool and its draft.
    pub record: ToolRecord,
    /// How the published version changed.
    pub change: ToolChange,
}

/// How saving a definition changes the published version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolChange {
    /// Nothing was published before; this is a new version.
    Created,
    /// It differs; this is a new version.
    Changed,
    /// Only `is_active` differs.
    Switched,
    /// Nothing differs.
    Unchanged,
}

/// A kept version of a tool.
#[derive(Clone, Debug)]
pub struct SavedVersion {
    /// Its number.
    pub version: i64,
    /// The tool as the API shows it.
    pub tool: Value,
    /// Who saved it.
    pub saved_by: String,
    /// When it was saved.
    pub saved_dt: String,
}

impl ToolRecord {
    /// The tool as the API shows it. A draft without a published version has version 0.
    pub fn to_json(&self, name: &str) -> Value {
        let mut shown = match (&self.published, &self.draft) {
            (Some(tool), _) => tool.to_json(),
            (None, draft) => unpublished_json(name, draft.as_ref()),
        };
        shown["draft"] = json!(self.draft.as_ref().map(ToolDraft::to_json));
        shown
    }
}

impl CustomTool {
    /// Uses another runner, and records whether that one can run.
    pub(super) fn set_runner(&mut self, runner: &Arc<CustomToolRunner>, tasks: &Tasks) {
        self.fault = runner.compile_error().map(|it| it.message.clone());
        self.entry = runner.catalog_entry(tasks);
    }

    /// Whether the tool was loaded from a row that says the same as `row`.
    pub(super) fn is_loaded_from(&self, row: &CustomToolRow) -> bool {
        self.version == row.version
            && self.upd_dt == row.upd_dt
            && self.definition.is_active == row.is_active
    }

    fn to_json(&self) -> Value {
        let mut shown = self.definition.to_json();
        shown["version"] = self.version.into();
        shown["reg_dt"] = self.reg_dt.as_str().into();
        shown["upd_dt"] = self.upd_dt.as_str().into();
        shown["created_by"] = self.created_by.as_str().into();
        shown["fault"] = json!(self.fault);
        shown
    }
}

impl ToolChange {
    /// What saving `definition` over `before` changes.
    pub(super) fn between(before: Option<&CustomTool>, definition: &CustomToolDefinition) -> Self {
        let Some(before) = before.map(|it| &it.definition) else {
            return Self::Created;
        };
        if before == definition {
            return Self::Unchanged;
        }
        let switched = CustomToolDefinition {
            is_active: definition.is_active,
            ..before.clone()
        };
        if switched == *definition {
            Self::Switched
        } else {
            Self::Changed
        }
    }

    /// Its name in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Switched => "switched",
            Self::Unchanged => "unchanged",
        }
    }

    pub(super) fn is_new_version(self) -> bool {
        matches!(self, Self::Created | Self::Changed)
    }
}

/// The members of a draft, with defaults for those it does not have.
fn unpublished_json(name: &str, draft: Option<&ToolDraft>) -> Value {
    let mut shown = json!({
        "name": name, "description_agent": "", "description_user": "", "tool_type": "SQL",
        "source": null, "definition": "", "result_format": "auto", "params": [],
    });
    let members = draft.and_then(|it| it.tool.as_object());
    for (member, value) in members.into_iter().flatten() {
        shown[member] = value.clone();
    }
    shown["is_active"] = false.into();
    shown["version"] = 0.into();
    shown["fault"] = Value::Null;
    shown
}
