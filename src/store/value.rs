//! What goes into a statement and comes out of it, for both back ends.

use std::{fmt, vec};

use super::{Cause, Error};

/// One SQL text for both back ends. Parameters are `$1`, `$2` and so on, in
/// order of first appearance, because SQLite counts them so.
#[derive(Clone, Copy, Debug)]
pub(super) struct Statement {
    /// Completes "the store did not …".
    pub(super) attempted: &'static str,
    pub(super) sql: &'static str,
}

/// A cell. A time is an integer, milliseconds since 1970.
#[derive(Clone, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Integer(i64),
    Text(String),
    Blob(Vec<u8>),
}

/// The cells of a row, taken from left to right.
#[derive(Debug)]
pub(super) struct Row(vec::IntoIter<Value>);

impl Statement {
    pub(super) fn failed(self, cause: Cause) -> Error {
        let attempted = self.attempted;
        Error::Failed { attempted, cause }
    }
}

impl Row {
    pub(super) fn new(cells: Vec<Value>) -> Self {
        Self(cells.into_iter())
    }

    /// The next cell.
    pub(super) fn take<T: TryFrom<Value, Error = Cause>>(&mut self) -> Result<T, Cause> {
        self.0.next().unwrap_or(Value::Null).try_into()
    }
}

impl Value {
    fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "a truth value",
            Self::Integer(_) => "an integer",
            Self::Text(_) => "text",
            Self::Blob(_) => "bytes",
        }
    }

    fn instead_of(&self, wanted: &'static str) -> Cause {
        let found = self.kind();
        Cause::Unexpected { found, wanted }
    }
}

/// Says what kind it is; the value may be a secret.
impl fmt::Debug for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.kind())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl From<bool> for Value {
    fn from(truth: bool) -> Self {
        Self::Bool(truth)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self::Blob(bytes.to_owned())
    }
}

impl TryFrom<Value> for String {
    type Error = Cause;

    fn try_from(value: Value) -> Result<Self, Cause> {
        match value {
            Value::Text(text) => Ok(text),
            other => Err(other.instead_of("text")),
        }
    }
}

impl TryFrom<Value> for Option<String> {
    type Error = Cause;

    fn try_from(value: Value) -> Result<Self, Cause> {
        match value {
            Value::Null => Ok(None),
            some => some.try_into().map(Some),
        }
    }
}

impl TryFrom<Value> for bool {
    type Error = Cause;

    fn try_from(value: Value) -> Result<Self, Cause> {
        match value {
            Value::Bool(truth) => Ok(truth),
            // SQLite has no truth values of its own.
            Value::Integer(number) => Ok(number != 0),
            other => Err(other.instead_of("a truth value")),
        }
    }
}

impl TryFrom<Value> for i64 {
    type Error = Cause;

    fn try_from(value: Value) -> Result<Self, Cause> {
        match value {
            Value::Integer(number) => Ok(number),
            other => Err(other.instead_of("an integer")),
        }
    }
}

impl TryFrom<Value> for Option<i64> {
    type Error = Cause;

    fn try_from(value: Value) -> Result<Self, Cause> {
        match value {
            Value::Null => Ok(None),
            some => some.try_into().map(Some),
        }
    }
}

impl TryFrom<Value> for [u8; 32] {
    type Error = Cause;

    fn try_from(value: Value) -> Result<Self, Cause> {
        let wanted = "32 bytes";
        match value {
            Value::Blob(bytes) => {
                Self::try_from(bytes).map_err(|other| Value::Blob(other).instead_of(wanted))
            }
            other => Err(other.instead_of(wanted)),
        }
    }
}
