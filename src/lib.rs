//! maru, one hall for every model, client and tool: an MCP hub in one binary.
//!
//! Rooms, low to high; each may use only rooms named before it
//! (`tests/it/tidy.rs` checks this).

pub mod agent;
pub mod app;
pub mod audit;
pub mod auth;
pub mod cli;
pub mod clock;
pub mod config;
pub mod dialect;
pub mod downstream;
pub mod expression;
pub mod http;
pub mod journal;
pub mod llm;
pub mod mcp;
pub mod message_queue;
pub mod outbound;
pub mod retrieval;
pub mod source;
pub mod store;
pub mod tasks;
pub mod telemetry;
pub mod tools;
pub mod upstream;
pub mod workers;
