//! Authentication and access control: tokens, principals, roles and grants.

#![forbid(unsafe_code)]

mod access_control;
mod accounts;
mod admin_token;
mod bearer_token;
mod console_sessions;
mod grants;
mod issued_tokens;
mod jwt;
mod keys;
mod oauth;
mod oidc;
mod passphrase;
mod principal;
mod rate_limit;
mod ring_provider;
mod token_issuer;

use thiserror::Error;

pub use access_control::AccessControl;
pub use accounts::{AccountError, Accounts, Invitation};
pub use admin_token::{ADMIN_TOKEN_FILE, ADMIN_TOKEN_NAME, load_or_create_admin_token};
pub use bearer_token::BearerToken;
pub use console_sessions::{ConsoleSessions, SESSION_LIFETIME, SIGN_IN_CODE_LIFETIME};
pub use grants::Grants;
pub use issued_tokens::{IssuedToken, TokenDraft, TokenError};
pub use oauth::OAuthVerifier;
pub use oidc::{OidcError, OidcPerson, OidcRequest, OidcSignIn};
pub use principal::{AccessRole, Principal};
pub use token_issuer::{
    ClientAuthentication, ClientError, ClientMetadata, ClientRegistrationError, ClientRegistry,
    CodeRequest, CodeRequestError, Consent, DocumentReader, FormFields, GrantError, IssuedTokens,
    MetadataError, OAuthClient, TokenIssuer, encode_value, redirect_host, redirect_source,
    redirect_url,
};

/// The caller could not be authenticated.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Error {
    /// The request has no token but needs one.
    #[error("a token is required: send it as \"Authorization: Bearer TOKEN\"")]
    MissingToken,
    /// The token is neither issued by maru nor by the OAuth issuer.
    #[error("unknown token; the admin token is in the file admin-token of the data directory")]
    UnknownToken,
    /// The token has expired.
    #[error("the token has expired")]
    ExpiredToken,
    /// The token names a key that is not in the issuer's key set; the set may be outdated.
    #[error("the token was signed with an unknown key")]
    UnknownKey,
    /// The token is signed, but what was allowed by it is not known here, or has ended.
    #[error("the access of this token was revoked or has ended; sign in again")]
    UnknownGrant,
    /// The issuer signed the token, but its claims do not allow access to maru.
    #[error("the token is not valid here: {0}")]
    RejectedToken(&'static str),
}
