//! Extensions of the protocol that servers declare, and what clients are told of them.

use serde_json::{Map, Value, json};

use super::{entry::CatalogEntry, view::CatalogView};

/// User interfaces of tools (MCP Apps).
pub const UI_EXTENSION: &str = "io.modelcontextprotocol/ui";
/// Skills, which are listed, described and read as resources.
pub const SKILLS_EXTENSION: &str = "io.modelcontextprotocol/skills";
/// Tasks do not pass the hub, which relays no deferred results.
pub const TASKS_EXTENSION: &str = "io.modelcontextprotocol/tasks";

const MAX_EXTENSIONS: usize = 50;
const MAX_ID_BYTES: usize = 200;
const MAX_SETTINGS_BYTES: usize = 8 << 10;

/// The extensions in the capabilities of a server that pass the hub, within bounds.
pub fn relayed_extensions(capabilities: &Value) -> Map<String, Value> {
    let declared = capabilities["extensions"].as_object().into_iter().flatten();
    let passing = declared.filter(|(id, settings)| {
        let is_bounded =
            id.len() <= MAX_ID_BYTES && settings.to_string().len() <= MAX_SETTINGS_BYTES;
        *id != TASKS_EXTENSION && settings.is_object() && is_bounded
    });
    let passing = passing.take(MAX_EXTENSIONS);
    passing
        .map(|(id, settings)| (id.clone(), settings.clone()))
        .collect()
}

/// The settings of user interfaces, for servers and clients alike.
pub fn ui_settings() -> Value {
    json!({"mimeTypes": ["text/html;profile=mcp-app"]})
}

/// What a client of `view` is told: the extensions of its servers. A tool with a user
/// interface is enough for that extension, because few servers declare it.
pub(super) fn extensions_of(view: &CatalogView) -> Map<String, Value> {
    let mut merged = Map::new();
    for server in view.servers.entries() {
        for (id, settings) in declared_extensions(server) {
            merge(merged.entry(id).or_insert(json!({})), settings);
        }
    }
    let has_interfaces = || {
        let mut tools = view.tools.entries().iter();
        tools.any(|it| it.ui_resource().is_some())
    };
    if !merged.contains_key(UI_EXTENSION) && has_interfaces() {
        merged.insert(UI_EXTENSION.to_owned(), ui_settings());
    }
    merged
}

/// The extensions of an entry of a server.
pub(super) fn declared_extensions(server: &CatalogEntry) -> Map<String, Value> {
    match server.listing()["extensions"].take() {
        Value::Object(extensions) => extensions,
        _ => Map::new(),
    }
}

/// Whether an extension has no methods that the hub knows.
pub(super) fn is_unknown(id: &str) -> bool {
    ![UI_EXTENSION, SKILLS_EXTENSION, TASKS_EXTENSION].contains(&id)
}

/// Adds the settings of another server: what one of them can do, the hub can. Of values that
/// contradict each other the first stays.
fn merge(known: &mut Value, other: Value) {
    match (known, other) {
        (Value::Object(known), Value::Object(other)) => {
            for (name, value) in other {
                match known.get_mut(&name) {
                    Some(first) => merge(first, value),
                    None => {
                        known.insert(name, value);
                    }
                }
            }
        }
        (Value::Array(known), Value::Array(other)) => {
            for value in other {
                if !known.contains(&value) {
                    known.push(value);
                }
            }
        }
        (Value::Bool(known), Value::Bool(other)) => *known |= other,
        _ => (),
    }
}

/// Whether clients may send this method to an extension: none of the protocol's
/// own, and nothing that must be escaped in JSON or in a header.
pub(super) fn is_extension_method(method: &str) -> bool {
    const OWN_PREFIXES: [&str; 12] = [
        "tools/",
        "prompts/",
        "resources/",
        "completion/",
        "logging/",
        "roots/",
        "sampling/",
        "elicitation/",
        "notifications/",
        "server/",
        "subscriptions/",
        "tasks/",
    ];
    let is_own = OWN_PREFIXES.iter().any(|it| method.starts_with(it));
    let is_plain = |it: u8| it.is_ascii_alphanumeric() || b"/_-.:$".contains(&it);
    (!is_own || method == "resources/directory/read")
        && (1..=MAX_ID_BYTES).contains(&method.len())
        && method.contains('/')
        && method.bytes().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_two_servers_are_united() {
        let mut known = json!({"mimeTypes": ["a"], "directoryRead": false, "level": 1});
        let other = json!({"mimeTypes": ["a", "b"], "directoryRead": true, "level": 2, "x": {}});
        merge(&mut known, other);
        let expected = json!({"mimeTypes": ["a", "b"], "directoryRead": true, "level": 1, "x": {}});
        assert_eq!(known, expected);
    }

    #[test]
    fn declared_extensions_are_bounded_and_without_tasks() {
        let long = "x".repeat(MAX_SETTINGS_BYTES);
        let declared = json!({"extensions": {
            "com.example/a": {"x": 1},
            TASKS_EXTENSION: {},
            "com.example/large": {"x": long},
            "com.example/odd": true,
        }});
        let expected = json!({"com.example/a": {"x": 1}});
        assert_eq!(Value::Object(relayed_extensions(&declared)), expected);
        assert!(relayed_extensions(&json!({"extensions": 5})).is_empty());
    }

    #[test]
    fn methods_of_the_protocol_are_no_methods_of_extensions() {
        for method in ["skills/list", "resources/directory/read", "com.example/do"] {
            assert!(is_extension_method(method), "{method}");
        }
        for method in [
            "tools/call",
            "resources/read",
            "tasks/get",
            "ping",
            "a/\"",
            "x/가",
            "",
        ] {
            assert!(!is_extension_method(method), "{method}");
        }
    }
}
