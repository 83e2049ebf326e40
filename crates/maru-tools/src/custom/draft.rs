//! A draft of a custom tool: saved beside the published version and not visible to clients.

use maru_runtime::clock;
use maru_store::CustomDraftRow;
use serde_json::{Value, json};

use super::{CustomToolDefinition, SaveError, ValidationError};

/// A tool that may be incomplete, and who saved it.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDraft {
    /// The tool as the API shows it; members may be missing or wrong.
    pub tool: Value,
    /// Who saved it.
    pub saved_by: String,
    /// When it was saved.
    pub saved_dt: String,
}

/// The size limit of a draft, in bytes of JSON.
const MAX_DRAFT_BYTES: usize = 256 * 1024;

impl ToolDraft {
    /// Parses `json` as the draft of the tool `name`. Only its name, the names of its
    /// members and its size are checked.
    pub(super) fn parse(name: &str, json: &Value, user: &str) -> Result<Self, SaveError> {
        let mut tool = json.clone();
        let Some(members) = tool.as_object_mut() else {
            let message = "a draft is an object with the members of a tool";
            return Err(ValidationError::for_field("tool", message).into());
        };
        members.insert("name".to_owned(), name.into());
        CustomToolDefinition::check_draft(members)?;
        CustomToolDefinition::drop_read_only(members);
        if tool.to_string().len() > MAX_DRAFT_BYTES {
            let message = format!("a draft has at most {MAX_DRAFT_BYTES} bytes");
            return Err(ValidationError::for_field("tool", message).into());
        }
        Ok(Self {
            tool,
            saved_by: user.to_owned(),
            saved_dt: clock::format_rfc3339(clock::now_ms()),
        })
    }

    /// The draft as the API shows it.
    pub(super) fn to_json(&self) -> Value {
        json!({"tool": self.tool, "saved_by": self.saved_by, "saved_dt": self.saved_dt})
    }
}

impl From<CustomDraftRow> for ToolDraft {
    fn from(row: CustomDraftRow) -> Self {
        Self {
            tool: serde_json::from_str(&row.tool).unwrap_or_else(|_| json!({})),
            saved_by: row.saved_by,
            saved_dt: row.saved_dt,
        }
    }
}
