//! Puts the server's name into the addresses of its user interfaces and skills, in what it
//! lists and in what it answers. The rest keeps its spelling.

use maru_protocol::{RawJson, collect_members, parse_json_string, push_json_string};
use serde_json::{Value, value::RawValue};

use maru_tools::{CatalogEntryKind, EntryResponse, server_uri::public_uri};

/// The members of a tool's `_meta` that name its user interface.
const META_POINTERS: [&str; 2] = ["/_meta/ui/resourceUri", "/_meta/ui~1resourceUri"];

/// The members of results that hold resources, or links to them, with a `uri`.
const RESOURCE_MEMBERS: [&str; 7] = [
    "content",
    "contents",
    "messages",
    "resource",
    "resources",
    "skill",
    "skills",
];
/// An embedded resource of a message of a prompt is the deepest.
const MAX_RESOURCE_DEPTH: usize = 8;

/// Makes the addresses in an entry unique. The rest of its `_meta` stays as it is.
pub(super) fn qualify_entry(
    server: &str,
    kind: CatalogEntryKind,
    key: String,
    entry: &mut Value,
) -> String {
    match kind {
        CatalogEntryKind::Tool => {
            for pointer in META_POINTERS {
                if let Some(Value::String(uri)) = entry.pointer_mut(pointer) {
                    *uri = public_uri(server, uri).into_owned();
                }
            }
            key
        }
        CatalogEntryKind::Resource | CatalogEntryKind::ResourceTemplate => {
            public_uri(server, &key).into_owned()
        }
        CatalogEntryKind::Prompt | CatalogEntryKind::Server => key,
    }
}

/// Makes the addresses in a response unique.
pub(super) fn qualify_response(server: &str, response: EntryResponse) -> EntryResponse {
    match response {
        EntryResponse::Complete(result) if may_have_addresses(result.as_json()) => {
            EntryResponse::Complete(result.map_json(|it| qualify_json(server, it)))
        }
        response => response,
    }
}

/// Most results have none, and are not read again.
fn may_have_addresses(json: &str) -> bool {
    json.contains("\"ui:") || json.contains("\"skill:")
}

fn qualify_json(server: &str, json: RawJson<'_>) -> String {
    let mut out = String::with_capacity(json.len() + 256);
    push_qualified(server, json.trim_ascii(), MAX_RESOURCE_DEPTH, &mut out);
    out
}

fn push_qualified(server: &str, raw: RawJson<'_>, depth: usize, out: &mut String) {
    let Some(depth) = depth.checked_sub(1) else {
        return out.push_str(raw);
    };
    if let Some(members) = collect_members(raw) {
        out.push('{');
        for (at, member) in members.iter().enumerate() {
            out.push_str(if at == 0 { "" } else { "," });
            push_json_string(out, &member.name);
            out.push(':');
            match parse_json_string(member.value).filter(|_| member.name == "uri") {
                Some(uri) => push_json_string(out, &public_uri(server, &uri)),
                None if RESOURCE_MEMBERS.contains(&&*member.name) => {
                    push_qualified(server, member.value, depth, out);
                }
                None => out.push_str(member.value),
            }
        }
        out.push('}');
    } else if let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(raw) {
        out.push('[');
        for (at, item) in items.iter().enumerate() {
            out.push_str(if at == 0 { "" } else { "," });
            push_qualified(server, item.get(), depth, out);
        }
        out.push(']');
    } else {
        out.push_str(raw);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_the_address_of_a_tool_changes() {
        let mut tool = json!({"_meta": {
            "ui": {"resourceUri": "ui://c/f", "visibility": ["app"], "csp": {"connectDomains": []}},
            "ui/resourceUri": "ui://c/f",
            "other": "ui://c/f",
        }});
        let key = qualify_entry("fx", CatalogEntryKind::Tool, "t".to_owned(), &mut tool);
        assert_eq!(key, "t");
        assert_eq!(
            tool,
            json!({"_meta": {
                "ui": {"resourceUri": "ui://fx/c/f", "visibility": ["app"], "csp": {"connectDomains": []}},
                "ui/resourceUri": "ui://fx/c/f",
                "other": "ui://c/f",
            }})
        );
    }

    #[test]
    fn addresses_in_results_change_and_every_digit_stays() {
        let check = |result: &str, expected: &str| assert_eq!(qualify_json("fx", result), expected);
        check(
            r#"{"content":[{"type":"resource_link","uri":"ui:\/\/c/f"}],"structuredContent":{"uri":"ui://c/f","n":1.50}}"#,
            r#"{"content":[{"type":"resource_link","uri":"ui://fx/c/f"}],"structuredContent":{"uri":"ui://c/f","n":1.50}}"#,
        );
        check(
            r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"skill://a/SKILL.md","text":"ui://x"}}}]}"#,
            r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"skill://fx/a/SKILL.md","text":"ui://x"}}}]}"#,
        );
        check(
            r#"{"contents":[{"uri":"ui://c","_meta":{"size":10000000000000000000000.10}},{"uri":"file:///ui://c"}]}"#,
            r#"{"contents":[{"uri":"ui://fx/c","_meta":{"size":10000000000000000000000.10}},{"uri":"file:///ui://c"}]}"#,
        );
        check(
            r#"{"skills":[{"uri":"skill://a/SKILL.md","frontmatter":{"uri":"skill://a"},"resources":[{"uri":"skill://a/SKILL.md","size":1}]}]}"#,
            r#"{"skills":[{"uri":"skill://fx/a/SKILL.md","frontmatter":{"uri":"skill://a"},"resources":[{"uri":"skill://fx/a/SKILL.md","size":1}]}]}"#,
        );
        let deep = format!("{}0{}", r#"{"content":["#.repeat(60), "]}".repeat(60));
        check(&deep, &deep);
    }
}
