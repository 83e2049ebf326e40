//! `_meta`: the version, client and progress token of a request.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{
    RequestParams, RpcError, RpcId, RpcRequest,
    members::{RawJson, object_members, parse_json_string},
};

/// Member names of `_meta` that the protocol reserves.
pub mod key {
    /// The protocol version that a request is written in.
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// The capabilities of the client.
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// The minimum severity of log messages that the client wants.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// Name and version of the client.
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    /// Name and version of the server.
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    /// The id of a hub, among its experimental capabilities.
    pub const HUB_ID: &str = "maru/hub";
    /// The hubs that a tool was listed through, the nearest first.
    pub const HUB_PATH: &str = "maru/hubs";
    /// The `subscriptions/listen` request that a notification belongs to.
    pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
}

/// Whether a request declares its protocol version in `_meta`, as 2026-07-28 requires.
pub fn declares_version(request: &RpcRequest<'_>) -> bool {
    RequestParams::parse(request.params)
        .and_then(|params| params.meta())
        .is_ok_and(|meta| meta.version().is_some())
}

/// Encodes text for a header as 2026-07-28 requires: printable ASCII as it is, anything
/// else as `=?base64?…?=`.
pub fn encode_header_value(text: &str) -> Cow<'_, str> {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    let is_plain = text.bytes().all(|byte| (0x20..0x7f).contains(&byte))
        && text.trim() == text
        && !text.starts_with("=?base64?");
    if is_plain {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(format!("=?base64?{}?=", BASE64_STANDARD.encode(text)))
    }
}

/// The members of `_meta` that maru reads, as raw JSON.
#[derive(Debug, Default)]
pub struct RequestMeta<'a> {
    version: Option<RawJson<'a>>,
    capabilities: Option<RawJson<'a>>,
    log_level: Option<RawJson<'a>>,
    progress_token: Option<RawJson<'a>>,
    client_info: Option<RawJson<'a>>,
}

impl<'a> RequestMeta<'a> {
    /// Parses `_meta`; `None` if it is not an object.
    pub(super) fn parse(raw: RawJson<'a>) -> Option<Self> {
        let mut meta = Self::default();
        for (name, raw) in object_members(raw)? {
            match &*name {
                key::PROTOCOL_VERSION => meta.version = Some(raw),
                key::CLIENT_CAPABILITIES => meta.capabilities = Some(raw),
                key::LOG_LEVEL => meta.log_level = Some(raw),
                key::CLIENT_INFO => meta.client_info = Some(raw),
                "progressToken" => meta.progress_token = Some(raw),
                _unknown => (),
            }
        }
        Some(meta)
    }

    /// The protocol version that the request declares.
    pub fn version(&self) -> Option<Cow<'a, str>> {
        self.version.and_then(parse_json_string)
    }

    /// The capabilities of the client, an object.
    pub fn capabilities(&self) -> Option<RawJson<'a>> {
        self.capabilities.filter(|raw| raw.starts_with('{'))
    }

    /// Name and version of the client, an object.
    pub fn client_info(&self) -> Option<RawJson<'a>> {
        self.client_info.filter(|raw| raw.starts_with('{'))
    }

    /// The minimum severity of log messages that the client wants for this request.
    pub fn log_level(&self) -> Result<Option<LoggingLevel>, RpcError> {
        self.log_level.map(LoggingLevel::parse).transpose()
    }

    /// The token under which the client wants progress notifications.
    pub fn progress_token(&self) -> Result<Option<RpcId>, RpcError> {
        let Some(raw) = self.progress_token else {
            return Ok(None);
        };
        let invalid =
            || RpcError::invalid_params("_meta.progressToken must be a string or an integer");
        RpcId::parse(raw).ok_or_else(invalid).map(Some)
    }
}

/// Severity of a log message to a client; more severe levels compare greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names are the syslog severities")]
pub enum LoggingLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl LoggingLevel {
    /// Parses a severity such as `"warning"`.
    pub fn parse(raw: RawJson<'_>) -> Result<Self, RpcError> {
        serde_json::from_str(raw).map_err(|_| {
            RpcError::invalid_params(
                "level must be one of debug, info, notice, warning, error, critical, alert, emergency",
            )
        })
    }
}
