//! The subset of JSON Schema that Gemini accepts.

use serde_json::{Map, Value, json};

const SUPPORTED_KEYWORDS: [&str; 13] = [
    "type",
    "format",
    "title",
    "description",
    "nullable",
    "enum",
    "minItems",
    "maxItems",
    "required",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
];
const MAX_CONVERSION_DEPTH: usize = 16;

/// `schema` without the keywords that Gemini rejects; references are resolved.
pub(super) fn to_gemini_schema(schema: &Value) -> Value {
    SchemaConverter { root: schema }.convert(schema, 0)
}

struct SchemaConverter<'a> {
    root: &'a Value,
}

impl SchemaConverter<'_> {
    fn convert(&self, schema: &Value, depth: usize) -> Value {
        let Some(given) = schema.as_object() else {
            return json!({});
        };
        if depth > MAX_CONVERSION_DEPTH {
            return json!({"type": "object"});
        }
        if let Some(reference) = given.get("$ref").and_then(Value::as_str) {
            let target = reference
                .strip_prefix('#')
                .and_then(|it| self.root.pointer(it));
            return target.map_or(json!({}), |it| self.convert(it, depth + 1));
        }
        let mut out = Map::new();
        for name in SUPPORTED_KEYWORDS {
            if let Some(value) = given.get(name) {
                out.insert(name.to_owned(), value.clone());
            }
        }
        types(given, &mut out);
        self.members(given, &mut out, depth);
        Value::Object(out)
    }

    fn members(&self, given: &Map<String, Value>, out: &mut Map<String, Value>, depth: usize) {
        if let Some(members) = given.get("properties").and_then(Value::as_object) {
            let members: Map<String, Value> = members
                .iter()
                .map(|(name, inner)| (name.clone(), self.convert(inner, depth + 1)))
                .collect();
            out.insert("properties".to_owned(), members.into());
        }
        if let Some(items) = given.get("items") {
            out.insert("items".to_owned(), self.convert(items, depth + 1));
        }
        for name in ["anyOf", "oneOf"] {
            if let Some(forms) = given.get(name).and_then(Value::as_array) {
                let forms = forms.iter().map(|it| self.convert(it, depth + 1));
                out.insert("anyOf".to_owned(), forms.collect());
            }
        }
    }
}

/// One type, and whether it may be null; a constant is a choice of one.
fn types(given: &Map<String, Value>, out: &mut Map<String, Value>) {
    if let Some(Value::Array(types)) = given.get("type") {
        let mut named = types.iter().filter(|it| *it != "null");
        out.insert(
            "type".to_owned(),
            named.next().cloned().unwrap_or("string".into()),
        );
        if types.iter().any(|it| it == "null") {
            out.insert("nullable".to_owned(), true.into());
        }
    }
    if let Some(constant) = given.get("const").filter(|it| it.is_string()) {
        out.insert("enum".to_owned(), json!([constant]));
    }
    // Only strings can be listed; null is a separate type.
    if let Some(Value::Array(mut choices)) = out.remove("enum") {
        let count = choices.len();
        choices.retain(|it| !it.is_null());
        if choices.len() < count {
            out.insert("nullable".to_owned(), true.into());
        }
        if !choices.is_empty() && choices.iter().all(Value::is_string) {
            out.insert("enum".to_owned(), choices.into());
        }
    }
    // Other formats than these are refused.
    let format = out.get("format").and_then(Value::as_str);
    if !matches!(
        format,
        Some("enum" | "date-time" | "int32" | "int64" | "float" | "double")
    ) {
        out.remove("format");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_gemini_takes_is_left() {
        let schema = json!({
            "$schema": "x", "type": "object", "additionalProperties": false, "required": ["a"],
            "properties": {
                "a": {"type": ["string", "null"], "format": "uri"},
                "b": {"$ref": "#/$defs/B"},
                "c": {"const": "x"},
                "d": {"oneOf": [{"type": "integer", "enum": [1]}]},
                "e": {"type": ["string", "null"], "enum": ["x", "y", null]},
                "f": {"enum": ["x", null]},
            },
            "$defs": {"B": {"type": "array", "items": {"type": "number", "exclusiveMinimum": 0}}},
        });
        let expected = json!({
            "type": "object", "required": ["a"],
            "properties": {
                "a": {"type": "string", "nullable": true},
                "b": {"type": "array", "items": {"type": "number"}},
                "c": {"enum": ["x"]},
                "d": {"anyOf": [{"type": "integer"}]},
                "e": {"type": "string", "nullable": true, "enum": ["x", "y"]},
                "f": {"nullable": true, "enum": ["x"]},
            },
        });
        assert_eq!(to_gemini_schema(&schema), expected);
    }

    #[test]
    fn a_schema_that_means_itself_ends() {
        let schema = json!({"type": "object", "properties": {"next": {"$ref": "#"}}});
        assert!(to_gemini_schema(&schema).to_string().len() < 4000);
    }
}
