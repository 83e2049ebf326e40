//! Placeholders such as `${FILES_API_KEY}` in place of secrets.

use std::collections::BTreeSet;

use maru_config::MASK;
use serde_json::{Map, Value};

/// Replaces each mask in `value` by a placeholder that is named after `owner` and the place
/// of the mask. Text that looks like a placeholder is escaped as `$${…}`.
pub(super) fn name_masks(value: &Value, owner: &str) -> Value {
    match value {
        Value::String(text) => {
            let escaped = text.replace("${", "$${");
            escaped.replace(MASK, &format!("${{{owner}}}")).into()
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            let named = items.map(|(index, it)| name_masks(it, &format!("{owner}_{}", index + 1)));
            named.collect()
        }
        Value::Object(members) => {
            let members = members.iter();
            let named = members.map(|(name, it)| {
                // Where it stands is clear from the name of the variable or header.
                let owner = match name.as_str() {
                    "env" | "headers" | "config" => owner.to_owned(),
                    _ => format!("{owner}_{}", variable_name(name)),
                };
                (name.clone(), name_masks(it, &owner))
            });
            Value::Object(named.collect())
        }
        other => other.clone(),
    }
}

/// `value` with text that looks like a placeholder escaped.
pub(super) fn escape(value: &Value) -> Value {
    match value {
        Value::String(text) => text.replace("${", "$${").into(),
        Value::Array(items) => items.iter().map(escape).collect(),
        Value::Object(members) => {
            let members = members.iter();
            Value::Object(
                members
                    .map(|(name, it)| (name.clone(), escape(it)))
                    .collect(),
            )
        }
        other => other.clone(),
    }
}

/// `name` as the name of an environment variable.
pub(super) fn variable_name(name: &str) -> String {
    let letter = |it: char| {
        if it.is_ascii_alphanumeric() {
            it.to_ascii_uppercase()
        } else {
            '_'
        }
    };
    name.chars().map(letter).collect()
}

/// Fills in the placeholders of a file.
pub(super) struct PlaceholderValues<'a> {
    pub(super) values: &'a Map<String, Value>,
    /// The same thing in the hub, as an export writes it and with masks. Where the file has
    /// the placeholder of an export, the hub keeps its secret.
    pub(super) current: Option<(&'a Value, &'a Value)>,
}

impl PlaceholderValues<'_> {
    /// `value` with its placeholders filled in. Those without a value go into `missing`.
    pub(super) fn fill(
        &self,
        value: &Value,
        pointer: &str,
        missing: &mut BTreeSet<String>,
    ) -> Value {
        match value {
            Value::String(text) => self.fill_text(text, pointer, missing).into(),
            Value::Array(items) => {
                let items = items.iter().enumerate();
                items
                    .map(|(index, it)| self.fill(it, &format!("{pointer}/{index}"), missing))
                    .collect()
            }
            Value::Object(members) => {
                let members = members.iter();
                let filled = members.map(|(name, it)| {
                    let step = name.replace('~', "~0").replace('/', "~1");
                    (
                        name.clone(),
                        self.fill(it, &format!("{pointer}/{step}"), missing),
                    )
                });
                Value::Object(filled.collect())
            }
            other => other.clone(),
        }
    }

    fn fill_text(&self, text: &str, pointer: &str, missing: &mut BTreeSet<String>) -> String {
        let mut unknown = BTreeSet::new();
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let (before, after) = (&rest[..at], &rest[at + 2..]);
            if let Some(before) = before.strip_suffix('$') {
                out.push_str(before);
                out.push_str("${");
                rest = after;
                continue;
            }
            out.push_str(before);
            let Some((name, tail)) = after.split_once('}') else {
                out.push_str(&rest[at..]);
                rest = "";
                break;
            };
            // VS Code and others write `${env:NAME}` and `${input:NAME}`.
            let name = name.rsplit_once(':').map_or(name, |(_, name)| name);
            match self.values.get(name).and_then(Value::as_str) {
                Some(value) => out.push_str(value),
                None => {
                    unknown.insert(name.to_owned());
                }
            }
            rest = tail;
        }
        out.push_str(rest);
        if unknown.is_empty() && !text.contains(MASK) {
            return out;
        }
        if let Some(kept) = self.current_text(text, pointer) {
            return kept;
        }
        if unknown.is_empty() {
            unknown.insert(format!("the secret at {}", pointer.trim_start_matches('/')));
        }
        missing.extend(unknown);
        String::new()
    }

    /// The masked text of the hub, if it would be exported as `text`.
    fn current_text(&self, text: &str, pointer: &str) -> Option<String> {
        let (exported, masked) = self.current?;
        let masked = masked.pointer(pointer)?.as_str()?;
        let is_same = exported.pointer(pointer)?.as_str()? == text || masked == text;
        is_same.then(|| masked.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fill(value: &Value, values: &Value) -> (Value, Vec<String>) {
        let mut missing = BTreeSet::new();
        let values = values.as_object().unwrap();
        let filler = PlaceholderValues {
            values,
            current: None,
        };
        let filled = filler.fill(value, "", &mut missing);
        (filled, missing.into_iter().collect())
    }

    #[test]
    fn masks_get_names_that_tell_where_they_are() {
        let config =
            json!({"command": "x", "args": ["--key=***", "${HOME}"], "env": {"api-key": "***"}});
        let named = name_masks(&config, "MY_FILES");
        let expected = json!({"command": "x", "args": ["--key=${MY_FILES_ARGS_1}", "$${HOME}"], "env": {"api-key": "${MY_FILES_API_KEY}"}});
        assert_eq!(named, expected);
        let values = json!({"MY_FILES_ARGS_1": "a", "MY_FILES_API_KEY": "b"});
        let (filled, missing) = fill(&named, &values);
        assert_eq!(missing, [""; 0]);
        let expected =
            json!({"command": "x", "args": ["--key=a", "${HOME}"], "env": {"api-key": "b"}});
        assert_eq!(filled, expected);
    }

    #[test]
    fn placeholder_and_mask_without_a_value_are_missing() {
        let (_, missing) = fill(&json!({"a": "${ONE} ${env:TWO}", "b": ["***"]}), &json!({}));
        assert_eq!(missing, ["ONE", "TWO", "the secret at b/0"]);
        let (filled, missing) = fill(&json!("${open"), &json!({}));
        assert_eq!((filled, missing.len()), (json!("${open"), 0));
    }

    #[test]
    fn placeholder_of_an_export_keeps_the_secret_of_the_hub() {
        let masked = json!({"env": {"K": "***"}});
        let exported = name_masks(&masked, "S");
        let mut missing = BTreeSet::new();
        let filler = PlaceholderValues {
            values: &Map::new(),
            current: Some((&exported, &masked)),
        };
        assert_eq!(filler.fill(&exported, "", &mut missing), masked);
        assert!(missing.is_empty());
        filler.fill(&json!({"env": {"K": "${OTHER}"}}), "", &mut missing);
        assert!(missing.contains("OTHER"));
    }
}
