//! maru as an HTTP client: which addresses may be reached, and reaching them.
//!
//! An address is judged before it is dialled, and the judged address is the one
//! that is dialled. Redirects are not followed.

#![forbid(unsafe_code)]

mod allowed_url;
mod client;
mod connect;
mod joined;
mod line;
mod policy;
mod words;

use thiserror::Error;

pub use allowed_url::AllowedUrl;
pub use client::{HttpClient, HttpResponse};
pub use connect::ClientTls;
pub use joined::Joined;
pub use policy::AddressPolicy;
pub use words::Request;

/// Why nothing came back.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Error {
    /// The policy does not let us go there.
    #[error("{0}")]
    Refused(String),
    /// No connection could be made, so nothing was asked.
    #[error("cannot connect to {place}: {why}")]
    Unreachable {
        /// Host and port.
        place: String,
        /// What the system said.
        why: String,
    },
    /// The connection broke; what was asked may have been done.
    #[error("the connection to {0} broke")]
    Broken(String),
    /// Too many requests to one place are in progress.
    #[error("{0} has too many requests in progress; try again later")]
    Busy(String),
    /// The answer is larger than we take.
    #[error("{0} sent more than the allowed size")]
    TooLarge(String),
}
