//! `GET /api/tags`, `POST /api/show`, `GET /api/ps` and `GET /api/version`.

use std::sync::Arc;

use axum::{extract::State, http::StatusCode, response::Response};
use maru_runtime::clock;
use serde_json::{Value, json};

use super::{
    super::{HubState, body::JsonBody, model_api::ApiError, openai::all_models},
    OllamaChatWriter,
};
use maru_downstream::http::reply;
use maru_llm as llm;

/// The version of Ollama whose API this is. Clients refuse old ones.
const API_VERSION: &str = "0.12.6";

/// `GET /api/tags`.
pub(in super::super) async fn list(State(hub): State<Arc<HubState>>) -> Response {
    let models = all_models(&hub).await;
    let listed: Vec<Value> = models.iter().map(|it| model_json(&it.name)).collect();
    reply::json(StatusCode::OK, json!({"models": listed}).to_string())
}

/// `POST /api/show`.
pub(in super::super) async fn show(
    State(hub): State<Arc<HubState>>,
    JsonBody(body): JsonBody,
) -> Response {
    let name = body["model"].as_str().or(body["name"].as_str());
    let Some(name) = name else {
        let error = ApiError::invalid("model", "model must be text");
        return error.into_response::<OllamaChatWriter>();
    };
    let models = all_models(&hub).await;
    if models.iter().all(|it| it.name != name) {
        let error = ApiError::from(&llm::Error::UnknownModel(name.to_owned()));
        return error.into_response::<OllamaChatWriter>();
    }
    let shown = json!({
        "modelfile": "",
        "parameters": "",
        "template": "",
        "license": "",
        "details": details_json(),
        "model_info": {"general.architecture": "maru"},
        "capabilities": ["completion", "tools"],
        "modified_at": modified_at(),
    });
    reply::json(StatusCode::OK, shown.to_string())
}

/// `GET /api/ps`: models with requests in progress.
pub(in super::super) async fn running(State(hub): State<Arc<HubState>>) -> Response {
    let status = hub.models.current().status().into_iter();
    let running = status.filter(|it| it.running > 0 && !it.name.contains('*'));
    let listed = running.map(|it| {
        let mut model = model_json(&it.name);
        model["expires_at"] = modified_at().into();
        model["size_vram"] = 0.into();
        model
    });
    let listed: Vec<Value> = listed.collect();
    reply::json(StatusCode::OK, json!({"models": listed}).to_string())
}

/// `GET /api/version`.
pub(in super::super) async fn version() -> Response {
    reply::json(StatusCode::OK, json!({"version": API_VERSION}).to_string())
}

/// maru knows nothing of a model's file.
fn model_json(name: &str) -> Value {
    json!({
        "name": name,
        "model": name,
        "modified_at": modified_at(),
        "size": 0,
        "digest": "",
        "details": details_json(),
    })
}

fn details_json() -> Value {
    json!({
        "parent_model": "",
        "format": "",
        "family": "",
        "families": [],
        "parameter_size": "",
        "quantization_level": "",
    })
}

fn modified_at() -> String {
    clock::format_rfc3339(clock::now_ms())
}
