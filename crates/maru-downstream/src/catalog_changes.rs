//! Changes of the catalog, as notifications for one client.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use serde_json::{Value, json};
use tokio::sync::{broadcast, watch};

use maru_tools::{Caller, Catalog, CatalogSnapshot, CatalogView, ResourceSubscription};

/// A notification: its method and parameters.
pub(super) type ChangeNotification = (&'static str, Value);

/// The URIs of the resources that a client subscribed to.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientSubscriptions(Arc<Mutex<HashMap<String, ResourceSubscription>>>);

/// The changes of the catalog that the client has not been notified of.
#[derive(Debug)]
pub(super) struct CatalogChanges {
    catalog: watch::Receiver<Arc<CatalogSnapshot>>,
    seen: Arc<CatalogSnapshot>,
    caller: Caller,
    updates: broadcast::Receiver<Arc<str>>,
    subscriptions: ClientSubscriptions,
}

const MAX_RESOURCE_SUBSCRIPTIONS: usize = 1000;
/// How long the URI of a subscription may be; each is kept, also in a shared store.
pub(super) const MAX_SUBSCRIBED_URI_BYTES: usize = 2048;

impl ClientSubscriptions {
    /// Adds a subscription; returns false if the client has too many, or its URI is too long.
    pub(super) fn add(&self, uri: &str, subscription: ResourceSubscription) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = uri.len() <= MAX_SUBSCRIBED_URI_BYTES
            && (all.len() < MAX_RESOURCE_SUBSCRIPTIONS || all.contains_key(uri));
        if fits {
            all.insert(uri.to_owned(), subscription);
        }
        fits
    }

    /// Removes a subscription; returns whether it existed.
    pub(super) fn remove(&self, uri: &str) -> bool {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(uri).is_some()
    }

    fn contains(&self, uri: &str) -> bool {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains_key(uri)
    }
}

impl CatalogChanges {
    pub(super) fn new(
        catalog: &Catalog,
        caller: Caller,
        subscriptions: ClientSubscriptions,
    ) -> Self {
        Self {
            catalog: catalog.subscribe(),
            seen: catalog.snapshot(),
            caller,
            updates: catalog.subscribe_resource_updates(),
            subscriptions,
        }
    }

    /// The next changes. Cancel-safe.
    pub(super) async fn next(&mut self) -> Vec<ChangeNotification> {
        loop {
            tokio::select! {
                biased;
                Ok(()) = self.catalog.changed() => return self.list_changes(),
                updated = self.updates.recv() => match updated {
                    Ok(uri) if self.subscriptions.contains(&uri) => {
                        return vec![("notifications/resources/updated", json!({"uri": &*uri}))];
                    }
                    // No subscription, or more updates than the channel buffers.
                    Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => (),
                    Err(broadcast::error::RecvError::Closed) => return std::future::pending().await,
                },
            }
        }
    }

    /// A change of every list that the caller sees.
    pub(super) fn all_lists(&self) -> Vec<ChangeNotification> {
        let view = self.seen.visible_to(&self.caller);
        let methods = view.map(|it| it.changes_since(&CatalogView::default()));
        let methods = methods.into_iter().flatten();
        methods.map(|method| (method, json!({}))).collect()
    }

    fn list_changes(&mut self) -> Vec<ChangeNotification> {
        let now = Arc::clone(&self.catalog.borrow_and_update());
        let before = std::mem::replace(&mut self.seen, Arc::clone(&now));
        let changed = match (now.listed_to(&self.caller), before.listed_to(&self.caller)) {
            (Ok(now), Ok(before)) => now.changes_since(&before),
            // A server that connected or disconnected changes all of its lists.
            (Ok(view), Err(_)) | (Err(_), Ok(view)) => view.changes_since(&CatalogView::default()),
            (Err(_), Err(_)) => Vec::new(),
        };
        changed
            .into_iter()
            .map(|method| (method, json!({})))
            .collect()
    }
}
