//! A tool's parameter schema, prepared for lookups.

use std::collections::HashMap;

use serde_json::Value;

/// How deep schemas are followed, references included.
const MAX_SCHEMA_DEPTH: usize = 8;
/// The most parameters that a message to the model names.
const MAX_SHOWN_PARAMETERS: usize = 8;

/// The types a value may have. None named means any.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct JsonTypes(u8);

impl JsonTypes {
    pub(super) const STRING: Self = Self(1);
    pub(super) const INTEGER: Self = Self(2);
    pub(super) const NUMBER: Self = Self(4);
    pub(super) const BOOLEAN: Self = Self(8);
    pub(super) const ARRAY: Self = Self(16);
    pub(super) const OBJECT: Self = Self(32);
    pub(super) const NULL: Self = Self(64);

    pub(super) fn has(self, kind: Self) -> bool {
        self.0 & kind.0 != 0
    }

    pub(super) fn is_any(self) -> bool {
        self.0 == 0
    }

    fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }

    fn named(name: &str) -> Self {
        match name {
            "string" => Self::STRING,
            "integer" => Self::INTEGER,
            "number" => Self::NUMBER,
            "boolean" => Self::BOOLEAN,
            "array" => Self::ARRAY,
            "object" => Self::OBJECT,
            "null" => Self::NULL,
            _ => Self(0),
        }
    }

    fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::NULL,
            Value::Bool(_) => Self::BOOLEAN,
            Value::Number(_) => Self::NUMBER,
            Value::String(_) => Self::STRING,
            Value::Array(_) => Self::ARRAY,
            Value::Object(_) => Self::OBJECT,
        }
    }
}

/// A schema with its references resolved and its alternatives merged.
#[derive(Clone, Debug, Default)]
pub(super) struct ParameterSchema {
    pub(super) types: JsonTypes,
    /// Properties in the order they were declared.
    pub(super) properties: Vec<(String, Self)>,
    property_index: HashMap<String, usize>,
    pub(super) required: Vec<String>,
    pub(super) items: Option<Box<Self>>,
    /// What properties that are not declared must be.
    pub(super) additional_properties: Option<Box<Self>>,
}

impl ParameterSchema {
    pub(super) fn new(schema: &Value) -> Self {
        let mut prepared = Self::default();
        prepared.merge(schema, schema, 0);
        prepared
    }

    pub(super) fn property(&self, name: &str) -> Option<&Self> {
        self.property_index
            .get(name)
            .map(|at| &self.properties[*at].1)
    }

    /// How the arguments are written, for a message to the model: `{"city": …}`.
    pub(super) fn arguments_form(&self) -> String {
        let mut names: Vec<&String> = self.required.iter().collect();
        if names.is_empty() {
            names = self.properties.iter().map(|(name, _)| name).collect();
        }
        let members = names.iter().take(MAX_SHOWN_PARAMETERS);
        let mut members: Vec<String> = members.map(|name| format!("{name:?}: …")).collect();
        if names.len() > MAX_SHOWN_PARAMETERS {
            members.push("…".to_owned());
        }
        format!("{{{}}}", members.join(", "))
    }

    /// What the schema says about the value called `name`.
    pub(super) fn schema_for(&self, name: &str) -> Option<&Self> {
        self.property(name)
            .or(self.additional_properties.as_deref())
    }

    fn merge(&mut self, schema: &Value, root: &Value, depth: usize) {
        let Some(schema) = schema.as_object() else {
            return;
        };
        if depth > MAX_SCHEMA_DEPTH {
            return;
        }
        if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
            let target = target.strip_prefix('#').and_then(|path| root.pointer(path));
            target.inspect(|target| self.merge(target, root, depth + 1));
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            for part in schema
                .get(key)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
            {
                self.merge(part, root, depth + 1);
            }
        }
        self.merge_types(schema);
        self.merge_members(schema, root, depth);
    }

    fn merge_types(&mut self, schema: &serde_json::Map<String, Value>) {
        match schema.get("type") {
            Some(Value::String(name)) => self.types.add(JsonTypes::named(name)),
            Some(Value::Array(names)) => {
                let names = names.iter().filter_map(Value::as_str);
                names.for_each(|name| self.types.add(JsonTypes::named(name)));
            }
            _ => {
                let listed = schema.get("enum").and_then(Value::as_array);
                let listed = listed.into_iter().flatten().chain(schema.get("const"));
                listed.for_each(|value| self.types.add(JsonTypes::of(value)));
            }
        }
        if schema.get("nullable") == Some(&Value::Bool(true)) {
            self.types.add(JsonTypes::NULL);
        }
    }

    fn merge_members(
        &mut self,
        schema: &serde_json::Map<String, Value>,
        root: &Value,
        depth: usize,
    ) {
        let nested = |schema: &Value| {
            let mut prepared = Self::default();
            prepared.merge(schema, root, depth + 1);
            prepared
        };
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, schema) in properties.into_iter().flatten() {
            if !self.property_index.contains_key(name) {
                self.property_index
                    .insert(name.clone(), self.properties.len());
                self.properties.push((name.clone(), nested(schema)));
            }
        }
        let required = schema.get("required").and_then(Value::as_array);
        let required = required.into_iter().flatten().filter_map(Value::as_str);
        self.required.extend(required.map(str::to_owned));
        if let Some(items) = schema.get("items").filter(|it| it.is_object()) {
            self.items = Some(Box::new(nested(items)));
        }
        if let Some(others) = schema
            .get("additionalProperties")
            .filter(|it| it.is_object())
        {
            self.additional_properties = Some(Box::new(nested(others)));
        }
    }
}
