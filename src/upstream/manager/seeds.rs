//! Servers of the files: `mcp.servers` of `maru.yaml`, and `mcp.json`.

use std::collections::{BTreeSet, HashMap};

use tracing::warn;

use super::{Manager, Unchanged};
use crate::upstream::{draft::Draft, server::Origin};

impl Manager {
    /// Registers what the files list and the store does not know. What was removed
    /// stays removed.
    pub(super) async fn seed_all(
        &self,
        seeds: Vec<Draft>,
        listed: Vec<Draft>,
    ) -> anyhow::Result<()> {
        check_names(&seeds)?;
        let removed: BTreeSet<String> = self.store.removed_servers().await?.into_iter().collect();
        for (at, draft) in seeds.iter().enumerate() {
            if draft.name.trim().is_empty() {
                warn!("mcp.servers.{at} is skipped: it has no name");
            } else if self.is_kept_out(draft, &removed) {
                warn!("mcp.servers.{at}: {}", stays_removed(&draft.name));
            } else {
                let seeded = self.seed(draft, Origin::File).await;
                seeded
                    .map_err(|why| anyhow::anyhow!("mcp.servers.{at} ({}): {why}", draft.name))?;
            }
        }
        Ok(self.load(listed, &removed).await?)
    }

    /// Servers of `mcp.json`: new ones are registered, and those that came from
    /// there follow its address.
    async fn load(&self, listed: Vec<Draft>, removed: &BTreeSet<String>) -> Result<(), Unchanged> {
        for draft in listed {
            if self.is_kept_out(&draft, removed) {
                warn!("mcp.json: {}", stays_removed(&draft.name));
                self.registry.lock().await.refuse(&draft);
                continue;
            }
            let known = self.find(&draft.name).ok();
            let moved = known
                .as_ref()
                .is_some_and(|it| it.server.transport.url() != draft.config["url"].as_str());
            let done = match &known {
                Some(it) if moved && it.server.origin == Origin::Import => {
                    self.change(&draft.name, &draft).await.map(drop)
                }
                Some(_) => Ok(()),
                None => self.seed(&draft, Origin::Import).await,
            };
            match done {
                Err(
                    why @ (Unchanged::Invalid(_) | Unchanged::Full(_) | Unchanged::Warned { .. }),
                ) => {
                    warn!("the entry {:?} of mcp.json is not used: {why}", draft.name);
                    self.registry.lock().await.refuse(&draft);
                }
                done => done?,
            }
        }
        let registry = self.registry.lock().await;
        self.save(&registry)
    }

    fn is_kept_out(&self, draft: &Draft, removed: &BTreeSet<String>) -> bool {
        removed.contains(&draft.name) && self.find(&draft.name).is_err()
    }

    async fn seed(&self, draft: &Draft, origin: Origin) -> Result<(), Unchanged> {
        match self.add(draft, origin).await {
            // The store may have been changed since; it is right.
            Err(Unchanged::Taken(_)) => Ok(()),
            done => done,
        }
    }
}

/// Which of two was meant cannot be known.
fn check_names(seeds: &[Draft]) -> anyhow::Result<()> {
    let mut seen = HashMap::new();
    for (at, draft) in seeds.iter().enumerate() {
        if draft.name.trim().is_empty() {
            continue;
        }
        if let Some(first) = seen.insert(&draft.name, at) {
            let name = &draft.name;
            anyhow::bail!(
                "mcp.servers.{first} and mcp.servers.{at} are both named {name:?}; rename or remove one"
            );
        }
    }
    Ok(())
}

fn stays_removed(name: &str) -> String {
    format!(
        "server {name} was removed and does not come back from a file; register it with maru servers add, or in the console, to have it again"
    )
}
