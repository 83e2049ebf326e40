//! One backend over HTTP: its address, its key and its errors.

use std::time::Duration;

use hyper::StatusCode;
use maru_http::{AllowedUrl, ClientTls, HttpResponse, JsonService, is_retryable_status};
use maru_runtime::tasks::with_timeout;
use serde_json::Value;

use maru_config::SecretString;

/// How long the body of an error may take.
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a request is sent again.
pub(super) const MAX_RETRIES: u32 = 4;

/// An error that a backend answered with.
#[derive(Debug)]
pub(super) struct ErrorResponse {
    pub(super) status: StatusCode,
    /// Its name, if it is nothing but a name.
    pub(super) code: Option<String>,
    pub(super) retry_after: Option<Duration>,
    /// Whether it reports that the model does not support tools.
    pub(super) tools_unsupported: bool,
    /// Whether it says that `stream_options` is unknown.
    pub(super) stream_options_unsupported: bool,
}

/// A header and its value.
pub(super) type SecretHeader = (&'static str, SecretString);

/// Opens the backend at `target`, or says what is wrong with the settings.
pub(super) fn open_backend(
    target: AllowedUrl,
    tls: &ClientTls,
    timeout: Duration,
    headers: Vec<SecretHeader>,
) -> Result<JsonService, String> {
    if target.path.contains('?') {
        return Err("base_url must not have a query".to_owned());
    }
    let service = JsonService::new(target, tls.clone(), timeout)
        .with_accept("application/json, text/event-stream");
    let with_headers = headers
        .into_iter()
        .try_fold(service, |service, (name, value)| {
            service.with_header(name, &value)
        });
    with_headers.map_err(|error| error.to_string())
}

impl ErrorResponse {
    /// Reads what little of an error may be passed on.
    pub(super) async fn read(mut response: HttpResponse) -> Self {
        let (status, retry_after) = (response.status, response.retry_after());
        let body = with_timeout(ERROR_BODY_TIMEOUT, response.bytes()).await;
        let body = body.and_then(Result::ok).unwrap_or_default();
        Self {
            status,
            code: code(&body),
            retry_after,
            tools_unsupported: says_tools_unsupported(&body),
            stream_options_unsupported: status.is_client_error()
                && String::from_utf8_lossy(&body).contains("stream_options"),
        }
    }

    /// Whether the same request may get another answer a little later.
    pub(super) fn is_retryable(&self) -> bool {
        is_retryable_status(self.status)
            && !self.tools_unsupported
            && !self.stream_options_unsupported
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

/// Phrases with which servers report that a model does not support tools.
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
}
