//! Which models can be asked for.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::Value;

use super::{Gateway, gateway::Entry, gemini};
use crate::{config::Backend, tasks::within};

/// How long a backend may take to list its models.
const PATIENCE: Duration = Duration::from_secs(3);
/// The most models that are listed.
const MOST: usize = 2000;

/// A model that can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// What to ask for.
    pub name: String,
    /// Host and port of its backend.
    pub backend: String,
}

impl Gateway {
    /// Every model that can be asked for by a name of its own. Backends that do
    /// not answer in time are left out.
    pub async fn models(&self) -> Vec<Model> {
        let listed = join_all(self.entries.iter().map(Entry::models)).await;
        let mut models: Vec<Model> = Vec::new();
        for (entry, names) in self.entries.iter().zip(listed) {
            for name in names {
                let known = models.iter().any(|it| it.name == name);
                if !known && models.len() < MOST {
                    let backend = entry.service.authority();
                    models.push(Model { name, backend });
                }
            }
        }
        models
    }
}

impl Entry {
    async fn models(&self) -> Vec<String> {
        let mut names: Vec<String> = self.names.fixed().map(str::to_owned).collect();
        if self.names.is_open() {
            let known = within(PATIENCE, self.ask_models()).await.flatten();
            let known = known.unwrap_or_default();
            names.extend(known.iter().filter_map(|it| self.names.offered(it)));
        }
        names
    }

    async fn ask_models(&self) -> Option<Vec<String>> {
        let mut reply = self.service.get("/models").await.ok()?;
        if !reply.status.is_success() {
            return None;
        }
        let listing: Value = serde_json::from_slice(&reply.text().await.ok()?).ok()?;
        Some(match self.backend {
            Backend::Gemini => gemini::models(&listing),
            Backend::Openai => {
                let models = listing["data"].as_array().into_iter().flatten();
                models
                    .filter_map(|it| Some(it["id"].as_str()?.to_owned()))
                    .collect()
            }
        })
    }
}
