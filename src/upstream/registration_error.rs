//! Why a registration, or another change of the servers, was refused.

use thiserror::Error;

use super::server::{InvalidField, ServerName};

/// A change that was not made.
#[derive(Debug, Error)]
pub enum RegistrationError {
    /// The description is wrong.
    #[error(transparent)]
    Invalid(#[from] InvalidField),
    /// The name is in use.
    #[error("a server named {0} is registered already")]
    NameTaken(ServerName),
    /// There is no such server.
    #[error("no server is named {0:?}")]
    UnknownServer(String),
    /// There are too many.
    #[error("there are {0} servers, as many as mcp.security.max-servers allows")]
    TooManyServers(usize),
    /// Nothing of that name waits.
    #[error("no tool of that name waits to be accepted")]
    NothingToAccept,
    /// It is a program, and requests come from other machines.
    #[error(
        "programs are not registered over HTTP while maru serves other machines; put it into maru.yaml, or set allow_stdio_over_http: true"
    )]
    ProgramsNotAllowed,
    /// It does more than start a program, and nobody said that this is meant.
    #[error(
        "{}; send \"acceptWarnings\": true (--accept-warnings on the command line) if that is meant",
        .warnings.join("; ")
    )]
    WarningsNotAccepted {
        /// The member of the description that it is about.
        field: String,
        /// What a person should know of it.
        warnings: Vec<String>,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] maru_store::Error),
}
