//! How maru describes itself, and the members that versions add to results.

use maru_protocol::{ProtocolVersion, key, object_members};
use serde_json::{Map, Value, json};

use maru_tools::{Caller, Catalog, EntryResult, StructuredContent};

/// How long a client may cache a listing.
const LIST_TTL_MS: u64 = 5_000;

pub(super) fn server_info() -> Value {
    json!({
        "name": "maru",
        "title": "maru 마루",
        "version": env!("CARGO_PKG_VERSION"),
    })
}

fn capabilities(hub_id: &str, extensions: &Map<String, Value>) -> Value {
    json!({
        // Lets other hubs detect that they connect to themselves or in a circle.
        "experimental": {key::HUB_ID: {"id": hub_id}},
        "tools": {"listChanged": true},
        "resources": {"listChanged": true, "subscribe": true},
        "prompts": {"listChanged": true},
        "completions": {},
        "logging": {},
        "extensions": extensions,
    })
}

/// The result of `initialize`.
pub(super) fn initialize_result(
    version: ProtocolVersion,
    catalog: &Catalog,
    caller: &Caller,
) -> String {
    let snapshot = catalog.snapshot();
    json!({
        "protocolVersion": version.as_str(),
        "capabilities": capabilities(catalog.hub_id(), &snapshot.extensions_for(caller)),
        "serverInfo": server_info(),
        "instructions": snapshot.instructions_for(caller),
    })
    .to_string()
}

/// The result of `server/discover`, without the members that [`with_modern_members`] adds.
pub(super) fn discover_result(catalog: &Catalog, caller: &Caller) -> String {
    let snapshot = catalog.snapshot();
    json!({
        "supportedVersions": ProtocolVersion::ALL.map(ProtocolVersion::as_str),
        "capabilities": capabilities(catalog.hub_id(), &snapshot.extensions_for(caller)),
        "instructions": snapshot.instructions_for(caller),
    })
    .to_string()
}

/// Adds the members that 2026-07-28 requires to a complete result of `method`.
pub(super) fn with_modern_members(method: &str, result: &str) -> String {
    let mut text = String::with_capacity(result.len() + 200);
    text.push_str("{\"resultType\":\"complete\"");
    if is_cacheable(method) && !has_ttl(method, result) {
        // Listings depend on the caller's grants.
        text.push_str(&format!(
            ",\"ttlMs\":{LIST_TTL_MS},\"cacheScope\":\"private\""
        ));
    }
    if is_hub_result(method) {
        text.push_str(&format!(
            ",\"_meta\":{{\"{}\":{}}}",
            key::SERVER_INFO,
            server_info()
        ));
    }
    match result.trim_start().strip_prefix('{') {
        Some("}") | None => text.push('}'),
        Some(members) => {
            text.push(',');
            text.push_str(members);
        }
    }
    text
}

/// The result for a client of a version with a handshake: structured content is an
/// object there, and unknown before 2025-06-18.
pub(super) fn legacy_result(version: ProtocolVersion, result: EntryResult) -> String {
    let is_known = match result.structure() {
        StructuredContent::Absent => true,
        StructuredContent::Object => version.has_structured_output(),
        StructuredContent::Other => false,
    };
    if is_known {
        result.into_json()
    } else {
        result.without_structure().into_json()
    }
}

/// Whether the result of another server has its own `ttlMs`.
fn has_ttl(method: &str, result: &str) -> bool {
    !is_hub_result(method)
        && object_members(result).is_some_and(|mut all| all.any(|(name, _)| name == "ttlMs"))
}

fn is_cacheable(method: &str) -> bool {
    let of_servers = ["resources/read", "resources/directory/read", "skills/get"];
    is_hub_result(method) || of_servers.contains(&method)
}

/// Whether maru itself builds the result; results of other servers keep their `_meta`.
fn is_hub_result(method: &str) -> bool {
    const HUB_METHODS: [&str; 6] = [
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "skills/list",
    ];
    HUB_METHODS.contains(&method)
}
