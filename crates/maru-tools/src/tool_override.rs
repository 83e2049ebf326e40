//! Overrides: how a tool is described to clients instead of as its server describes it.

use std::{collections::BTreeMap, sync::Arc};

use maru_protocol::{object_members, push_json_string};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use thiserror::Error;

use super::call_arguments::CallArguments;
use super::entry::{CatalogEntry, EntryAction, EntryRequest};

/// The overrides by server and by the tool's name there.
pub type ToolOverrides = BTreeMap<(Arc<str>, Arc<str>), Arc<ToolOverride>>;

/// What clients see of a tool instead of its server's description.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct ToolOverride {
    /// The name in lists. The name that its server gives it stays the one in grants, limits,
    /// the audit log and statistics.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The title for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The description for models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Parameters by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, ParameterOverride>,
    /// Annotations by name, such as `readOnlyHint`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, bool>,
    /// Tags, by which toolsets select it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

/// What clients see of a parameter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct ParameterOverride {
    /// The description for models.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The value of a call that gives none. The parameter is then optional.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default: Option<Value>,
    /// The value of every call. Clients do not see the parameter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixed: Option<Value>,
}

/// Why an override cannot be saved.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{message}")]
pub struct InvalidOverride {
    /// The member that is wrong.
    pub field: &'static str,
    /// What is wrong.
    pub message: String,
}

const MAX_NAME_BYTES: usize = 64;
const MAX_TEXT_CHARS: usize = 20_000;
const MAX_PARAMETERS: usize = 100;
const MAX_TAGS: usize = 50;
const MAX_OVERRIDE_BYTES: usize = 256 << 10;
/// The annotations of the protocol that are true or false.
const ANNOTATIONS: [&str; 4] = [
    "readOnlyHint",
    "destructiveHint",
    "idempotentHint",
    "openWorldHint",
];

