//! Errors about tools, prompts and resources that do not exist.

use maru_protocol::{RpcError, code};
use serde_json::json;

use super::view::EntryList;

/// No resource has this URI. Versions with a handshake have an error code for it.
pub fn resource_not_found(uri: &str) -> RpcError {
    let shown: String = uri.chars().take(200).collect();
    RpcError::new(code::RESOURCE_NOT_FOUND, "resource not found").with_data(json!({"uri": shown}))
}

/// No tool or prompt has this name; suggests the most similar one.
pub(super) fn entry_not_found(entries: &EntryList, what: &str, name: &str) -> RpcError {
    RpcError::invalid_params(unknown_name(what, name, entries.keys()))
}

/// Says that nothing has this name, and suggests the most similar known one.
pub fn unknown_name<'a>(what: &str, name: &str, known: impl Iterator<Item = &'a str>) -> String {
    let shown: String = name.chars().take(100).collect();
    let nearest = known
        .map(|key| (strsim::jaro_winkler(key, &shown), key))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|(likeness, _)| *likeness > 0.7);
    let shown = shown.escape_debug();
    match nearest {
        Some((_, nearest)) => format!("unknown {what}: {shown}; did you mean {nearest}?"),
        None => format!("unknown {what}: {shown}"),
    }
}
