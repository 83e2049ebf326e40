//! Settings: file, environment, `.env` and flags, as one checked value.
//!
//! The types in [`values`] are the one description of every key. Their JSON
//! Schema checks what was given, names what is wrong with it, and writes
//! `docs/config.md`.

mod agent;
mod data;
mod file;
mod guard;
mod layers;
mod mask;
mod models;
mod prefix;
mod programs;
mod reference;
mod schema;
mod secret;
mod values;

pub use agent::Agent;
pub use data::{ChromaDb, Embedding, PostgreSql, SourceDefinition};
pub use guard::{Audit, OAuth, Telemetry, Tls};
pub use layers::{Error, Given, Loaded, Origin, environment, load};
pub use mask::{MASK, hidden_of_arguments, masked, masked_arguments};
pub use models::{Backend, Chat, ClientMode, ModelDefinition, ToolMode};
pub use programs::ProgramSettings;
pub use reference::{Row, markdown, rows};
pub use schema::schema;
pub use secret::Secret;
pub use values::{
    Config, Http, Limits, Log, LogFormat, LogLevel, Mcp, McpSecurity, McpServer, Outbound,
    Reconnection,
};
