//! How a response of a model is wanted.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

/// How a response is wanted.
#[derive(Debug)]
pub struct ChatRequestOptions {
    /// The name of the token that the request is counted for.
    pub caller: Arc<str>,
    /// Streamed, or whole.
    pub stream: bool,
    /// Hand out the arguments of calls while they arrive, in a stream.
    pub stream_arguments: bool,
    /// maru's own instructions offer the tools: JSON that is shaped like a call is one
    /// wherever it stands, and a call of an unknown tool is reported as such.
    pub prompted: bool,
    /// Keep what the model wrote, see [`ChatStream::take_written`](super::ChatStream::take_written).
    pub keep_written: bool,
    /// How long it may take; the settings may say less.
    pub limit: Duration,
    /// Receives the position in the queue while there is one.
    pub queue_position: watch::Sender<usize>,
}

impl ChatRequestOptions {
    /// Streamed, within `limit`, counted for the token `caller`.
    pub fn streamed(caller: &str, limit: Duration) -> Self {
        Self {
            caller: caller.into(),
            stream: true,
            stream_arguments: false,
            prompted: false,
            keep_written: false,
            limit,
            queue_position: watch::Sender::new(0),
        }
    }

    /// Whole, within `limit`, counted for the token `caller`.
    pub fn unstreamed(caller: &str, limit: Duration) -> Self {
        Self {
            stream: false,
            ..Self::streamed(caller, limit)
        }
    }
}
