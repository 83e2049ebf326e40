//! Why requests of clients are refused.

use maru_store::OAuthGrantRow;
use thiserror::Error;

use super::client::MetadataError;

/// Why a token endpoint refuses.
#[derive(Debug, Error)]
pub enum GrantError {
    /// The client is unknown or did not authenticate.
    #[error("the client is unknown or did not authenticate")]
    InvalidClient,
    /// The code or refresh token is not valid, or not for this client.
    #[error("{0}")]
    InvalidGrant(&'static str),
    /// A code or refresh token was presented again, and the whole grant has ended.
    #[error("this was used before; for safety the access has ended, sign in again")]
    Replayed(Box<OAuthGrantRow>),
    /// The request lacks something.
    #[error("{0}")]
    InvalidRequest(&'static str),
    /// The grant type is not offered.
    #[error("use authorization_code or refresh_token")]
    UnsupportedGrantType,
    /// The resource is not this hub.
    #[error("the resource is not this server")]
    InvalidTarget,
    /// The client's metadata document cannot be read at the moment.
    #[error("the description of the client cannot be read now; try again later")]
    ClientUnavailable,
    /// The store failed.
    #[error("the store does not answer; try again later")]
    Store(#[from] maru_store::Error),
}

/// Why a client is not known.
#[derive(Debug, Error)]
pub enum ClientError {
    /// Nobody registered by this id.
    #[error("this application is not registered here, or its registration has expired")]
    Unknown,
    /// The metadata document cannot be used.
    #[error("the description of this application is refused: {0}")]
    Document(String),
    /// The metadata document cannot be read at the moment.
    #[error("the description of this application cannot be read now: {0}")]
    Unavailable(String),
    /// The store failed.
    #[error("the store does not answer; try again later")]
    Store(#[from] maru_store::Error),
}

/// Why a client was not registered.
#[derive(Debug, Error)]
pub enum ClientRegistrationError {
    /// Too many registrations in a short time.
    #[error("too many clients register; try again in a minute")]
    TooMany,
    /// The metadata is refused.
    #[error("{}", .0.description)]
    Metadata(MetadataError),
    /// The store failed.
    #[error("the store does not answer; try again later")]
    Store(#[from] maru_store::Error),
}
