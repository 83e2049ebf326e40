//! The toolsets of the settings and of the store, published in the catalog.

use std::sync::{Arc, PoisonError, RwLock};

use maru_config::ToolsetDefinition;
use maru_store::{Store, ToolsetRow};
use thiserror::Error;
use tokio::sync::{Mutex, MutexGuard};

use super::{
    catalog::Catalog,
    toolset::{InvalidToolset, Toolset, Toolsets},
};

/// Saves and removes toolsets.
#[derive(Debug)]
pub struct ToolsetManager {
    store: Store,
    catalog: Arc<Catalog>,
    from_settings: RwLock<Toolsets>,
    /// Held while toolsets are changed or read from the store.
    changing: Mutex<()>,
}

/// Toolsets of the settings that were checked; until it is applied or dropped, no other
/// toolset changes.
#[derive(Debug)]
pub struct ToolsetChange<'a> {
    manager: &'a ToolsetManager,
    from_settings: Toolsets,
    stored: Toolsets,
    _one_change_at_a_time: MutexGuard<'a, ()>,
}

/// A toolset could not be saved or removed.
#[derive(Debug, Error)]
pub enum ToolsetError {
    /// The definition is wrong.
    #[error(transparent)]
    Invalid(#[from] InvalidToolset),
    /// The settings define it.
    #[error("the toolset {0} is defined in the settings; change it there")]
    FromSettings(String),
    /// There are too many.
    #[error("there are {MAX_TOOLSETS} toolsets already; remove one")]
    TooMany,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] maru_store::Error),
}

const MAX_TOOLSETS: usize = 1000;

impl ToolsetManager {
    /// Publishes the toolsets of the settings and of the store.
    pub async fn open(
        store: Store,
        catalog: Arc<Catalog>,
        from_settings: &[ToolsetDefinition],
    ) -> Result<Self, ToolsetError> {
        let manager = Self {
            store,
            catalog,
            from_settings: RwLock::new(parse_settings(from_settings)?),
            changing: Mutex::default(),
        };
        manager.reload().await?;
        Ok(manager)
    }

    /// Whether the settings define the toolset of this name.
    pub fn is_from_settings(&self, name: &str) -> bool {
        self.settings().contains_key(name)
    }

    /// Checks new toolsets of the settings and reads the stored ones; nothing changes
    /// before [`ToolsetChange::apply`].
    pub async fn prepare(
        &self,
        from_settings: &[ToolsetDefinition],
    ) -> Result<ToolsetChange<'_>, ToolsetError> {
        let from_settings = parse_settings(from_settings)?;
        let one_change_at_a_time = self.changing.lock().await;
        Ok(ToolsetChange {
            manager: self,
            from_settings,
            stored: self.read_stored().await?,
            _one_change_at_a_time: one_change_at_a_time,
        })
    }

    /// Reads the store again, because another hub may have changed it, and publishes what
    /// differs.
    pub async fn reload(&self) -> Result<(), maru_store::Error> {
        let _one_change_at_a_time = self.changing.lock().await;
        self.publish_stored().await
    }

    /// Says why a toolset could not be saved, if so.
    pub fn check(&self, definition: &ToolsetDefinition) -> Result<(), ToolsetError> {
        Toolset::new(definition.clone())?;
        self.check_not_from_settings(&definition.name)
    }

    /// Adds a toolset, or replaces the one with its name. Clients see it at once.
    pub async fn save(&self, definition: ToolsetDefinition) -> Result<(), ToolsetError> {
        let toolset = Toolset::new(definition)?;
        let name = toolset.definition().name.clone();
        let _one_change_at_a_time = self.changing.lock().await;
        self.check_not_from_settings(&name)?;
        let snapshot = self.catalog.snapshot();
        let known = snapshot.toolsets();
        if known.len() >= MAX_TOOLSETS && !known.contains_key(name.as_str()) {
            return Err(ToolsetError::TooMany);
        }
        let definition = serde_json::to_string(toolset.definition()).unwrap_or_default();
        self.store
            .put_toolset(&ToolsetRow { name, definition })
            .await?;
        self.publish_stored().await?;
        Ok(())
    }

    /// Removes a toolset; returns whether it existed.
    pub async fn remove(&self, name: &str) -> Result<bool, ToolsetError> {
        let _one_change_at_a_time = self.changing.lock().await;
        self.check_not_from_settings(name)?;
        let removed = self.store.delete_toolset(name).await?;
        self.publish_stored().await?;
        Ok(removed)
    }

    fn check_not_from_settings(&self, name: &str) -> Result<(), ToolsetError> {
        if self.is_from_settings(name) {
            Err(ToolsetError::FromSettings(name.to_owned()))
        } else {
            Ok(())
        }
    }

    async fn publish_stored(&self) -> Result<(), maru_store::Error> {
        self.publish(self.read_stored().await?);
        Ok(())
    }

    async fn read_stored(&self) -> Result<Toolsets, maru_store::Error> {
        let rows = self.store.toolsets().await?;
        let stored = rows.into_iter().filter_map(|row| {
            let parsed = serde_json::from_str(&row.definition)
                .map_err(|error| error.to_string())
                .and_then(|it| Toolset::new(it).map_err(|error| error.to_string()));
            match parsed {
                Ok(toolset) => Some((Arc::from(row.name), Arc::new(toolset))),
                Err(error) => {
                    tracing::warn!("the toolset {} cannot be used: {error}", row.name);
                    None
                }
            }
        });
        Ok(stored.collect())
    }

    fn publish(&self, mut toolsets: Toolsets) {
        // The settings decide over a toolset of the same name.
        toolsets.extend(self.settings().clone());
        if *self.catalog.snapshot().toolsets() != toolsets {
            self.catalog.set_toolsets(toolsets);
        }
    }

    fn settings(&self) -> impl std::ops::Deref<Target = Toolsets> + '_ {
        self.from_settings
            .read()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl ToolsetChange<'_> {
    /// Replaces the toolsets of the settings.
    pub fn apply(self) {
        *self
            .manager
            .from_settings
            .write()
            .unwrap_or_else(PoisonError::into_inner) = self.from_settings;
        self.manager.publish(self.stored);
    }
}

fn parse_settings(definitions: &[ToolsetDefinition]) -> Result<Toolsets, ToolsetError> {
    let mut toolsets = Toolsets::new();
    for definition in definitions {
        let name = definition.name.as_str();
        let toolset = Toolset::new(definition.clone()).map_err(|error| InvalidToolset {
            field: error.field,
            message: format!("toolsets: {name:?}: {}: {}", error.field, error.message),
        })?;
        if toolsets.insert(name.into(), Arc::new(toolset)).is_some() {
            return Err(ToolsetError::Invalid(InvalidToolset {
                field: "name",
                message: format!("toolsets: {name:?} is defined twice"),
            }));
        }
    }
    Ok(toolsets)
}
