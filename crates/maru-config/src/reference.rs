//! The configuration as a table, for `maru config` and `docs/config.md`.

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::Value;

use super::{Config, LoadedConfig, mask_arguments, mask_secrets, schema};

/// One key of the effective configuration.
#[derive(Debug, serde::Serialize)]
pub struct ConfigRow {
    /// The dotted key, such as `limits.max_sessions`.
    pub key: String,
    /// The value, with secrets masked.
    pub value: Value,
    /// The file and line, variable or flag that set it.
    pub origin: String,
    /// What it means, as in `docs/config.md`.
    pub description: &'static str,
    /// Its type and range, such as `integer, 1 to 100`.
    #[serde(rename = "type")]
    pub type_text: String,
    /// The environment variable that sets it.
    pub variable: String,
}

/// Returns what each section is about, by its dotted key.
pub fn section_descriptions() -> BTreeMap<String, &'static str> {
    let pointers = schema::leaf_pointers();
    let parents = pointers.iter().map(|it| &it[..it.rfind('/').unwrap_or(0)]);
    parents
        .filter(|it| !it.is_empty())
        .filter_map(|it| Some((schema::dotted_key(it), description(it)?)))
        .collect()
}

/// Returns every key with its value and origin.
pub fn config_rows(loaded: &LoadedConfig) -> Vec<ConfigRow> {
    let mut values = serde_json::to_value(&loaded.config).expect("settings are JSON");
    mask_values(&mut values);
    schema::leaf_pointers()
        .into_iter()
        .map(|pointer| ConfigRow {
            key: schema::dotted_key(&pointer),
            value: values.pointer(&pointer).cloned().unwrap_or_default(),
            origin: loaded.origin_of(&pointer).to_string(),
            description: description(&pointer).unwrap_or_default(),
            type_text: type_text(&pointer),
            variable: schema::variable_name(&pointer),
        })
        .collect()
}

/// Masks secrets inside texts that are not secret as a whole, such as URLs and command
/// lines.
fn mask_values(value: &mut Value) {
    match value {
        Value::String(text) => *text = mask_secrets(text),
        Value::Array(items) => {
            let texts: Option<Vec<String>> = items
                .iter()
                .map(|it| it.as_str().map(str::to_owned))
                .collect();
            match texts {
                Some(texts) => *value = mask_arguments(&texts).into(),
                None => items.iter_mut().for_each(mask_values),
            }
        }
        Value::Object(members) => members.values_mut().for_each(mask_values),
        Value::Null | Value::Bool(_) | Value::Number(_) => (),
    }
}

/// Generates `docs/config.md`.
pub fn reference_markdown() -> String {
    let defaults = serde_json::to_value(Config::default()).expect("settings are JSON");
    let mut out = String::from(REFERENCE_INTRODUCTION);
    let mut section = String::new();
    let mut lists_of_objects = Vec::new();
    for pointer in schema::leaf_pointers() {
        let parent = &pointer[..pointer.rfind('/').unwrap_or(0)];
        if parent != section {
            parent.clone_into(&mut section);
            let description = description(parent).unwrap_or_default();
            let title = match schema::dotted_key(parent) {
                root if root.is_empty() => "Top level".to_owned(),
                key => key,
            };
            let _ = write!(out, "\n## {title}\n\n{description}\n\n{TABLE_HEADER}");
        } else if out.ends_with(REFERENCE_INTRODUCTION) {
            out.push_str(TABLE_HEADER);
        }
        if schema::schema_at(&format!("{pointer}/0"))
            .is_some_and(|it| it.get("properties").is_some())
        {
            lists_of_objects.push(pointer.clone());
        }
        let default = defaults.pointer(&pointer).unwrap_or(&Value::Null);
        let _ = writeln!(
            out,
            "| `{}` | {} | `{default}` | {} |",
            schema::dotted_key(&pointer),
            type_text(&pointer),
            description(&pointer).unwrap_or_default(),
        );
    }
    for pointer in lists_of_objects {
        write_list_entries(&pointer, &mut out);
    }
    out
}

/// Writes a table of the keys of each entry of a list.
fn write_list_entries(pointer: &str, out: &mut String) {
    let entry = format!("{pointer}/0");
    let key = schema::dotted_key(pointer);
    let entry_description = description(&entry).unwrap_or_default();
    let _ = write!(
        out,
        "\n## Each entry of {key}\n\n{entry_description}\n\n{TABLE_HEADER}"
    );
    let members = schema::schema_at(&entry).and_then(|it| it["properties"].as_object());
    let required = schema::schema_at(&entry).and_then(|it| it["required"].as_array());
    for name in members.into_iter().flat_map(|it| it.keys()) {
        let member = format!("{entry}/{name}");
        let default = schema::schema_at(&member).and_then(|it| it.get("default"));
        let default = if required.is_some_and(|it| it.iter().any(|it| it == name)) {
            "required".to_owned()
        } else {
            format!("`{}`", default.unwrap_or(&Value::Null))
        };
        let _ = writeln!(
            out,
            "| `{name}` | {} | {default} | {} |",
            type_text(&member),
            description(&member).unwrap_or_default()
        );
    }
}

