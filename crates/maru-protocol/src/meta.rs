//! `_meta`: what a request says about itself.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{
    RequestParams, RpcError, RpcId, RpcRequest,
    members::{RawJson, object_members, parse_json_string},
};

/// Member names of `_meta` that the protocol reserves.
pub mod key {
    /// The version a request is written in.
    pub const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// What the client can do.
    pub const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// The least severe log message wanted.
    pub const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
    /// Who asks.
    pub const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
    /// Who answered.
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    /// Which hub a server is, among its experimental capabilities.
    pub const HUB_ID: &str = "maru/hub";
    /// The hubs that an entry of a listing came through, the nearest first.
    pub const HUB_PATH: &str = "maru/hubs";
    /// The listening request that a notification belongs to.
    pub const SUBSCRIPTION_ID: &str = "io.modelcontextprotocol/subscriptionId";
}

/// Whether a request says itself which version it is written in, as 2026-07-28
/// wants.
pub fn declares_version(request: &RpcRequest<'_>) -> bool {
    RequestParams::parse(request.params)
        .and_then(|params| params.meta())
        .is_ok_and(|meta| meta.version().is_some())
}

/// How 2026-07-28 mirrors a text in a header, which carries plain ASCII only.
pub fn encode_header_value(text: &str) -> Cow<'_, str> {
    use base64::{Engine as _, prelude::BASE64_STANDARD};
    let plain = text.bytes().all(|byte| (0x20..0x7f).contains(&byte))
        && text.trim() == text
        && !text.starts_with("=?base64?");
    if plain {
        Cow::Borrowed(text)
    } else {
        Cow::Owned(format!("=?base64?{}?=", BASE64_STANDARD.encode(text)))
    }
}

/// The members of `_meta` that maru reads, each still raw.
#[derive(Debug, Default)]
pub struct RequestMeta<'a> {
    version: Option<RawJson<'a>>,
    capabilities: Option<RawJson<'a>>,
    log_level: Option<RawJson<'a>>,
    progress_token: Option<RawJson<'a>>,
    client_info: Option<RawJson<'a>>,
}

impl<'a> RequestMeta<'a> {
    /// Reads the object; `None` if it is none.
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

    /// The version the request says it is written in.
    pub fn version(&self) -> Option<Cow<'a, str>> {
        self.version.and_then(parse_json_string)
    }

    /// The client's capabilities, an object.
    pub fn capabilities(&self) -> Option<RawJson<'a>> {
        self.capabilities.filter(|raw| raw.starts_with('{'))
    }

    /// Who asks, an object.
    pub fn client_info(&self) -> Option<RawJson<'a>> {
        self.client_info.filter(|raw| raw.starts_with('{'))
    }

    /// The least severe log message the client wants for this request.
    pub fn log_level(&self) -> Result<Option<LoggingLevel>, RpcError> {
        self.log_level.map(LoggingLevel::parse).transpose()
    }

    /// Where progress is reported to.
    pub fn progress_token(&self) -> Result<Option<RpcId>, RpcError> {
        let Some(raw) = self.progress_token else {
            return Ok(None);
        };
        let wrong =
            || RpcError::invalid_params("_meta.progressToken must be a string or an integer");
        RpcId::parse(raw).ok_or_else(wrong).map(Some)
    }
}

/// Severity of a log message to a client, least severe first.
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
    /// Reads a level's name.
    pub fn parse(raw: RawJson<'_>) -> Result<Self, RpcError> {
        serde_json::from_str(raw).map_err(|_| {
            RpcError::invalid_params(
                "level must be one of debug, info, notice, warning, error, critical, alert, emergency",
            )
        })
    }
}
