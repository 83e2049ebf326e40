//! Custom tools while the hub runs: a SQL statement or an expression
//! with described parameters.

mod custom_tools;
mod definition;
mod parameter;
mod result;
mod runner;

use thiserror::Error;

pub use custom_tools::{CustomTool, CustomTools, SavedVersion};
pub use definition::CustomToolDefinition;
pub use parameter::ToolParameter;

/// What is wrong with a definition or a run of it, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidationError {
    /// What is wrong, and what would be right.
    pub message: String,
    /// The member of the definition.
    pub field: Option<String>,
    /// Line and column in the statement or expression, from 1.
    pub position: Option<(usize, usize)>,
}

/// Why a tool was not changed.
#[derive(Debug, Error)]
pub enum SaveError {
    /// It cannot be used as it is.
    #[error("{}", .0.message)]
    Invalid(ValidationError),
    /// Another tool has the name.
    #[error("a tool named {0:?} exists already; change that one, or choose another name")]
    NameTaken(String),
    /// There is none.
    #[error("there is no custom tool named {0:?}")]
    UnknownTool(String),
    /// There is no such saved state.
    #[error("the tool {0:?} has no version {1}")]
    UnknownVersion(String, i64),
    /// There are too many.
    #[error("there are {0} custom tools already, as many as may be")]
    TooManyTools(usize),
    /// It was not written.
    #[error("the change was not saved")]
    Store(#[from] maru_store::Error),
}

impl ValidationError {
    /// About a member of the definition.
    fn for_field(field: &str, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            field: Some(field.to_owned()),
            position: None,
        }
    }

    /// About a character of the statement or expression.
    fn at_character(text: &str, characters: usize, message: impl Into<String>) -> Self {
        let before: Vec<char> = text.chars().take(characters).collect();
        let line = before.iter().filter(|it| **it == '\n').count() + 1;
        let column = before.iter().rev().take_while(|it| **it != '\n').count() + 1;
        Self {
            position: Some((line, column)),
            ..Self::for_field("definition", message)
        }
    }

    fn from_source_error(text: &str, error: &maru_sources::Error) -> Self {
        match error.position() {
            Some(place) => Self::at_character(text, place, error.to_string()),
            None => Self::for_field("definition", error.to_string()),
        }
    }
}

impl From<maru_expression::Error> for ValidationError {
    fn from(fault: maru_expression::Error) -> Self {
        Self {
            // Where no place can be named it is 0.
            position: (fault.line > 0).then_some((fault.line, fault.column)),
            ..Self::for_field("definition", fault.message)
        }
    }
}

impl From<ValidationError> for SaveError {
    fn from(flaw: ValidationError) -> Self {
        Self::Invalid(flaw)
    }
}
