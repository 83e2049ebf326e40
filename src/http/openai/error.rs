//! Errors in the form of OpenAI's clients.

use std::time::Duration;

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use maru_protocol::write_event;
use serde_json::{Value, json};

use crate::{downstream::http::reply, llm};

const INVALID_REQUEST_ERROR: &str = "invalid_request_error";
const RATE_LIMIT_ERROR: &str = "rate_limit_error";
const SERVER_ERROR: &str = "server_error";

/// An error of a request, in OpenAI's form.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct OpenAiError {
    pub(super) message: String,
    /// The member of the request at fault.
    pub(super) param: Option<String>,
}

impl OpenAiError {
    pub(super) fn new(param: &str, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            param: Some(param.to_owned()),
        }
    }
}

/// Rejects a request before it is read.
pub(crate) fn rejection_response(status: StatusCode, message: &str) -> Response {
    let (kind, code) = match status {
        StatusCode::UNAUTHORIZED => (INVALID_REQUEST_ERROR, Some("invalid_api_key")),
        StatusCode::NOT_FOUND => (INVALID_REQUEST_ERROR, Some("unknown_url")),
        StatusCode::TOO_MANY_REQUESTS => (RATE_LIMIT_ERROR, Some("rate_limit_exceeded")),
        _ => (INVALID_REQUEST_ERROR, None),
    };
    let body = error_body(message, kind, code, None);
    reply::json(status, body.to_string())
}

/// Rejects an invalid request.
pub(super) fn invalid_request_response(error: &OpenAiError) -> Response {
    let body = error_body(
        &error.message,
        INVALID_REQUEST_ERROR,
        None,
        error.param.as_deref(),
    );
    reply::json(StatusCode::BAD_REQUEST, body.to_string())
}

/// The response to a request whose model did not answer.
pub(super) fn model_error_response(error: &llm::Error) -> Response {
    let (status, kind, code) = classify(error);
    let body = error_body(&public_error(error), kind, Some(code), None);
    let mut response = reply::json(status, body.to_string());
    let wait = match error {
        llm::Error::QueueFull { retry_after, .. } => Some(*retry_after),
        llm::Error::Status { retry_after, .. } => *retry_after,
        _ => None,
    };
    if let Some(wait) = wait.filter(|_| status == StatusCode::TOO_MANY_REQUESTS) {
        let seconds = HeaderValue::from(whole_seconds(wait));
        response.headers_mut().insert(header::RETRY_AFTER, seconds);
    }
    response
}

/// The error as an event of a stream that has begun.
pub(super) fn model_error_event(error: &llm::Error) -> String {
    let (_, kind, code) = classify(error);
    let body = error_body(&public_error(error), kind, Some(code), None);
    write_event(None, None, &body.to_string())
}

/// The response to a request that is in progress when the hub stops.
pub(super) fn stopping_response() -> Response {
    reply::json(StatusCode::SERVICE_UNAVAILABLE, stopping_body().to_string())
}

/// The same as an event of a stream that has begun.
pub(super) fn stopping_event() -> String {
    write_event(None, None, &stopping_body().to_string())
}

fn stopping_body() -> Value {
    error_body("the hub is stopping", SERVER_ERROR, Some("stopping"), None)
}

/// The error of a run whose time was over.
pub(super) fn timeout_body(message: &str) -> Value {
    error_body(message, SERVER_ERROR, Some("timeout"), None)
}

fn error_body(message: &str, kind: &str, code: Option<&str>, param: Option<&str>) -> Value {
    json!({"error": {"message": message, "type": kind, "param": param, "code": code}})
}

/// The error and its cause; neither contains a backend's message.
fn public_error(error: &llm::Error) -> String {
    match error {
        llm::Error::Unreachable { source, .. } => format!("{error}: {source}"),
        error => error.to_string(),
    }
}

fn classify(error: &llm::Error) -> (StatusCode, &'static str, &'static str) {
    match error {
        llm::Error::UnknownModel(_) | llm::Error::NoModels(_) => (
            StatusCode::NOT_FOUND,
            INVALID_REQUEST_ERROR,
            "model_not_found",
        ),
        llm::Error::QueueFull { .. } => (
            StatusCode::TOO_MANY_REQUESTS,
            RATE_LIMIT_ERROR,
            "queue_full",
        ),
        llm::Error::Status { status, .. } => match status {
            429 => (
                StatusCode::TOO_MANY_REQUESTS,
                RATE_LIMIT_ERROR,
                "backend_rate_limit",
            ),
            401 | 403 => (StatusCode::BAD_GATEWAY, SERVER_ERROR, "backend_refused_key"),
            404 => (
                StatusCode::NOT_FOUND,
                INVALID_REQUEST_ERROR,
                "model_not_found",
            ),
            400..=499 => (
                StatusCode::BAD_REQUEST,
                INVALID_REQUEST_ERROR,
                "backend_refused",
            ),
            _ => (StatusCode::BAD_GATEWAY, SERVER_ERROR, "backend_error"),
        },
        llm::Error::Unreachable { .. } => {
            (StatusCode::BAD_GATEWAY, SERVER_ERROR, "backend_unreachable")
        }
        llm::Error::InvalidResponse { .. } => {
            (StatusCode::BAD_GATEWAY, SERVER_ERROR, "backend_answer")
        }
        llm::Error::Timeout { .. } | llm::Error::Silent { .. } => {
            (StatusCode::GATEWAY_TIMEOUT, SERVER_ERROR, "timeout")
        }
        llm::Error::InvalidSetting { .. } => (
            StatusCode::INTERNAL_SERVER_ERROR,
            SERVER_ERROR,
            "configuration",
        ),
    }
}

fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}
