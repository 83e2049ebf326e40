//! An OAuth 2.1 client for MCP servers.
//!
//! - [`Challenge`] is what a server answers to a request without a valid token.
//! - [`Discovery`] finds the server's authorization server and validates what both say of
//!   themselves (RFC 9728, RFC 8414, `OpenID` Connect Discovery).
//! - [`ClientIdentity`] is maru at that authorization server: configured, named by a
//!   metadata document, or registered dynamically (RFC 7591).
//! - [`AuthorizationRequest`] is one sign-in with PKCE, from the link to the checked
//!   redirect; [`TokenRequest`] exchanges a code, a refresh token or the client's own
//!   credentials for a [`TokenSet`].
//!
//! Parsing and validation are pure. [`OAuthHttp`] does all I/O, under the address policy of
//! `maru-http`, bounded in size and time. Errors never contain secrets or text that the
//! other side wrote freely.
//!
//! Test with `cargo nextest run -p maru-oauth`.

#![forbid(unsafe_code)]

mod assertion;
mod authorization;
mod challenge;
mod client_identity;
mod discovery;
mod metadata;
mod pkce;
mod scope;
mod token;
mod transport;
mod web_url;

use thiserror::Error;

pub use assertion::SigningKey;
pub use authorization::{AuthorizationRequest, AuthorizationResponse};
pub use challenge::Challenge;
pub use client_identity::{ClientAuthMethod, ClientIdentity, ClientRegistration, client_document};
pub use discovery::{Discovery, find_authorization_server};
pub use metadata::{AuthorizationServer, ResourceMetadata};
pub use scope::ScopeSet;
pub use token::{TokenRequest, TokenSet};
pub use transport::OAuthHttp;
pub use web_url::is_secure_url;

/// Why signing in to a server failed.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Error {
    /// The address policy refuses an address, or the other side cannot be reached.
    #[error("{what}: {source}")]
    Transport {
        /// What was requested.
        what: &'static str,
        /// The error of the HTTP client.
        #[source]
        source: maru_http::Error,
    },
    /// The other side did not answer in time.
    #[error("{0} did not answer in time")]
    Timeout(&'static str),
    /// A document or response has an unexpected HTTP status.
    #[error("{what} answered with status {status}")]
    Status {
        /// What was requested.
        what: &'static str,
        /// The HTTP status.
        status: u16,
    },
    /// A document or response is invalid, or is not that of the server that was asked.
    #[error("{what} is refused: {reason}")]
    Invalid {
        /// The document or response.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// The authorization server refused the request with an OAuth error code.
    #[error("the authorization server refused {what}: {code}")]
    Denied {
        /// What was requested.
        what: &'static str,
        /// The error code, one of those that RFCs define.
        code: String,
    },
    /// The authorization server offers no way to get a client id.
    #[error(
        "the authorization server registers no clients by itself; register maru there, and set auth.client_id (and auth.client_secret) of the server"
    )]
    NoRegistration,
}

impl Error {
    /// Whether the refresh token or code is no longer valid.
    pub fn is_invalid_grant(&self) -> bool {
        matches!(self, Self::Denied { code, .. } if code == "invalid_grant")
    }

    /// Whether the other side may answer otherwise later.
    pub fn is_temporary(&self) -> bool {
        match self {
            Self::Timeout(_) => true,
            Self::Status { status, .. } => *status >= 500,
            Self::Transport { source, .. } => source.is_retryable(),
            _ => false,
        }
    }

    /// Whether the authorization server no longer knows this client.
    pub fn is_invalid_client(&self) -> bool {
        matches!(self, Self::Denied { code, .. } if code == "invalid_client")
    }

    fn invalid(what: &'static str, reason: impl Into<String>) -> Self {
        Self::Invalid {
            what,
            reason: reason.into(),
        }
    }
}

/// Returns 256 random bits in Base64 for URLs.
fn random_token() -> String {
    use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}
