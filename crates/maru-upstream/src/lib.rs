//! maru as an MCP client: one task per server keeps its connection open and publishes its
//! tools in the catalog.
//!
//! `stdio`, `sse` and `http` open links; code behind `link` does not depend on the
//! transport. Differences between protocol versions are handled in `handshake` and
//! `forward`.

#![forbid(unsafe_code)]

mod authorized_client;
mod cgroup;
mod channel;
mod cleanup_tracker;
mod connect;
mod connection;
mod credential;
mod diagnostics;
mod draft;
mod exit_cause;
mod forward;
mod handle;
mod handshake;
mod http;
mod hub_route;
mod in_flight;
mod lifecycle;
mod link;
mod listing;
mod manager;
mod mcp_registry;
mod notifications;
mod peer_channel;
mod peer_service;
mod pending_input;
mod process_signals;
mod processes;
mod program_rules;
mod programs;
mod qualified_uris;
mod registration_error;
mod registration_rules;
mod registry_file;
mod remote_auth;
mod sanitize;
mod server;
mod server_log;
mod server_row;
mod settings;
mod sign_in;
mod sign_in_request;
mod single_runs;
mod sse;
mod stdio;
mod subscriptions;
mod tool_pins;
mod transport;
mod trust;
mod unmask;
mod user_connections;
#[cfg_attr(not(target_os = "linux"), path = "warden_unsupported.rs")]
pub mod warden;

pub use maru_oauth::client_document;
use maru_protocol::ProtocolVersion;
use maru_runtime::traffic_budget::TrafficExceeded;
use thiserror::Error;

pub use diagnostics::ConnectionTest;
pub use draft::{NamedDraft, ServerDraft, drafts_from_import};
pub use handle::{ServerHandle, ServerStatus};
pub use lifecycle::ServerState;
pub use listing::WithheldEntry;
pub use manager::{ManagerOptions, ServerManager, ServerView};
pub use mcp_registry::{FoundServer, McpRegistry, McpRegistryError, ServerInstallation};
pub use program_rules::ProgramRules;
pub use programs::{ProgramLimits, ProgramUsage, ProgramView};
pub use registration_error::RegistrationError;
pub use registration_rules::RegistrationRules;
pub use remote_auth::{ClientCredentials, RemoteAuth, SignInSettings};
pub use server::{InvalidField, RegisteredServer, ServerName, ServerOrigin};
pub use server_log::{ServerLogEntry, ServerLogKind};
pub use settings::ConnectionSettings;
pub use sign_in::{ServerSignIn, SignInError, SignInOptions, SignInReturn};
pub use single_runs::SingleRuns;
pub use transport::{ProgramRun, ProgramSpec, RemoteEndpoint, Transport};
pub use trust::TrustPolicy;

/// Why a request to a server failed. The text is for people and contains nothing that the
/// server wrote.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Error {
    /// The server cannot be reached; no request was sent, so it is safe to retry.
    #[error("{0}")]
    Unreachable(String),
    /// The connection was lost; the server may have processed the request.
    #[error("{0}")]
    Lost(String),
    /// The program exited. Its last output is shown to the server's owner only.
    #[error("{how}")]
    ProgramExited {
        /// How the program exited.
        how: String,
        /// Its exit code, if it was not ended by a signal or by the hub.
        code: Option<i32>,
        /// The line of its stderr that tells most, without secrets.
        stderr: Option<String>,
    },
    /// The server refused the connection; retrying does not help.
    #[error("{0}")]
    Refused(String),
    /// The server answered the handshake with an error. Its message is shown to the
    /// server's owner only.
    #[error("the server refused the handshake in protocol version {version} with error {code}")]
    HandshakeRefused {
        /// The protocol version that maru requested.
        version: ProtocolVersion,
        /// The JSON-RPC error code.
        code: i64,
        /// The server's message, shortened to one line, without secrets.
        message: String,
    },
    /// The server wants a token, and only a sign-in gets one.
    #[error("{0}")]
    SignInRequired(String),
    /// The request needs scopes that the sign-in did not ask for.
    #[error("{0}")]
    ScopeRequired(String),
    /// The server no longer knows the session; a new one is needed.
    #[error("the server ended the session")]
    SessionExpired,
    /// The server answered with an unexpected HTTP status.
    #[error("the server answered with status {0}")]
    HttpStatus(u16),
    /// The server, or the queue to it, is overloaded.
    #[error("{0}")]
    Busy(String),
    /// The server sent an invalid message.
    #[error("{0}")]
    InvalidMessage(String),
}

impl Error {
    /// Whether a retry cannot succeed without a change of the configuration.
    fn is_final(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::HandshakeRefused { .. })
    }

    /// The error text for the server's owner, including what the server wrote.
    fn owner_message(&self) -> String {
        match self {
            Self::ProgramExited {
                how,
                stderr: Some(line),
                ..
            } => match exit_cause::hint_for(line) {
                Some(hint) => format!("{how}: {line} ({hint})"),
                None => format!("{how}: {line}"),
            },
            Self::HandshakeRefused { message, .. } => format!(
                "{self}: {message}; if it fails in this version, hold it to another one with protocol-version"
            ),
            other => other.to_string(),
        }
    }
}

impl From<maru_protocol::EventTooLarge> for Error {
    fn from(error: maru_protocol::EventTooLarge) -> Self {
        Self::InvalidMessage(format!("the server sent {error}"))
    }
}

impl From<TrafficExceeded> for Error {
    fn from(error: TrafficExceeded) -> Self {
        let setting = error.setting("server");
        Self::Lost(format!(
            "the server sends {error} ({setting}), so it was disconnected"
        ))
    }
}

impl From<maru_http::Error> for Error {
    fn from(error: maru_http::Error) -> Self {
        use maru_http::Error as Outbound;
        let text = error.to_string();
        match error {
            Outbound::Refused(_) => Self::Refused(text),
            Outbound::Unreachable { .. } => Self::Unreachable(text),
            Outbound::Broken(_) => Self::Lost(text),
            Outbound::Busy(_) => Self::Busy(text),
            Outbound::TooLarge(_) => Self::InvalidMessage(text),
        }
    }
}
