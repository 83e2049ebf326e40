//! `GET /v1/models`.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use serde_json::{Value, json};

use super::super::{
    HubState, anthropic,
    model_api::{AGENT_MODEL_PREFIX, ApiError},
};
use super::ChatCompletionWriter;
use maru_downstream::http::reply;
use maru_llm::{self as llm, ModelInfo};

/// `GET /v1/models`.
pub(in super::super) async fn list(
    State(hub): State<Arc<HubState>>,
    headers: HeaderMap,
) -> Response {
    let models = all_models(&hub).await;
    let shown = if anthropic::is_anthropic_client(&headers) {
        anthropic::models_json(&models)
    } else {
        let listed: Vec<Value> = models.iter().map(model_json).collect();
        json!({"object": "list", "data": listed})
    };
    reply::json(StatusCode::OK, shown.to_string())
}

/// `GET /v1/models/{name}`; names may have slashes.
pub(in super::super) async fn show(
    State(hub): State<Arc<HubState>>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    let models = all_models(&hub).await;
    let is_anthropic = anthropic::is_anthropic_client(&headers);
    let model = models.iter().find(|it| it.name == name);
    let unknown = ApiError::from(&llm::Error::UnknownModel(name.clone()));
    match model {
        Some(model) if is_anthropic => {
            reply::json(StatusCode::OK, anthropic::model_json(model).to_string())
        }
        Some(model) => reply::json(StatusCode::OK, model_json(model).to_string()),
        None if is_anthropic => unknown.into_response::<anthropic::MessageWriter>(),
        None => unknown.into_response::<ChatCompletionWriter>(),
    }
}

/// Every model, and each once more with maru's tools.
pub(in super::super) async fn all_models(hub: &HubState) -> Vec<ModelInfo> {
    let mut models = hub.models.current().list_models().await;
    let agents: Vec<ModelInfo> = models
        .iter()
        .map(|it| ModelInfo {
            name: format!("{AGENT_MODEL_PREFIX}{}", it.name),
            backend: "maru".to_owned(),
            fallback_backends: Vec::new(),
        })
        .collect();
    models.extend(agents);
    models
}

fn model_json(model: &ModelInfo) -> Value {
    let mut shown =
        json!({"id": model.name, "object": "model", "created": 0, "owned_by": model.backend});
    if !model.fallback_backends.is_empty() {
        shown["fallback_backends"] = model.fallback_backends.clone().into();
    }
    shown
}
