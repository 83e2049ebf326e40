//! An HTTP client that connects only to addresses that a policy allows.
//!
//! - [`AddressPolicy`] turns a URL into an [`AllowedUrl`] or refuses it (SSRF protection).
//!   Names are resolved by the client itself, which checks every address it connects to.
//!   Redirects are not followed.
//! - [`HttpClient`] sends requests to one origin over pooled connections (HTTP/1.1 and
//!   HTTP/2, by hyper).
//! - [`JsonService`] adds a deadline, retries and errors without secrets for JSON APIs.
//!
//! ```ignore
//! let url = AddressPolicy::default().authorize_configured("http://127.0.0.1:11434/v1")?;
//! let service = JsonService::new(url, ClientTls::default(), Duration::from_secs(10));
//! let models: Value = service.send_for_json(&ServiceRequest::get("/models")).await?;
//! ```
//!
//! Test with `cargo nextest run -p maru-http`; the tests use loopback sockets only.

#![forbid(unsafe_code)]

mod added_hosts;
mod allowed_url;
mod client;
mod connect;
mod ip_ranges;
pub mod json_service;
mod policy;
mod request;
mod response;
mod retry;
#[cfg(test)]
mod test_server;

use thiserror::Error;

pub use added_hosts::AddedHosts;
pub use allowed_url::AllowedUrl;
pub use client::HttpClient;
pub use connect::ClientTls;
pub use json_service::{JsonService, ServiceRequest, ServiceResponse};
pub use policy::AddressPolicy;
pub use request::HttpRequest;
pub use response::HttpResponse;
pub use retry::{RetrySchedule, is_retryable_status};

/// Why a request got no response.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Error {
    /// The policy refuses the address.
    #[error("{0}")]
    Refused(String),
    /// The connection could not be established; the request was not sent.
    #[error("cannot connect to {authority}: {reason}")]
    Unreachable {
        /// Host and port.
        authority: String,
        /// The error of the operating system or of TLS.
        reason: String,
    },
    /// The connection broke; the server may have processed the request.
    #[error("the connection to {0} broke")]
    Broken(String),
    /// Too many requests to one origin are in flight.
    #[error("{0} has too many requests in progress; try again later")]
    Busy(String),
    /// The response body exceeds the limit.
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
