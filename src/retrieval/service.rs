//! Questions to an HTTP service: within a deadline, again when it is busy, and
//! errors that quote neither bodies nor keys.

use std::{sync::Arc, time::Duration};

use hyper::{
    HeaderMap, Method, StatusCode,
    body::Bytes,
    header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT},
};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::time::{self, Instant};

use super::Error;
use crate::{
    config::Secret,
    outbound::{self, Client, Policy, Request, Target, Tls},
    tasks::within,
};

/// How long we wait before each further attempt.
const PAUSES: [Duration; 3] = [
    Duration::from_millis(200),
    Duration::from_millis(600),
    Duration::from_millis(1800),
];

/// A service and how to talk to it.
#[derive(Debug)]
pub(super) struct Service {
    client: Arc<Client>,
    headers: HeaderMap,
    limit: Duration,
}

/// A question. All of ours may be asked again: they do the same twice as once.
pub(super) struct Ask {
    pub(super) method: Method,
    /// Path and query.
    pub(super) path: String,
    pub(super) body: Bytes,
}

/// An answer, read to its end.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Bytes,
    retry_after: Option<Duration>,
}

impl Service {
    pub(super) fn open(
        url: &str,
        policy: &Policy,
        tls: &Tls,
        limit: Duration,
    ) -> Result<Self, Error> {
        let target = policy
            .judge(url)
            .map_err(|source| refused(url, policy, source))?;
        let mut headers = HeaderMap::new();
        let host = HeaderValue::try_from(target.authority())
            .map_err(|_| Error::Setting("the host cannot be put into a header"))?;
        headers.insert(HOST, host);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(USER_AGENT, HeaderValue::from_static("maru"));
        Ok(Self {
            client: Client::new(target, tls.clone()),
            headers,
            limit,
        })
    }

    /// Sends `value` with every question.
    pub(super) fn header(&mut self, name: &str, value: &Secret) -> Result<(), Error> {
        let name = HeaderName::try_from(name)
            .map_err(|_| Error::Setting("a header has a name that no header can have"))?;
        let mut value = HeaderValue::from_str(value.reveal())
            .map_err(|_| Error::Setting("a key or header has a character that is not allowed"))?;
        value.set_sensitive(true);
        self.headers.insert(name, value);
        Ok(())
    }

    /// Where questions go.
    pub(super) fn target(&self) -> &Target {
        self.client.target()
    }

    /// The answer, whatever its status.
    pub(super) async fn ask(&self, ask: &Ask) -> Result<Answer, Error> {
        let late = || Error::Late {
            endpoint: self.endpoint(ask),
            limit: self.limit,
        };
        let answer = within(self.limit, self.persist(ask)).await;
        let answer = answer.ok_or_else(late)?;
        answer.map_err(|source| Error::Unreachable {
            endpoint: self.endpoint(ask),
            source,
        })
    }

    /// What a good answer says.
    pub(super) async fn read<T: DeserializeOwned>(&self, ask: &Ask) -> Result<T, Error> {
        let answer = self.ask(ask).await?;
        if !answer.status.is_success() {
            return Err(self.status(ask, &answer));
        }
        self.parse(ask, &answer)
    }

    pub(super) fn parse<T: DeserializeOwned>(
        &self,
        ask: &Ask,
        answer: &Answer,
    ) -> Result<T, Error> {
        // What serde says may quote the text.
        serde_json::from_slice(&answer.body)
            .map_err(|_| self.wrong(ask, "an answer in another form than the protocol's"))
    }

    pub(super) fn wrong(&self, ask: &Ask, what: impl Into<String>) -> Error {
        Error::Answer {
            endpoint: self.endpoint(ask),
            what: what.into(),
        }
    }

    pub(super) fn status(&self, ask: &Ask, answer: &Answer) -> Error {
        Error::Status {
            endpoint: self.endpoint(ask),
            status: answer.status.as_u16(),
            code: code(&answer.body),
        }
    }

    fn endpoint(&self, ask: &Ask) -> String {
        let joined = self.target().join(&ask.path);
        joined.as_ref().unwrap_or(self.target()).to_string()
    }

    async fn persist(&self, ask: &Ask) -> Result<Answer, outbound::Error> {
        let end = Instant::now() + self.limit;
        let mut pauses = PAUSES.into_iter();
        loop {
            let outcome = self.once(ask).await;
            let Some(pause) = pauses.next().and_then(|pause| again(&outcome, pause)) else {
                return outcome;
            };
            if Instant::now() + pause >= end {
                return outcome;
            }
            time::sleep(pause).await;
        }
    }

    async fn once(&self, ask: &Ask) -> Result<Answer, outbound::Error> {
        let invalid = |_| outbound::Error::Refused("the path is not valid".to_owned());
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
        Ok(Answer {
            status: reply.status,
            body,
            retry_after: seconds.map(Duration::from_secs),
        })
    }
}

/// How long to wait before asking again, if that may help.
fn again(outcome: &Result<Answer, outbound::Error>, pause: Duration) -> Option<Duration> {
    match outcome {
        Ok(answer) => {
            let busy =
                answer.status == StatusCode::TOO_MANY_REQUESTS || answer.status.is_server_error();
            busy.then(|| answer.retry_after.unwrap_or_default().max(pause))
        }
        Err(outbound::Error::Refused(_) | outbound::Error::TooLarge(_)) => None,
        Err(_) => Some(pause),
    }
}

/// A refusal that does not quote the query.
fn refused(url: &str, policy: &Policy, source: outbound::Error) -> Error {
    let plain = url.split('?').next().unwrap_or_default();
    Error::Unreachable {
        endpoint: plain.chars().take(100).collect(),
        source: policy.judge(plain).err().unwrap_or(match source {
            outbound::Error::Refused(_) => {
                outbound::Error::Refused("the address is refused".to_owned())
            }
            other => other,
        }),
    }
}

/// The name of an error, if it is nothing but a name.
fn code(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        error: String,
    }
    let named: Named = serde_json::from_slice(body).ok()?;
    let is_name = named.error.ends_with("Error")
        && named.error.len() <= 64
        && named.error.bytes().all(|it| it.is_ascii_alphabetic());
    is_name.then_some(named.error)
}
