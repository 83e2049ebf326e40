//! Validates arguments against a tool's input schema and explains what was expected.

use std::collections::HashMap;

use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::{Map, Value};

const MAX_REPORTED_ERRORS: usize = 5;
const MAX_ERROR_CHARS: usize = 200;
/// Items of a list or members of an object that an error quotes.
const MAX_SHOWN_ITEMS: usize = 10;
const MAX_SCHEMA_DEPTH: usize = 40;
const MAX_SCHEMA_NODES: usize = 5000;

/// A tool's input schema, compiled.
#[derive(Debug)]
pub(super) struct InputSchema {
    validator: Validator,
    signature: String,
    descriptions: HashMap<String, String>,
    /// Integer arguments that may be strings, because models sometimes quote numbers.
    quoted_integers: Vec<String>,
}

impl InputSchema {
    /// Compiles the schema of a built-in tool; `None` if it is not a valid schema.
    pub(super) fn new(tool: &str, schema: &Value) -> Option<Self> {
        Some(Self {
            validator: jsonschema::validator_for(schema).ok()?,
            signature: signature(tool, schema),
            descriptions: property_descriptions(schema),
            quoted_integers: integer_properties(schema),
        })
    }

    /// Compiles the schema of another server; `None` also if validation might take long.
    /// Then only that server validates the arguments.
    pub(super) fn new_untrusted(tool: &str, schema: &Value) -> Option<Self> {
        let mut budget = MAX_SCHEMA_NODES;
        check_complexity(schema, schema, 0, &mut budget)?;
        let validator = jsonschema::options()
            // This engine takes linear time for every pattern.
            .with_pattern_options(PatternOptions::regex().size_limit(1 << 20))
            .build(schema)
            .ok()?;
        Some(Self {
            validator,
            signature: signature(tool, schema),
            descriptions: property_descriptions(schema),
            quoted_integers: Vec::new(),
        })
    }

    /// Validates arguments; the error says what is wrong and what was expected. An argument
    /// that is `null` counts as not given.
    pub(super) fn validate(&self, arguments: &Value) -> Result<(), String> {
        if self.validator.is_valid(arguments) || self.is_valid_when_relaxed(arguments) {
            return Ok(());
        }
        let findings: Vec<String> = self
            .validator
            .iter_errors(arguments)
            .take(MAX_REPORTED_ERRORS)
            .map(|error| self.describe(&error))
            .collect();
        Err(format!(
            "{}; expected {}",
            findings.join("; "),
            self.signature
        ))
    }

    /// Whether the arguments are valid without those that are `null`, and with quoted
    /// integers read as numbers.
    fn is_valid_when_relaxed(&self, arguments: &Value) -> bool {
        let Some(members) = arguments.as_object() else {
            return false;
        };
        let given = members.iter().filter(|(_, value)| !value.is_null());
        let given: Map<_, _> = given
            .map(|(name, value)| (name.clone(), self.unquote_integer(name, value)))
            .collect();
        self.validator.is_valid(&given.into())
    }

    fn unquote_integer(&self, name: &String, value: &Value) -> Value {
        if !self.quoted_integers.contains(name) {
            return value.clone();
        }
        parse_integer(value).map_or_else(|| value.clone(), Value::from)
    }

    /// The message of an error, its path, and the description of that property.
    fn describe(&self, error: &ValidationError<'_>) -> String {
        let path = error.instance_path().to_string();
        let path = path.trim_start_matches('/');
        let shown = match long_value(error.instance()) {
            Some(summary) => error.masked_with(summary).to_string(),
            None => error.to_string(),
        };
        match (path, self.descriptions.get(path)) {
            ("", _) => truncate_error(&shown),
            (path, None) => truncate_error(&format!("{path}: {shown}")),
            (path, Some(description)) => {
                format!(
                    "{} ({description})",
                    truncate_error(&format!("{path}: {shown}"))
                )
            }
        }
    }
}

/// What stands for a value in a message that its text would fill.
fn long_value(value: &Value) -> Option<String> {
    match value {
        Value::Array(items) if items.len() > MAX_SHOWN_ITEMS => {
            Some(format!("a list of {} values", items.len()))
        }
        Value::Object(members) if members.len() > MAX_SHOWN_ITEMS => {
            Some(format!("an object of {} members", members.len()))
        }
        Value::String(text) if text.len() > MAX_ERROR_CHARS / 2 => {
            Some(format!("a text of {} characters", text.chars().count()))
        }
        Value::Array(_) | Value::Object(_) if value.to_string().len() > MAX_ERROR_CHARS / 2 => {
            Some("a long value".to_owned())
        }
        _ => None,
    }
}

/// Counts the nodes of a schema, following its references; `None` if there are too many,
/// if they are nested too deep, or if a reference is circular or external.
fn check_complexity(node: &Value, root: &Value, depth: usize, budget: &mut usize) -> Option<()> {
    *budget = budget.checked_sub(1)?;
    if depth > MAX_SCHEMA_DEPTH {
        return None;
    }
    match node {
        Value::Array(items) => items
            .iter()
            .try_for_each(|it| check_complexity(it, root, depth + 1, budget)),
        Value::Object(members) => {
            members
                .iter()
                .try_for_each(|(name, it)| match (name.as_str(), it) {
                    ("$ref", Value::String(pointer)) => {
                        let target = root.pointer(pointer.strip_prefix('#')?)?;
                        check_complexity(target, root, depth + 1, budget)
                    }
                    ("$dynamicRef" | "$recursiveRef" | "$id" | "$anchor", Value::String(_)) => None,
                    _ => check_complexity(it, root, depth + 1, budget),
                })
        }
        _ => Some(()),
    }
}

