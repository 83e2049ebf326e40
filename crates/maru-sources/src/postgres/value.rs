//! Parameters as PostgreSQL takes them: as text, so that the server finds their
//! types by how they are used.

use std::{borrow::Cow, error::Error};

use bytes::BytesMut;
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};

use crate::QueryValue;

/// How long the text of a number or moment is at most.
const MAX_NUMBER_LENGTH: usize = 350;

/// The type a value has by itself, for where the server cannot find one.
pub(super) fn inferred_type(value: &QueryValue) -> Type {
    match value {
        QueryValue::Null | QueryValue::Text(_) | QueryValue::Identifier(_) => Type::TEXT,
        QueryValue::Boolean(_) => Type::BOOL,
        QueryValue::Integer(_) => Type::INT8,
        QueryValue::Number(_) => Type::NUMERIC,
        QueryValue::Date(_) => Type::DATE,
        QueryValue::Timestamp(_) => Type::TIMESTAMP,
        QueryValue::TimestampWithZone(_) => Type::TIMESTAMPTZ,
        QueryValue::List(values) => match values.first() {
            Some(QueryValue::Boolean(_)) => Type::BOOL_ARRAY,
            Some(QueryValue::Integer(_) | QueryValue::Number(_)) => Type::NUMERIC_ARRAY,
            _ => Type::TEXT_ARRAY,
        },
    }
}

/// The type that is given with a statement. A number with a fraction has one: it
/// is to be compared with a whole number, not to become one. So do dates, with which
/// one calculates.
pub(super) fn declared_type(value: &QueryValue) -> Type {
    match value {
        QueryValue::Number(_) => Type::NUMERIC,
        QueryValue::Date(_) => Type::DATE,
        QueryValue::Timestamp(_) => Type::TIMESTAMP,
        QueryValue::TimestampWithZone(_) => Type::TIMESTAMPTZ,
        _ => Type::UNKNOWN,
    }
}

/// Writes a value as the server reads it; none if it is NULL.
fn value_text(value: &QueryValue) -> Option<Cow<'_, str>> {
    Some(match value {
        QueryValue::Null => return None,
        QueryValue::Boolean(truth) => truth.to_string().into(),
        QueryValue::Integer(number) => number.to_string().into(),
        QueryValue::Number(number) => number.to_string().into(),
        QueryValue::Text(text)
        | QueryValue::Date(text)
        | QueryValue::Timestamp(text)
        | QueryValue::TimestampWithZone(text) => text.as_str().into(),
        QueryValue::Identifier(identifier) => identifier.to_sql().into(),
        QueryValue::List(values) => array_text(values).into(),
    })
}

/// An array as PostgreSQL writes it, with every value in quotes.
fn array_text(values: &[QueryValue]) -> String {
    let values = values.iter().map(|it| match value_text(it) {
        Some(text) => format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
        None => "NULL".to_owned(),
    });
    format!("{{{}}}", values.collect::<Vec<_>>().join(","))
}

/// How long the text of a value is, in bytes; of a number or moment, at most.
pub(super) fn value_length(value: &QueryValue) -> usize {
    match value {
        QueryValue::Text(text) => text.len(),
        QueryValue::List(values) => values.iter().map(|it| value_length(it) + 3).sum(),
        _ => MAX_NUMBER_LENGTH,
    }
}

#[derive(Debug)]
pub(super) struct TextParameter<'a>(pub(super) &'a QueryValue);

impl ToSql for TextParameter<'_> {
    fn to_sql(
        &self,
        _kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let Some(text) = value_text(self.0) else {
            return Ok(IsNull::Yes);
        };
        out.extend_from_slice(text.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(_kind: &Type) -> bool {
        true // text fits every type, or the server says that it does not
    }

    fn encode_format(&self, _kind: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}
