//! Checking arguments against a tool's schema, and saying what was expected.

use std::collections::HashMap;

use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::{Map, Value};

const MAX_REPORTED_ERRORS: usize = 5;
const MAX_ERROR_CHARS: usize = 200;
const MAX_SCHEMA_DEPTH: usize = 40;
const MAX_SCHEMA_NODES: usize = 5000;

/// A tool's input schema, compiled.
#[derive(Debug)]
pub(super) struct InputSchema {
    validator: Validator,
    signature: String,
    descriptions: HashMap<String, String>,
    /// Whether `null` may stand for an argument that is not given.
    accepts_null: bool,
}

impl InputSchema {
    /// Compiles `schema`; `None` if it is no schema.
    pub(super) fn new(tool: &str, schema: &Value) -> Option<Self> {
        Some(Self {
            validator: jsonschema::validator_for(schema).ok()?,
            signature: signature(tool, schema),
            descriptions: property_descriptions(schema),
            accepts_null: false,
        })
    }

    /// The same for a schema of someone else's; `None` also if checking might
    /// take long. Its own server checks then, and what it makes of `null`.
    pub(super) fn new_untrusted(tool: &str, schema: &Value) -> Option<Self> {
        let mut budget = MAX_SCHEMA_NODES;
        check_complexity(schema, schema, 0, &mut budget)?;
        let validator = jsonschema::options()
            // Linear in the text, whatever the pattern.
            .with_pattern_options(PatternOptions::regex().size_limit(1 << 20))
            .build(schema)
            .ok()?;
        Some(Self {
            validator,
            signature: signature(tool, schema),
            descriptions: property_descriptions(schema),
            accepts_null: true,
        })
    }

    /// What is wrong with `arguments`, and what would be right.
    pub(super) fn validate(&self, arguments: &Value) -> Result<(), String> {
        if self.validator.is_valid(arguments) || self.is_valid_without_nulls(arguments) {
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

    fn is_valid_without_nulls(&self, arguments: &Value) -> bool {
        let Some(members) = arguments.as_object().filter(|_| self.accepts_null) else {
            return false;
        };
        let given = members.iter().filter(|(_, value)| !value.is_null());
        let given: Map<_, _> = given.map(|(k, v)| (k.clone(), v.clone())).collect();
        given.len() < members.len() && self.validator.is_valid(&given.into())
    }

    /// What is wrong, where, and what that place is for.
    fn describe(&self, error: &ValidationError<'_>) -> String {
        let path = error.instance_path().to_string();
        let path = path.trim_start_matches('/');
        match (path, self.descriptions.get(path)) {
            ("", _) => truncate_error(&error.to_string()),
            (path, None) => truncate_error(&format!("{path}: {error}")),
            (path, Some(about)) => {
                format!("{} ({about})", truncate_error(&format!("{path}: {error}")))
            }
        }
    }
}

/// Counts the nodes of a schema with its references followed; `None` when they
/// are too many, too deep, go round in circles or lead elsewhere.
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

fn property_descriptions(schema: &Value) -> HashMap<String, String> {
    let members = schema["properties"].as_object().into_iter().flatten();
    let described = members
        .filter_map(|(name, it)| Some((name.clone(), truncate_error(it["description"].as_str()?))));
    described.collect()
}

/// The arguments may be megabytes; what is wrong with them is said in a line.
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
    fn wrong_arguments_are_told_what_was_expected() {
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
    fn null_stands_for_no_argument_where_another_server_decides() {
        let schema = json!({
            "type": "object",
            "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
            "required": ["query"],
        });
        let fits = |arguments: &InputSchema, value: Value| arguments.validate(&value).is_ok();
        let other = InputSchema::new_untrusted("find", &schema).unwrap();
        assert!(fits(&other, json!({"query": "x", "limit": null})));
        assert!(!fits(&other, json!({"query": null, "limit": 1})));
        assert!(!fits(&other, json!({"query": "x", "limit": "many"})));
        let own = InputSchema::new("find", &schema).unwrap();
        assert!(!fits(&own, json!({"query": "x", "limit": null})));
    }
}
