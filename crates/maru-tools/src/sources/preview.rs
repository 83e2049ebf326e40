//! The sources as an import would leave them, to check what it would do.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use maru_http::AddressPolicy;
use maru_runtime::tasks::Tasks;
use maru_sources::DataSource;
use serde_json::Value;

use super::{SourceError, SourceManager, invalid};

/// Sources with some that are not saved. Dropping it closes those.
#[derive(Debug)]
pub struct SourcePreview {
    /// All sources.
    pub sources: Arc<[DataSource]>,
    /// Why a source could not be added or changed, by its name.
    pub errors: HashMap<String, SourceError>,
    opened: Vec<Tasks>,
}

impl SourceManager {
    /// Opens sources as adding or changing them would, under `policy` and without saving them.
    pub async fn preview(&self, definitions: &[Value], policy: &AddressPolicy) -> SourcePreview {
        let state = self.state.lock().await;
        let mut errors = HashMap::new();
        let mut opened = Vec::new();
        // `None` is a source that is saved and cannot be opened.
        let mut added: BTreeMap<String, Option<DataSource>> = state
            .added
            .iter()
            .map(|(name, it)| (name.clone(), it.opened.as_ref().ok().cloned()))
            .collect();
        for definition in definitions {
            let name = definition["name"].as_str().unwrap_or_default();
            let complete = if state.added.contains_key(name) {
                self.with_known_secret(&state, name, definition)
            } else {
                let checked = self.check_new_name(name, added.keys());
                checked.map(|()| definition.clone())
            };
            let source = complete.and_then(|it| {
                self.check_definition(&it, policy)?;
                Ok(self.options.open_added(name, it))
            });
            let source = source.and_then(|it| {
                opened.push(it.tasks);
                it.opened.map_err(|reason| invalid("url", reason))
            });
            match source {
                Ok(source) => drop(added.insert(name.to_owned(), Some(source))),
                Err(error) => drop(errors.insert(name.to_owned(), error)),
            }
        }
        let added = added.values().flatten();
        SourcePreview {
            sources: self.options.all_sources(added, state.sample_mode),
            errors,
            opened,
        }
    }
}

impl Drop for SourcePreview {
    fn drop(&mut self) {
        for tasks in &self.opened {
            tasks.request_stop();
        }
    }
}