const REFERENCE_INTRODUCTION: &str = "# Configuration

maru reads settings from these places, where later ones override earlier ones: built-in
defaults, `maru.yaml` (in the current directory, or named by `--config` or
`MARU_CONFIG`), a `.env` file in the current directory, environment variables, flags.
Keys are nested in the file:

```yaml
listen: 127.0.0.1:20006
limits:
  max_sessions: 500
  tool_timeout_ms: 60000
http:
  allowed_origins: [https://chat.example.com]
log:
  level: ${LOG_LEVEL:-info}
```

The environment variable of a key is `MARU_` and the key in capitals with `_` for `.`:
`limits.max_sessions` is `MARU_LIMITS_MAX_SESSIONS`. The items of a list are separated by
commas. In the file, `${NAME}` is replaced by an environment variable that must be set,
`${NAME:-text}` by one with a default, and `${file:/path}` by the content of a file. The
default data directory is under `XDG_DATA_HOME` if that is set.

With an unknown key or variable, or a value out of range, maru does not start; the error
says where it is and what is expected. `maru config` shows every current value and where
it was set; `maru config --schema` prints a JSON Schema for editors. This page is
generated by `maru config --reference`.

On SIGHUP a running hub reads everything again: these settings, `.env`, files named by
`${file:…}`, certificates, the issuer's keys and the admin token. `chat`, `http`,
`limits`, `log.level`, `models`, `oauth`, `ollama`, `require_token`, `usage` and `tls`
(the files, but not whether `tls` is set) take effect at once for new requests. The log names every
other changed key, which needs a restart. If a setting is invalid, nothing changes, and
the log names it. SIGUSR1 and SIGUSR2 are ignored.

";
const TABLE_HEADER: &str = "| key | type | default | meaning |\n|---|---|---|---|\n";

/// Describes the allowed values of a key, for error messages.
pub(super) fn expected_value(pointer: &str) -> Option<String> {
    let leaf = schema::schema_at(pointer).filter(|it| it.get("properties").is_none())?;
    if let Some(alternatives) = pattern_alternatives(leaf) {
        return Some(format!("one of {}", alternatives.join(", ")));
    }
    let type_text = type_text(pointer);
    match leaf.get("description").and_then(Value::as_str) {
        Some(description) if type_text == "string" => Some(format!("text: {description}")),
        _ => Some(type_text),
    }
}

/// The alternatives of a pattern such as `^(pin|follow)$`.
fn pattern_alternatives(leaf: &Value) -> Option<Vec<&str>> {
    let pattern = leaf.get("pattern")?.as_str()?;
    let alternatives = pattern.strip_prefix("^(")?.strip_suffix(")$")?;
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '|');
    alternatives
        .chars()
        .all(is_plain)
        .then(|| alternatives.split('|').collect())
}

fn description(pointer: &str) -> Option<&'static str> {
    schema::schema_at(pointer)?.get("description")?.as_str()
}

fn type_text(pointer: &str) -> String {
    let Some(schema) = schema::schema_at(pointer) else {
        return String::new();
    };
    let choices: Vec<&str> = schema
        .get("enum")
        .into_iter()
        .chain(schema.get("oneOf"))
        .filter_map(Value::as_array)
        .flatten()
        .flat_map(|it| match it.get("const").or_else(|| it.get("enum")) {
            Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
            Some(name) => name.as_str().into_iter().collect::<Vec<_>>(),
            None => it.as_str().into_iter().collect(),
        })
        .collect();
    if !choices.is_empty() {
        return choices.join(", ");
    }
    // A key without a default may also be null.
    let name = match schema.get("type") {
        Some(Value::Array(names)) => names
            .iter()
            .filter_map(Value::as_str)
            .find(|it| *it != "null"),
        name => name.and_then(Value::as_str),
    };
    let name = name.unwrap_or("value");
    match (schema.get("minimum"), schema.get("maximum")) {
        (Some(low), Some(high)) => format!("{name}, {low} to {high}"),
        _ if name == "array" && schema.pointer("/items/properties").is_some() => {
            "list, see below".to_owned()
        }
        _ if name == "array" => "list of strings".to_owned(),
        _ if name == "boolean" => "true or false".to_owned(),
        _ => name.to_owned(),
    }
}
