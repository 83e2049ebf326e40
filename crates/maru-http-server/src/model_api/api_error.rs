//! Errors of the client APIs, before an API gives them its own form.

use std::time::Duration;

use axum::{
    http::{HeaderValue, StatusCode, header},
    response::Response,
};

use super::ClientApi;
use maru_agent as agent;
use maru_downstream::http::reply;
use maru_llm as llm;

/// Why a request is not answered. Quotes neither a backend's message nor a key.
#[derive(Debug, PartialEq, Eq)]
pub(in super::super) struct ApiError {
    pub(in super::super) status: StatusCode,
    /// A name for programs.
    pub(in super::super) code: Option<&'static str>,
    pub(in super::super) message: String,
    /// The member of the request at fault.
    pub(in super::super) param: Option<String>,
    /// When the client may try again.
    pub(in super::super) retry_after: Option<Duration>,
}

impl ApiError {
    /// The request is invalid because of `param`.
    pub(in super::super) fn invalid(param: &str, message: impl Into<String>) -> Self {
        Self {
            param: Some(param.to_owned()),
            ..Self::rejected(StatusCode::BAD_REQUEST, message)
        }
    }

    /// The request is rejected before its members are looked at.
    pub(in super::super) fn rejected(status: StatusCode, message: impl Into<String>) -> Self {
        let code = match status {
            StatusCode::UNAUTHORIZED => Some("invalid_api_key"),
            StatusCode::NOT_FOUND => Some("unknown_url"),
            StatusCode::TOO_MANY_REQUESTS => Some("rate_limit_exceeded"),
            _ => None,
        };
        Self {
            status,
            code,
            message: message.into(),
            param: None,
            retry_after: None,
        }
    }

    /// The hub stops while the request is in progress.
    pub(super) fn stopping() -> Self {
        Self::with_code(
            StatusCode::SERVICE_UNAVAILABLE,
            "stopping",
            "the hub is stopping",
        )
    }

    fn with_code(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            code: Some(code),
            ..Self::rejected(status, message)
        }
    }

    /// The response in the form of an API.
    pub(in super::super) fn into_response<A: ClientApi>(self) -> Response {
        let mut response = reply::json(self.status, A::error_body(&self).to_string());
        if let Some(wait) = self.retry_after {
            let seconds = HeaderValue::from(whole_seconds(wait));
            response.headers_mut().insert(header::RETRY_AFTER, seconds);
        }
        response
    }
}

impl From<&llm::Error> for ApiError {
    fn from(error: &llm::Error) -> Self {
        let (status, code) = classify(error);
        let retry_after = match error {
            llm::Error::QueueFull { retry_after, .. } => Some(*retry_after),
            llm::Error::BudgetExceeded { retry_after, .. } => Some(*retry_after),
            llm::Error::Status { retry_after, .. } => *retry_after,
            _ => None,
        };
        // Neither the error nor its cause contains a backend's message.
        let message = match error {
            llm::Error::Unreachable { source, .. } => format!("{error}: {source}"),
            error => error.to_string(),
        };
        Self {
            retry_after: retry_after.filter(|_| status == StatusCode::TOO_MANY_REQUESTS),
            ..Self::with_code(status, code, message)
        }
    }
}

impl From<&agent::Error> for ApiError {
    fn from(error: &agent::Error) -> Self {
        let status = match error {
            agent::Error::Model(error) | agent::Error::UnknownModel(error) => return error.into(),
            agent::Error::Stopping => return Self::stopping(),
            agent::Error::Timeout { .. } => {
                let status = StatusCode::GATEWAY_TIMEOUT;
                return Self::with_code(status, "timeout", error.to_string());
            }
            agent::Error::Busy(_) => StatusCode::TOO_MANY_REQUESTS,
            agent::Error::ServersUnavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            agent::Error::NoModel
            | agent::Error::UnknownServer { .. }
            | agent::Error::UnknownToolset(_)
            | agent::Error::NoAgentToolset => StatusCode::NOT_FOUND,
        };
        Self::rejected(status, error.to_string())
    }
}

fn classify(error: &llm::Error) -> (StatusCode, &'static str) {
    match error {
        llm::Error::UnknownModel(_) | llm::Error::NoModels(_) => {
            (StatusCode::NOT_FOUND, "model_not_found")
        }
        llm::Error::ChatOnly(_) => (StatusCode::BAD_REQUEST, "chat_only"),
        llm::Error::QueueFull { .. } => (StatusCode::TOO_MANY_REQUESTS, "queue_full"),
        llm::Error::BudgetExceeded { .. } => (StatusCode::TOO_MANY_REQUESTS, "insufficient_quota"),
        llm::Error::Status { status, .. } => match status {
            429 => (StatusCode::TOO_MANY_REQUESTS, "backend_rate_limit"),
            401 | 403 => (StatusCode::BAD_GATEWAY, "backend_refused_key"),
            404 => (StatusCode::NOT_FOUND, "model_not_found"),
            400..=499 => (StatusCode::BAD_REQUEST, "backend_refused"),
            _ => (StatusCode::BAD_GATEWAY, "backend_error"),
        },
        llm::Error::Unreachable { .. } => (StatusCode::BAD_GATEWAY, "backend_unreachable"),
        llm::Error::InvalidResponse { .. } => (StatusCode::BAD_GATEWAY, "backend_answer"),
        llm::Error::Timeout { .. } | llm::Error::Silent { .. } => {
            (StatusCode::GATEWAY_TIMEOUT, "timeout")
        }
        llm::Error::InvalidSetting { .. } => (StatusCode::INTERNAL_SERVER_ERROR, "configuration"),
    }
}

fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}
