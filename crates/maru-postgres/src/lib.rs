//! Connecting to PostgreSQL, for the databases that tools read and for the store.
//!
//! - [`PostgresAddress`] parses a URL or separate settings, and quotes no part of a URL that
//!   cannot be parsed, because a password may be anywhere in it.
//! - [`PostgresTls`] connects with the options of libpq ([`TlsMode`]); `certificate_hash` is
//!   what SCRAM binds the password exchange to.
//! - [`PostgresConnectError`] says why a connection failed, in words for whoever set it up;
//!   [`CertificateProblem`] tells which setting mends it.
//!
//! The crate opens no pool and runs no statement: `maru-sources` and `maru-store` do.
//!
//! Test with `cargo nextest run -p maru-postgres`, and against servers with
//! `cargo nextest run -p maru --test it postgres`.

#![forbid(unsafe_code)]

mod address;
mod certificate_hash;
mod connect_error;
mod server_verifier;
mod tls;

use std::path::PathBuf;

use thiserror::Error;

pub use address::{PostgresAddress, PostgresServer};
pub use connect_error::{CertificateProblem, PostgresConnectError};
pub use tls::{PostgresTls, RootCertificates, TlsMode, TlsOptions};

/// An address or its TLS options cannot be used. The text quotes nothing of a URL,
/// because the password could be anywhere in one that cannot be parsed.
#[derive(Debug, Error)]
pub enum Error {
    /// The URL has another scheme.
    #[error("the address does not start with postgres://")]
    Scheme,
    /// A user name or a password contains an unescaped `@`.
    #[error("the address has more than one @; in a name or a password write %40")]
    UnescapedAt,
    /// An option has a value that it cannot have.
    #[error("the address has an {0}")]
    InvalidValue(String),
    /// Anything else, such as an option that does not exist.
    #[error("the address cannot be read; check its options")]
    Unreadable,
    /// The URL names no server.
    #[error("the address names no host; example: postgres://user:password@localhost/maru")]
    NoHost,
    /// `sslmode` has an unknown value.
    #[error("sslmode is disable, prefer, require, verify-ca or verify-full")]
    UnknownTlsMode,
    /// A root certificate is given and would not be used to verify anything.
    #[error("sslrootcert verifies nothing with this sslmode; use {0}")]
    UnusedRootCertificate(&'static str),
    /// Only one half of the client's certificate is given.
    #[error("sslcert and sslkey go together")]
    IncompleteClientCertificate,
    /// A file of certificates or keys cannot be used.
    #[error("cannot use {option} {}: {reason}", path.display())]
    Certificate {
        /// The option that names the file.
        option: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}
