//! Why a server could not be connected to, told apart by what has to be done.

use std::{error::Error as StdError, io};

use thiserror::Error;
use tokio_postgres::error::{DbError, SqlState};
use tokio_rustls::rustls::{self, AlertDescription, CertificateError};

/// A connection could not be made. The texts name no host, role or password.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum PostgresConnectError {
    /// The password of the role is wrong.
    #[error("the password of the role is wrong")]
    WrongPassword,
    /// The server requires a password, and none is set.
    #[error("the server asks for a password, and none is set")]
    MissingPassword,
    /// The server refuses the role, the database or where the connection comes from.
    #[error("the server does not let this role in from here (pg_hba.conf)")]
    AccessRefused,
    /// The server requires TLS.
    #[error("the server takes encrypted connections only; set sslmode=require or verify-full")]
    TlsRequired,
    /// The server has no TLS.
    #[error("the server does not offer TLS, which sslmode asks for")]
    TlsNotOffered,
    /// The certificate of the server is refused.
    #[error("the certificate of the server is refused: {0}")]
    CertificateRefused(CertificateProblem),
    /// The server requires a client certificate.
    #[error("the server asks for a client certificate; set sslcert and sslkey")]
    ClientCertificateRequired,
    /// The server refuses the client certificate.
    #[error("the server refuses the client certificate (sslcert)")]
    ClientCertificateRefused,
    /// The TLS handshake failed for another reason.
    #[error("the TLS handshake failed")]
    TlsHandshake,
    /// The database does not exist.
    #[error("the database does not exist")]
    UnknownDatabase,
    /// The host name has no address.
    #[error("the name of the host is not found")]
    NameNotFound,
    /// Nothing listens on the port.
    #[error("nothing listens on the port")]
    PortClosed,
    /// The server did not respond in time, or there is no route to it.
    #[error("the server does not answer")]
    NoAnswer,
    /// The server has as many connections as it takes.
    #[error("the server takes no more connections")]
    TooManyConnections,
    /// The server is starting or stopping.
    #[error("the server is starting up or shutting down")]
    NotAccepting,
    /// The connection broke.
    #[error("the connection was lost")]
    ConnectionLost,
    /// The server answered with another error.
    #[error("the server answered with an error (SQLSTATE {0})")]
    Server(String),
    /// The server does not use PostgreSQL's protocol.
    #[error("what answers is not a PostgreSQL server, or the connection failed otherwise")]
    Protocol,
}

/// What is wrong with the certificate of a server.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum CertificateProblem {
    /// Its last day is over.
    #[error("it has expired")]
    Expired,
    /// Its first day is yet to come.
    #[error("it is not valid yet")]
    NotValidYet,
    /// No trusted authority issued it.
    #[error("no authority that is trusted issued it (sslrootcert)")]
    UnknownIssuer,
    /// It names other hosts.
    #[error("it is not for this host name (sslmode=verify-full)")]
    WrongName,
    /// Anything else.
    #[error("it is not valid")]
    Invalid,
}

impl PostgresConnectError {
    /// A short code for metrics, logs and programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::WrongPassword => "wrong_password",
            Self::MissingPassword => "missing_password",
            Self::AccessRefused => "access_refused",
            Self::TlsRequired => "tls_required",
            Self::TlsNotOffered => "tls_not_offered",
            Self::CertificateRefused(_) => "certificate_refused",
            Self::ClientCertificateRequired => "client_certificate_required",
            Self::ClientCertificateRefused => "client_certificate_refused",
            Self::TlsHandshake => "tls_handshake",
            Self::UnknownDatabase => "unknown_database",
            Self::NameNotFound => "name_not_found",
            Self::PortClosed => "port_closed",
            Self::NoAnswer => "no_answer",
            Self::TooManyConnections => "too_many_connections",
            Self::NotAccepting => "not_accepting",
            Self::ConnectionLost => "connection_lost",
            Self::Server(_) => "server_error",
            Self::Protocol => "protocol",
        }
    }
}

