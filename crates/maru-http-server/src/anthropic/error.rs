//! Errors in the form of Anthropic's clients.

use serde_json::{Value, json};

use super::super::model_api::ApiError;

/// The body of an error.
pub(super) fn error_body(error: &ApiError) -> Value {
    let kind = match error.status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        504 => "timeout_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    };
    let message = match &error.param {
        Some(param) if !error.message.contains(param.as_str()) => {
            format!("{param}: {}", error.message)
        }
        _ => error.message.clone(),
    };
    json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": null})
}
