//! A server that a program registers.

use std::fmt;

use serde_json::{Value, json};

use crate::upstream::ServerDraft;

/// How a server is called and reached.
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
/// Everything is checked by [`Hub::register`](super::Hub::register), with the rules of
/// `mcp.security` and `outbound` in the settings.
#[derive(Clone)]
pub struct ServerRegistration {
    draft: ServerDraft,
}

impl ServerRegistration {
    /// A server that is a child process and speaks over its stdin and stdout. `command` is
    /// a program of the search path or an absolute path. No shell is involved.
    pub fn stdio(name: impl Into<String>, command: impl Into<String>) -> Self {
        let config = json!({"command": command.into()});
        Self::new(name.into(), "STDIO", config)
    }

    /// A server that speaks Streamable HTTP.
    pub fn http(name: impl Into<String>, url: impl Into<String>) -> Self {
        Self::new(name.into(), "HTTP", json!({"url": url.into()}))
    }

    /// A server that speaks HTTP+SSE, the transport of 2024-11-05.
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
                // A program that can call this can start anything by itself.
                accept_warnings: true,
                required_version: None,
                enabled: None,
            },
        }
    }

    /// Arguments of a stdio server.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let args: Vec<String> = args.into_iter().map(Into::into).collect();
        self.draft.config["args"] = args.into();
        self
    }

    /// A variable of a stdio server. It gets these and a few harmless ones of its parent
    /// such as `PATH` and `HOME`, nothing else.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.draft.config["env"][name] = value.into().into();
        self
    }

    /// The directory that a stdio server starts in.
    #[must_use]
    pub fn current_dir(mut self, path: impl Into<String>) -> Self {
        self.draft.config["cwd"] = path.into().into();
        self
    }

    /// A header for an HTTP or SSE server.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.draft.config["headers"][name] = value.into().into();
        self
    }

    /// A description for people.
    #[must_use]
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.draft.description = Some(text.into());
        self
    }

    /// Connects the server when it is registered and whenever a hub opens that kept it.
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
    /// Variables and headers hold secrets, so only the name and the transport are shown.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ServerRegistration")
            .field("name", &self.draft.name)
            .field("transport", &self.draft.kind)
            .finish_non_exhaustive()
    }
}
