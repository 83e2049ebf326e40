//! How an answer of a model is wanted.

use std::time::Duration;

use tokio::sync::watch;

/// How an answer is wanted.
#[derive(Debug)]
pub struct ChatRequestOptions {
    /// Piece by piece, or in one.
    pub stream: bool,
    /// How long it may take; the settings may say less.
    pub limit: Duration,
    /// Hears the place in the queue while there is one.
    pub queue_position: watch::Sender<usize>,
}

impl ChatRequestOptions {
    /// Piece by piece, within `limit`.
    pub fn streamed(limit: Duration) -> Self {
        Self {
            stream: true,
            limit,
            queue_position: watch::Sender::new(0),
        }
    }

    /// In one, within `limit`.
    pub fn unstreamed(limit: Duration) -> Self {
        Self {
            stream: false,
            ..Self::streamed(limit)
        }
    }
}
