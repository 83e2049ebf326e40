//! A client of a JSON API over HTTP, with a deadline, retries, and errors that quote
//! neither bodies nor keys.

#[cfg(test)]
mod tests;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use hyper::{
    HeaderMap, Method, StatusCode,
    header::{ACCEPT, CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT},
};
use maru_runtime::{SecretString, tasks::with_timeout};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::time::Instant;

use super::{
    AllowedUrl, ClientTls, HttpClient, HttpRequest, HttpResponse, RetrySchedule,
    is_retryable_status,
};

const MAX_RETRIES: u32 = 3;

/// Why a service gave no usable response.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A configured header has an invalid name.
    #[error("a header has an invalid name")]
    InvalidHeaderName,
    /// A configured key or header contains a character that is not allowed.
    #[error("a key or header has a character that is not allowed")]
    InvalidHeaderValue,
    /// The request failed before a response arrived.
    #[error("cannot reach {endpoint}")]
    Unreachable {
        /// The URL without its query.
        endpoint: String,
        /// The error of the HTTP client.
        source: super::Error,
    },
    /// The service answered with an error status, and retries are used up.
    #[error("{endpoint} answered {status}{}", .code.as_deref().map(|it| format!(" ({it})")).unwrap_or_default())]
    Status {
        /// The URL without its query.
        endpoint: String,
        /// The HTTP status.
        status: u16,
        /// The service's own name of the error.
        code: Option<String>,
    },
    /// The service did not answer before the deadline.
    #[error("{endpoint} did not answer within {limit:?}")]
    Timeout {
        /// The URL without its query.
        endpoint: String,
        /// The timeout, retries included.
        limit: Duration,
    },
    /// The response has an unexpected body.
    #[error("{endpoint} sent {what}")]
    InvalidResponse {
        /// The URL without its query.
        endpoint: String,
        /// What the service sent instead.
        what: String,
    },
}

/// A JSON API at a base URL, with its headers, timeout and retries.
#[derive(Debug)]
pub struct JsonService {
    client: Arc<HttpClient>,
    headers: HeaderMap,
    timeout: Duration,
    max_retries: u32,
}

/// A request to a [`JsonService`]. It must be idempotent, because it may be sent again.
#[derive(Clone, Debug)]
pub struct ServiceRequest {
    /// The HTTP method.
    pub method: Method,
    /// Path and query, appended to the base URL; empty for the base URL itself.
    pub path: String,
    /// A JSON body; empty for none.
    pub body: Bytes,
}

/// A response that was read to its end.
#[derive(Debug)]
pub struct ServiceResponse {
    /// The status code.
    pub status: StatusCode,
    /// The whole body.
    pub body: Bytes,
    retry_after: Option<Duration>,
}

impl ServiceRequest {
    /// Creates a GET request.
    pub fn get(path: impl Into<String>) -> Self {
        Self {
            method: Method::GET,
            path: path.into(),
            body: Bytes::new(),
        }
    }

    /// Creates a POST request.
    pub fn post(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self {
            method: Method::POST,
            path: path.into(),
            body: body.into(),
        }
    }
}

