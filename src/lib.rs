//! A hub for the Model Context Protocol: MCP servers, databases and language models
//! behind one address.
//!
//! To embed a hub in your own program, start at [`Hub`]. The binary starts in [`cli`] and
//! builds everything in [`app`].
//!
//! Parts that do not depend on the hub are separate crates under `crates/`;
//! `ARCHITECTURE.md` gives an overview.

#![forbid(unsafe_code)]

pub use maru_agent as agent;
pub mod app;
pub use maru_auth as auth;
pub mod cli;
pub use maru_config as config;
pub use maru_downstream as downstream;
pub use maru_http_server as http;
pub mod hub;
pub use maru_llm as llm;
pub use maru_observability as observability;
pub use maru_tools as tools;
pub use maru_upstream as upstream;

pub use hub::{Hub, HubOptions, ServerInfo, ServerRegistration, ToolInfo, ToolOutput};
