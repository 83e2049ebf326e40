//! Why an exchange with another hub, or a note to all of them, failed.

use maru_store::DatabaseError;
use thiserror::Error;

/// Why an exchange with another hub, or a note to all of them, failed.
#[derive(Debug, Error)]
pub enum Error {
    /// No exchange was opened: the hub does not run, or cannot be reached. It has received
    /// nothing.
    #[error("the other hub is gone")]
    HubGone,
    /// The exchange ended before its last message. The other hub may have received what
    /// was sent.
    #[error("the exchange with the other hub ended early")]
    ExchangeEnded,
    /// The other hub did not reply in time.
    #[error("the other hub did not reply in time")]
    ReplyTimeout,
    /// The store did not take or return notes.
    #[error("the store of the hubs' notes failed: {0}")]
    Store(#[from] DatabaseError),
}
