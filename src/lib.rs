//! maru, one hall for every model, client and tool: an MCP hub in one binary.
//!
//! Rooms, low to high; each may use only rooms named before it
//! (`tests/it/tidy.rs` checks this).

pub mod tasks;
pub mod queue;
pub mod config;
pub mod mcp;
