//! What changes in the catalog, for one listener.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};

use crate::tool::{Caller, Catalog, Snapshot, View, Watching};

/// A notification: its method and parameters.
pub(super) type Item = (&'static str, Value);

/// Addresses of resources that someone wants to hear of.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted(Arc<Mutex<HashMap<String, Watching>>>);

/// Everything that changed since the last look.
#[derive(Debug)]
pub(super) struct News {
    catalog: watch::Receiver<Arc<Snapshot>>,
    seen: Arc<Snapshot>,
    caller: Caller,
    updates: broadcast::Receiver<Arc<str>>,
    wanted: Wanted,
}

const MAX_WANTED: usize = 1000;

impl Wanted {
    /// Adds an address; false when there are too many.
    pub(super) fn add(&self, uri: &str, watching: Watching) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let room = all.len() < MAX_WANTED || all.contains_key(uri);
        if room {
            all.insert(uri.to_owned(), watching);
        }
        room
    }

    pub(super) fn remove(&self, uri: &str) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(uri);
    }

    fn has(&self, uri: &str) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains_key(uri)
    }
}

impl News {
    pub(super) fn new(catalog: &Catalog, caller: Caller, wanted: Wanted) -> Self {
        Self {
            catalog: catalog.watch(),
            seen: catalog.snapshot(),
            caller,
            updates: catalog.updates(),
            wanted,
        }
    }

    /// The next changes. Cancel-safe.
    pub(super) async fn next(&mut self) -> Vec<Item> {
        loop {
            tokio::select! {
                biased;
                Ok(()) = self.catalog.changed() => return self.lists(),
                updated = self.updates.recv() => match updated {
                    Ok(uri) if self.wanted.has(&uri) => {
                        return vec![("notifications/resources/updated", json!({"uri": &*uri}))];
                    }
                    // Not wanted, or too many at once to tell of each.
                    Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => (),
                    Err(broadcast::error::RecvError::Closed) => return std::future::pending().await,
                },
            }
        }
    }

    fn lists(&mut self) -> Vec<Item> {
        let now = Arc::clone(&self.catalog.borrow_and_update());
        let before = std::mem::replace(&mut self.seen, Arc::clone(&now));
        let changed = match (now.seen(&self.caller), before.seen(&self.caller)) {
            (Ok(now), Ok(before)) => now.changes_since(&before),
            // A server that came or went changes all of its lists.
            (Ok(view), Err(_)) | (Err(_), Ok(view)) => view.changes_since(&View::default()),
            (Err(_), Err(_)) => Vec::new(),
        };
        changed
            .into_iter()
            .map(|method| (method, json!({})))
            .collect()
    }
}
