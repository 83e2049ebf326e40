//! SQL statements, parameters and rows that are common to both back ends.

use std::{fmt, vec};

use super::{DatabaseError, Error};

/// An SQL statement that both back ends run. Parameters are `$1`, `$2` and so on in order
/// of first appearance, because SQLite numbers them that way.
#[derive(Clone, Copy, Debug)]
pub(super) struct PortableStatement {
    /// Completes "the store did not …".
    pub(super) attempted: &'static str,
    pub(super) sql: &'static str,
}

/// The statements of a transaction with their parameters, made one after the other.
pub(super) type StatementBatch = Box<dyn Iterator<Item = (&'static str, Vec<CellValue>)> + Send>;

/// A parameter or a column value. A time is an integer, milliseconds since the Unix
/// epoch.
#[derive(Clone, PartialEq)]
pub(super) enum CellValue {
    Null,
    Bool(bool),
    Integer(i64),
    Text(String),
    Blob(Vec<u8>),
}

/// The columns of a row, read from left to right.
#[derive(Debug)]
pub(super) struct ResultRow(vec::IntoIter<CellValue>);

impl PortableStatement {
    pub(super) fn into_error(self, cause: DatabaseError) -> Error {
        let attempted = self.attempted;
        Error::Failed { attempted, cause }
    }
}

impl ResultRow {
    pub(super) fn new(cells: Vec<CellValue>) -> Self {
        Self(cells.into_iter())
    }

    /// Reads the next column.
    pub(super) fn next_cell<T: TryFrom<CellValue, Error = DatabaseError>>(
        &mut self,
    ) -> Result<T, DatabaseError> {
        self.0.next().unwrap_or(CellValue::Null).try_into()
    }
}

impl Iterator for ResultRow {
    type Item = CellValue;

    fn next(&mut self) -> Option<CellValue> {
        self.0.next()
    }
}

impl CellValue {
    fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "a boolean",
            Self::Integer(_) => "an integer",
            Self::Text(_) => "text",
            Self::Blob(_) => "bytes",
        }
    }

    fn unexpected_type(&self, expected: &'static str) -> DatabaseError {
        let found = self.type_name();
        DatabaseError::UnexpectedColumnType { found, expected }
    }
}

/// Writes the type only; the value may be a secret.
impl fmt::Debug for CellValue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.type_name())
    }
}

impl From<&str> for CellValue {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

/// PostgreSQL stores no text with the character NUL, which anybody may send; U+FFFD takes
/// its place in both back ends.
impl From<String> for CellValue {
    fn from(text: String) -> Self {
        Self::Text(if text.contains('\0') {
            text.replace('\0', "\u{fffd}")
        } else {
            text
        })
    }
}

impl<T: Into<Self>> From<Option<T>> for CellValue {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl From<bool> for CellValue {
    fn from(value: bool) -> Self {
        Self::Bool(value)
    }
}

impl From<i64> for CellValue {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<&[u8]> for CellValue {
    fn from(bytes: &[u8]) -> Self {
        Self::Blob(bytes.to_owned())
    }
}

impl TryFrom<CellValue> for String {
    type Error = DatabaseError;

    fn try_from(value: CellValue) -> Result<Self, DatabaseError> {
        match value {
            CellValue::Text(text) => Ok(text),
            other => Err(other.unexpected_type("text")),
        }
    }
}

impl TryFrom<CellValue> for Option<String> {
    type Error = DatabaseError;

    fn try_from(value: CellValue) -> Result<Self, DatabaseError> {
        match value {
            CellValue::Null => Ok(None),
            some => some.try_into().map(Some),
        }
    }
}

impl TryFrom<CellValue> for bool {
    type Error = DatabaseError;

    fn try_from(value: CellValue) -> Result<Self, DatabaseError> {
        match value {
            CellValue::Bool(value) => Ok(value),
            // SQLite has no boolean type.
            CellValue::Integer(number) => Ok(number != 0),
            other => Err(other.unexpected_type("a boolean")),
        }
    }
}

impl TryFrom<CellValue> for i64 {
    type Error = DatabaseError;

    fn try_from(value: CellValue) -> Result<Self, DatabaseError> {
        match value {
            CellValue::Integer(number) => Ok(number),
            other => Err(other.unexpected_type("an integer")),
        }
    }
}

impl TryFrom<CellValue> for Option<i64> {
    type Error = DatabaseError;

    fn try_from(value: CellValue) -> Result<Self, DatabaseError> {
        match value {
            CellValue::Null => Ok(None),
            some => some.try_into().map(Some),
        }
    }
}

impl TryFrom<CellValue> for [u8; 32] {
    type Error = DatabaseError;

    fn try_from(value: CellValue) -> Result<Self, DatabaseError> {
        let expected = "32 bytes";
        match value {
            CellValue::Blob(bytes) => Self::try_from(bytes)
                .map_err(|other| CellValue::Blob(other).unexpected_type(expected)),
            other => Err(other.unexpected_type(expected)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_contains_nul() {
        for value in [CellValue::from("a\0b"), "a\0b".to_owned().into()] {
            assert!(value == CellValue::Text("a\u{fffd}b".to_owned()));
        }
    }
}
