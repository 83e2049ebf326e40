//! maru as an MCP client: many servers, each kept connected by a task of its
//! own, their offers in the catalog.
//!
//! `stdio`, `sse` and `http` open links; behind `link` nobody knows which it
//! is. What differs between protocol versions is in `handshake` and
//! `forward`.

mod cgroup;
mod channel;
mod cleanup_tracker;
mod connect;
mod connection;
mod diagnostics;
mod draft;
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
mod notifications;
mod pending_input;
mod processes;
mod program_rules;
mod programs;
mod registration_error;
mod registration_rules;
mod registry_file;
mod sanitize;
mod server;
mod server_log;
mod server_row;
mod settings;
mod sse;
mod stdio;
mod subscriptions;
mod tool_pins;
mod traffic_budget;
mod transport;
mod trust;
mod unmask;
pub mod warden;

use maru_protocol::ProtocolVersion;
use thiserror::Error;

pub use diagnostics::ConnectionTest;
pub use draft::{NamedDraft, ServerDraft, drafts_from_import};
pub use handle::{ServerHandle, ServerStatus};
pub use lifecycle::ServerState;
pub use listing::WithheldEntry;
pub use manager::{ManagerOptions, ServerManager, ServerView};
pub use program_rules::ProgramRules;
pub use programs::{ProgramLimits, ProgramUsage, ProgramView};
pub use registration_error::RegistrationError;
pub use registration_rules::RegistrationRules;
pub use server::{InvalidField, RegisteredServer, ServerName, ServerOrigin};
pub use server_log::{ServerLogEntry, ServerLogKind};
pub use settings::ConnectionSettings;
pub use transport::{ProgramSpec, RemoteEndpoint, Transport};
pub use trust::TrustPolicy;

/// Why a server did not answer. The text is for people and holds nothing that
/// the server itself wrote.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Error {
    /// It cannot be reached, and nothing was asked; that may pass.
    #[error("{0}")]
    Unreachable(String),
    /// It went away; what was asked may have been done.
    #[error("{0}")]
    Lost(String),
    /// The program ended; what it said last is for its owner only.
    #[error("{how}")]
    ProgramExited {
        /// How it ended.
        how: String,
        /// Its last words.
        said: Option<String>,
    },
    /// It will not have us, and trying again does not change that.
    #[error("{0}")]
    Refused(String),
    /// It answered the handshake with an error; what it said is for its owner only.
    #[error("the server refused the handshake in protocol version {version} with error {code}")]
    HandshakeRefused {
        /// The version that was asked for.
        version: ProtocolVersion,
        /// The code of its error.
        code: i64,
        /// Its message: short, one line, without secrets.
        said: String,
    },
    /// It has forgotten our session; a new one is needed.
    #[error("the server ended the session")]
    SessionExpired,
    /// It answered with an HTTP status that means nothing here.
    #[error("the server answered with status {0}")]
    HttpStatus(u16),
    /// It has too much to do.
    #[error("{0}")]
    Busy(String),
    /// What it said makes no sense.
    #[error("{0}")]
    InvalidMessage(String),
}

impl Error {
    /// Whether trying again changes nothing.
    fn is_final(&self) -> bool {
        matches!(self, Self::Refused(_) | Self::HandshakeRefused { .. })
    }

    /// The text for who registered the server: with what it said itself.
    fn owner_message(&self) -> String {
        match self {
            Self::ProgramExited {
                how,
                said: Some(said),
            } => format!("{how}: {said}"),
            Self::HandshakeRefused { said, .. } => format!(
                "{self}: {said}; if it fails in this version, hold it to another one with protocol-version"
            ),
            other => other.to_string(),
        }
    }
}

impl From<maru_protocol::EventTooLarge> for Error {
    fn from(why: maru_protocol::EventTooLarge) -> Self {
        Self::InvalidMessage(format!("the server sent {why}"))
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
