//! One backend over HTTP: where it is, what it is shown, and when it is worth
//! asking again.

use std::{sync::Arc, time::Duration};

use hyper::{
    HeaderMap, Method,
    body::Bytes,
    header::{ACCEPT, CONTENT_TYPE, HOST, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT},
};
use maru_http::{AddressPolicy, ClientTls, HttpClient, HttpResponse, Request};
use maru_runtime::tasks::with_timeout;
use serde_json::Value;

use crate::config::SecretString;

/// How long the words of an error may take.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// Requests after the first that one question may take.
pub(super) const MAX_RETRIES: u32 = 4;
const INITIAL_BACKOFF: Duration = Duration::from_millis(250);

/// A backend and how to talk to it.
#[derive(Debug)]
pub(super) struct BackendClient {
    client: Arc<HttpClient>,
    headers: HeaderMap,
    /// Path of the base address, without a slash at its end.
    base_path: String,
}

/// An error that a backend answered with.
#[derive(Debug)]
pub(super) struct ErrorResponse {
    pub(super) status: u16,
    /// Its name, if it is nothing but a name.
    pub(super) code: Option<String>,
    pub(super) retry_after: Option<Duration>,
    /// Whether it says that the model takes no tools.
    pub(super) tools_unsupported: bool,
}

/// A header and its value.
pub(super) type ApiKeyHeader = (&'static str, SecretString);

impl BackendClient {
    /// Fails with what is wrong with the settings.
    pub(super) fn open(
        base_url: &str,
        policy: &AddressPolicy,
        tls: &ClientTls,
        key: Option<ApiKeyHeader>,
    ) -> Result<Self, String> {
        let target = policy.authorize(base_url).map_err(|why| why.to_string())?;
        let mut headers = HeaderMap::new();
        let host = HeaderValue::try_from(target.authority())
            .map_err(|_| "the host cannot be put into a header".to_owned())?;
        headers.insert(HOST, host);
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(
            ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
        headers.insert(USER_AGENT, HeaderValue::from_static("maru"));
        if let Some((name, value)) = key {
            let mut value = HeaderValue::from_str(value.reveal())
                .map_err(|_| "the key has a character that is not allowed".to_owned())?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static(name), value);
        }
        if target.path.contains('?') {
            return Err("base_url must not have a query".to_owned());
        }
        Ok(Self {
            base_path: target.path.trim_end_matches('/').to_owned(),
            client: HttpClient::new(target, tls.clone()),
            headers,
        })
    }

    /// Host and port.
    pub(super) fn authority(&self) -> String {
        self.client.target().authority()
    }

    pub(super) async fn post(
        &self,
        path: &str,
        body: Bytes,
    ) -> Result<HttpResponse, maru_http::Error> {
        self.send(Method::POST, path, body).await
    }

    pub(super) async fn get(&self, path: &str) -> Result<HttpResponse, maru_http::Error> {
        self.send(Method::GET, path, Bytes::new()).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<HttpResponse, maru_http::Error> {
        let uri = format!("{}{path}", self.base_path).parse().map_err(|_| {
            maru_http::Error::Refused(
                "the name of the model cannot be part of an address".to_owned(),
            )
        })?;
        let request = Request {
            method: &method,
            uri: &uri,
            headers: &self.headers,
            more: &[],
            body: &body,
        };
        self.client.send(&request).await
    }
}

impl ErrorResponse {
    /// Reads what little of an error may be passed on.
    pub(super) async fn read(mut reply: HttpResponse) -> Self {
        let seconds = reply.header(&RETRY_AFTER);
        let seconds = seconds.and_then(|it| it.parse::<f64>().ok());
        let retry_after = seconds
            .filter(|it| (0.0..1e6).contains(it))
            .map(Duration::from_secs_f64);
        let status = reply.status.as_u16();
        let body = with_timeout(ERROR_BODY_TIMEOUT, reply.text()).await;
        let body = body.and_then(Result::ok).unwrap_or_default();
        Self {
            status,
            code: code(&body),
            retry_after,
            tools_unsupported: says_tools_unsupported(&body),
        }
    }

    /// How long to wait before asking again, if that may help.
    pub(super) fn retry_delay(&self, attempt: u32) -> Option<Duration> {
        let busy = matches!(self.status, 408 | 429 | 500 | 502 | 503 | 504 | 529);
        busy.then(|| self.retry_after.unwrap_or_default().max(backoff(attempt)))
    }
}

/// Twice as long each time.
pub(super) fn backoff(attempt: u32) -> Duration {
    INITIAL_BACKOFF * 2_u32.pow(attempt.min(6))
}

/// Whether asking again may help when nothing came back.
pub(super) fn is_retryable(error: &maru_http::Error) -> bool {
    use maru_http::Error::{Broken, Busy, Refused, TooLarge, Unreachable};
    match error {
        Unreachable { .. } | Broken(_) | Busy(_) => true,
        Refused(_) | TooLarge(_) => false,
    }
}

/// The name of an error, if it is nothing but a name.
fn code(body: &[u8]) -> Option<String> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let error = body.get("error").unwrap_or(&body);
    let named = [&error["code"], &error["status"], &error["type"]];
    let name = named.into_iter().find_map(Value::as_str)?;
    let is_name = (3..=64).contains(&name.len())
        && name
            .bytes()
            .all(|it| it.is_ascii_alphabetic() || it == b'_');
    is_name.then(|| name.to_owned())
}

/// Words by which servers say that a model takes no tools.
fn says_tools_unsupported(body: &[u8]) -> bool {
    const TOOLS_UNSUPPORTED_PHRASES: [&str; 8] = [
        "does not support tools",
        "does not support function",
        "tool choice requires",
        "tools param requires",
        "support tool use",
        "calling is not enabled",
        "calling is not supported",
        "calling` is not supported",
    ];
    let text = String::from_utf8_lossy(body).to_lowercase();
    TOOLS_UNSUPPORTED_PHRASES.iter().any(|it| text.contains(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_errors_are_passed_on() {
        let check = |body: &str, expected: Option<&str>| {
            assert_eq!(code(body.as_bytes()).as_deref(), expected, "{body}");
        };
        check(
            r#"{"error":{"message":"secret","code":"context_length_exceeded"}}"#,
            Some("context_length_exceeded"),
        );
        check(
            r#"{"error":{"code":400,"status":"INVALID_ARGUMENT"}}"#,
            Some("INVALID_ARGUMENT"),
        );
        check(r#"{"error":{"code":"key sk-live-1"}}"#, None);
        check(r#"{"error":"secret"}"#, None);
        check("<html>", None);
    }

    #[test]
    fn pauses_grow_and_follow_the_backend() {
        let refusal = |status, seconds| ErrorResponse {
            status,
            code: None,
            retry_after: Some(Duration::from_secs(seconds)),
            tools_unsupported: false,
        };
        assert_eq!(refusal(429, 3).retry_delay(0), Some(Duration::from_secs(3)));
        assert_eq!(refusal(503, 0).retry_delay(2), Some(Duration::from_secs(1)));
        assert_eq!(refusal(400, 3).retry_delay(0), None);
    }
}
