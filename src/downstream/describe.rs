//! What maru says about itself.

use maru_protocol::{ProtocolVersion, key, object_members};
use serde_json::{Value, json};

use crate::tools::{EntryResult, StructuredContent};

/// How long a listing may be kept before it is asked for again.
const LIST_TTL_MS: u64 = 5_000;

const INSTRUCTIONS: &str = "maru joins the tools of many servers. Call a tool by the name it is listed under; \
     results are JSON in structuredContent and the same as text.";

pub(super) fn server_info() -> Value {
    json!({
        "name": "maru",
        "title": "maru 마루",
        "version": env!("CARGO_PKG_VERSION"),
    })
}

fn capabilities(hub_id: &str) -> Value {
    json!({
        // Other hubs see by it that they ask themselves, or ask in a circle.
        "experimental": {key::HUB_ID: {"id": hub_id}},
        "tools": {"listChanged": true},
        "resources": {"listChanged": true, "subscribe": true},
        "prompts": {"listChanged": true},
        "completions": {},
        "logging": {},
    })
}

/// The answer to `initialize`.
pub(super) fn initialize_result(version: ProtocolVersion, hub_id: &str) -> String {
    json!({
        "protocolVersion": version.as_str(),
        "capabilities": capabilities(hub_id),
        "serverInfo": server_info(),
        "instructions": INSTRUCTIONS,
    })
    .to_string()
}

/// The answer to `server/discover`, before [`stamp`].
pub(super) fn discover_result(hub_id: &str) -> String {
    json!({
        "supportedVersions": ProtocolVersion::ALL.map(ProtocolVersion::as_str),
        "capabilities": capabilities(hub_id),
        "instructions": INSTRUCTIONS,
    })
    .to_string()
}

/// Adds what 2026-07-28 wants on a complete result of `method`.
pub(super) fn with_modern_members(method: &str, result: &str) -> String {
    let mut text = String::with_capacity(result.len() + 200);
    text.push_str("{\"resultType\":\"complete\"");
    if is_cacheable(method) && !has_ttl(method, result) {
        // What is listed depends on who asks.
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

/// Whether the server that answered said itself how long its answer holds.
fn has_ttl(method: &str, result: &str) -> bool {
    !is_hub_result(method)
        && object_members(result).is_some_and(|mut all| all.any(|(name, _)| name == "ttlMs"))
}

fn is_cacheable(method: &str) -> bool {
    is_hub_result(method) || method == "resources/read"
}

/// Results that maru itself makes; those of others keep their own `_meta`.
fn is_hub_result(method: &str) -> bool {
    method == "server/discover" || method.ends_with("/list")
}
