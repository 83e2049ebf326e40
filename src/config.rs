//! Settings: file, environment, `.env` and flags, as one checked value.
//!
//! The types in [`values`] are the one description of every key. Their JSON
//! Schema checks what was given, names what is wrong with it, and writes
//! `docs/config.md`.

mod agent;
mod file;
mod layers;
mod models;
mod reference;
mod schema;
mod secret;
mod values;

pub use agent::Agent;
pub use layers::{Error, Given, Loaded, Origin, environment, load};
pub use models::{Backend, Chat, ClientMode, ModelDefinition, ToolMode};
pub use reference::{Row, markdown, rows};
pub use schema::schema;
pub use secret::Secret;
pub use values::{
    ChromaDb, Config, Embedding, Http, Limits, Log, LogFormat, LogLevel, Mcp, McpSecurity,
    McpServer, Outbound, PostgreSql, Reconnection, SourceDefinition,
};
