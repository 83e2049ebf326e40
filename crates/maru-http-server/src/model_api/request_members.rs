//! Members that the requests of several client APIs have in common.

use serde_json::{Map, Value};

use super::ApiError;

/// The most tools of one request.
pub(in super::super) const MAX_TOOLS: usize = 1024;
/// The most messages of one request.
pub(in super::super) const MAX_MESSAGES: usize = 10_000;
/// Members that would choose a backend or its key, which no caller may.
const FORBIDDEN_MEMBERS: [&str; 9] = [
    "api_base",
    "base_url",
    "api_key",
    "api_version",
    "api_type",
    "organization",
    "extra_headers",
    "custom_llm_provider",
    "fallbacks",
];

/// The members of a body, none of which is forbidden.
pub(in super::super) fn check_members(body: Value) -> Result<Map<String, Value>, ApiError> {
    let Value::Object(body) = body else {
        return Err(ApiError::invalid("body", "the body must be a JSON object"));
    };
    match FORBIDDEN_MEMBERS.iter().find(|it| body.contains_key(**it)) {
        Some(name) => Err(ApiError::invalid(
            name,
            format!("{name} cannot be chosen by the caller"),
        )),
        None => Ok(body),
    }
}

/// The name of the model.
pub(in super::super) fn parse_model(given: Option<Value>) -> Result<String, ApiError> {
    match given {
        Some(Value::String(name)) if (1..=256).contains(&name.len()) => Ok(name),
        Some(Value::String(_)) => Err(ApiError::invalid(
            "model",
            "model must have 1 to 256 characters",
        )),
        Some(_) => Err(ApiError::invalid("model", "model must be text")),
        None => Err(ApiError::invalid(
            "model",
            "model is missing; GET /v1/models lists what there is",
        )),
    }
}

/// Whether the response is streamed.
pub(in super::super) fn parse_stream(given: Option<&Value>) -> Result<bool, ApiError> {
    match given {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(stream)) => Ok(*stream),
        Some(_) => Err(ApiError::invalid("stream", "stream must be true or false")),
    }
}

/// Members that every backend understands, and what they may be.
pub(in super::super) fn check_numbers(body: &Map<String, Value>) -> Result<(), ApiError> {
    let given = |name: &str| body.get(name).filter(|it| !it.is_null());
    for name in ["max_tokens", "max_completion_tokens", "max_output_tokens"] {
        if given(name).is_some_and(|it| it.as_u64().is_none_or(|it| it == 0)) {
            return Err(ApiError::invalid(
                name,
                format!("{name} must be a positive integer"),
            ));
        }
    }
    const RANGES: [(&str, f64, f64); 4] = [
        ("temperature", 0.0, 2.0),
        ("top_p", 0.0, 1.0),
        ("presence_penalty", -2.0, 2.0),
        ("frequency_penalty", -2.0, 2.0),
    ];
    for (name, low, high) in RANGES {
        let fits = |it: &Value| it.as_f64().is_some_and(|it| (low..=high).contains(&it));
        if given(name).is_some_and(|it| !fits(it)) {
            let reason = format!("{name} must be a number from {low} to {high}");
            return Err(ApiError::invalid(name, reason));
        }
    }
    if given("n").is_none_or(|it| it.as_u64() == Some(1)) {
        Ok(())
    } else {
        Err(ApiError::invalid("n", "n must be 1"))
    }
}