impl ToolOverride {
    /// Parses and checks an override.
    pub fn parse(json: &Value) -> Result<Self, InvalidOverride> {
        let invalid = |field, message: &str| InvalidOverride {
            field,
            message: message.to_owned(),
        };
        let size = json.to_string().len();
        if size > MAX_OVERRIDE_BYTES {
            return Err(invalid("override", "is larger than 256 KiB"));
        }
        let parsed: Self = serde_json::from_value(json.clone())
            .map_err(|error| invalid("override", &error.to_string()))?;
        if parsed.name.as_deref().is_some_and(|it| !is_tool_name(it)) {
            return Err(invalid("name", "has 1 to 64 of A-Z, a-z, 0-9, _ and -"));
        }
        let is_long = |it: &Option<String>| {
            it.as_ref()
                .is_some_and(|it| it.chars().count() > MAX_TEXT_CHARS)
        };
        if is_long(&parsed.title) || is_long(&parsed.description) {
            return Err(invalid("description", "is longer than 20,000 characters"));
        }
        if parsed.parameters.len() > MAX_PARAMETERS || parsed.tags.len() > MAX_TAGS {
            return Err(invalid("override", "has too many parameters or tags"));
        }
        let both = |it: &ParameterOverride| it.default.is_some() && it.fixed.is_some();
        if parsed.parameters.values().any(both) {
            let message = "a parameter has either a default or a fixed value";
            return Err(invalid("parameters", message));
        }
        let mut names = parsed.annotations.keys();
        if names.any(|it| !ANNOTATIONS.contains(&it.as_str())) {
            return Err(invalid(
                "annotations",
                "use readOnlyHint, destructiveHint, idempotentHint and openWorldHint",
            ));
        }
        Ok(parsed)
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The tool as clients see it; `name` is its name in lists, if that differs.
    pub(super) fn apply(
        self: &Arc<Self>,
        entry: &CatalogEntry,
        name: Option<&str>,
    ) -> CatalogEntry {
        let listing = self.apply_to_listing(&entry.listing());
        let mut tool = entry.redescribed(name, &listing, &self.tags);
        let schema = &entry.listing()["inputSchema"]["properties"];
        let injected = self.injected_values(schema);
        if !injected.is_empty() {
            let (inner, injected) = (Arc::clone(&entry.handler), Arc::new(injected));
            tool.handler = Arc::new(move |mut request: EntryRequest| {
                if let EntryAction::CallTool(arguments) = &request.action {
                    let arguments = inject_values(arguments, &injected);
                    request.action = EntryAction::CallTool(Arc::new(arguments));
                }
                inner(request)
            });
        }
        tool
    }

    /// The listing as clients see it.
    pub fn apply_to_listing(&self, original: &Value) -> Value {
        let mut listing = original.clone();
        if let Some(title) = &self.title {
            listing["title"] = title.as_str().into();
            // A title among the annotations would contradict it.
            if let Some(annotations) = listing["annotations"].as_object_mut() {
                annotations.shift_remove("title");
            }
        }
        if let Some(description) = &self.description {
            listing["description"] = description.as_str().into();
        }
        if !self.annotations.is_empty() && !listing["annotations"].is_object() {
            listing["annotations"] = json!({});
        }
        for (name, value) in &self.annotations {
            listing["annotations"][name] = (*value).into();
        }
        if let Some(schema) = listing
            .get_mut("inputSchema")
            .and_then(Value::as_object_mut)
        {
            self.apply_to_schema(schema);
        }
        if listing["annotations"].is_null()
            && let Some(members) = listing.as_object_mut()
        {
            members.shift_remove("annotations");
        }
        listing
    }

    fn apply_to_schema(&self, schema: &mut Map<String, Value>) {
        let mut optional = Vec::new();
        let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) else {
            return;
        };
        for (name, change) in &self.parameters {
            if !properties.contains_key(name) {
                continue;
            }
            if change.fixed.is_some() {
                properties.shift_remove(name);
                optional.push(name);
                continue;
            }
            let property = &mut properties[name];
            if !property.is_object() {
                *property = json!({});
            }
            if let Some(description) = &change.description {
                property["description"] = description.as_str().into();
            }
            if let Some(default) = &change.default {
                property["default"] = default.clone();
                optional.push(name);
            }
        }
        if let Some(required) = schema.get_mut("required").and_then(Value::as_array_mut) {
            required.retain(|it| !optional.iter().any(|name| it == name.as_str()));
        }
    }

    /// The values that calls get, of parameters that the tool has.
    fn injected_values(&self, properties: &Value) -> Vec<InjectedValue> {
        let known = self
            .parameters
            .iter()
            .filter(|(name, _)| properties.get(name.as_str()).is_some());
        let values = known.filter_map(|(name, it)| {
            let (value, is_fixed) = match (&it.fixed, &it.default) {
                (Some(fixed), _) => (fixed, true),
                (None, Some(default)) => (default, false),
                (None, None) => return None,
            };
            Some(InjectedValue {
                name: name.clone(),
                value: value.clone(),
                is_fixed,
            })
        });
        values.collect()
    }

    /// Parameters that the override names and the tool does not have.
    pub fn unknown_parameters(&self, original: &Value) -> Vec<&str> {
        let properties = &original["inputSchema"]["properties"];
        let names = self.parameters.keys().map(String::as_str);
        names.filter(|it| properties.get(it).is_none()).collect()
    }
}

/// A value that calls get.
#[derive(Debug)]
struct InjectedValue {
    name: String,
    value: Value,
    /// Whether it replaces what the caller gives.
    is_fixed: bool,
}

