//! Errors of an expression, with their location in the source.

use std::fmt;

/// Why an expression could not be compiled or evaluated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// The message, as Python words it where possible: `ZeroDivisionError: division by
    /// zero`.
    pub message: String,
    /// The line, from 1; 0 if unknown.
    pub line: usize,
    /// The column in characters, from 1; 0 if unknown.
    pub column: usize,
    /// The kind of error.
    pub kind: ErrorKind,
}

/// The exception that Python would raise, or `Limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The source is not valid in this language.
    Syntax,
    /// An undefined name.
    Name,
    /// A value of the wrong type.
    Type,
    /// A value of the right type that is not allowed.
    Value,
    /// A method or field that the type does not have.
    Attribute,
    /// An index out of range.
    Index,
    /// A missing dict key.
    Key,
    /// Division by zero.
    ZeroDivision,
    /// A number that is too large.
    Overflow,
    /// `next()` of an exhausted iterator.
    StopIteration,
    /// A limit on time, memory, depth or size was exceeded.
    Limit,
}

/// An error without a location; the innermost node that it passes sets the location.
#[derive(Debug)]
pub(super) struct UnlocatedError(Box<UnlocatedErrorInner>);

#[derive(Debug)]
struct UnlocatedErrorInner {
    kind: ErrorKind,
    message: String,
    at: Option<u32>,
}

pub(super) type Result<T> = std::result::Result<T, UnlocatedError>;

impl ErrorKind {
    /// Returns the name of the exception.
    pub fn name(self) -> &'static str {
        match self {
            Self::Syntax => "SyntaxError",
            Self::Name => "NameError",
            Self::Type => "TypeError",
            Self::Value => "ValueError",
            Self::Attribute => "AttributeError",
            Self::Index => "IndexError",
            Self::Key => "KeyError",
            Self::ZeroDivision => "ZeroDivisionError",
            Self::Overflow => "OverflowError",
            Self::StopIteration => "StopIteration",
            Self::Limit => "LimitError",
        }
    }
}

impl UnlocatedError {
    pub(super) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        let message = message.into();
        Self(Box::new(UnlocatedErrorInner {
            kind,
            message,
            at: None,
        }))
    }

    pub(super) fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Sets the location, unless a deeper node has set it.
    #[must_use]
    pub(super) fn at(mut self, at: u32) -> Self {
        self.0.at.get_or_insert(at);
        self
    }

    /// Converts the offset to line and column of `source`.
    pub(super) fn into_error(self, source: &str) -> Error {
        let (line, column) = match self.0.at {
            Some(at) => line_and_column(source, at as usize),
            None => (0, 0),
        };
        Error {
            message: match self.0.message.as_str() {
                "" => self.0.kind.name().to_owned(),
                message => format!("{}: {message}", self.0.kind.name()),
            },
            line,
            column,
            kind: self.0.kind,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.message),
            line => write!(f, "line {line}, column {}: {}", self.column, self.message),
        }
    }
}

impl std::error::Error for Error {}

pub(super) fn syntax_error(message: impl Into<String>) -> UnlocatedError {
    UnlocatedError::new(ErrorKind::Syntax, message)
}

pub(super) fn type_error(message: impl Into<String>) -> UnlocatedError {
    UnlocatedError::new(ErrorKind::Type, message)
}

pub(super) fn value_error(message: impl Into<String>) -> UnlocatedError {
    UnlocatedError::new(ErrorKind::Value, message)
}

pub(super) fn overflow_error(message: impl Into<String>) -> UnlocatedError {
    UnlocatedError::new(ErrorKind::Overflow, message)
}

pub(super) fn zero_division_error(message: impl Into<String>) -> UnlocatedError {
    UnlocatedError::new(ErrorKind::ZeroDivision, message)
}

pub(super) fn limit_error(message: impl Into<String>) -> UnlocatedError {
    UnlocatedError::new(ErrorKind::Limit, message)
}

fn line_and_column(source: &str, at: usize) -> (usize, usize) {
    let before = source.get(..at).unwrap_or(source);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    let line = before.matches('\n').count() + 1;
    (line, before[line_start..].chars().count() + 1)
}

#[cfg(test)]
mod tests {
    use serde_json::Map;

    use super::*;
    use crate::testing::evaluate;

    #[test]
    fn errors_name_line_and_column() {
        for (source, kind, line, column) in [
            ("1 +", ErrorKind::Syntax, 1, 4),
            (
                "a = 1\nb = a / 0\nresult = b",
                ErrorKind::ZeroDivision,
                2,
                7,
            ),
            ("a = 1\nresult = a + c", ErrorKind::Name, 2, 14),
            ("'한글' + 1", ErrorKind::Type, 1, 6),
            ("f'{1 + nope}'", ErrorKind::Name, 1, 8),
            ("[1, 2][5]", ErrorKind::Index, 1, 7),
            ("'a'.nosuch()", ErrorKind::Attribute, 1, 4),
            ("import os", ErrorKind::Syntax, 1, 1),
            ("sum(\n  [1, 'a'])", ErrorKind::Type, 1, 1),
        ] {
            let fault = evaluate(source, &Map::new()).unwrap_err();
            assert_eq!(
                (fault.kind, fault.line, fault.column),
                (kind, line, column),
                "{source}: {fault}"
            );
        }
    }
}
