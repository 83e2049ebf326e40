//! Client programs by their reported names, which are not authenticated.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::Value;
use tokio::sync::watch;

use super::now_millis;

/// How many client programs are kept.
const MAX_CLIENTS: usize = 200;
const MAX_LABEL_CHARS: usize = 80;

/// By label and principal.
type ClientMap = HashMap<(Arc<str>, Arc<str>), ClientRecord>;

/// The client programs that connected.
#[derive(Debug, Default)]
pub struct KnownClients {
    known: Mutex<ClientMap>,
    changed: watch::Sender<()>,
}

/// A client program.
#[derive(Clone, Debug)]
pub struct ClientRecord {
    /// Its name and version.
    pub label: Arc<str>,
    /// The principal that it uses.
    pub principal: Arc<str>,
    /// Its protocol version.
    pub protocol_version: &'static str,
    /// When it first connected, in milliseconds since 1970.
    pub first_seen: u64,
    /// When it last connected or listed the tools.
    pub last_seen: u64,
    /// How many tools its last listing had.
    pub tools_listed: Option<usize>,
}

impl KnownClients {
    /// Records a client that did the handshake, or listed the tools and got `listed`.
    pub fn record_client(
        &self,
        label: &Arc<str>,
        principal: &Arc<str>,
        version: &'static str,
        listed: Option<usize>,
    ) {
        let at = now_millis();
        let key = (Arc::clone(label), Arc::clone(principal));
        let mut known = self.lock();
        if !known.contains_key(&key) && known.len() >= MAX_CLIENTS {
            evict_oldest(&mut known);
        }
        let seen = known.entry(key).or_insert_with(|| ClientRecord {
            label: Arc::clone(label),
            principal: Arc::clone(principal),
            protocol_version: version,
            first_seen: at,
            last_seen: at,
            tools_listed: None,
        });
        seen.last_seen = at;
        seen.protocol_version = version;
        seen.tools_listed = listed.or(seen.tools_listed);
        drop(known);
        self.changed.send_replace(());
    }

    /// All clients, the latest first.
    pub fn list(&self) -> Vec<ClientRecord> {
        let mut all: Vec<ClientRecord> = self.lock().values().cloned().collect();
        all.sort_by_key(|it| std::cmp::Reverse(it.last_seen));
        all
    }

    /// Notifies about every recorded client.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, ClientMap> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn evict_oldest(known: &mut ClientMap) {
    let oldest = known.iter().min_by_key(|(_, it)| it.last_seen);
    if let Some(key) = oldest.map(|(key, _)| key.clone()) {
        known.remove(&key);
    }
}

/// `clientInfo` as one short line.
pub fn client_label(info: &str) -> Option<Arc<str>> {
    let info: Value = serde_json::from_str(info).ok()?;
    let name = info["title"].as_str().or(info["name"].as_str())?;
    let version = info["version"].as_str().unwrap_or_default();
    let line = format!("{name} {version}");
    let clean = line.trim().chars().filter(|c| !c.is_control());
    let clean: String = clean.take(MAX_LABEL_CHARS).collect();
    Some(clean.into()).filter(|it: &Arc<str>| !it.is_empty())
}
