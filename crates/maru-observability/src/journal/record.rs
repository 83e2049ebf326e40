//! The record of one call.

use std::{net::IpAddr, sync::Arc, time::Duration};

use super::RequestId;

/// Bytes of the arguments that are kept.
pub(super) const MAX_ARGUMENT_BYTES: usize = 2 << 10;
/// Bytes of the result that are kept.
pub(super) const MAX_RESULT_BYTES: usize = 4 << 10;

/// One call.
#[derive(Debug)]
pub struct CallRecord {
    /// Its number; later calls have larger ones.
    pub id: u64,
    /// When it ended, in milliseconds since 1970.
    pub ended_at: u64,
    /// The request, and who sent it.
    pub request: CallRequest,
    /// How it ended.
    pub outcome: ToolCallOutcome,
    /// Its total duration.
    pub duration: Duration,
    /// The part of the duration that the handler took.
    pub server_duration: Duration,
    /// Bytes of the arguments.
    pub argument_bytes: usize,
    /// Bytes of the result.
    pub result_bytes: usize,
    /// The beginning of the result. May contain secrets; see `mask_secrets`.
    pub result: Box<str>,
}

/// A request to call a tool.
#[derive(Debug)]
pub struct CallRequest {
    /// The public name of the tool.
    pub tool: Arc<str>,
    /// The server of the tool; empty if the tool is unknown.
    pub server: Arc<str>,
    /// The authenticated principal.
    pub principal: Arc<str>,
    /// The client program, by its reported name.
    pub client: Option<Arc<str>>,
    /// The remote address; absent for callers that have none.
    pub remote_ip: Option<IpAddr>,
    /// The id of the request.
    pub request_id: RequestId,
    /// The arguments as they were sent, truncated in a record. May contain secrets.
    pub arguments: Arc<str>,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolCallOutcome {
    /// With a result.
    Ok,
    /// The tool was called and reports an error.
    Failed,
    /// It could not be called: it is unknown, its arguments are wrong, or its
    /// server cannot be reached.
    Refused,
    /// It did not answer in time.
    TimedOut,
    /// The caller disconnected or cancelled it.
    Cancelled,
}

impl ToolCallOutcome {
    /// Every outcome.
    pub const ALL: [Self; 5] = [
        Self::Ok,
        Self::Failed,
        Self::Refused,
        Self::TimedOut,
        Self::Cancelled,
    ];

    /// Its name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
        }
    }

    /// Whether it counts as an error.
    pub fn is_error(self) -> bool {
        matches!(self, Self::Failed | Self::Refused | Self::TimedOut)
    }
}

impl CallRequest {
    /// The request with its arguments truncated.
    pub(super) fn truncate_arguments(mut self) -> Self {
        if self.arguments.len() > MAX_ARGUMENT_BYTES {
            self.arguments = Arc::from(truncate_text(&self.arguments, MAX_ARGUMENT_BYTES));
        }
        self
    }
}

/// The beginning of `text`, whole characters in at most `limit` bytes.
pub(super) fn truncate_text(text: &str, limit: usize) -> Box<str> {
    text[..text.floor_char_boundary(limit)].into()
}
