//! Normalises arguments to the schema of their tool.

use super::{
    json::{JsonObject, JsonValue, get_member, write_object},
    repair::{self, JsonRepair, is_number, repair_number},
    schema::{JsonTypes, ParameterSchema},
    tool_set::{ToolSet, ToolSignature},
};

/// How deep values are fitted to their schema.
const MAX_COERCION_DEPTH: usize = 16;

/// Arguments of a call that arrived apart from text, made strict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NormalizedArguments {
    /// The offered tool the name means.
    pub name: String,
    /// Strict JSON text of an object.
    pub arguments: String,
    /// What had to be repaired.
    pub repairs: Vec<JsonRepair>,
}

/// Why a call that arrived apart from text cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NormalizeError {
    /// No offered tool has that name.
    #[error("no tool is called {0:?}")]
    UnknownTool(String),
    /// The arguments do not parse.
    #[error("the arguments of {name} cannot be read")]
    Malformed {
        /// The tool.
        name: String,
        /// What is wrong with them.
        #[source]
        source: repair::PayloadError,
    },
    /// The arguments parse, but not to an object.
    #[error("the arguments of {0} are no object")]
    NotAnObject(String),
}

/// Makes the arguments of a native call strict: the name becomes that of an
/// offered tool, broken JSON is repaired, values get the types of the schema.
///
/// # Errors
///
/// If the name matches no tool, or the arguments are not an object.
pub fn normalize_arguments(
    tools: &ToolSet,
    name: &str,
    text: &str,
) -> Result<NormalizedArguments, NormalizeError> {
    let tool = tools
        .find(name)
        .ok_or_else(|| NormalizeError::UnknownTool(name.to_owned()))?;
    let name = tool.name.clone();
    let (value, mut repairs) = if text.trim().is_empty() {
        (JsonValue::Null, Vec::new())
    } else {
        match repair::parse_lenient(text) {
            Ok(read) => read,
            Err(source) => return Err(NormalizeError::Malformed { name, source }),
        }
    };
    let Some(object) = as_object(&value, &mut repairs) else {
        return Err(NormalizeError::NotAnObject(name));
    };
    let mut arguments = String::new();
    write_object(&coerce_arguments(object, tool), &mut arguments);
    Ok(NormalizedArguments {
        name,
        arguments,
        repairs,
    })
}

/// The object that an argument value stands for.
pub(super) fn as_object(value: &JsonValue, repairs: &mut Vec<JsonRepair>) -> Option<JsonObject> {
    match value {
        JsonValue::Object(members) => Some(members.clone()),
        JsonValue::Null => Some(JsonObject::new()),
        JsonValue::String(text) if text.trim().is_empty() => Some(JsonObject::new()),
        JsonValue::String(text) => {
            let (inner, more) = repair::parse_lenient(text).ok()?;
            repairs.extend(
                more.into_iter()
                    .filter(|it| *it != JsonRepair::SurroundingText),
            );
            match inner {
                JsonValue::Object(members) => Some(members),
                JsonValue::Null => Some(JsonObject::new()),
                _ => None,
            }
        }
        JsonValue::Array(items) => match items.as_slice() {
            [JsonValue::Object(members)] => Some(members.clone()),
            _ => None,
        },
        JsonValue::Bool(_) | JsonValue::Number(_) => None,
    }
}

/// The arguments with a needless wrapper opened and every value fitted.
pub(super) fn coerce_arguments(arguments: JsonObject, tool: &ToolSignature) -> JsonObject {
    let arguments = unwrap_arguments(arguments, &tool.schema);
    coerce_members(arguments, &tool.schema, 0)
}

/// Text of a dialect that knows no types, as the schema's type.
pub(super) fn value_from_text(text: &str, schema: Option<&ParameterSchema>) -> JsonValue {
    let Some(schema) = schema.filter(|it| !it.types.is_any()) else {
        return repair::parse_strict(text).unwrap_or_else(|| JsonValue::String(text.to_owned()));
    };
    coerce_text(text.to_owned(), schema, 0)
}

