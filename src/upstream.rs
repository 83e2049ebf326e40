//! maru as an MCP client: many servers, each kept connected by a task of its
//! own, their offers in the catalog.
//!
//! `stdio`, `sse` and `http` open links; behind [`link`] nobody knows which it
//! is. What differs between protocol versions is in [`handshake`] and
//! [`forward`].

mod budget;
mod cgroup;
mod channel;
mod command;
mod connection;
mod draft;
mod forward;
mod handshake;
mod http;
mod in_flight;
mod lifecycle;
mod link;
mod listen;
mod log;
mod look;
mod manager;
mod news;
mod offers;
mod open;
mod parked;
mod pins;
mod processes;
mod programs;
mod registry;
mod repair;
mod route;
mod row;
mod server;
mod settings;
mod shared;
mod sse;
mod stdio;
mod traces;
mod transport;
mod trust;
mod unmask;
pub mod warden;

use thiserror::Error;

pub use command::ProgramRules;
pub use draft::{Draft, Named, from_import};
pub use lifecycle::State;
pub use log::{Entry, EntryKind};
pub use look::Trial;
pub use manager::{Manager, Start, Unchanged, View};
pub use offers::Withheld;
pub use programs::{ProgramLimits, ProgramUsage, ProgramView};
pub use server::{Invalid, Origin, Rules, Server, ServerName};
pub use settings::Settings;
pub use shared::{Handle, Status};
pub use transport::{Program, Remote, Transport};
pub use trust::Trust;

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
    Ended {
        /// How it ended.
        how: String,
        /// Its last words.
        said: Option<String>,
    },
    /// It will not have us, and trying again does not change that.
    #[error("{0}")]
    Refused(String),
    /// It has forgotten our session; a new one is needed.
    #[error("the server ended the session")]
    SessionOver,
    /// It answered with an HTTP status that means nothing here.
    #[error("the server answered with status {0}")]
    Status(u16),
    /// It has too much to do.
    #[error("{0}")]
    Busy(String),
    /// What it said makes no sense.
    #[error("{0}")]
    Garbage(String),
}

impl Error {
    /// The text for who registered the server: with what it said itself.
    fn for_owner(&self) -> String {
        match self {
            Self::Ended {
                how,
                said: Some(said),
            } => format!("{how}: {said}"),
            other => other.to_string(),
        }
    }
}

impl From<crate::mcp::EventTooLarge> for Error {
    fn from(why: crate::mcp::EventTooLarge) -> Self {
        Self::Garbage(format!("the server sent {why}"))
    }
}

impl From<crate::outbound::Error> for Error {
    fn from(error: crate::outbound::Error) -> Self {
        use crate::outbound::Error as Outbound;
        let text = error.to_string();
        match error {
            Outbound::Refused(_) => Self::Refused(text),
            Outbound::Unreachable { .. } => Self::Unreachable(text),
            Outbound::Broken(_) => Self::Lost(text),
            Outbound::Busy(_) => Self::Busy(text),
            Outbound::TooLarge(_) => Self::Garbage(text),
        }
    }
}