/// The arguments with fixed values, and with the defaults of those that are absent or null.
/// The others keep their spelling.
fn inject_values(arguments: &CallArguments, injected: &[InjectedValue]) -> CallArguments {
    let mut text = String::from("{");
    let mut missing: Vec<&InjectedValue> = injected.iter().collect();
    let mut value = Map::new();
    let push = |text: &mut String, name: &str, raw: &str| {
        if text.len() > 1 {
            text.push(',');
        }
        push_json_string(text, name);
        text.push(':');
        text.push_str(raw);
    };
    for (name, raw) in object_members(arguments.text()).into_iter().flatten() {
        if let Some(at) = missing.iter().position(|it| it.name == *name) {
            if missing[at].is_fixed || raw.trim() == "null" {
                continue;
            }
            missing.remove(at);
        }
        push(&mut text, &name, raw);
        value.insert(name.to_string(), arguments[&*name].clone());
    }
    for it in missing {
        push(&mut text, &it.name, &it.value.to_string());
        value.insert(it.name.clone(), it.value.clone());
    }
    text.push('}');
    CallArguments::from_parts(value.into(), text.into())
}

fn is_tool_name(name: &str) -> bool {
    let is_allowed = |it: u8| it.is_ascii_alphanumeric() || it == b'_' || it == b'-';
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &Value) -> ToolOverride {
        ToolOverride::parse(json).unwrap()
    }

    #[test]
    fn listing_shows_what_is_overridden_and_keeps_the_rest() {
        let original = json!({
            "title": "Search", "description": "Searches.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": "Words"},
                    "limit": {"type": "integer"},
                    "tenant": {"type": "string"},
                },
                "required": ["query", "limit", "tenant"],
            },
            "annotations": {"title": "Old", "readOnlyHint": true},
            "_meta": {"x": 1},
        });
        let change = parse(&json!({
            "title": "Find", "description": "Finds.",
            "parameters": {
                "query": {"description": "What to find"},
                "limit": {"default": 5},
                "tenant": {"fixed": "acme"},
                "gone": {"fixed": 1},
            },
            "annotations": {"idempotentHint": true},
        }));
        assert_eq!(
            change.apply_to_listing(&original),
            json!({
                "title": "Find", "description": "Finds.",
                "inputSchema": {
                    "type": "object",
                    "properties": {
                        "query": {"type": "string", "description": "What to find"},
                        "limit": {"type": "integer", "default": 5},
                    },
                    "required": ["query"],
                },
                "annotations": {"readOnlyHint": true, "idempotentHint": true},
                "_meta": {"x": 1},
            })
        );
        assert_eq!(change.unknown_parameters(&original), ["gone"]);
        let untouched = ToolOverride::default().apply_to_listing(&original);
        assert_eq!(untouched.to_string(), original.to_string());
    }

    #[test]
    fn calls_get_fixed_values_and_defaults_and_keep_their_digits() {
        let change = parse(&json!({"parameters": {
            "tenant": {"fixed": "acme"}, "limit": {"default": 5},
        }}));
        let properties = json!({"tenant": {}, "limit": {}});
        let injected = change.injected_values(&properties);
        let check = |given: &str, expected: &str| {
            let value: Value = serde_json::from_str(given).unwrap();
            let given = CallArguments::from_parts(value, given.into());
            let sent = inject_values(&given, &injected);
            assert_eq!(sent.text(), expected);
            assert_eq!(*sent, serde_json::from_str::<Value>(expected).unwrap());
        };
        check("{}", r#"{"limit":5,"tenant":"acme"}"#);
        check(
            r#"{"n": 1.50, "limit": 7}"#,
            r#"{"n":1.50,"limit":7,"tenant":"acme"}"#,
        );
        check(
            r#"{"tenant": "other", "limit": null}"#,
            r#"{"limit":5,"tenant":"acme"}"#,
        );
    }

    #[test]
    fn wrong_override_is_refused() {
        let field = |json: Value| ToolOverride::parse(&json).unwrap_err().field;
        assert_eq!(field(json!({"name": "a b"})), "name");
        assert_eq!(field(json!({"name": ""})), "name");
        assert_eq!(field(json!({"surprise": 1})), "override");
        assert_eq!(field(json!({"annotations": {"x": true}})), "annotations");
        let both = json!({"parameters": {"a": {"default": 1, "fixed": 2}}});
        assert_eq!(field(both), "parameters");
    }
}