/// `{"arguments": {…}}` opened, where no parameter is called that.
fn unwrap_arguments(mut arguments: JsonObject, schema: &ParameterSchema) -> JsonObject {
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

fn coerce_members(members: JsonObject, schema: &ParameterSchema, depth: usize) -> JsonObject {
    let fit = |(key, value): (String, JsonValue)| {
        let value = match schema.schema_for(&key) {
            Some(schema) => coerce_value(value, schema, depth + 1),
            None => value,
        };
        (key, value)
    };
    members.into_iter().map(fit).collect()
}

/// The value converted to the type of its schema, if that loses nothing.
pub(super) fn coerce_value(value: JsonValue, schema: &ParameterSchema, depth: usize) -> JsonValue {
    let kinds = schema.types;
    if depth > MAX_COERCION_DEPTH {
        return value;
    }
    match value {
        JsonValue::String(text) if !kinds.is_any() => coerce_text(text, schema, depth),
        JsonValue::Number(digits) => coerce_number(digits, kinds),
        JsonValue::Bool(value) if accepts_only_text(kinds) => JsonValue::String(value.to_string()),
        JsonValue::Object(members) => JsonValue::Object(coerce_members(members, schema, depth)),
        JsonValue::Array(items) => match &schema.items {
            None => JsonValue::Array(items),
            Some(each) => {
                let fit = |item| coerce_value(item, each, depth + 1);
                JsonValue::Array(items.into_iter().map(fit).collect())
            }
        },
        other => other,
    }
}

fn accepts_only_text(kinds: JsonTypes) -> bool {
    kinds.has(JsonTypes::STRING)
        && !kinds.has(JsonTypes::BOOLEAN)
        && !kinds.has(JsonTypes::INTEGER)
        && !kinds.has(JsonTypes::NUMBER)
}

fn coerce_number(digits: String, kinds: JsonTypes) -> JsonValue {
    if accepts_only_text(kinds) {
        return JsonValue::String(digits);
    }
    if kinds.has(JsonTypes::INTEGER) && !kinds.has(JsonTypes::NUMBER) {
        return JsonValue::Number(strip_zero_fraction(&digits).unwrap_or(digits));
    }
    JsonValue::Number(digits)
}

/// `3.0` as `3`.
fn strip_zero_fraction(digits: &str) -> Option<String> {
    let (whole, fraction) = digits.split_once('.')?;
    fraction
        .bytes()
        .all(|b| b == b'0')
        .then(|| whole.to_owned())
}

fn coerce_text(text: String, schema: &ParameterSchema, depth: usize) -> JsonValue {
    let kinds = schema.types;
    let trimmed = text.trim();
    if kinds.has(JsonTypes::NULL) && matches!(trimmed, "null" | "None") {
        return JsonValue::Null;
    }
    if kinds.has(JsonTypes::STRING) {
        return JsonValue::String(text);
    }
    if let Some(value) = number_of(trimmed, kinds).or_else(|| bool_of(trimmed, kinds)) {
        return value;
    }
    let nests = kinds.has(JsonTypes::ARRAY) || kinds.has(JsonTypes::OBJECT);
    if nests
        && !trimmed.starts_with(char::is_alphabetic)
        && let Ok((value, _)) = repair::parse_lenient(trimmed)
    {
        let fits = match value {
            JsonValue::Array(_) => kinds.has(JsonTypes::ARRAY),
            JsonValue::Object(_) => kinds.has(JsonTypes::OBJECT),
            _ => false,
        };
        if fits {
            return coerce_value(value, schema, depth + 1);
        }
    }
    JsonValue::String(text)
}

fn number_of(text: &str, kinds: JsonTypes) -> Option<JsonValue> {
    if !kinds.has(JsonTypes::INTEGER) && !kinds.has(JsonTypes::NUMBER) {
        return None;
    }
    let digits = if is_number(text) {
        text.to_owned()
    } else {
        repair_number(text)?
    };
    if kinds.has(JsonTypes::NUMBER) {
        return Some(JsonValue::Number(digits));
    }
    if let Some(whole) = strip_zero_fraction(&digits) {
        return Some(JsonValue::Number(whole));
    }
    (!digits.contains(['.', 'e', 'E'])).then_some(JsonValue::Number(digits))
}

fn bool_of(text: &str, kinds: JsonTypes) -> Option<JsonValue> {
    match text {
        _ if !kinds.has(JsonTypes::BOOLEAN) => None,
        "true" | "True" => Some(JsonValue::Bool(true)),
        "false" | "False" => Some(JsonValue::Bool(false)),
        _ => None,
    }
}

/// Whether an object is written like the declaration of a tool's parameters.
pub(super) fn looks_like_schema(members: &JsonObject, tool: &ToolSignature) -> bool {
    let looks =
        get_member(members, "type").is_some() && get_member(members, "properties").is_some();
    looks && tool.schema.property("properties").is_none()
}
