//! `_meta`: what a request says about itself.

use std::sync::LazyLock;

use memchr::memmem::Finder;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Id, Params, Request, RpcError};

/// Member names of `_meta` that the protocol reserves.
pub mod key {
    /// The version a request is written in.
    pub const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
    /// What the client can do.
    pub const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
    /// Who answered.
    pub const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
    /// The listening request that a notification belongs to.
    pub const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
}

/// Whether a request says itself which version it is written in, as 2026-07-28
/// wants. Most requests do not, and are told so by a quick search.
pub fn names_version(request: &Request<'_>) -> bool {
    // The slash of the full name may be escaped.
    static FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("protocolVersion"));
    let Some(raw) = request.params else {
        return false;
    };
    FINDER.find(raw.get().as_bytes()).is_some()
        && Params::read(Some(raw))
            .and_then(|params| params.meta())
            .is_ok_and(|meta| meta.version().is_some())
}

/// The members of `_meta` that maru reads, each still raw.
#[derive(Debug, Default, Deserialize)]
pub struct Meta<'a> {
    #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
    version: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/logLevel")]
    log_level: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "progressToken")]
    progress_token: Option<&'a RawValue>,
}

impl<'a> Meta<'a> {
    /// The version the request says it is written in.
    pub fn version(&self) -> Option<&'a str> {
        self.version
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
    }

    /// The client's capabilities, an object.
    pub fn capabilities(&self) -> Option<&'a RawValue> {
        self.capabilities.filter(|raw| raw.get().starts_with('{'))
    }

    /// The least severe log message the client wants for this request.
    pub fn log_level(&self) -> Result<Option<LogLevel>, RpcError> {
        self.log_level.map(LogLevel::read).transpose()
    }

    /// Where progress is reported to.
    pub fn progress_token(&self) -> Result<Option<Id>, RpcError> {
        let Some(raw) = self.progress_token else {
            return Ok(None);
        };
        let wrong = || RpcError::params("_meta.progressToken must be a string or an integer");
        Id::read(raw).ok_or_else(wrong).map(Some)
    }
}

/// Severity of a log message to a client, least severe first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names are the syslog severities")]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl LogLevel {
    /// Reads a level's name.
    pub fn read(raw: &RawValue) -> Result<Self, RpcError> {
        serde_json::from_str(raw.get()).map_err(|_| {
            RpcError::params(
                "level must be one of debug, info, notice, warning, error, critical, alert, emergency",
            )
        })
    }
}
