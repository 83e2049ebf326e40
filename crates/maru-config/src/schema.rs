//! The JSON Schema of the configuration, and look-ups in it.

use std::sync::LazyLock;

use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

use super::Config;

static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let settings = SchemaSettings::draft2020_12().with(|it| it.inline_subschemas = true);
    settings
        .into_generator()
        .into_root_schema_for::<Config>()
        .to_value()
});

/// The JSON Schema of `maru.yaml`.
pub fn schema() -> &'static Value {
    &SCHEMA
}

/// The subschema of the value at `pointer`.
pub(super) fn schema_at(pointer: &str) -> Option<&'static Value> {
    let mut steps = pointer.split('/').skip(1);
    steps.try_fold(schema(), |parent, step| {
        parent
            .pointer("/properties")
            .and_then(|members| members.get(step))
            .or_else(|| parent.get("items"))
    })
}

/// Converts text of a variable or flag to the type that the schema requires at `pointer`.
/// Text that does not parse stays a string, which validation then refuses.
pub(super) fn coerce_text(pointer: &str, text: &str) -> Value {
    let type_name = schema_at(pointer)
        .and_then(|it| it.get("type"))
        .and_then(Value::as_str);
    let parsed = match type_name {
        Some("integer") => text.parse::<i64>().ok().map(Value::from),
        Some("number") => text.parse::<f64>().ok().map(Value::from),
        Some("boolean") => text.parse::<bool>().ok().map(Value::from),
        Some("array") => Some(
            text.split(',')
                .map(str::trim)
                .filter(|it| !it.is_empty())
                .collect(),
        ),
        // `app.user=name,app.tenant=tenant_id`
        Some("object") => text
            .split(',')
            .map(|it| it.split_once('='))
            .map(|it| it.map(|(name, value)| (name.trim().to_owned(), value.trim().into())))
            .collect::<Option<Map<String, Value>>>()
            .map(Value::Object),
        _ => None,
    };
    parsed.unwrap_or_else(|| Value::from(text))
}

/// The pointers of all values that are not objects with further keys.
pub(super) fn leaf_pointers() -> Vec<String> {
    fn collect(schema: &Value, pointer: &str, leaves: &mut Vec<String>) {
        let Some(members) = schema.get("properties").and_then(Value::as_object) else {
            return leaves.push(pointer.to_owned());
        };
        for (name, member) in members {
            collect(member, &format!("{pointer}/{name}"), leaves);
        }
    }
    let mut leaves = Vec::new();
    collect(schema(), "", &mut leaves);
    leaves
}

/// Variables of document 000, its `POSTGRESQL_DB_` for every key, and what they set.
pub(super) const LEGACY_VARIABLES: &[(&str, &str)] = &[
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
    ("POSTGRESQL_DB_SSLMODE", "/postgresql/sslmode"),
    ("POSTGRESQL_DB_SSLROOTCERT", "/postgresql/sslrootcert"),
    ("POSTGRESQL_DB_SSLCERT", "/postgresql/sslcert"),
    ("POSTGRESQL_DB_SSLKEY", "/postgresql/sslkey"),
    ("POSTGRESQL_DB_RELATIONS", "/postgresql/relations"),
    ("POSTGRESQL_DB_FUNCTIONS", "/postgresql/functions"),
    ("POSTGRESQL_DB_MAX_ROWS", "/postgresql/max_rows"),
    ("POSTGRESQL_DB_MAX_BYTES", "/postgresql/max_bytes"),
    ("POSTGRESQL_DB_TIMEOUT_MS", "/postgresql/timeout_ms"),
    (
        "POSTGRESQL_DB_ACQUIRE_TIMEOUT_MS",
        "/postgresql/acquire_timeout_ms",
    ),
    (
        "POSTGRESQL_DB_LOCK_TIMEOUT_MS",
        "/postgresql/lock_timeout_ms",
    ),
    (
        "POSTGRESQL_DB_MIN_CONNECTIONS",
        "/postgresql/min_connections",
    ),
    (
        "POSTGRESQL_DB_MAX_CONNECTIONS",
        "/postgresql/max_connections",
    ),
    ("POSTGRESQL_DB_SEARCH_PATH", "/postgresql/search_path"),
    ("POSTGRESQL_DB_SAMPLE_VALUES", "/postgresql/sample_values"),
    (
        "POSTGRESQL_DB_CALLER_SETTINGS",
        "/postgresql/caller_settings",
    ),
];

/// The environment variable that sets the value at `pointer`.
pub(super) fn variable_name(pointer: &str) -> String {
    format!("MARU{}", pointer.replace(['/', '-'], "_").to_uppercase())
}

/// The environment variable with the prefix `ARC_REACTOR_` that sets the value at `pointer`.
pub(super) fn prefixed_variable_name(pointer: &str) -> String {
    variable_name(pointer).replacen("MARU", "ARC_REACTOR", 1)
}

/// The key as users write it: `limits.max_sessions` for `/limits/max_sessions`.
pub(super) fn dotted_key(pointer: &str) -> String {
    pointer.trim_start_matches('/').replace('/', ".")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_of_the_document_s_database_has_a_variable() {
        let keys = leaf_pointers().into_iter();
        for pointer in keys.filter(|it| it.starts_with("/postgresql/")) {
            let mut variables = LEGACY_VARIABLES.iter();
            assert!(variables.any(|(_, key)| *key == pointer), "{pointer}");
        }
    }
}
