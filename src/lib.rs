//! maru, one hall for every model, client and tool: an MCP hub in one binary.
//!
//! Rooms, low to high; each may use only rooms named before it
//! (`tests/it/tidy.rs` checks this).

pub mod access;
pub mod agent;
pub mod api;
pub mod app;
pub mod audit;
pub mod cli;
pub mod clock;
pub mod config;
pub mod dialect;
pub mod downstream;
pub mod expression;
pub mod journal;
pub mod lanes;
pub mod llm;
pub mod mcp;
pub mod outbound;
pub mod queue;
pub mod retrieval;
pub mod source;
pub mod store;
pub mod tasks;
pub mod telemetry;
pub mod tool;
pub mod upstream;
