//! Which models can be asked for.

use std::time::Duration;

use futures_util::future::join_all;
use maru_http::ServiceRequest;
use maru_runtime::tasks::with_timeout;
use serde_json::Value;

use super::{Gateway, gateway::ModelEntry, gemini};
use crate::config::BackendApi;

/// How long a backend may take to list its models.
const MODEL_LIST_TIMEOUT: Duration = Duration::from_secs(3);
/// The most models that are listed.
const MAX_LISTED_MODELS: usize = 2000;

/// A model that can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelInfo {
    /// What to ask for.
    pub name: String,
    /// Host and port of its backend.
    pub backend: String,
}

impl Gateway {
    /// Every model that can be asked for by a name of its own. Backends that do
    /// not answer in time are left out.
    pub async fn list_models(&self) -> Vec<ModelInfo> {
        let listed = join_all(self.entries.iter().map(ModelEntry::model_names)).await;
        let mut models: Vec<ModelInfo> = Vec::new();
        for (entry, names) in self.entries.iter().zip(listed) {
            for name in names {
                let known = models.iter().any(|it| it.name == name);
                if !known && models.len() < MAX_LISTED_MODELS {
                    let backend = entry.service.target().authority();
                    models.push(ModelInfo { name, backend });
                }
            }
        }
        models
    }
}

impl ModelEntry {
    async fn model_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.names.fixed_names().map(str::to_owned).collect();
        if self.names.has_wildcard() {
            let known = with_timeout(MODEL_LIST_TIMEOUT, self.fetch_model_names())
                .await
                .flatten();
            let known = known.unwrap_or_default();
            names.extend(known.iter().filter_map(|it| self.names.client_name(it)));
        }
        names
    }

    async fn fetch_model_names(&self) -> Option<Vec<String>> {
        let request = ServiceRequest::get("/models");
        // One attempt: whoever asks for the list waits for the slowest backend.
        let mut reply = self.service.open_response(&request).await.ok()?;
        if !reply.status.is_success() {
            return None;
        }
        let listing: Value = serde_json::from_slice(&reply.bytes().await.ok()?).ok()?;
        Some(match self.backend {
            BackendApi::Gemini => gemini::parse_model_names(&listing),
            BackendApi::Openai => {
                let models = listing["data"].as_array().into_iter().flatten();
                models
                    .filter_map(|it| Some(it["id"].as_str()?.to_owned()))
                    .collect()
            }
        })
    }
}
