//! Custom tools: a SQL statement or an expression with described parameters, created
//! and changed while the hub runs.

mod custom_tools;
mod definition;
mod draft;
mod parameter;
mod record;
mod result;
mod runner;
mod tool_state;

use thiserror::Error;

pub use custom_tools::CustomTools;
pub use definition::CustomToolDefinition;
pub(crate) use definition::ResultFormat;
pub use draft::ToolDraft;
pub use parameter::ToolParameter;
pub use record::{CustomTool, SavedTool, SavedVersion, ToolChange, ToolRecord};
pub(crate) use result::CustomToolResult;
pub use runner::ToolResources;

/// An error in a definition or in a run of it, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidationError {
    /// What is wrong, and what would be right.
    pub message: String,
    /// The member of the definition.
    pub field: Option<String>,
    /// Line and column in the statement or expression, from 1.
    pub position: Option<(usize, usize)>,
}

/// Why a change of a custom tool was refused.
#[derive(Debug, Error)]
pub enum SaveError {
    /// The definition cannot be used as it is.
    #[error("{}", .0.message)]
    Invalid(ValidationError),
    /// Another tool has the name.
    #[error("a tool named {0:?} exists already; change that one, or choose another name")]
    NameTaken(String),
    /// No custom tool has the name.
    #[error("there is no custom tool named {0:?}")]
    UnknownTool(String),
    /// The tool has no draft.
    #[error("the tool {0:?} has no draft")]
    NoDraft(String),
    /// The tool has no such version.
    #[error("the tool {0:?} has no version {1}")]
    UnknownVersion(String, i64),
    /// The hub has as many custom tools as it allows.
    #[error("there are {0} custom tools already, as many as may be")]
    TooManyTools(usize),
    /// The store did not write the change.
    #[error("the change was not saved")]
    Store(#[from] maru_store::Error),
}

impl ValidationError {
    /// An error in a member of the definition.
    fn for_field(field: &str, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            field: Some(field.to_owned()),
            position: None,
        }
    }

    /// An error at a character of the statement or expression.
    fn at_character(text: &str, characters: usize, message: impl Into<String>) -> Self {
        let before: Vec<char> = text.chars().take(characters).collect();
        let line = before.iter().filter(|it| **it == '\n').count() + 1;
        let column = before.iter().rev().take_while(|it| **it != '\n').count() + 1;
        Self {
            position: Some((line, column)),
            ..Self::for_field("definition", message)
        }
    }

    /// One line for the caller of the tool.
    fn public_message(&self) -> String {
        match self.position {
            Some((line, column)) => format!("{} (line {line}, column {column})", self.message),
            None => self.message.clone(),
        }
    }

    fn from_source_error(text: &str, error: &maru_sources::Error) -> Self {
        match error.position() {
            Some(position) => Self::at_character(text, position, error.to_string()),
            None => Self::for_field("definition", error.to_string()),
        }
    }
}

impl From<maru_expression::Error> for ValidationError {
    fn from(error: maru_expression::Error) -> Self {
        Self {
            // Line 0 means that the error has no position.
            position: (error.line > 0).then_some((error.line, error.column)),
            ..Self::for_field("definition", error.message)
        }
    }
}

impl From<ValidationError> for SaveError {
    fn from(error: ValidationError) -> Self {
        Self::Invalid(error)
    }
}
