//! Arguments as the schema of their tool wants them.

use super::{
    json::{Json, Object, get, write_object},
    repair::{self, Repair, is_number, mended_number},
    schema::{Kinds, Schema},
    tools::{Tool, Tools},
};

/// How deep values are fitted to their schema.
const MAX_DEPTH: usize = 16;

/// Arguments of a call that arrived apart from text, made strict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// The offered tool the name means.
    pub name: String,
    /// Strict JSON text of an object.
    pub arguments: String,
    /// What had to be mended.
    pub repairs: Vec<Repair>,
}

/// Why a call that arrived apart from text cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// No offered tool has that name.
    #[error("no tool is called {0:?}")]
    Unknown(String),
    /// The arguments do not parse.
    #[error("the arguments of {name} cannot be read")]
    Malformed {
        /// The tool.
        name: String,
        /// What is wrong with them.
        #[source]
        source: repair::Flaw,
    },
    /// The arguments parse, to something that is no object.
    #[error("the arguments of {0} are no object")]
    NotAnObject(String),
}

/// Makes the arguments of a native call strict: the name becomes that of an
/// offered tool, broken JSON is mended, values get the types of the schema.
///
/// # Errors
///
/// When no offered tool is meant, or the arguments are no object.
pub fn arguments(tools: &Tools, name: &str, text: &str) -> Result<Arguments, Unusable> {
    let tool = tools
        .find(name)
        .ok_or_else(|| Unusable::Unknown(name.to_owned()))?;
    let name = tool.name.clone();
    let (value, mut repairs) = match text.trim().is_empty() {
        true => (Json::Null, Vec::new()),
        false => match repair::parse(text) {
            Ok(read) => read,
            Err(source) => return Err(Unusable::Malformed { name, source }),
        },
    };
    let Some(object) = as_object(&value, &mut repairs) else {
        return Err(Unusable::NotAnObject(name));
    };
    let mut arguments = String::new();
    write_object(&fitted(object, tool), &mut arguments);
    Ok(Arguments {
        name,
        arguments,
        repairs,
    })
}

/// The object that an argument value stands for.
pub(super) fn as_object(value: &Json, repairs: &mut Vec<Repair>) -> Option<Object> {
    match value {
        Json::Object(members) => Some(members.clone()),
        Json::Null => Some(Object::new()),
        Json::String(text) if text.trim().is_empty() => Some(Object::new()),
        Json::String(text) => {
            let (inner, more) = repair::parse(text).ok()?;
            repairs.extend(more.into_iter().filter(|it| *it != Repair::Around));
            match inner {
                Json::Object(members) => Some(members),
                Json::Null => Some(Object::new()),
                _ => None,
            }
        }
        Json::Array(items) => match items.as_slice() {
            [Json::Object(members)] => Some(members.clone()),
            _ => None,
        },
        Json::Bool(_) | Json::Number(_) => None,
    }
}

/// The arguments with a needless wrapper opened and every value fitted.
pub(super) fn fitted(arguments: Object, tool: &Tool) -> Object {
    let arguments = unwrapped(arguments, &tool.schema);
    fitted_members(arguments, &tool.schema, 0)
}

/// Text of a dialect that knows no types, as the schema's type.
pub(super) fn from_text(text: &str, schema: Option<&Schema>) -> Json {
    let Some(schema) = schema.filter(|it| !it.kinds.is_any()) else {
        return repair::strict(text).unwrap_or_else(|| Json::String(text.to_owned()));
    };
    fitted_text(text.to_owned(), schema, 0)
}

/// `{"arguments": {…}}` opened, where no parameter is called that.
fn unwrapped(mut arguments: Object, schema: &Schema) -> Object {
    let [(key, value)] = arguments.as_slice() else {
        return arguments;
    };
    let wrapper = matches!(key.as_str(), "arguments" | "input" | "parameters" | "args");
    if !wrapper || schema.property(key).is_some() {
        return arguments;
    }
    let Some(inner) = as_object(value, &mut Vec::new()) else {
        return arguments;
    };
    if inner.iter().all(|(key, _)| schema.property(key).is_some()) {
        arguments = inner;
    }
    arguments
}

