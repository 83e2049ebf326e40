//! Who calls, as programs call themselves. Nobody is trusted by these names.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::Value;
use tokio::sync::watch;

use super::now;

/// How many programs are remembered.
const MAX: usize = 200;
const MAX_LABEL: usize = 80;

/// By label and principal.
type Known = HashMap<(Arc<str>, Arc<str>), Seen>;

/// Programs that were heard of.
#[derive(Debug, Default)]
pub struct Clients {
    known: Mutex<Known>,
    changed: watch::Sender<()>,
}

/// What is known of a program.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its name and version.
    pub label: Arc<str>,
    /// On whose behalf it asks.
    pub principal: Arc<str>,
    /// The protocol version it speaks.
    pub version: &'static str,
    /// When it was first heard of, in milliseconds since 1970.
    pub first: u64,
    /// When it was last heard of.
    pub last: u64,
    /// How many tools it was last shown.
    pub listed: Option<usize>,
}

impl Clients {
    /// A program shook hands, or asked for the tools and was shown `listed`.
    pub fn saw(
        &self,
        label: &Arc<str>,
        principal: &Arc<str>,
        version: &'static str,
        listed: Option<usize>,
    ) {
        let at = now();
        let key = (Arc::clone(label), Arc::clone(principal));
        let mut known = self.lock();
        if !known.contains_key(&key) && known.len() >= MAX {
            forget_oldest(&mut known);
        }
        let seen = known.entry(key).or_insert_with(|| Seen {
            label: Arc::clone(label),
            principal: Arc::clone(principal),
            version,
            first: at,
            last: at,
            listed: None,
        });
        seen.last = at;
        seen.version = version;
        seen.listed = listed.or(seen.listed);
        drop(known);
        self.changed.send_replace(());
    }

    /// Everyone, the latest first.
    pub fn list(&self) -> Vec<Seen> {
        let mut all: Vec<Seen> = self.lock().values().cloned().collect();
        all.sort_by_key(|it| std::cmp::Reverse(it.last));
        all
    }

    /// Tells when someone was seen.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn forget_oldest(known: &mut Known) {
    let oldest = known.iter().min_by_key(|(_, it)| it.last);
    if let Some(key) = oldest.map(|(key, _)| key.clone()) {
        known.remove(&key);
    }
}

/// `clientInfo` as one short line.
pub fn label(info: &str) -> Option<Arc<str>> {
    let info: Value = serde_json::from_str(info).ok()?;
    let name = info["title"].as_str().or(info["name"].as_str())?;
    let version = info["version"].as_str().unwrap_or_default();
    let line = format!("{name} {version}");
    let clean = line.trim().chars().filter(|c| !c.is_control());
    let clean: String = clean.take(MAX_LABEL).collect();
    Some(clean.into()).filter(|it: &Arc<str>| !it.is_empty())
}
