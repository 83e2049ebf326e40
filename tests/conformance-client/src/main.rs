//! Connects to the server whose address is the last argument, the way the hub
//! connects to every server, and tries everything that it offers.
//!
//! `MCP_CONFORMANCE_CONTEXT` may name the calls to make instead, and
//! `MCP_CONFORMANCE_PROTOCOL_VERSION` the version that is spoken.

mod answers;
mod hub;
mod plan;
mod sign_in;

use std::env;

use anyhow::{Context as _, Result};

use serde_json::Value;

use hub::Hub;
use maru_protocol::ProtocolVersion;

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::args().nth(1).context("usage: PROGRAM URL")?;
    let version = env::var("MCP_CONFORMANCE_PROTOCOL_VERSION").unwrap_or_default();
    let context = match env::var("MCP_CONFORMANCE_CONTEXT") {
        Ok(text) => serde_json::from_str(&text).context("the context is not JSON")?,
        Err(_) => Value::Null,
    };
    let version =
        ProtocolVersion::parse(&version).unwrap_or(ProtocolVersion::LATEST_WITH_HANDSHAKE);
    let hub = Hub::connect(&url, version, &context).await?;
    let done = hub.try_all(&context).await;
    hub.close().await;
    done
}
