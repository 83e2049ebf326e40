//! Who may do what: one table for every route; what it does not name is for
//! admins only.

use axum::http::Method;

use crate::access::Role;

/// Addresses that the console's page is at.
pub(super) const PAGES: [&str; 6] = [
    "servers", "tools", "play", "activity", "settings", "connect",
];
/// A header that only a script of our own page can send.
pub(super) const FROM_CONSOLE: &str = "x-maru-console";

/// Whether the cookie of a signed-in browser counts here.
pub(super) fn takes_cookie(path: &str) -> bool {
    let first = path.split('/').nth(1).unwrap_or_default();
    !matches!(first, "mcp" | "sse")
}

/// Whether a request may change anything.
pub(super) fn changes(method: &Method) -> bool {
    !matches!(*method, Method::GET | Method::HEAD)
}

/// The least role that a request needs; `None` if it needs nobody in particular.
pub(super) fn needed(method: &Method, path: &str) -> Option<Role> {
    let reads = matches!(*method, Method::GET | Method::HEAD);
    let first = path.split('/').nth(1).unwrap_or_default();
    match (first, path) {
        ("healthz", _) => None,
        // The page holds nothing; what it shows comes from the API.
        ("" | "assets", _) => None,
        (page, _) if PAGES.contains(&page) => None,
        // Who is asking is what this finds out.
        ("api", "/api/session") => None,
        ("mcp", "/mcp/add" | "/mcp/remove") => Some(Role::Admin),
        // Sessions: who may call and who may only list is told apart later.
        ("mcp" | "sse", _) => Some(Role::Reader),
        ("v1" | "generate" | "generate_with_mcp", _) => Some(Role::Agent),
        // Everyone has runs of their own.
        ("api", _) if path.starts_with("/api/runs/") => Some(Role::Agent),
        ("readyz", _) => Some(Role::Reader),
        ("api", "/api/config") => Some(Role::Admin),
        ("api", _) if is_private(path) => Some(Role::Admin),
        ("api", _) if path.starts_with("/api/tools/") && path.ends_with("/call") => {
            Some(Role::Agent)
        }
        ("api", _) if reads => Some(Role::Reader),
        ("api", _) => Some(Role::Admin),
        // Nothing is there, which everyone may know.
        _ => Some(Role::Reader),
    }
}

/// What a server said, and what went to and fro.
fn is_private(path: &str) -> bool {
    let of_server = path.starts_with("/api/mcp/servers/");
    of_server && (path.ends_with("/log") || path.ends_with("/messages"))
}
