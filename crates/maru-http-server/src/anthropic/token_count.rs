//! `POST /v1/messages/count_tokens`: how many tokens a request would have, which is also
//! what a stream says at its beginning.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::StatusCode,
    response::Response,
};
use serde_json::{Value, json};

use super::super::{
    HubState,
    model_api::{ApiError, ClientApi as _, read_request},
};
use super::message_writer::MessageWriter;
use maru_downstream::http::reply;
use maru_llm::ChatRequest;
use maru_tools::estimate_tokens;

/// What an image counts as: the size to which vision models scale most images.
const IMAGE_TOKENS: usize = 1500;

/// The route.
pub(in super::super) async fn count(
    State(hub): State<Arc<HubState>>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    match read_request(&hub, &parts, body, MessageWriter::parse).await {
        Ok(parsed) => {
            let tokens = estimate_request_tokens(&parsed.request);
            reply::json(StatusCode::OK, json!({"input_tokens": tokens}).to_string())
        }
        Err(error) => ApiError::into_response::<MessageWriter>(error),
    }
}

/// An estimate: only the backend knows the tokens of its model.
pub(super) fn estimate_request_tokens(request: &ChatRequest) -> usize {
    let messages = request.messages.iter().map(|it| {
        let members = it.extra_members.values();
        members.map(estimate_value_tokens).sum::<usize>() + 4
    });
    let tools = request.tools.iter().map(|it| {
        let schema = estimate_tokens(&it.parameters.to_string());
        estimate_tokens(&it.name) + estimate_tokens(&it.description) + schema
    });
    messages.chain(tools).sum::<usize>().max(1)
}

fn estimate_value_tokens(value: &Value) -> usize {
    match value {
        Value::String(text) => estimate_tokens(text),
        Value::Array(items) => items.iter().map(estimate_value_tokens).sum(),
        part if part["type"] == "image_url" => IMAGE_TOKENS,
        part if part["text"].is_string() => estimate_value_tokens(&part["text"]),
        other => estimate_tokens(&other.to_string()),
    }
}
