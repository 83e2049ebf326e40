//! Clients of 2026-07-28, which describe themselves in every request.

use std::sync::Arc;

use maru_protocol::{LoggingLevel, ProtocolVersion, RequestParams, RpcError, code};
use maru_runtime::message_queue;
use serde_json::{Value, json};

use super::{McpEngine, dispatch::DispatchContext, owned_request::OwnedRequest};
use maru_observability::journal::client_label;
use maru_tools::{Caller, ClientConnection};

/// The client, as its request describes it.
#[derive(Debug)]
pub(super) struct ModernClient {
    version: ProtocolVersion,
    capabilities: Arc<Value>,
    log_level: Option<LoggingLevel>,
    label: Option<Arc<str>>,
    connection: ClientConnection,
}

impl ModernClient {
    pub(super) fn read(params: &RequestParams<'_>) -> Result<Self, RpcError> {
        let meta = params.meta()?;
        let name = meta
            .version()
            .ok_or_else(|| RpcError::invalid_params("_meta must name the protocol version"))?;
        let version = ProtocolVersion::parse(&name).filter(|it| it.is_modern());
        let capabilities = meta
            .capabilities()
            .and_then(|raw| serde_json::from_str::<Value>(raw).ok());
        Ok(Self {
            version: version.ok_or_else(|| unsupported_version(&name))?,
            capabilities: Arc::new(capabilities.ok_or_else(|| {
                RpcError::invalid_params("_meta must have the client's capabilities, an object")
            })?),
            log_level: meta.log_level()?,
            label: meta.client_info().and_then(client_label),
            // Without a session the hub cannot tell which requests come from one client.
            connection: ClientConnection::unique(),
        })
    }

    /// Sets the connection that the request came on.
    pub(super) fn with_connection(self, connection: ClientConnection) -> Self {
        Self { connection, ..self }
    }

    pub(super) async fn answer(
        &self,
        engine: &McpEngine,
        caller: &Caller,
        out: &message_queue::MessageSender,
        request: &OwnedRequest,
    ) -> Result<String, RpcError> {
        let context = DispatchContext {
            caller,
            version: self.version,
            capabilities: &self.capabilities,
            log_level: self.log_level,
            out,
            connection: self.connection,
            session: None,
            client: self.label.as_ref(),
        };
        engine.handle_modern(&context, request).await
    }
}

/// maru does not support this version, or not without a handshake.
pub(super) fn unsupported_version(requested: &str) -> RpcError {
    let shown: String = requested.chars().take(40).collect();
    RpcError::new(code::UNSUPPORTED_VERSION, "unsupported protocol version").with_data(json!({
        "supported": ProtocolVersion::ALL.map(ProtocolVersion::as_str),
        "requested": shown,
    }))
}
