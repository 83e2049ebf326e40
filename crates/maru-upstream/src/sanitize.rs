//! Repairs the entries that a server lists. One invalid entry makes some clients refuse
//! the whole list, so each is repaired or withheld with a reason.

use serde_json::{Map, Value, json};

use maru_tools::{CatalogEntryKind, parse_header_parameters};

const MAX_NAME_BYTES: usize = 128;
const MAX_URI_BYTES: usize = 2048;
const MAX_TEXT_CHARS: usize = 4096;
const MAX_SCHEMA_DEPTH: usize = 32;

/// A list entry: its key and the members to publish.
pub(super) type SanitizedEntry = (String, Value);

/// Repairs an entry; the error says why it cannot be published.
pub(super) fn sanitize_entry(
    kind: CatalogEntryKind,
    entry: Value,
) -> Result<SanitizedEntry, String> {
    let Value::Object(mut entry) = entry else {
        return Err("it is not an object".to_owned());
    };
    let key = take_key(kind, &mut entry)?;
    drop_unless(&mut entry, "title", Value::is_string);
    drop_unless(&mut entry, "_meta", Value::is_object);
    drop_unless(&mut entry, "annotations", Value::is_object);
    drop_unless(&mut entry, "icons", has_sources);
    drop_unless(&mut entry, "description", Value::is_string);
    for name in ["title", "description"] {
        if let Some(text) = entry.get(name).and_then(Value::as_str) {
            let clean = sanitize_text(text);
            entry.insert(name.to_owned(), clean.into());
        }
    }
    match kind {
        CatalogEntryKind::Tool => sanitize_tool(&mut entry)?,
        CatalogEntryKind::Prompt => drop_unless(&mut entry, "arguments", have_names),
        CatalogEntryKind::Resource | CatalogEntryKind::ResourceTemplate => {
            drop_unless(&mut entry, "mimeType", Value::is_string);
            drop_unless(&mut entry, "size", Value::is_number);
            if !entry.get("name").is_some_and(Value::is_string) {
                entry.insert("name".to_owned(), key.clone().into());
            }
        }
        CatalogEntryKind::Server => (),
    }
    Ok((key, Value::Object(entry)))
}

/// Removes and checks the key: a name or URI that is displayable and safe to send.
fn take_key(kind: CatalogEntryKind, entry: &mut Map<String, Value>) -> Result<String, String> {
    let (member, limit) = match kind {
        CatalogEntryKind::Tool | CatalogEntryKind::Prompt | CatalogEntryKind::Server => {
            ("name", MAX_NAME_BYTES)
        }
        CatalogEntryKind::Resource => ("uri", MAX_URI_BYTES),
        CatalogEntryKind::ResourceTemplate => ("uriTemplate", MAX_URI_BYTES),
    };
    let Some(Value::String(key)) = entry.shift_remove(member) else {
        return Err(format!("it has no {member}"));
    };
    if key.is_empty() || key.len() > limit {
        return Err(format!("its {member} must have 1 to {limit} bytes"));
    }
    if key.chars().any(is_hidden) {
        Err(format!("its {member} has invisible characters"))
    } else {
        Ok(key)
    }
}

fn sanitize_tool(entry: &mut Map<String, Value>) -> Result<(), String> {
    // The hub does not relay deferred results (tasks).
    entry.shift_remove("execution");
    if let Some(hints) = entry.get_mut("annotations").and_then(Value::as_object_mut) {
        hints.retain(|name, value| {
            if name.ends_with("Hint") {
                value.is_boolean()
            } else {
                name != "title" || value.is_string()
            }
        });
    }
    drop_unless(entry, "outputSchema", Value::is_object);
    let schema = entry.entry("inputSchema").or_insert(Value::Null);
    if schema.is_null() {
        *schema = json!({"type": "object"});
    }
    let Some(members) = schema.as_object_mut() else {
        return Err("its inputSchema is not an object".to_owned());
    };
    drop_unless(members, "required", Value::is_array);
    drop_unless(members, "properties", Value::is_object);
    if members.get("type").is_none_or(Value::is_null) {
        members.insert("type".to_owned(), "object".into());
    }
    if members["type"] != "object" {
        return Err("its inputSchema is not of type object".to_owned());
    }
    if let Some(properties) = members.get_mut("properties").and_then(Value::as_object_mut) {
        for property in properties.values_mut() {
            match property {
                Value::Bool(true) => *property = json!({}),
                Value::Bool(false) => *property = json!({"not": {}}),
                _ => (),
            }
        }
    }
    check_schema(schema, MAX_SCHEMA_DEPTH)?;
    sanitize_schema_texts(schema);
    parse_header_parameters(schema).map(drop)
}

