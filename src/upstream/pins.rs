//! The definitions that were accepted, in memory and in the store.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tracing::warn;

use super::{
    offers::{Listed, Withheld},
    trust::{Definition, Trust},
};
use crate::{
    store::{self, PinRow, Store},
    tool::Offer,
};

/// Definitions of tools by server and name.
#[derive(Debug)]
pub(super) struct Pins {
    store: Store,
    known: Mutex<HashMap<String, Known>>,
}

#[derive(Debug, Default)]
struct Known {
    accepted: HashMap<String, Definition>,
    /// Changed definitions that wait for an admin.
    waiting: HashMap<String, Definition>,
}

impl Pins {
    pub(super) fn new(store: Store) -> Self {
        Self {
            store,
            known: Mutex::default(),
        }
    }

    /// Accepts what is seen for the first time and, of a server that is followed,
    /// everything. A store that fails makes nobody wait: what is accepted in
    /// memory is written with the next listing.
    pub(super) async fn learn(&self, server: &str, trust: Trust, listed: &Listed) {
        match self.store.pins(server).await {
            Ok(rows) => self.remember(server, rows),
            Err(error) => warn!(%error, "the accepted tools of {server} could not be read"),
        }
        let new = self.new_ones(server, trust, listed);
        if new.is_empty() {
            return;
        }
        if let Err(error) = self.write(server, &new).await {
            warn!(%error, "the accepted tools of {server} could not be written");
        }
        self.accepted(server, new);
    }

    /// The offers, without tools whose definition differs from the accepted one.
    pub(super) fn sort(&self, server: &str, listed: &Listed) -> (Vec<Arc<Offer>>, Vec<Withheld>) {
        let mut all = self.lock();
        let known = all.entry(server.to_owned()).or_default();
        known.waiting.clear();
        let (mut offers, mut withheld) = (Vec::new(), listed.withheld.clone());
        for (offer, definition) in &listed.offers {
            let before = known.accepted.get(offer.key());
            match (definition, before) {
                (Some(now), Some(before)) if now.digest != before.digest => {
                    withheld.push(Withheld {
                        name: offer.key().to_owned(),
                        why: "its definition has changed since it was accepted".to_owned(),
                        differences: now.differences(before),
                    });
                    known.waiting.insert(offer.key().to_owned(), now.clone());
                }
                _ => offers.push(Arc::clone(offer)),
            }
        }
        (offers, withheld)
    }

    /// Accepts the changed definition of `tool`, or of all; says of how many.
    pub(super) async fn accept(
        &self,
        server: &str,
        tool: Option<&str>,
    ) -> Result<usize, store::Error> {
        let chosen: Vec<_> = {
            let all = self.lock();
            let waiting = all.get(server).map(|it| &it.waiting);
            let wanted = |name: &&String| tool.is_none_or(|it| it == *name);
            waiting
                .into_iter()
                .flatten()
                .filter(|(name, _)| wanted(name))
                .map(|(name, it)| (name.clone(), it.clone()))
                .collect()
        };
        self.write(server, &chosen).await?;
        let count = chosen.len();
        self.accepted(server, chosen);
        Ok(count)
    }

    /// Forgets a server that was removed.
    pub(super) async fn forget(&self, server: &str) -> Result<(), store::Error> {
        self.store.delete_pins(server).await?;
        self.lock().remove(server);
        Ok(())
    }

    fn remember(&self, server: &str, rows: Vec<PinRow>) {
        let read = |row: PinRow| {
            let definition = Definition {
                digest: row.digest,
                text: row.definition,
            };
            (row.tool, definition)
        };
        self.accepted(server, rows.into_iter().map(read).collect());
    }

    fn new_ones(&self, server: &str, trust: Trust, listed: &Listed) -> Vec<(String, Definition)> {
        let all = self.lock();
        let accepted = all.get(server).map(|it| &it.accepted);
        let is_new = |name: &str, now: &Definition| {
            let before = accepted.and_then(|it| it.get(name));
            before.is_none_or(|it| trust == Trust::Follow && it.digest != now.digest)
        };
        listed
            .offers
            .iter()
            .filter_map(|(offer, definition)| Some((offer.key(), definition.as_ref()?)))
            .filter(|(name, definition)| is_new(name, definition))
            .map(|(name, definition)| (name.to_owned(), definition.clone()))
            .collect()
    }

    async fn write(&self, server: &str, all: &[(String, Definition)]) -> Result<(), store::Error> {
        let rows = all.iter().map(|(tool, it)| PinRow {
            tool: tool.clone(),
            digest: it.digest,
            definition: it.text.clone(),
        });
        self.store.put_pins(server, rows.collect()).await
    }

    fn accepted(&self, server: &str, all: Vec<(String, Definition)>) {
        let mut known = self.lock();
        let known = known.entry(server.to_owned()).or_default();
        known.accepted.extend(all);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
