//! Parameters as PostgreSQL takes them: as text, so that the server finds their
//! types by how they are used.

use std::error::Error;

use bytes::BytesMut;
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};

use crate::QueryValue;

/// The type a value has by itself, for where the server cannot find one.
pub(super) fn inferred_type(value: &QueryValue) -> Type {
    match value {
        QueryValue::Null | QueryValue::Text(_) => Type::TEXT,
        QueryValue::Boolean(_) => Type::BOOL,
        QueryValue::Integer(_) => Type::INT8,
        QueryValue::Number(_) => Type::NUMERIC,
    }
}

/// The type that is given with a statement. A number with a fraction has one: it
/// is to be compared with a whole number, not to become one.
pub(super) fn declared_type(value: &QueryValue) -> Type {
    match value {
        QueryValue::Number(_) => Type::NUMERIC,
        _ => Type::UNKNOWN,
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
        match self.0 {
            QueryValue::Null => return Ok(IsNull::Yes),
            QueryValue::Boolean(truth) => out.extend_from_slice(truth.to_string().as_bytes()),
            QueryValue::Integer(number) => out.extend_from_slice(number.to_string().as_bytes()),
            QueryValue::Number(number) => out.extend_from_slice(number.to_string().as_bytes()),
            QueryValue::Text(text) => out.extend_from_slice(text.as_bytes()),
        }
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