/// An integer: `2`, `2.0` or `"2"`.
pub(super) fn parse_integer(value: &Value) -> Option<i64> {
    /// 2^53: up to here a float represents every integer exactly.
    const MAX_EXACT_INTEGER: f64 = 9_007_199_254_740_992.0;
    let is_whole = |it: &f64| it.fract() == 0.0 && it.abs() <= MAX_EXACT_INTEGER;
    match value {
        Value::String(text) => text.trim().parse().ok(),
        number => number
            .as_i64()
            .or_else(|| Some(number.as_f64().filter(is_whole)? as i64)),
    }
}

fn integer_properties(schema: &Value) -> Vec<String> {
    let members = schema["properties"].as_object().into_iter().flatten();
    let integers = members.filter(|(_, it)| it["type"] == "integer");
    integers.map(|(name, _)| name.clone()).collect()
}

fn property_descriptions(schema: &Value) -> HashMap<String, String> {
    let members = schema["properties"].as_object().into_iter().flatten();
    let described = members
        .filter_map(|(name, it)| Some((name.clone(), truncate_error(it["description"].as_str()?))));
    described.collect()
}

/// Bounds a message, which may quote megabytes of arguments.
fn truncate_error(finding: &str) -> String {
    match finding.char_indices().nth(MAX_ERROR_CHARS) {
        None => finding.to_owned(),
        Some((end, _)) => format!("{}…", &finding[..end]),
    }
}

/// `search_docs(query: string, limit?: integer)`.
fn signature(tool: &str, schema: &Value) -> String {
    let empty = Map::new();
    let members = schema["properties"].as_object().unwrap_or(&empty);
    let required = schema["required"].as_array();
    let shown: Vec<String> = members
        .iter()
        .map(|(name, inner)| {
            let needed = required.is_some_and(|all| all.iter().any(|it| it == name));
            let mark = if needed { "" } else { "?" };
            format!("{name}{mark}: {}", type_name(inner))
        })
        .collect();
    format!("{tool}({})", shown.join(", "))
}

fn type_name(schema: &Value) -> String {
    if let Some(choices) = schema["enum"].as_array() {
        let shown: Vec<String> = choices.iter().take(10).map(Value::to_string).collect();
        return shown.join(" | ");
    }
    match &schema["type"] {
        Value::String(name) if name == "array" => format!("[{}]", type_name(&schema["items"])),
        Value::String(name) => name.clone(),
        _ => "any".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn error_says_what_was_expected() {
        let schema = json!({
            "type": "object",
            "properties": {"query": {"type": "string"}, "kind": {"enum": ["a", "b"]}},
            "required": ["query"],
            "additionalProperties": false
        });
        let arguments = InputSchema::new("find", &schema).unwrap();
        let check = |value: Value| arguments.validate(&value);
        assert_eq!(check(json!({"query": "x"})), Ok(()));
        let wrong = check(json!({"query": 5})).unwrap_err();
        assert_eq!(
            wrong,
            "query: 5 is not of type \"string\"; expected find(query: string, kind?: \"a\" | \"b\")"
        );
        assert!(
            check(json!({}))
                .unwrap_err()
                .contains("\"query\" is a required property")
        );
        assert!(
            check(json!({"query": "", "q": 1}))
                .unwrap_err()
                .contains("'q' was unexpected")
        );
    }

    #[test]
    fn long_values_do_not_hide_what_is_wrong_with_them() {
        let schema = json!({
            "type": "object",
            "properties": {
                "texts": {"type": "array", "items": {"type": "string"}, "maxItems": 2048},
                "kind": {"enum": ["a"]}
            },
        });
        let arguments = InputSchema::new("embed", &schema).unwrap();
        let check = |value: Value| arguments.validate(&value).unwrap_err();
        let many = check(json!({"texts": vec!["a"; 2049]}));
        assert!(
            many.starts_with("texts: a list of 2049 values has more than 2048 items;"),
            "{many}"
        );
        let long = check(json!({"kind": "가".repeat(1000)}));
        assert!(
            long.starts_with("kind: a text of 1000 characters is not one of"),
            "{long}"
        );
        let deep = check(json!({"kind": ["x".repeat(1000)]}));
        assert!(
            deep.starts_with("kind: a long value is not one of"),
            "{deep}"
        );
    }

    #[test]
    fn null_stands_for_an_argument_that_is_not_given() {
        let schema = json!({
            "type": "object",
            "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
            "required": ["query"],
        });
        let builtin = InputSchema::new("find", &schema).unwrap();
        let untrusted = InputSchema::new_untrusted("find", &schema).unwrap();
        for schema in [builtin, untrusted] {
            let fits = |value: Value| schema.validate(&value).is_ok();
            assert!(fits(json!({"query": "x", "limit": null})));
            assert!(!fits(json!({"query": null, "limit": 1})));
            assert!(!fits(json!({"query": "x", "limit": "many"})));
        }
    }

    #[test]
    fn quoted_integer_is_a_number_for_built_in_tools() {
        let schema = json!({
            "type": "object",
            "properties": {"limit": {"type": "integer", "minimum": 1}, "name": {"type": "string"}},
        });
        let builtin = InputSchema::new("find", &schema).unwrap();
        assert_eq!(
            builtin.validate(&json!({"limit": "2", "name": "2"})),
            Ok(())
        );
        for wrong in ["0", "2.5", "", "x"] {
            assert!(
                builtin.validate(&json!({"limit": wrong})).is_err(),
                "{wrong}"
            );
        }
        // A server behind the hub gets the arguments as they were sent, and decides itself.
        let untrusted = InputSchema::new_untrusted("find", &schema).unwrap();
        assert!(untrusted.validate(&json!({"limit": "2"})).is_err());
    }
}
