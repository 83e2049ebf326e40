//! The overrides of tools in the store, published in the catalog.

use std::sync::Arc;

use maru_store::{Store, ToolOverrideRow};
use serde_json::Value;
use tokio::sync::Mutex;

use super::{
    catalog::Catalog,
    tool_override::{ToolOverride, ToolOverrides},
};

/// Saves and removes overrides. They outlive the tools, which may come and go with their
/// servers.
#[derive(Debug)]
pub struct OverrideManager {
    store: Store,
    catalog: Arc<Catalog>,
    /// Held while overrides are changed or read from the store.
    changing: Mutex<()>,
}

impl OverrideManager {
    /// Publishes the overrides of the store.
    pub async fn open(store: Store, catalog: Arc<Catalog>) -> Result<Self, maru_store::Error> {
        let manager = Self {
            store,
            catalog,
            changing: Mutex::default(),
        };
        manager.reload().await?;
        Ok(manager)
    }

    /// Reads the store again, because another hub may have changed it, and publishes what
    /// differs.
    pub async fn reload(&self) -> Result<(), maru_store::Error> {
        let _one_change_at_a_time = self.changing.lock().await;
        self.publish_stored().await
    }

    /// Saves the override of a tool. One that changes nothing is removed.
    pub async fn save(
        &self,
        server: &str,
        tool: &str,
        change: &ToolOverride,
    ) -> Result<(), maru_store::Error> {
        let _one_change_at_a_time = self.changing.lock().await;
        if change.is_empty() {
            self.store.delete_tool_override(server, tool).await?;
        } else {
            let row = ToolOverrideRow {
                server: server.to_owned(),
                tool: tool.to_owned(),
                definition: serde_json::to_string(change).unwrap_or_default(),
            };
            self.store.put_tool_override(&row).await?;
        }
        self.publish_stored().await
    }

    /// Removes the override of a tool; returns whether it existed.
    pub async fn remove(&self, server: &str, tool: &str) -> Result<bool, maru_store::Error> {
        let _one_change_at_a_time = self.changing.lock().await;
        let removed = self.store.delete_tool_override(server, tool).await?;
        self.publish_stored().await?;
        Ok(removed)
    }

    async fn publish_stored(&self) -> Result<(), maru_store::Error> {
        let rows = self.store.tool_overrides().await?;
        let parsed = rows.into_iter().filter_map(|row| {
            let json: Value = serde_json::from_str(&row.definition).unwrap_or_default();
            match ToolOverride::parse(&json) {
                Ok(change) => {
                    let key = (Arc::from(row.server), Arc::from(row.tool));
                    Some((key, Arc::new(change)))
                }
                Err(error) => {
                    let (server, tool) = (row.server, row.tool);
                    tracing::warn!("the override of {server}.{tool} cannot be used: {error}");
                    None
                }
            }
        });
        let overrides: ToolOverrides = parsed.collect();
        if *self.catalog.snapshot().tool_overrides() != overrides {
            self.catalog.set_tool_overrides(overrides);
        }
        Ok(())
    }
}
