//! JSON-RPC errors and the codes that MCP gives a meaning.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Value, json};

/// Error codes.
pub mod code {
    /// The text is not JSON.
    pub const PARSE_ERROR: i64 = -32700;
    /// The JSON is not a message.
    pub const INVALID_REQUEST: i64 = -32600;
    /// No such method.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The parameters do not fit.
    pub const INVALID_PARAMS: i64 = -32602;
    /// We failed.
    pub const INTERNAL_ERROR: i64 = -32603;
    /// No such resource (until 2025-11-25).
    pub const RESOURCE_NOT_FOUND: i64 = -32002;
    /// The caller may not do this.
    pub const FORBIDDEN: i64 = -32003;
    /// A header says something else than the body (since 2026-07-28).
    pub const HEADER_MISMATCH: i64 = -32020;
    /// The client did not declare what the answer needs (since 2026-07-28).
    pub const MISSING_CAPABILITY: i64 = -32021;
    /// A protocol version we do not speak (since 2026-07-28).
    pub const UNSUPPORTED_VERSION: i64 = -32022;
}

/// The error half of an answer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RpcError {
    /// One of [`code`], or an upstream's own.
    pub code: i64,
    /// For people.
    pub message: Cow<'static, str>,
    /// For programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

impl RpcError {
    /// An error without data.
    pub fn new(code: i64, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            code,
            message: message.into(),
            data: None,
        }
    }

    /// The parameters do not fit.
    pub fn invalid_params(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(code::INVALID_PARAMS, message)
    }

    /// No such method.
    pub fn method_not_found(method: &str) -> Self {
        let shown: String = method.chars().take(100).collect();
        Self::new(
            code::METHOD_NOT_FOUND,
            format!("method not found: {}", shown.escape_debug()),
        )
    }

    /// The client did not declare capabilities that the answer needs.
    pub fn missing_capabilities(names: &[&str]) -> Self {
        let required: serde_json::Map<String, Value> = names
            .iter()
            .map(|name| ((*name).to_owned(), json!({})))
            .collect();
        let why = format!("this needs a client that can do {names:?}");
        Self::new(code::MISSING_CAPABILITY, why)
            .with_data(json!({"requiredCapabilities": required}))
    }

    /// Adds data for programs.
    #[must_use]
    pub fn with_data(mut self, data: Value) -> Self {
        self.data = Some(data);
        self
    }
}
