//! Keeps the accepted tool definitions, in memory and in the store.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use maru_store::{Store, ToolPinRow};
use tracing::warn;

use super::{
    listing::{Refreshed, WithheldEntry},
    trust::{PinnedDefinition, TrustPolicy},
};
use maru_tools::CatalogEntry;

/// The accepted and pending tool definitions by server and name.
#[derive(Debug)]
pub(super) struct ToolPins {
    store: Store,
    by_server: Mutex<HashMap<String, ServerPins>>,
}

#[derive(Debug, Default)]
struct ServerPins {
    accepted: HashMap<String, PinnedDefinition>,
    /// Changed definitions that an admin has not accepted yet.
    pending: HashMap<String, PinnedDefinition>,
}

impl ToolPins {
    pub(super) fn new(store: Store) -> Self {
        Self {
            store,
            by_server: Mutex::default(),
        }
    }

    /// Reads the accepted definitions of a server, which another hub may have accepted.
    pub(super) async fn reload(&self, server: &str) {
        match self.store.pins(server).await {
            Ok(rows) => self.record_rows(server, rows),
            Err(error) => warn!(%error, "the accepted tools of {server} could not be read"),
        }
    }

    /// Accepts new definitions and, if the trust policy follows changes, all changed
    /// ones. A failing store does not block: definitions accepted in memory are written
    /// with the next listing.
    pub(super) async fn accept_new(&self, server: &str, trust: TrustPolicy, listed: &Refreshed) {
        self.reload(server).await;
        let new = self.new_definitions(server, trust, listed);
        if new.is_empty() {
            return;
        }
        if let Err(error) = self.save(server, &new).await {
            warn!(%error, "the accepted tools of {server} could not be written");
        }
        self.record_accepted(server, new);
    }

    /// Splits a listing into the entries to publish and those whose definition differs
    /// from the accepted one.
    pub(super) fn partition(
        &self,
        server: &str,
        listed: &Refreshed,
    ) -> (Vec<Arc<CatalogEntry>>, Vec<WithheldEntry>) {
        let mut all = self.lock();
        let known = all.entry(server.to_owned()).or_default();
        known.pending.clear();
        let (mut offers, mut withheld) = (Vec::new(), listed.withheld.clone());
        for (offer, definition) in &listed.offers {
            let before = known.accepted.get(offer.key());
            match (definition, before) {
                (Some(now), Some(before)) if now.digest != before.digest => {
                    withheld.push(WithheldEntry {
                        name: offer.key().to_owned(),
                        reason: "its definition has changed since it was accepted".to_owned(),
                        differences: now.differences(before),
                    });
                    known.pending.insert(offer.key().to_owned(), now.clone());
                }
                _ => offers.push(Arc::clone(offer)),
            }
        }
        (offers, withheld)
    }

    /// Accepts the changed definition of `tool`, or of all tools; returns how many.
    pub(super) async fn accept(
        &self,
        server: &str,
        tool: Option<&str>,
    ) -> Result<usize, maru_store::Error> {
        let chosen: Vec<_> = {
            let all = self.lock();
            let pending = all.get(server).map(|it| &it.pending);
            let is_chosen = |name: &&String| tool.is_none_or(|it| it == *name);
            pending
                .into_iter()
                .flatten()
                .filter(|(name, _)| is_chosen(name))
                .map(|(name, it)| (name.clone(), it.clone()))
                .collect()
        };
        self.save(server, &chosen).await?;
        let count = chosen.len();
        self.record_accepted(server, chosen);
        Ok(count)
    }

    /// Deletes the definitions of a removed server.
    pub(super) async fn forget(&self, server: &str) -> Result<(), maru_store::Error> {
        self.store.delete_pins(server).await?;
        self.forget_in_memory(server);
        Ok(())
    }

    /// Forgets the definitions of a server that another hub removed.
    pub(super) fn forget_in_memory(&self, server: &str) {
        self.lock().remove(server);
    }

    fn record_rows(&self, server: &str, rows: Vec<ToolPinRow>) {
        let read = |row: ToolPinRow| {
            let definition = PinnedDefinition {
                digest: row.digest,
                text: row.definition,
            };
            (row.tool, definition)
        };
        self.record_accepted(server, rows.into_iter().map(read).collect());
    }

    fn new_definitions(
        &self,
        server: &str,
        trust: TrustPolicy,
        listed: &Refreshed,
    ) -> Vec<(String, PinnedDefinition)> {
        let all = self.lock();
        let accepted = all.get(server).map(|it| &it.accepted);
        let is_new = |name: &str, now: &PinnedDefinition| {
            let before = accepted.and_then(|it| it.get(name));
            before.is_none_or(|it| trust == TrustPolicy::Follow && it.digest != now.digest)
        };
        listed
            .offers
            .iter()
            .filter_map(|(offer, definition)| Some((offer.key(), definition.as_ref()?)))
            .filter(|(name, definition)| is_new(name, definition))
            .map(|(name, definition)| (name.to_owned(), definition.clone()))
            .collect()
    }

    async fn save(
        &self,
        server: &str,
        all: &[(String, PinnedDefinition)],
    ) -> Result<(), maru_store::Error> {
        let rows = all.iter().map(|(tool, it)| ToolPinRow {
            tool: tool.clone(),
            digest: it.digest,
            definition: it.text.clone(),
        });
        self.store.put_pins(server, rows.collect()).await
    }

    fn record_accepted(&self, server: &str, all: Vec<(String, PinnedDefinition)>) {
        let mut known = self.lock();
        let known = known.entry(server.to_owned()).or_default();
        known.accepted.extend(all);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, ServerPins>> {
        self.by_server
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
