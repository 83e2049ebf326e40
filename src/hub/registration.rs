//! The registration of a server by an embedding program.

use std::fmt;

use serde_json::{Value, json};

use crate::upstream::ServerDraft;

/// The name, transport and settings of a server.
///
/// ```no_run
/// use maru::ServerRegistration;
///
/// let files = ServerRegistration::stdio("files", "npx")
///     .args(["-y", "@modelcontextprotocol/server-filesystem", "/data"])
///     .env("LOG_LEVEL", "warn");
/// let search = ServerRegistration::http("search", "http://127.0.0.1:8081/mcp")
///     .header("Authorization", "Bearer secret")
///     .auto_connect();
/// ```
///
/// [`Hub::register`](super::Hub::register) validates everything by the rules of
/// `mcp.security` and `outbound` in the settings.
#[derive(Clone)]
pub struct ServerRegistration {
    draft: ServerDraft,
}

impl ServerRegistration {
    /// Creates a server that is a child process and communicates over stdin and stdout.
    /// `command` is a program in `PATH` or an absolute path; no shell is involved.
    pub fn stdio(name: impl Into<String>, command: impl Into<String>) -> Self {
        let config = json!({"command": command.into()});
        Self::new(name.into(), "STDIO", config)
    }

    /// Creates a Streamable HTTP server.
    pub fn http(name: impl Into<String>, url: impl Into<String>) -> Self {
        Self::new(name.into(), "HTTP", json!({"url": url.into()}))
    }

    /// Creates an HTTP+SSE server (2024-11-05).
    pub fn sse(name: impl Into<String>, url: impl Into<String>) -> Self {
        Self::new(name.into(), "SSE", json!({"url": url.into()}))
    }

    fn new(name: String, kind: &str, config: Value) -> Self {
        Self {
            draft: ServerDraft {
                name,
                description: None,
                kind: kind.to_owned(),
                config,
                version: None,
                auto_connect: false,
                trust: None,
                // A program that calls this can start any process itself.
                accept_warnings: true,
                required_version: None,
                enabled: None,
            },
        }
    }

    /// Sets the arguments of a stdio server.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let args: Vec<String> = args.into_iter().map(Into::into).collect();
        self.draft.config["args"] = args.into();
        self
    }

    /// Sets an environment variable of a stdio server. It inherits only a few harmless
    /// variables such as `PATH` and `HOME`.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.draft.config["env"][name] = value.into().into();
        self
    }

    /// Sets the working directory of a stdio server.
    #[must_use]
    pub fn current_dir(mut self, path: impl Into<String>) -> Self {
        self.draft.config["cwd"] = path.into().into();
        self
    }

    /// Sets a header of an HTTP or SSE server.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.draft.config["headers"][name] = value.into().into();
        self
    }

    /// Sets a description for people.
    #[must_use]
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.draft.description = Some(text.into());
        self
    }

    /// Connects the server when it is registered and whenever the hub opens.
    #[must_use]
    pub fn auto_connect(mut self) -> Self {
        self.draft.auto_connect = true;
        self
    }

    pub(super) fn draft(&self) -> &ServerDraft {
        &self.draft
    }
}

impl fmt::Debug for ServerRegistration {
    /// Shows only name and transport, because variables and headers may contain secrets.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ServerRegistration")
            .field("name", &self.draft.name)
            .field("transport", &self.draft.kind)
            .finish_non_exhaustive()
    }
}
