//! Values as SQLite keeps them and as JSON has them.

use std::fmt::Write;

use maru_protocol::push_json_string;
use rusqlite::types::{ToSqlOutput, Value as Stored, ValueRef};

use super::QueryValue;

/// A parameter as SQLite binds it.
pub(super) fn to_sql_output(value: &QueryValue) -> ToSqlOutput<'_> {
    match value {
        QueryValue::Null => ToSqlOutput::Owned(Stored::Null),
        QueryValue::Boolean(truth) => ToSqlOutput::Owned(Stored::Integer((*truth).into())),
        QueryValue::Integer(number) => ToSqlOutput::Owned(Stored::Integer(*number)),
        QueryValue::Number(number) => ToSqlOutput::Owned(Stored::Real(*number)),
        QueryValue::Text(text)
        | QueryValue::Date(text)
        | QueryValue::Timestamp(text)
        | QueryValue::TimestampWithZone(text) => {
            ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes()))
        }
        // They are part of the statement, or bound one by one.
        QueryValue::Identifier(_) | QueryValue::List(_) => ToSqlOutput::Owned(Stored::Null),
    }
}

/// A row as a JSON object; the names are JSON already.
pub(super) fn row_to_json(names: &[String], row: &rusqlite::Row<'_>) -> rusqlite::Result<String> {
    let mut text = String::from("{");
    for (at, name) in names.iter().enumerate() {
        if at > 0 {
            text.push(',');
        }
        text.push_str(name);
        text.push(':');
        write_value(&mut text, row.get_ref(at)?);
    }
    text.push('}');
    Ok(text)
}

fn write_value(text: &mut String, value: ValueRef<'_>) {
    match value {
        ValueRef::Null => text.push_str("null"),
        ValueRef::Integer(number) => text.push_str(&number.to_string()),
        ValueRef::Real(number) if number.is_finite() => {
            text.push_str(&serde_json::Value::from(number).to_string());
        }
        ValueRef::Real(number) if number > 0.0 => text.push_str("\"Infinity\""),
        ValueRef::Real(_) => text.push_str("\"-Infinity\""),
        ValueRef::Text(bytes) => push_json_string(text, &String::from_utf8_lossy(bytes)),
        ValueRef::Blob(bytes) => write_blob(text, bytes),
    }
}

/// As PostgreSQL writes bytes: `\x00ff`.
fn write_blob(text: &mut String, bytes: &[u8]) {
    text.push_str("\"\\\\x");
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text.push('"');
}
