//! Clients of 2026-07-28: each request says all about them.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Engine,
    dispatch::{Context, Owned},
};
use crate::{
    journal::label,
    mcp::{LogLevel, Params, RpcError, Version, code},
    queue,
    tool::{Caller, ClientConnection},
};

/// What a request says about its client.
#[derive(Debug)]
pub(super) struct Client {
    version: Version,
    capabilities: Arc<Value>,
    log_level: Option<LogLevel>,
    label: Option<Arc<str>>,
    connection: ClientConnection,
}

impl Client {
    pub(super) fn read(params: &Params<'_>) -> Result<Self, RpcError> {
        let meta = params.meta()?;
        let name = meta
            .version()
            .ok_or_else(|| RpcError::params("_meta must name the protocol version"))?;
        let version = Version::parse(&name).filter(|it| it.is_modern());
        let capabilities = meta
            .capabilities()
            .and_then(|raw| serde_json::from_str::<Value>(raw).ok());
        Ok(Self {
            version: version.ok_or_else(|| unsupported(&name))?,
            capabilities: Arc::new(capabilities.ok_or_else(|| {
                RpcError::params("_meta must have the client's capabilities, an object")
            })?),
            log_level: meta.log_level()?,
            label: meta.client_info().and_then(label),
            // Without a session nothing says which requests come from one client.
            connection: ClientConnection::unique(),
        })
    }

    /// The request came on `connection`, as others of the same client may have.
    pub(super) fn on(self, connection: ClientConnection) -> Self {
        Self { connection, ..self }
    }

    pub(super) async fn answer(
        &self,
        engine: &Engine,
        caller: &Caller,
        out: &queue::Sender,
        request: &Owned,
    ) -> Result<String, RpcError> {
        let context = Context {
            caller,
            version: self.version,
            capabilities: &self.capabilities,
            log_level: self.log_level,
            out,
            connection: self.connection,
            session: None,
            client: self.label.as_ref(),
        };
        engine.modern(&context, request).await
    }
}

/// We do not speak this version, or not without a handshake.
pub(super) fn unsupported(asked: &str) -> RpcError {
    let shown: String = asked.chars().take(40).collect();
    RpcError::new(code::UNSUPPORTED_VERSION, "unsupported protocol version").with(json!({
        "supported": Version::ALL.map(Version::as_str),
        "requested": shown,
    }))
}
