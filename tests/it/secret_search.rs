//! Looks for secrets in all that a hub shows and writes.

use std::{fs, path::Path};

/// What an admin reads of a hub.
pub(crate) const READ_PATHS: [&str; 19] = [
    "/api/mcp/servers",
    "/api/mcp/servers/remote",
    "/api/mcp/servers/remote/log",
    "/api/mcp/servers/remote/messages",
    "/api/config",
    "/api/audit?limit=200",
    "/api/calls",
    "/api/export",
    "/api/tokens",
    "/api/tools",
    "/api/accounts",
    "/api/oauth/grants",
    "/api/oauth/clients",
    "/mcp/list",
    "/metrics",
    "/readyz",
    "/oauth/client.json",
    "/.well-known/oauth-authorization-server",
    "/.well-known/oauth-protected-resource",
];

/// Texts that may be nowhere.
pub(crate) struct SecretSearch(Vec<String>);

impl SecretSearch {
    pub(crate) fn new<T: Into<String>>(secrets: impl IntoIterator<Item = T>) -> Self {
        let secrets: Vec<String> = secrets.into_iter().map(Into::into).collect();
        assert!(
            secrets.iter().all(|it| it.len() >= 8),
            "too short to look for"
        );
        Self(secrets)
    }

    pub(crate) fn assert_absent(&self, place: &str, shown: impl AsRef<[u8]>) {
        let shown = shown.as_ref();
        for secret in &self.0 {
            let mut parts = shown.windows(secret.len());
            let found = parts.any(|it| it == secret.as_bytes());
            assert!(!found, "{place} holds {secret}");
        }
    }

    pub(crate) fn assert_absent_in_files(&self, directory: &Path) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                self.assert_absent_in_files(&path);
            } else if path.is_file() {
                self.assert_absent(&path.display().to_string(), fs::read(&path).unwrap());
            }
        }
    }

    /// Looks in what the system shows of a process to the programs of its user.
    pub(crate) fn assert_absent_in_process(&self, id: u32) {
        for name in ["cmdline", "environ"] {
            let path = format!("/proc/{id}/{name}");
            let shown = fs::read(&path).unwrap();
            assert!(!shown.is_empty(), "{path}");
            self.assert_absent(&path, shown);
        }
    }
}
