//! Adds the servers of the files: `mcp.servers` of `maru.yaml`, and `mcp.json`.

use std::collections::{BTreeSet, HashMap};

use tracing::warn;

use super::{RegistrationError, ServerManager};
use crate::{draft::ServerDraft, server::ServerOrigin};

/// Registers the servers of the files that the store does not have. A server that was
/// removed stays removed.
pub(super) async fn seed_servers(
    manager: &ServerManager,
    seeds: Vec<ServerDraft>,
    listed: Vec<ServerDraft>,
) -> anyhow::Result<()> {
    check_unique_names(&seeds)?;
    let removed: BTreeSet<String> = manager.store.removed_servers().await?.into_iter().collect();
    for (at, draft) in seeds.iter().enumerate() {
        if draft.name.trim().is_empty() {
            warn!("mcp.servers.{at} is skipped: it has no name");
        } else if was_removed(manager, draft, &removed) {
            warn!("mcp.servers.{at}: {}", removed_server_message(&draft.name));
        } else {
            let seeded = seed(manager, draft, ServerOrigin::File).await;
            seeded
                .map_err(|error| anyhow::anyhow!("mcp.servers.{at} ({}): {error}", draft.name))?;
        }
    }
    Ok(seed_from_registry_file(manager, listed, &removed).await?)
}

/// Registers new servers of `mcp.json`, and updates the URL of those that came from
/// there.
async fn seed_from_registry_file(
    manager: &ServerManager,
    listed: Vec<ServerDraft>,
    removed: &BTreeSet<String>,
) -> Result<(), RegistrationError> {
    for draft in listed {
        if was_removed(manager, &draft, removed) {
            warn!("mcp.json: {}", removed_server_message(&draft.name));
            manager.registry.lock().await.retain_refused(&draft);
            continue;
        }
        let registered = manager.find(&draft.name).ok();
        let moved = registered
            .as_ref()
            .is_some_and(|it| it.server.transport.url() != draft.config["url"].as_str());
        let seeded = match &registered {
            Some(it) if moved && it.server.origin == ServerOrigin::Import => {
                manager.apply_update(&draft.name, &draft).await.map(drop)
            }
            Some(_) => Ok(()),
            None => seed(manager, &draft, ServerOrigin::Import).await,
        };
        match seeded {
            Err(RegistrationError::WarningsNotAccepted { warnings, .. }) => {
                let (name, warnings) = (&draft.name, warnings.join("; "));
                warn!(
                    "the entry {name:?} of mcp.json is not used: {warnings}; if that is meant, run: maru servers add {name} --accept-warnings -- COMMAND ARGUMENTS"
                );
                manager.registry.lock().await.retain_refused(&draft);
            }
            Err(error @ (RegistrationError::Invalid(_) | RegistrationError::TooManyServers(_))) => {
                warn!(
                    "the entry {:?} of mcp.json is not used: {error}",
                    draft.name
                );
                manager.registry.lock().await.retain_refused(&draft);
            }
            seeded => seeded?,
        }
    }
    let registry = manager.registry.lock().await;
    manager.save_registry_file(&registry);
    Ok(())
}

fn was_removed(manager: &ServerManager, draft: &ServerDraft, removed: &BTreeSet<String>) -> bool {
    removed.contains(&draft.name) && manager.find(&draft.name).is_err()
}

async fn seed(
    manager: &ServerManager,
    draft: &ServerDraft,
    origin: ServerOrigin,
) -> Result<(), RegistrationError> {
    match manager.add(draft, origin).await {
        // The store takes precedence over the files.
        Err(RegistrationError::NameTaken(_)) => Ok(()),
        added => added,
    }
}

/// Fails if two entries have one name, because either could be meant.
fn check_unique_names(seeds: &[ServerDraft]) -> anyhow::Result<()> {
    let mut first_indexes = HashMap::new();
    for (at, draft) in seeds.iter().enumerate() {
        if draft.name.trim().is_empty() {
            continue;
        }
        if let Some(first) = first_indexes.insert(&draft.name, at) {
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
