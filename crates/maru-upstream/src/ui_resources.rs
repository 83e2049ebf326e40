//! Addresses of user interfaces (MCP Apps). Servers choose `ui://` addresses without knowing
//! of each other, so the hub puts the server's name into them: `ui://clock/face.html` of the
//! server `office` is `ui://office/clock/face.html`.

use std::borrow::Cow;

use serde_json::Value;

use maru_tools::{CatalogEntryKind, EntryResponse, EntryResult};

const SCHEME: &str = "ui://";

/// The members of a tool's `_meta` that name its user interface.
const META_POINTERS: [&str; 2] = ["/_meta/ui/resourceUri", "/_meta/ui~1resourceUri"];

/// The address under which clients know `uri` of `server`.
pub(super) fn public_uri<'a>(server: &str, uri: &'a str) -> Cow<'a, str> {
    match uri.strip_prefix(SCHEME) {
        Some(rest) => Cow::Owned(format!("{SCHEME}{server}/{rest}")),
        None => Cow::Borrowed(uri),
    }
}

/// The address by which `server` knows what clients know as `uri`.
pub(super) fn original_uri<'a>(server: &str, uri: &'a str) -> Cow<'a, str> {
    let rest = uri
        .strip_prefix(SCHEME)
        .and_then(|it| it.strip_prefix(server))
        .and_then(|it| it.strip_prefix('/'));
    match rest {
        Some(rest) => Cow::Owned(format!("{SCHEME}{rest}")),
        None => Cow::Borrowed(uri),
    }
}

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
        CatalogEntryKind::Prompt => key,
    }
}

/// Makes the addresses in the contents of a resource unique.
pub(super) fn qualify_contents(server: &str, response: EntryResponse) -> EntryResponse {
    let EntryResponse::Complete(result) = response else {
        return response;
    };
    let Ok(mut value) = serde_json::from_str::<Value>(result.as_json()) else {
        return EntryResponse::Complete(result);
    };
    let contents = value["contents"].as_array_mut().into_iter().flatten();
    for content in contents {
        if let Some(Value::String(uri)) = content.get_mut("uri") {
            *uri = public_uri(server, uri).into_owned();
        }
    }
    EntryResponse::Complete(EntryResult::parse(value.to_string()))
}

/// Whether `uri` is the address of a user interface.
pub(super) fn is_ui(uri: &str) -> bool {
    uri.starts_with(SCHEME)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_of_two_servers_differ_and_lead_back() {
        for uri in ["ui://clock/face.html", "ui://x", "ui://", "file:///ui://x"] {
            let (one, other) = (public_uri("a", uri), public_uri("b", uri));
            assert_eq!(one == other, !is_ui(uri));
            assert_eq!(original_uri("a", &one), uri);
            assert_eq!(original_uri("b", &other), uri);
        }
        assert_eq!(original_uri("a", "ui://ab/x"), "ui://ab/x");
    }

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
}
