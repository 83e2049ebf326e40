//! Servers, tools and results as an embedded hub reports them.

use serde_json::Value;

use crate::{
    tools::{CatalogEntry, EntryResult},
    upstream::{ServerState, ServerView},
};

/// A registered server and the state of its connection.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ServerInfo {
    /// The unique name.
    pub name: String,
    /// A description for people.
    pub description: Option<String>,
    /// `STDIO`, `SSE` or `HTTP`.
    pub transport: &'static str,
    /// Whether the hub connects it when it opens.
    pub auto_connect: bool,
    /// The state of the connection.
    pub state: ServerState,
    /// Why it is not connected, with the secrets of its registration masked.
    pub cause: Option<String>,
    /// The number of tools that it lists.
    pub tool_count: usize,
}

impl ServerInfo {
    /// Whether its tools can be called now.
    pub fn is_connected(&self) -> bool {
        self.state == ServerState::Connected
    }
}

impl From<ServerView> for ServerInfo {
    fn from(ServerView { server, status, .. }: ServerView) -> Self {
        let cause = status.cause.as_deref();
        Self {
            cause: cause.map(|it| server.transport.redact(it)),
            name: server.name.as_str().to_owned(),
            description: server.description,
            transport: server.transport.kind(),
            auto_connect: server.auto_connect,
            state: status.state,
            tool_count: status.tools.len(),
        }
    }
}

/// A tool that can be called.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ToolInfo {
    /// The name that [`Hub::call`](super::Hub::call) takes: `server__tool`.
    pub name: String,
    /// The server that it belongs to; `maru` for the hub's own tools.
    pub server: String,
    /// Its name on that server.
    pub server_tool_name: String,
    /// A description for models.
    pub description: Option<String>,
    /// The JSON Schema of its arguments.
    pub input_schema: Value,
}

impl From<&CatalogEntry> for ToolInfo {
    fn from(entry: &CatalogEntry) -> Self {
        let mut listing = entry.listing();
        Self {
            name: entry.public_name().to_owned(),
            server: entry.server().to_string(),
            server_tool_name: entry.key().to_owned(),
            description: listing["description"].as_str().map(str::to_owned),
            input_schema: listing["inputSchema"].take(),
        }
    }
}

/// The result of a tool call.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolOutput {
    result: Value,
    text: String,
    is_error: bool,
}

impl From<&EntryResult> for ToolOutput {
    fn from(result: &EntryResult) -> Self {
        Self {
            result: serde_json::from_str(result.as_json()).unwrap_or_default(),
            text: result.to_text(),
            is_error: result.is_error(),
        }
    }
}

impl ToolOutput {
    /// Whether the tool reports a failure; the text then contains the reason.
    pub fn is_error(&self) -> bool {
        self.is_error
    }

    /// Returns the content as text. An image or a resource is a placeholder such as
    /// `[Image: image/png]`.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the parts of the content, each an object with a `type`.
    pub fn content(&self) -> &[Value] {
        self.result["content"].as_array().map_or(&[], Vec::as_slice)
    }

    /// Returns the structured content, if there is any.
    pub fn structured_content(&self) -> Option<&Value> {
        self.result.get("structuredContent")
    }

    /// Returns the whole `tools/call` result as JSON.
    pub fn as_json(&self) -> &Value {
        &self.result
    }
}
