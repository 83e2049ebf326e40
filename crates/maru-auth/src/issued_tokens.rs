//! Requests for new tokens, issued tokens, and why one cannot be created or revoked.

use maru_config::ToolListing;
use maru_store::TokenRow;
use thiserror::Error;

use super::{AccessRole, BearerToken};

/// The properties of a token to create.
#[derive(Clone, Debug)]
pub struct TokenDraft {
    /// Unique: 1 to 63 of a-z, A-Z, 0-9, `-`, `_` and `.`.
    pub name: String,
    /// The role of its principal.
    pub role: AccessRole,
    /// Servers that it is limited to; absent means all.
    pub servers: Option<Vec<String>>,
    /// Tools that it is limited to; absent means all.
    pub tools: Option<Vec<String>>,
    /// The toolset that it is limited to; absent means all.
    pub toolset: Option<String>,
    /// Whether its clients list or search tools; absent means what the endpoint does.
    pub tool_listing: Option<ToolListing>,
    /// When it expires, in milliseconds since 1970.
    pub expires_at: Option<i64>,
}

/// A new token with its secret, which is not stored.
#[derive(Debug)]
pub struct IssuedToken {
    /// The secret.
    pub token: BearerToken,
    /// The stored row, with the hash of the secret.
    pub row: TokenRow,
}

/// A token could not be created or revoked.
#[derive(Debug, Error)]
pub enum TokenError {
    /// The name is in use.
    #[error("a token named {0} already exists; revoke it first")]
    NameTaken(String),
    /// The name has other characters, is too long, or is reserved.
    #[error("a token name has 1 to 63 of a-z, A-Z, 0-9, -, _ and . and is neither admin nor local")]
    InvalidName,
    /// The admin token cannot be revoked.
    #[error(
        "the admin token cannot be revoked; to replace it, remove the file admin-token of the data directory and restart maru"
    )]
    AdminToken,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] maru_store::Error),
}
