//! The JSON Schema of the configuration, and questions to it.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::Config;

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let settings = SchemaSettings::draft2020_12().with(|it| it.inline_subschemas = true);
    settings
        .into_generator()
        .into_root_schema_for::<Config>()
        .to_value()
});

/// The schema of `maru.yaml`, for editors and for ourselves.
pub fn schema() -> &'static Value {
    &SCHEMA
}

/// The part of the schema that describes the value at `pointer`.
pub(super) fn schema_at(pointer: &str) -> Option<&'static Value> {
    pointer.split('/').skip(1).try_fold(schema(), |here, step| {
        here.pointer("/properties")
            .and_then(|members| members.get(step))
            .or_else(|| here.get("items"))
    })
}

/// Reads text from the environment as the type that the schema wants there.
pub(super) fn coerce_text(pointer: &str, text: &str) -> Value {
    let kind = schema_at(pointer)
        .and_then(|it| it.get("type"))
        .and_then(Value::as_str);
    let parsed = match kind {
        Some("integer") => text.parse::<i64>().ok().map(Value::from),
        Some("number") => text.parse::<f64>().ok().map(Value::from),
        Some("boolean") => text.parse::<bool>().ok().map(Value::from),
        Some("array") => Some(
            text.split(',')
                .map(str::trim)
                .filter(|it| !it.is_empty())
                .collect(),
        ),
        _ => None,
    };
    parsed.unwrap_or_else(|| Value::from(text))
}

/// Pointers of every value that is not an object of further keys.
pub(super) fn leaf_pointers() -> Vec<String> {
    fn walk(here: &Value, pointer: &str, out: &mut Vec<String>) {
        let Some(members) = here.get("properties").and_then(Value::as_object) else {
            return out.push(pointer.to_owned());
        };
        for (name, inner) in members {
            walk(inner, &format!("{pointer}/{name}"), out);
        }
    }
    let mut out = Vec::new();
    walk(schema(), "", &mut out);
    out
}

/// Variables that documents of old name, and what they set.
pub(super) const LEGACY_VARIABLES: [(&str, &str); 10] = [
    ("TEXT_EMBEDDING_MODEL_URL", "/embedding/url"),
    ("TEXT_EMBEDDING_MODEL_NAME", "/embedding/model"),
    ("CHROMADB_HOST", "/chromadb/host"),
    ("CHROMADB_PORT", "/chromadb/port"),
    ("CHROMADB_COLLECTION_NAME", "/chromadb/collection"),
    ("POSTGRESQL_DB_USER", "/postgresql/user"),
    ("POSTGRESQL_DB_PASS", "/postgresql/password"),
    ("POSTGRESQL_DB_NAME", "/postgresql/database"),
    ("POSTGRESQL_DB_HOST", "/postgresql/host"),
    ("POSTGRESQL_DB_PORT", "/postgresql/port"),
];

/// The environment variable that sets the value at `pointer`.
pub(super) fn variable_name(pointer: &str) -> String {
    format!("MARU{}", pointer.replace(['/', '-'], "_").to_uppercase())
}

/// The variable that sets it for who uses the prefix `arc.reactor.`.
pub(super) fn prefixed_variable_name(pointer: &str) -> String {
    variable_name(pointer).replacen("MARU", "ARC_REACTOR", 1)
}

/// `limits.max_sessions` for `/limits/max_sessions`.
pub(super) fn dotted_key(pointer: &str) -> String {
    pointer.trim_start_matches('/').replace('/', ".")
}
