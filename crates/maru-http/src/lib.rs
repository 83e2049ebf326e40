//! maru as an HTTP client: which addresses may be reached, and reaching them.
//!
//! An address is authorised before it is dialled, and the authorised address is the one
//! that is dialled. Redirects are not followed.

#![forbid(unsafe_code)]

mod allowed_url;
mod client;
mod connect;
pub mod json_service;
mod policy;
mod request;
mod response;
mod retry;
#[cfg(test)]
mod test_server;

use thiserror::Error;

pub use allowed_url::AllowedUrl;
pub use client::HttpClient;
pub use connect::ClientTls;
pub use json_service::{JsonService, ServiceRequest, ServiceResponse};
pub use policy::AddressPolicy;
pub use request::Request;
pub use response::HttpResponse;
pub use retry::{RetrySchedule, is_retryable_status};

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

impl Error {
    /// Whether another attempt may help.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Broken(_) | Self::Busy(_) => true,
            Self::Refused(_) | Self::TooLarge(_) => false,
        }
    }
}
