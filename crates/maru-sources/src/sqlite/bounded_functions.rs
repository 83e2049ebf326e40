//! Built-in functions whose work grows with the product of their arguments, made
//! anew: SQLite cannot be interrupted inside one call.

use memchr::memmem;
use rusqlite::{
    Connection, Error, Result,
    functions::{Context, FunctionFlags},
    types::{Value, ValueRef},
};

/// The most characters that `trim` looks for.
const MAX_TRIM_CHARACTERS: usize = 100;

/// Replaces them on a connection.
pub(super) fn register_bounded_functions(connection: &Connection) -> Result<()> {
    let flags = FunctionFlags::SQLITE_UTF8
        | FunctionFlags::SQLITE_DETERMINISTIC
        | FunctionFlags::SQLITE_INNOCUOUS;
    connection.create_scalar_function("instr", 2, flags, instr)?;
    connection.create_scalar_function("replace", 3, flags, replace)?;
    connection.create_scalar_function("trim", 2, flags, |it| trim(it, true, true))?;
    connection.create_scalar_function("ltrim", 2, flags, |it| trim(it, true, false))?;
    connection.create_scalar_function("rtrim", 2, flags, |it| trim(it, false, true))
}

fn function_error(why: &str) -> Error {
    Error::UserFunctionError(why.into())
}

/// A value as the text that SQLite would make of it; `None` is NULL.
fn argument_text(context: &Context<'_>, at: usize) -> Result<Option<String>> {
    Ok(Some(match context.get_raw(at) {
        ValueRef::Null => return Ok(None),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => serde_json::Value::from(number).to_string(),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            String::from_utf8_lossy(bytes).into_owned()
        }
    }))
}

/// Where the second is in the first, from 1; in characters, or in bytes when
/// both are blobs.
fn instr(context: &Context<'_>) -> Result<Value> {
    if let (ValueRef::Blob(all), ValueRef::Blob(part)) = (context.get_raw(0), context.get_raw(1)) {
        return Ok(one_based_position(memmem::find(all, part)));
    }
    let (Some(all), Some(part)) = (argument_text(context, 0)?, argument_text(context, 1)?) else {
        return Ok(Value::Null);
    };
    let found = memmem::find(all.as_bytes(), part.as_bytes());
    Ok(one_based_position(
        found
            .and_then(|it| all.get(..it))
            .map(|it| it.chars().count()),
    ))
}

fn one_based_position(found: Option<usize>) -> Value {
    let place = found.map_or(0, |it| it + 1);
    Value::Integer(i64::try_from(place).unwrap_or(i64::MAX))
}

fn replace(context: &Context<'_>) -> Result<Value> {
    let arguments = (
        argument_text(context, 0)?,
        argument_text(context, 1)?,
        argument_text(context, 2)?,
    );
    let (Some(all), Some(part), Some(by)) = arguments else {
        return Ok(Value::Null);
    };
    if part.is_empty() {
        return Ok(Value::Text(all));
    }
    let count = memmem::find_iter(all.as_bytes(), part.as_bytes()).count();
    let growth = by.len().saturating_sub(part.len()).saturating_mul(count);
    if super::connection::MAX_VALUE_BYTES < all.len() + growth {
        return Err(function_error("string or blob too big"));
    }
    Ok(Value::Text(all.replace(&part, &by)))
}

fn trim(context: &Context<'_>, front: bool, back: bool) -> Result<Value> {
    let (Some(all), Some(set)) = (argument_text(context, 0)?, argument_text(context, 1)?) else {
        return Ok(Value::Null);
    };
    if set.chars().nth(MAX_TRIM_CHARACTERS).is_some() {
        return Err(function_error("trim takes up to 100 characters"));
    }
    let within = |it: char| set.contains(it);
    let mut left = all.as_str();
    if front {
        left = left.trim_start_matches(within);
    }
    if back {
        left = left.trim_end_matches(within);
    }
    Ok(Value::Text(left.to_owned()))
}
