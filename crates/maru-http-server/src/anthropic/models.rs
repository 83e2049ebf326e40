//! Models in the form of Anthropic's clients.

use axum::http::HeaderMap;
use serde_json::{Value, json};

use maru_llm::ModelInfo;

/// Whether a request is from a client of Anthropic's API, which shares the path with
/// OpenAI's.
pub(in super::super) fn is_anthropic_client(headers: &HeaderMap) -> bool {
    headers.contains_key("anthropic-version")
}

/// The list of models, on one page.
pub(in super::super) fn models_json(models: &[ModelInfo]) -> Value {
    let name = |model: Option<&ModelInfo>| model.map(|it| it.name.clone());
    json!({
        "data": models.iter().map(model_json).collect::<Value>(),
        "has_more": false,
        "first_id": name(models.first()),
        "last_id": name(models.last()),
    })
}

/// One model.
pub(in super::super) fn model_json(model: &ModelInfo) -> Value {
    // Backends do not say when a model was made.
    const UNKNOWN_TIME: &str = "1970-01-01T00:00:00Z";
    json!({"type": "model", "id": model.name, "display_name": model.name, "created_at": UNKNOWN_TIME})
}