impl JsonService {
    /// Creates a service at `base`. `timeout` covers a request and its retries.
    pub fn new(base: AllowedUrl, tls: ClientTls, timeout: Duration) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static("maru"));
        Self {
            client: HttpClient::new(base, tls),
            headers,
            timeout,
            max_retries: MAX_RETRIES,
        }
    }

    /// Limits the attempts after the first.
    #[must_use]
    pub fn with_max_retries(self, max_retries: u32) -> Self {
        Self {
            max_retries,
            ..self
        }
    }

    /// Sets the `Accept` header.
    #[must_use]
    pub fn with_accept(mut self, media_types: &'static str) -> Self {
        self.headers
            .insert(ACCEPT, HeaderValue::from_static(media_types));
        self
    }

    /// Adds a secret header to every request.
    pub fn with_header(mut self, name: &str, value: &SecretString) -> Result<Self, Error> {
        let name = HeaderName::try_from(name).map_err(|_| Error::InvalidHeaderName)?;
        let value = HeaderValue::from_str(value.reveal());
        let mut value = value.map_err(|_| Error::InvalidHeaderValue)?;
        value.set_sensitive(true);
        self.headers.insert(name, value);
        Ok(self)
    }

    /// Returns the base URL.
    pub fn target(&self) -> &AllowedUrl {
        self.client.target()
    }

    /// Sends a request with retries and returns the response, whatever its status.
    pub async fn send(&self, request: &ServiceRequest) -> Result<ServiceResponse, Error> {
        let timed_out = || Error::Timeout {
            endpoint: self.endpoint(request),
            limit: self.timeout,
        };
        let response = with_timeout(self.timeout, self.send_with_retry(request)).await;
        let response = response.ok_or_else(timed_out)?;
        response.map_err(|source| Error::Unreachable {
            endpoint: self.endpoint(request),
            source,
        })
    }

    /// Sends a request with retries and parses the body of a successful response.
    pub async fn send_for_json<T: DeserializeOwned>(
        &self,
        request: &ServiceRequest,
    ) -> Result<T, Error> {
        let response = self.send(request).await?;
        if !response.status.is_success() {
            return Err(self.status_error(request, &response));
        }
        self.parse_json(request, &response)
    }

    /// Sends a request once and returns a response whose body is read in chunks. The
    /// caller sets the deadline.
    pub async fn open_response(
        &self,
        request: &ServiceRequest,
    ) -> Result<HttpResponse, super::Error> {
        let invalid = |_| super::Error::Refused("the path is not valid".to_owned());
        let request = HttpRequest {
            method: &request.method,
            uri: &self.full_path(request).parse().map_err(invalid)?,
            headers: &self.headers,
            extra_headers: &[],
            body: &request.body,
        };
        self.client.send(&request).await
    }

    /// Returns the retries for a caller of [`JsonService::open_response`].
    pub fn retry_schedule(&self, deadline: Instant) -> RetrySchedule {
        RetrySchedule::new(self.max_retries, deadline)
    }

    /// Parses the body of a response.
    pub fn parse_json<T: DeserializeOwned>(
        &self,
        request: &ServiceRequest,
        response: &ServiceResponse,
    ) -> Result<T, Error> {
        // The error of serde may quote the body.
        serde_json::from_slice(&response.body)
            .map_err(|_| self.invalid_response(request, "a response in an unexpected format"))
    }

    /// Creates the error for a response with an unexpected body.
    pub fn invalid_response(&self, request: &ServiceRequest, what: impl Into<String>) -> Error {
        Error::InvalidResponse {
            endpoint: self.endpoint(request),
            what: what.into(),
        }
    }

    /// Creates the error for a response with an error status.
    pub fn status_error(&self, request: &ServiceRequest, response: &ServiceResponse) -> Error {
        Error::Status {
            endpoint: self.endpoint(request),
            status: response.status.as_u16(),
            code: error_code(&response.body),
        }
    }

    fn full_path(&self, request: &ServiceRequest) -> String {
        let base = &self.target().path;
        if request.path.is_empty() {
            base.clone()
        } else {
            format!("{}{}", base.trim_end_matches('/'), request.path)
        }
    }

    fn endpoint(&self, request: &ServiceRequest) -> String {
        let joined = self.target().join(&self.full_path(request));
        joined.as_ref().unwrap_or(self.target()).to_string()
    }

    async fn send_with_retry(
        &self,
        request: &ServiceRequest,
    ) -> Result<ServiceResponse, super::Error> {
        let mut schedule = self.retry_schedule(Instant::now() + self.timeout);
        loop {
            let outcome = self.send_once(request).await;
            let (is_retryable, retry_after) = match &outcome {
                Ok(response) => (is_retryable_status(response.status), response.retry_after),
                Err(error) => (error.is_retryable(), None),
            };
            if !is_retryable || !schedule.wait(retry_after).await {
                return outcome;
            }
        }
    }

    async fn send_once(&self, request: &ServiceRequest) -> Result<ServiceResponse, super::Error> {
        let mut response = self.open_response(request).await?;
        Ok(ServiceResponse {
            status: response.status,
            body: response.bytes().await?,
            retry_after: response.retry_after(),
        })
    }
}

/// Returns the `error` member of a body if it is an identifier such as `NotFoundError`.
fn error_code(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct NamedError {
        error: String,
    }
    let named: NamedError = serde_json::from_slice(body).ok()?;
    let is_name = named.error.ends_with("Error")
        && named.error.len() <= 64
        && named.error.bytes().all(|it| it.is_ascii_alphabetic());
    is_name.then_some(named.error)
}
