//! A hub for the Model Context Protocol: MCP servers, databases and language models
//! behind one address.
//!
//! To embed a hub in your own program, start at [`Hub`]. The binary starts in [`cli`] and
//! builds everything in [`app`].
//!
//! Parts that do not depend on the hub are separate crates under `crates/`;
//! `ARCHITECTURE.md` gives an overview.

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
