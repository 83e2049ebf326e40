//! JSON-RPC errors and the error codes of MCP.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Value, json};

/// JSON-RPC error codes.
pub mod code {
    /// The text is not JSON.
    pub const PARSE_ERROR: i64 = -32700;
    /// The JSON is not a JSON-RPC message.
    pub const INVALID_REQUEST: i64 = -32600;
    /// The method does not exist.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The parameters are invalid.
    pub const INVALID_PARAMS: i64 = -32602;
    /// The server failed.
    pub const INTERNAL_ERROR: i64 = -32603;
    /// The resource does not exist (until 2025-11-25).
    pub const RESOURCE_NOT_FOUND: i64 = -32002;
    /// The caller lacks the permission.
    pub const FORBIDDEN: i64 = -32003;
    /// A header contradicts the body (since 2026-07-28).
    pub const HEADER_MISMATCH: i64 = -32020;
    /// The client did not declare a capability that the response needs (since
    /// 2026-07-28).
    pub const MISSING_CAPABILITY: i64 = -32021;
    /// The server does not support the protocol version (since 2026-07-28).
    pub const UNSUPPORTED_VERSION: i64 = -32022;
}

/// The `error` member of a JSON-RPC response.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RpcError {
    /// One of [`code`], or a code of an upstream server.
    pub code: i64,
    /// A sentence for people.
    pub message: Cow<'static, str>,
    /// Details for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl RpcError {
    /// Creates an error without data.
    pub fn new(code: i64, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// Creates an error for invalid parameters.
    pub fn invalid_params(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(code::INVALID_PARAMS, message)
    }

    /// Creates an error for a method that does not exist.
    pub fn method_not_found(method: &str) -> Self {
        let shown: String = method.chars().take(100).collect();
        Self::new(
            code::METHOD_NOT_FOUND,
            format!("method not found: {}", shown.escape_debug()),
        )
    }

    /// Creates an error that names the capabilities the client must declare.
    pub fn missing_capabilities(names: &[&str]) -> Self {
        let required: serde_json::Map<String, Value> = names
            .iter()
            .map(|name| ((*name).to_owned(), json!({})))
            .collect();
        let message = format!("this needs a client with the capabilities {names:?}");
        Self::new(code::MISSING_CAPABILITY, message)
            .with_data(json!({"requiredCapabilities": required}))
    }

    /// Adds details for programs.
    #[must_use]
    pub fn with_data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }
}
