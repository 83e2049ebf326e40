//! Who may do what: one table for every route; what it does not name is for
//! admins only.

use axum::http::Method;

use crate::access::Role;

/// The least role that a request needs; `None` if it needs nobody in particular.
pub(super) fn needed(method: &Method, path: &str) -> Option<Role> {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    let first = path.split('/').nth(1).unwrap_or_default();
    match (first, path) {
        ("healthz", _) => None,
        ("mcp", "/mcp/add" | "/mcp/remove") => Some(Role::Admin),
        // Sessions: who may call and who may only list is told apart later.
        ("mcp" | "sse", _) => Some(Role::Reader),
        ("v1" | "generate" | "generate_with_mcp", _) => Some(Role::Agent),
        // Everyone has runs of their own.
        ("api", _) if path.starts_with("/api/runs/") => Some(Role::Agent),
        ("readyz", _) => Some(Role::Reader),
        ("api", _) if reads => Some(Role::Reader),
        ("api", _) => Some(Role::Admin),
        // Nothing is there, which everyone may know.
        _ => Some(Role::Reader),
    }
}