impl From<&tokio_postgres::Error> for PostgresConnectError {
    fn from(error: &tokio_postgres::Error) -> Self {
        if let Some(refusal) = error.as_db_error() {
            return from_server(refusal);
        }
        if error.is_closed() {
            return Self::ConnectionLost;
        }
        let Some(cause) = error.source() else {
            return Self::Protocol;
        };
        if let Some(error) = cause.downcast_ref::<io::Error>() {
            return from_io(error);
        }
        // The driver has no kinds for these.
        match cause.to_string().as_str() {
            "server does not support TLS" => Self::TlsNotOffered,
            "password missing" => Self::MissingPassword,
            _ => Self::Protocol,
        }
    }
}

fn from_server(refusal: &DbError) -> PostgresConnectError {
    match *refusal.code() {
        SqlState::INVALID_PASSWORD => PostgresConnectError::WrongPassword,
        SqlState::INVALID_CATALOG_NAME => PostgresConnectError::UnknownDatabase,
        SqlState::INVALID_AUTHORIZATION_SPECIFICATION => from_refused_role(refusal.message()),
        SqlState::TOO_MANY_CONNECTIONS => PostgresConnectError::TooManyConnections,
        SqlState::CANNOT_CONNECT_NOW
        | SqlState::ADMIN_SHUTDOWN
        | SqlState::CRASH_SHUTDOWN
        | SqlState::DATABASE_DROPPED => PostgresConnectError::NotAccepting,
        ref other => PostgresConnectError::Server(other.code().to_owned()),
    }
}

/// Messages in another language are not recognised; then the cause is just "refused".
fn from_refused_role(message: &str) -> PostgresConnectError {
    if message.contains("requires a valid client certificate") {
        PostgresConnectError::ClientCertificateRequired
    } else if message.starts_with("certificate authentication failed") {
        PostgresConnectError::ClientCertificateRefused
    } else if message.contains("no encryption") || message.contains("SSL off") {
        PostgresConnectError::TlsRequired
    } else {
        PostgresConnectError::AccessRefused
    }
}

fn from_io(error: &io::Error) -> PostgresConnectError {
    let inner = error.get_ref();
    if let Some(tls) = inner.and_then(|it| it.downcast_ref::<rustls::Error>()) {
        return from_tls(tls);
    }
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
            PostgresConnectError::PortClosed
        }
        io::ErrorKind::TimedOut
        | io::ErrorKind::HostUnreachable
        | io::ErrorKind::NetworkUnreachable
        | io::ErrorKind::NetworkDown => PostgresConnectError::NoAnswer,
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe
        | io::ErrorKind::UnexpectedEof => PostgresConnectError::ConnectionLost,
        // The standard library has no kind for it.
        _ if error.to_string().starts_with("failed to lookup address") => {
            PostgresConnectError::NameNotFound
        }
        _ => PostgresConnectError::Protocol,
    }
}

fn from_tls(error: &rustls::Error) -> PostgresConnectError {
    match error {
        rustls::Error::InvalidCertificate(problem) => {
            PostgresConnectError::CertificateRefused(problem.into())
        }
        rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => {
            PostgresConnectError::ClientCertificateRequired
        }
        rustls::Error::AlertReceived(
            AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateRevoked
            | AlertDescription::CertificateExpired
            | AlertDescription::CertificateUnknown
            | AlertDescription::UnknownCA
            | AlertDescription::AccessDenied
            | AlertDescription::DecryptError,
        ) => PostgresConnectError::ClientCertificateRefused,
        _ => PostgresConnectError::TlsHandshake,
    }
}

impl From<&CertificateError> for CertificateProblem {
    fn from(error: &CertificateError) -> Self {
        match error {
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => Self::Expired,
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                Self::NotValidYet
            }
            CertificateError::UnknownIssuer => Self::UnknownIssuer,
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                Self::WrongName
            }
            _ => Self::Invalid,
        }
    }
}