fn fitted_members(members: Object, schema: &Schema, depth: usize) -> Object {
    let fit = |(key, value): (String, Json)| {
        let value = match schema.about(&key) {
            Some(schema) => fitted_value(value, schema, depth + 1),
            None => value,
        };
        (key, value)
    };
    members.into_iter().map(fit).collect()
}

fn fitted_value(value: Json, schema: &Schema, depth: usize) -> Json {
    let kinds = schema.kinds;
    if depth > MAX_DEPTH {
        return value;
    }
    match value {
        Json::String(text) if !kinds.is_any() => fitted_text(text, schema, depth),
        Json::Number(digits) => fitted_number(digits, kinds),
        Json::Bool(value) if only_text(kinds) => Json::String(value.to_string()),
        Json::Object(members) => Json::Object(fitted_members(members, schema, depth)),
        Json::Array(items) => match &schema.items {
            None => Json::Array(items),
            Some(each) => {
                let fit = |item| fitted_value(item, each, depth + 1);
                Json::Array(items.into_iter().map(fit).collect())
            }
        },
        other => other,
    }
}

fn only_text(kinds: Kinds) -> bool {
    kinds.has(Kinds::STRING)
        && !kinds.has(Kinds::BOOLEAN)
        && !kinds.has(Kinds::INTEGER)
        && !kinds.has(Kinds::NUMBER)
}

fn fitted_number(digits: String, kinds: Kinds) -> Json {
    if only_text(kinds) {
        return Json::String(digits);
    }
    if kinds.has(Kinds::INTEGER) && !kinds.has(Kinds::NUMBER) {
        return Json::Number(whole(&digits).unwrap_or(digits));
    }
    Json::Number(digits)
}

/// `3.0` as `3`.
fn whole(digits: &str) -> Option<String> {
    let (whole, fraction) = digits.split_once('.')?;
    fraction
        .bytes()
        .all(|b| b == b'0')
        .then(|| whole.to_owned())
}

fn fitted_text(text: String, schema: &Schema, depth: usize) -> Json {
    let kinds = schema.kinds;
    let trimmed = text.trim();
    if kinds.has(Kinds::NULL) && matches!(trimmed, "null" | "None") {
        return Json::Null;
    }
    if kinds.has(Kinds::STRING) {
        return Json::String(text);
    }
    if let Some(value) = number_of(trimmed, kinds).or_else(|| bool_of(trimmed, kinds)) {
        return value;
    }
    let nests = kinds.has(Kinds::ARRAY) || kinds.has(Kinds::OBJECT);
    if nests
        && !trimmed.starts_with(char::is_alphabetic)
        && let Ok((value, _)) = repair::parse(trimmed)
    {
        let fits = match value {
            Json::Array(_) => kinds.has(Kinds::ARRAY),
            Json::Object(_) => kinds.has(Kinds::OBJECT),
            _ => false,
        };
        if fits {
            return fitted_value(value, schema, depth + 1);
        }
    }
    Json::String(text)
}

fn number_of(text: &str, kinds: Kinds) -> Option<Json> {
    if !kinds.has(Kinds::INTEGER) && !kinds.has(Kinds::NUMBER) {
        return None;
    }
    let digits = match is_number(text) {
        true => text.to_owned(),
        false => mended_number(text)?,
    };
    if kinds.has(Kinds::NUMBER) {
        return Some(Json::Number(digits));
    }
    if let Some(whole) = whole(&digits) {
        return Some(Json::Number(whole));
    }
    (!digits.contains(['.', 'e', 'E'])).then_some(Json::Number(digits))
}

fn bool_of(text: &str, kinds: Kinds) -> Option<Json> {
    match text {
        _ if !kinds.has(Kinds::BOOLEAN) => None,
        "true" | "True" => Some(Json::Bool(true)),
        "false" | "False" => Some(Json::Bool(false)),
        _ => None,
    }
}

/// Whether an object is written like the declaration of a tool's parameters.
pub(super) fn is_schema(members: &Object, tool: &Tool) -> bool {
    let looks = get(members, "type").is_some() && get(members, "properties").is_some();
    looks && tool.schema.property("properties").is_none()
}
