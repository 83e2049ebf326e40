//! Questions to an HTTP service: within a deadline, again when it is busy, and
//! errors that quote neither bodies nor keys.

use std::{sync::Arc, time::Duration};

use hyper::{
    HeaderMap, Method, StatusCode,
    body::Bytes,
    header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT},
};
use maru_http::{AddressPolicy, AllowedUrl, ClientTls, HttpClient, Request};
use maru_runtime::{SecretString, tasks::with_timeout};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::time::{self, Instant};

use super::Error;

/// How long we wait before each further attempt.
const RETRY_DELAYS: [Duration; 3] = [
    Duration::from_millis(200),
    Duration::from_millis(600),
    Duration::from_millis(1800),
];

/// A service and how to talk to it.
#[derive(Debug)]
pub(super) struct JsonService {
    client: Arc<HttpClient>,
    headers: HeaderMap,
    timeout: Duration,
}

/// A question. All of ours may be asked again: they do the same twice as once.
pub(super) struct ServiceRequest {
    pub(super) method: Method,
    /// Path and query.
    pub(super) path: String,
    pub(super) body: Bytes,
}

/// An answer, read to its end.
pub(super) struct ServiceResponse {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
    retry_after: Option<Duration>,
}

impl JsonService {
    pub(super) fn open(
        url: &str,
        policy: &AddressPolicy,
        tls: &ClientTls,
        limit: Duration,
    ) -> Result<Self, Error> {
        let target = policy
            .authorize(url)
            .map_err(|source| redacted_refusal(url, policy, source))?;
        let mut headers = HeaderMap::new();
        let host = HeaderValue::try_from(target.authority())
            .map_err(|_| Error::InvalidSetting("the host cannot be put into a header"))?;
        headers.insert(HOST, host);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static("maru"));
        Ok(Self {
            client: HttpClient::new(target, tls.clone()),
            headers,
            timeout: limit,
        })
    }

    /// Sends `value` with every question.
    pub(super) fn add_header(&mut self, name: &str, value: &SecretString) -> Result<(), Error> {
        let name = HeaderName::try_from(name)
            .map_err(|_| Error::InvalidSetting("a header has a name that no header can have"))?;
        let mut value = HeaderValue::from_str(value.reveal()).map_err(|_| {
            Error::InvalidSetting("a key or header has a character that is not allowed")
        })?;
        value.set_sensitive(true);
        self.headers.insert(name, value);
        Ok(())
    }

    /// Where questions go.
    pub(super) fn target(&self) -> &AllowedUrl {
        self.client.target()
    }

    /// The answer, whatever its status.
    pub(super) async fn send(&self, ask: &ServiceRequest) -> Result<ServiceResponse, Error> {
        let late = || Error::Timeout {
            endpoint: self.endpoint(ask),
            limit: self.timeout,
        };
        let answer = with_timeout(self.timeout, self.send_with_retry(ask)).await;
        let answer = answer.ok_or_else(late)?;
        answer.map_err(|source| Error::Unreachable {
            endpoint: self.endpoint(ask),
            source,
        })
    }

    /// What a good answer says.
    pub(super) async fn send_for_json<T: DeserializeOwned>(
        &self,
        ask: &ServiceRequest,
    ) -> Result<T, Error> {
        let answer = self.send(ask).await?;
        if !answer.status.is_success() {
            return Err(self.status_error(ask, &answer));
        }
        self.parse_json(ask, &answer)
    }

    pub(super) fn parse_json<T: DeserializeOwned>(
        &self,
        ask: &ServiceRequest,
        answer: &ServiceResponse,
    ) -> Result<T, Error> {
        // What serde says may quote the text.
        serde_json::from_slice(&answer.body)
            .map_err(|_| self.invalid_answer(ask, "an answer in another form than the protocol's"))
    }

    pub(super) fn invalid_answer(&self, ask: &ServiceRequest, what: impl Into<String>) -> Error {
        Error::InvalidAnswer {
            endpoint: self.endpoint(ask),
            what: what.into(),
        }
    }

    pub(super) fn status_error(&self, ask: &ServiceRequest, answer: &ServiceResponse) -> Error {
        Error::Status {
            endpoint: self.endpoint(ask),
            status: answer.status.as_u16(),
            code: error_code(&answer.body),
        }
    }

    fn endpoint(&self, ask: &ServiceRequest) -> String {
        let joined = self.target().join(&ask.path);
        joined.as_ref().unwrap_or(self.target()).to_string()
    }

    async fn send_with_retry(
        &self,
        ask: &ServiceRequest,
    ) -> Result<ServiceResponse, maru_http::Error> {
        let end = Instant::now() + self.timeout;
        let mut pauses = RETRY_DELAYS.into_iter();
        loop {
            let outcome = self.send_once(ask).await;
            let Some(pause) = pauses.next().and_then(|pause| retry_delay(&outcome, pause)) else {
                return outcome;
            };
            if Instant::now() + pause >= end {
                return outcome;
            }
            time::sleep(pause).await;
        }
    }

    async fn send_once(&self, ask: &ServiceRequest) -> Result<ServiceResponse, maru_http::Error> {
        let invalid = |_| maru_http::Error::Refused("the path is not valid".to_owned());
        let request = Request {
            method: &ask.method,
            uri: &ask.path.parse().map_err(invalid)?,
            headers: &self.headers,
            more: &[],
            body: &ask.body,
        };
        let mut reply = self.client.send(&request).await?;
        let body = reply.text().await?;
        let seconds = reply.header(&RETRY_AFTER).and_then(|it| it.parse().ok());
        Ok(ServiceResponse {
            status: reply.status,
            body,
            retry_after: seconds.map(Duration::from_secs),
        })
    }
}

/// How long to wait before asking again, if that may help.
fn retry_delay(
    outcome: &Result<ServiceResponse, maru_http::Error>,
    pause: Duration,
) -> Option<Duration> {
    match outcome {
        Ok(answer) => {
            let busy =
                answer.status == StatusCode::TOO_MANY_REQUESTS || answer.status.is_server_error();
            busy.then(|| answer.retry_after.unwrap_or_default().max(pause))
        }
        Err(maru_http::Error::Refused(_) | maru_http::Error::TooLarge(_)) => None,
        Err(_) => Some(pause),
    }
}

/// A refusal that does not quote the query.
fn redacted_refusal(url: &str, policy: &AddressPolicy, source: maru_http::Error) -> Error {
    let plain = url.split('?').next().unwrap_or_default();
    Error::Unreachable {
        endpoint: plain.chars().take(100).collect(),
        source: policy.authorize(plain).err().unwrap_or(match source {
            maru_http::Error::Refused(_) => {
                maru_http::Error::Refused("the address is refused".to_owned())
            }
            other => other,
        }),
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
