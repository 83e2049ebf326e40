//! Tools that people make while the hub runs: a SQL statement or an expression
//! with described parameters.

mod definition;
mod parameter;
mod result;
mod runner;
mod workshop;

use thiserror::Error;

use crate::{expression, source, store};

pub use definition::Definition;
pub use parameter::Parameter;
pub use workshop::{Made, Saved, Workshop};

/// What is wrong with a definition or a run of it, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// What is wrong, and what would be right.
    pub message: String,
    /// The member of the definition.
    pub field: Option<String>,
    /// Line and column in the statement or expression, from 1.
    pub place: Option<(usize, usize)>,
}

/// Why a tool was not changed.
#[derive(Debug, Error)]
pub enum Unchanged {
    /// It cannot be used as it is.
    #[error("{}", .0.message)]
    Flawed(Flaw),
    /// Another tool has the name.
    #[error("a tool named {0:?} exists already; change that one, or choose another name")]
    Taken(String),
    /// There is none.
    #[error("there is no custom tool named {0:?}")]
    Unknown(String),
    /// There is no such saved state.
    #[error("the tool {0:?} has no version {1}")]
    NoVersion(String, i64),
    /// There are too many.
    #[error("there are {0} custom tools already, as many as may be")]
    Full(usize),
    /// It was not written.
    #[error("the change was not saved")]
    Store(#[from] store::Error),
}

impl Flaw {
    /// About a member of the definition.
    fn of(field: &str, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            field: Some(field.to_owned()),
            place: None,
        }
    }

    /// About a character of the statement or expression.
    fn at(text: &str, characters: usize, message: impl Into<String>) -> Self {
        let before: Vec<char> = text.chars().take(characters).collect();
        let line = before.iter().filter(|it| **it == '\n').count() + 1;
        let column = before.iter().rev().take_while(|it| **it != '\n').count() + 1;
        Self {
            place: Some((line, column)),
            ..Self::of("definition", message)
        }
    }

    fn of_source(text: &str, error: &source::Error) -> Self {
        match error.place() {
            Some(place) => Self::at(text, place, error.to_string()),
            None => Self::of("definition", error.to_string()),
        }
    }
}

impl From<expression::Fault> for Flaw {
    fn from(fault: expression::Fault) -> Self {
        Self {
            // Where no place can be named it is 0.
            place: (fault.line > 0).then_some((fault.line, fault.column)),
            ..Self::of("definition", fault.message)
        }
    }
}

impl From<Flaw> for Unchanged {
    fn from(flaw: Flaw) -> Self {
        Self::Flawed(flaw)
    }
}