fn check_schema(schema: &Value, left: usize) -> Result<(), String> {
    let deeper = left.checked_sub(1).ok_or("its schema is nested too deep")?;
    match schema {
        Value::Array(items) => items.iter().try_for_each(|it| check_schema(it, deeper)),
        Value::Object(members) => members.iter().try_for_each(|(name, it)| match it {
            Value::String(to) if name == "$ref" && !to.starts_with('#') => {
                Err("its schema refers to another place".to_owned())
            }
            _ => check_schema(it, deeper),
        }),
        _ => Ok(()),
    }
}

/// Removes hidden characters from the texts of a schema, which models read too. The depth
/// was checked before.
fn sanitize_schema_texts(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(sanitize_schema_texts),
        Value::Object(members) => {
            for (name, it) in members {
                match it {
                    Value::String(text) if matches!(name.as_str(), "description" | "title") => {
                        *text = sanitize_text(text);
                    }
                    it => sanitize_schema_texts(it),
                }
            }
        }
        _ => (),
    }
}

fn drop_unless(entry: &mut Map<String, Value>, name: &str, good: fn(&Value) -> bool) {
    if entry.get(name).is_some_and(|it| !good(it)) {
        entry.shift_remove(name);
    }
}

fn has_sources(icons: &Value) -> bool {
    icons
        .as_array()
        .is_some_and(|all| all.iter().all(|icon| icon["src"].is_string()))
}

fn have_names(arguments: &Value) -> bool {
    arguments
        .as_array()
        .is_some_and(|all| all.iter().all(|it| it["name"].is_string()))
}

/// Removes invisible characters from text for people and models.
fn sanitize_text(text: &str) -> String {
    text.chars()
        .filter(|c| matches!(c, '\n' | '\t') || !is_hidden(*c))
        .take(MAX_TEXT_CHARS)
        .collect()
}

fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_clients_choke_on_is_mended() {
        let entry = json!({
            "name": "t", "description": null, "annotations": {"readOnlyHint": "yes", "title": "T"}, "_meta": null,
            "icons": [{}], "inputSchema": {"properties": {"a": true}, "required": null}, "unknown": {"kept": 1},
        });
        let (key, mended) = sanitize_entry(CatalogEntryKind::Tool, entry).unwrap();
        assert_eq!(key, "t");
        let expected = json!({
            "annotations": {"title": "T"},
            "inputSchema": {"properties": {"a": {}}, "type": "object"},
            "unknown": {"kept": 1},
        });
        assert_eq!(mended, expected);
    }

    #[test]
    fn what_cannot_be_mended_is_withheld_with_a_reason() {
        let reason = |entry: Value| sanitize_entry(CatalogEntryKind::Tool, entry).unwrap_err();
        assert_eq!(
            reason(json!({"name": ""})),
            "its name must have 1 to 128 bytes"
        );
        assert_eq!(
            reason(json!({"name": "e\u{0}cho"})),
            "its name has invisible characters"
        );
        assert_eq!(reason(json!({})), "it has no name");
        let schema = |schema: Value| reason(json!({"name": "t", "inputSchema": schema}));
        assert_eq!(schema(json!([])), "its inputSchema is not an object");
        assert_eq!(
            schema(json!({"$ref": "http://127.0.0.1:9/x"})),
            "its schema refers to another place"
        );
        let header = json!({"properties": {"a": {"type": "string", "x-mcp-header": "a b"}}});
        assert_eq!(
            schema(header),
            "the x-mcp-header of its parameter \"a\" is not valid"
        );
    }

    #[test]
    fn descriptions_hide_nothing_and_end() {
        let text = format!("ok\n\u{202e}{}", "A".repeat(50_000));
        let (_, mended) = sanitize_entry(
            CatalogEntryKind::Tool,
            json!({"name": "t", "description": text}),
        )
        .unwrap();
        let shown = mended["description"].as_str().unwrap();
        assert_eq!(shown.chars().count(), MAX_TEXT_CHARS);
        assert!(!shown.contains('\u{202e}'));
    }
}
