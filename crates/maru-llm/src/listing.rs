//! Lists the models that clients can request.

use std::time::Duration;

use futures_util::future::join_all;
use maru_http::ServiceRequest;
use maru_runtime::tasks::with_timeout;
use serde_json::Value;

use super::{gemini, model_entry::ModelEntry};
use maru_config::BackendApi;

/// How long a backend may take to list its models.
const MODEL_LIST_TIMEOUT: Duration = Duration::from_secs(3);
/// The most models that are listed.
const MAX_LISTED_MODELS: usize = 2000;

/// A model that clients can request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelInfo {
    /// The name that clients use.
    pub name: String,
    /// Host and port of its backend.
    pub backend: String,
    /// Backends that are used when that one fails.
    pub fallback_backends: Vec<String>,
}

/// Every model of `entries` that has its own name.
pub(super) async fn list_models(entries: &[ModelEntry]) -> Vec<ModelInfo> {
    let listed = join_all(entries.iter().map(model_names)).await;
    let mut models: Vec<(&str, ModelInfo)> = Vec::new();
    for (entry, names) in entries.iter().zip(listed) {
        let configured = entry.names.configured_name();
        for name in names {
            let backend = entry.authority();
            let has_room = models.len() < MAX_LISTED_MODELS;
            match models.iter_mut().find(|(_, it)| it.name == name) {
                Some((first, model)) if *first == configured => {
                    model.fallback_backends.push(backend);
                }
                None if has_room => {
                    let fallback_backends = Vec::new();
                    let model = ModelInfo {
                        name,
                        backend,
                        fallback_backends,
                    };
                    models.push((configured, model));
                }
                _ => (),
            }
        }
    }
    models.into_iter().map(|(_, model)| model).collect()
}

async fn model_names(entry: &ModelEntry) -> Vec<String> {
    let mut names: Vec<String> = entry.names.fixed_names().map(str::to_owned).collect();
    if entry.names.has_wildcard() {
        let known = with_timeout(MODEL_LIST_TIMEOUT, fetch_model_names(entry))
            .await
            .flatten();
        let known = known.unwrap_or_default();
        names.extend(known.iter().filter_map(|it| entry.names.client_name(it)));
    }
    names
}

async fn fetch_model_names(entry: &ModelEntry) -> Option<Vec<String>> {
    let request = ServiceRequest::get("/models");
    // One attempt: the list waits for the slowest backend.
    let mut response = entry.service.open_response(&request).await.ok()?;
    if !response.status.is_success() {
        return None;
    }
    let listing: Value = serde_json::from_slice(&response.bytes().await.ok()?).ok()?;
    Some(match entry.backend {
        BackendApi::Gemini => gemini::parse_model_names(&listing),
        BackendApi::Openai | BackendApi::Anthropic => {
            let models = listing["data"].as_array().into_iter().flatten();
            models
                .filter_map(|it| Some(it["id"].as_str()?.to_owned()))
                .collect()
        }
    })
}
