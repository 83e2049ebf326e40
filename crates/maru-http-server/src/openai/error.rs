//! Errors in the form of OpenAI's clients.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::super::model_api::ApiError;

/// The body of an error.
pub(super) fn error_body(error: &ApiError) -> Value {
    let kind = match error.status {
        StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
        status if status.is_server_error() => "server_error",
        _ => "invalid_request_error",
    };
    json!({"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}})
}
