//! What is kept of one call.

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
    /// What was asked, and by whom.
    pub asked: CallRequest,
    /// How it ended.
    pub outcome: ToolCallOutcome,
    /// How long it took, all in all.
    pub duration: Duration,
    /// How much of that whoever answered took.
    pub server_duration: Duration,
    /// Bytes of the arguments.
    pub argument_bytes: usize,
    /// Bytes of the result.
    pub result_bytes: usize,
    /// The beginning of the result. May hold secrets; see `mask_secrets`.
    pub result: Box<str>,
}

/// A question to a tool.
#[derive(Debug)]
pub struct CallRequest {
    /// The name that everyone sees.
    pub tool: Arc<str>,
    /// Whose tool it is.
    pub server: Arc<str>,
    /// Who asks.
    pub principal: Arc<str>,
    /// The program they ask with, as it calls itself.
    pub client: Option<Arc<str>>,
    /// From which address; absent from this machine without one.
    pub remote_ip: Option<IpAddr>,
    /// The request that this is part of.
    pub request_id: RequestId,
    /// Arguments as they were written; of a record the beginning. May hold secrets.
    pub arguments: Arc<str>,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ToolCallOutcome {
    /// With a result.
    Ok,
    /// The tool was called and says that it failed.
    Failed,
    /// It could not be called: it is unknown, its arguments are wrong, or its
    /// server cannot be reached.
    Refused,
    /// It did not answer in time.
    TimedOut,
    /// Whoever asked left before the answer.
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
    /// As much of it as is kept.
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
