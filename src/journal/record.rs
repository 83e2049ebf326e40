//! What is kept of one call.

use std::{sync::Arc, time::Duration};

/// Bytes of the arguments that are kept.
pub(super) const ARGUMENTS: usize = 2 << 10;
/// Bytes of the result that are kept.
pub(super) const RESULT: usize = 4 << 10;

/// One call.
#[derive(Debug)]
pub struct Record {
    /// Its number; later calls have larger ones.
    pub id: u64,
    /// When it ended, in milliseconds since 1970.
    pub at: u64,
    /// What was asked, and by whom.
    pub asked: Asked,
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took, all in all.
    pub took: Duration,
    /// How much of that whoever answered took.
    pub waited: Duration,
    /// Bytes of the arguments.
    pub sent: usize,
    /// Bytes of the result.
    pub received: usize,
    /// The beginning of the result. May hold secrets; see [`masked`](super::masked).
    pub result: Box<str>,
}

/// A question to a tool.
#[derive(Debug)]
pub struct Asked {
    /// The name that everyone sees.
    pub tool: Arc<str>,
    /// Whose tool it is.
    pub server: Arc<str>,
    /// Who asks.
    pub principal: Arc<str>,
    /// The program they ask with, as it calls itself.
    pub client: Option<Arc<str>>,
    /// Arguments as they were written; of a record the beginning. May hold secrets.
    pub arguments: Arc<str>,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
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

impl Outcome {
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

impl Asked {
    /// As much of it as is kept.
    pub(super) fn cut(mut self) -> Self {
        if self.arguments.len() > ARGUMENTS {
            self.arguments = Arc::from(cut(&self.arguments, ARGUMENTS));
        }
        self
    }
}

/// The beginning of `text`, whole characters in at most `limit` bytes.
pub(super) fn cut(text: &str, limit: usize) -> Box<str> {
    text[..text.floor_char_boundary(limit)].into()
}
