//! The error of a registration or another change of the servers.

use thiserror::Error;

use super::server::{InvalidField, ServerName};

/// Why a change of the registered servers was refused.
#[derive(Debug, Error)]
pub enum RegistrationError {
    /// A field of the description is invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidField),
    /// A server of this name is registered.
    #[error("a server named {0} is registered already")]
    NameTaken(ServerName),
    /// No server has this name.
    #[error("no server is named {0:?}")]
    UnknownServer(String),
    /// The limit on servers is reached.
    #[error("there are {0} servers, as many as mcp.security.max-servers allows")]
    TooManyServers(usize),
    /// No withheld tool has this name.
    #[error("no tool of that name waits to be accepted")]
    NothingToAccept,
    /// Programs may not be registered over HTTP while other machines can reach the hub.
    #[error(
        "programs are not registered over HTTP while maru serves other machines; put it into maru.yaml, or set allow_stdio_over_http: true"
    )]
    ProgramsNotAllowed,
    /// The program needs a warning that the request does not accept.
    #[error(
        "{}; send \"acceptWarnings\": true (--accept-warnings on the command line) if that is meant",
        .warnings.join("; ")
    )]
    WarningsNotAccepted {
        /// The field that the warnings are about.
        field: String,
        /// The warnings to accept.
        warnings: Vec<String>,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] maru_store::Error),
}
