//! maru, a hub for the Model Context Protocol in one binary: it puts MCP servers,
//! databases and language models behind one address.
//!
//! Programs that want a hub inside themselves start at [`Hub`].
//!
//! The parts that know nothing of the hub are crates of their own under `crates/`;
//! `ARCHITECTURE.md` says what is where.

#![forbid(unsafe_code)]

pub mod agent;
pub mod app;
pub mod auth;
pub mod cli;
pub mod config;
pub mod downstream;
pub mod http;
pub mod hub;
pub mod llm;
pub mod observability;
pub mod tools;
pub mod upstream;

pub use hub::{Hub, HubOptions, ServerInfo, ServerRegistration, ToolInfo, ToolOutput};
