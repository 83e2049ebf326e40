//! Servers of the files: `mcp.servers` of `maru.yaml`, and `mcp.json`.

use std::collections::{BTreeSet, HashMap};

use tracing::warn;

use super::{RegistrationError, ServerManager};
use crate::upstream::{draft::ServerDraft, server::ServerOrigin};

impl ServerManager {
    /// Registers what the files list and the store does not know. What was removed
    /// stays removed.
    pub(super) async fn seed_all(
        &self,
        seeds: Vec<ServerDraft>,
        listed: Vec<ServerDraft>,
    ) -> anyhow::Result<()> {
        check_unique_names(&seeds)?;
        let removed: BTreeSet<String> = self.store.removed_servers().await?.into_iter().collect();
        for (at, draft) in seeds.iter().enumerate() {
            if draft.name.trim().is_empty() {
                warn!("mcp.servers.{at} is skipped: it has no name");
            } else if self.was_removed(draft, &removed) {
                warn!("mcp.servers.{at}: {}", removed_server_message(&draft.name));
            } else {
                let seeded = self.seed(draft, ServerOrigin::File).await;
                seeded
                    .map_err(|why| anyhow::anyhow!("mcp.servers.{at} ({}): {why}", draft.name))?;
            }
        }
        Ok(self.seed_from_registry_file(listed, &removed).await?)
    }

    /// Servers of `mcp.json`: new ones are registered, and those that came from
    /// there follow its address.
    async fn seed_from_registry_file(
        &self,
        listed: Vec<ServerDraft>,
        removed: &BTreeSet<String>,
    ) -> Result<(), RegistrationError> {
        for draft in listed {
            if self.was_removed(&draft, removed) {
                warn!("mcp.json: {}", removed_server_message(&draft.name));
                self.registry.lock().await.retain_refused(&draft);
                continue;
            }
            let known = self.find(&draft.name).ok();
            let moved = known
                .as_ref()
                .is_some_and(|it| it.server.transport.url() != draft.config["url"].as_str());
            let done = match &known {
                Some(it) if moved && it.server.origin == ServerOrigin::Import => {
                    self.apply_update(&draft.name, &draft).await.map(drop)
                }
                Some(_) => Ok(()),
                None => self.seed(&draft, ServerOrigin::Import).await,
            };
            match done {
                Err(RegistrationError::WarningsNotAccepted { warnings, .. }) => {
                    let (name, why) = (&draft.name, warnings.join("; "));
                    warn!(
                        "the entry {name:?} of mcp.json is not used: {why}; if that is meant, run: maru servers add {name} --accept-warnings -- COMMAND ARGUMENTS"
                    );
                    self.registry.lock().await.retain_refused(&draft);
                }
                Err(
                    why @ (RegistrationError::Invalid(_) | RegistrationError::TooManyServers(_)),
                ) => {
                    warn!("the entry {:?} of mcp.json is not used: {why}", draft.name);
                    self.registry.lock().await.retain_refused(&draft);
                }
                done => done?,
            }
        }
        let registry = self.registry.lock().await;
        self.save_registry_file(&registry)
    }

    fn was_removed(&self, draft: &ServerDraft, removed: &BTreeSet<String>) -> bool {
        removed.contains(&draft.name) && self.find(&draft.name).is_err()
    }

    async fn seed(
        &self,
        draft: &ServerDraft,
        origin: ServerOrigin,
    ) -> Result<(), RegistrationError> {
        match self.add(draft, origin).await {
            // The store may have been changed since; it is right.
            Err(RegistrationError::NameTaken(_)) => Ok(()),
            done => done,
        }
    }
}

/// Which of two was meant cannot be known.
fn check_unique_names(seeds: &[ServerDraft]) -> anyhow::Result<()> {
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

fn removed_server_message(name: &str) -> String {
    format!(
        "server {name} was removed and does not come back from a file; register it with maru servers add, or in the console, to have it again"
    )
}
