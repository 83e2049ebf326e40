//! A JSON API over HTTP: within a deadline, again when it is busy, and errors that
//! quote neither bodies nor keys.

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
    AllowedUrl, ClientTls, HttpClient, HttpResponse, Request, RetrySchedule, is_retryable_status,
};

const MAX_RETRIES: u32 = 3;

/// Why a service gave no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A header of the settings has a name that no header can have.
    #[error("a header has a name that no header can have")]
    InvalidHeaderName,
    /// A key or header of the settings cannot be sent.
    #[error("a key or header has a character that is not allowed")]
    InvalidHeaderValue,
    /// The service may not be reached, or cannot be.
    #[error("cannot ask {endpoint}")]
    Unreachable {
        /// Where, without its query.
        endpoint: String,
        /// What stood in the way.
        source: super::Error,
    },
    /// The service refused, or failed more often than we ask again.
    #[error("{endpoint} answered {status}{}", .code.as_deref().map(|it| format!(" ({it})")).unwrap_or_default())]
    Status {
        /// Where, without its query.
        endpoint: String,
        /// The HTTP status.
        status: u16,
        /// The name that the service gives to the error.
        code: Option<String>,
    },
    /// The service did not answer in time.
    #[error("{endpoint} did not answer within {limit:?}")]
    Timeout {
        /// Where, without its query.
        endpoint: String,
        /// How long we waited.
        limit: Duration,
    },
    /// The answer is not what was asked for.
    #[error("{endpoint} sent {what}")]
    InvalidAnswer {
        /// Where, without its query.
        endpoint: String,
        /// What is wrong with it.
        what: String,
    },
}

/// A service and how to talk to it.
#[derive(Debug)]
pub struct JsonService {
    client: Arc<HttpClient>,
    headers: HeaderMap,
    timeout: Duration,
    max_retries: u32,
}

/// A request to a service. It may be sent again, so it must do the same twice as once.
#[derive(Clone, Debug)]
pub struct ServiceRequest {
    /// What to do.
    pub method: Method,
    /// Path and query behind the path of the base address; empty for the address itself.
    pub path: String,
    /// JSON; empty for none.
    pub body: Bytes,
}

/// An answer, read to its end.
#[derive(Debug)]
pub struct ServiceResponse {
    /// Its status.
    pub status: StatusCode,
    /// Its whole body.
    pub body: Bytes,
    retry_after: Option<Duration>,
}

impl ServiceRequest {
    /// Reads what is at `path`.
    pub fn get(path: impl Into<String>) -> Self {
        Self {
            method: Method::GET,
            path: path.into(),
            body: Bytes::new(),
        }
    }

    /// Posts `body` to `path`.
    pub fn post(path: impl Into<String>, body: impl Into<Bytes>) -> Self {
        Self {
            method: Method::POST,
            path: path.into(),
            body: body.into(),
        }
    }
}

impl JsonService {
    /// The service at `base`. An answer takes at most `timeout`, further attempts
    /// included.
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

    /// Makes so many further attempts at most.
    #[must_use]
    pub fn with_max_retries(self, max_retries: u32) -> Self {
        Self {
            max_retries,
            ..self
        }
    }

    /// Takes answers of these media types.
    #[must_use]
    pub fn with_accept(mut self, media_types: &'static str) -> Self {
        self.headers
            .insert(ACCEPT, HeaderValue::from_static(media_types));
        self
    }

    /// Sends `value` with every request.
    pub fn with_header(mut self, name: &str, value: &SecretString) -> Result<Self, Error> {
        let name = HeaderName::try_from(name).map_err(|_| Error::InvalidHeaderName)?;
        let value = HeaderValue::from_str(value.reveal());
        let mut value = value.map_err(|_| Error::InvalidHeaderValue)?;
        value.set_sensitive(true);
        self.headers.insert(name, value);
        Ok(self)
    }

    /// Where requests go.
    pub fn target(&self) -> &AllowedUrl {
        self.client.target()
    }

    /// The answer, whatever its status.
    pub async fn send(&self, request: &ServiceRequest) -> Result<ServiceResponse, Error> {
        let late = || Error::Timeout {
            endpoint: self.endpoint(request),
            limit: self.timeout,
        };
        let answer = with_timeout(self.timeout, self.send_with_retry(request)).await;
        let answer = answer.ok_or_else(late)?;
        answer.map_err(|source| Error::Unreachable {
            endpoint: self.endpoint(request),
            source,
        })
    }

    /// What a good answer says.
    pub async fn send_for_json<T: DeserializeOwned>(
        &self,
        request: &ServiceRequest,
    ) -> Result<T, Error> {
        let answer = self.send(request).await?;
        if !answer.status.is_success() {
            return Err(self.status_error(request, &answer));
        }
        self.parse_json(request, &answer)
    }

    /// The beginning of an answer that is read piece by piece. One attempt, and the
    /// deadline is the caller's.
    pub async fn open_response(
        &self,
        request: &ServiceRequest,
    ) -> Result<HttpResponse, super::Error> {
        let invalid = |_| super::Error::Refused("the path is not valid".to_owned());
        let request = Request {
            method: &request.method,
            uri: &self.full_path(request).parse().map_err(invalid)?,
            headers: &self.headers,
            more: &[],
            body: &request.body,
        };
        self.client.send(&request).await
    }

    /// The further attempts of a caller who opens responses.
    pub fn retry_schedule(&self, deadline: Instant) -> RetrySchedule {
        RetrySchedule::new(self.max_retries, deadline)
    }

    /// The body of `answer` in the form of `T`.
    pub fn parse_json<T: DeserializeOwned>(
        &self,
        request: &ServiceRequest,
        answer: &ServiceResponse,
    ) -> Result<T, Error> {
        // What serde says may quote the text.
        serde_json::from_slice(&answer.body).map_err(|_| {
            self.invalid_answer(request, "an answer in another form than the protocol's")
        })
    }

    /// The error for an answer that says something else than was asked for.
    pub fn invalid_answer(&self, request: &ServiceRequest, what: impl Into<String>) -> Error {
        Error::InvalidAnswer {
            endpoint: self.endpoint(request),
            what: what.into(),
        }
    }

    /// The error for an answer with this status.
    pub fn status_error(&self, request: &ServiceRequest, answer: &ServiceResponse) -> Error {
        Error::Status {
            endpoint: self.endpoint(request),
            status: answer.status.as_u16(),
            code: error_code(&answer.body),
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
                Ok(answer) => (is_retryable_status(answer.status), answer.retry_after),
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
            body: response.text().await?,
            retry_after: response.retry_after(),
        })
    }
}

/// The name of an error, if it is nothing but a name.
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
