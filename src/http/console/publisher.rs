//! Watches everything that pages show, and publishes what has changed.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::{sync::broadcast::error::RecvError, time};
use tokio_util::sync::CancellationToken;

use super::{super::HubState, assets::build};
use crate::{
    auth::{AccessRole, Principal},
    http::{calls, servers},
    observability::journal::{CallRecord, ClientRecord},
};

/// Calls come in bunches; they are told this long after the first.
const BATCH_DELAY: Duration = Duration::from_millis(15);
/// How often figures of servers that are being called are told.
const SERVER_STATS_INTERVAL: Duration = Duration::from_secs(3);
/// The most calls of one bunch that are told.
const MAX_CALLS_PER_BATCH: usize = 100;

/// Everything there is, for a page that begins.
pub(super) fn snapshot(hub: &HubState, principal: &Principal) -> Value {
    let servers = hub.servers.list();
    let mut clients = hub.engine.catalog().journal().clients().list();
    clients
        .retain(|it| principal.role() == AccessRole::Admin || *it.principal == *principal.name());
    json!({
        "build": build(),
        "version": env!("CARGO_PKG_VERSION"),
        "servers": servers.iter().map(|it| servers::console_json(hub, it)).collect::<Vec<_>>(),
        "clients": clients.iter().map(client_json).collect::<Vec<_>>(),
        "tools": tool_counts_json(hub),
    })
}

/// A call, as lists show it.
pub(super) fn call_json(record: &CallRecord) -> Value {
    calls::summary(record)
}

fn tool_counts_json(hub: &HubState) -> Value {
    let snapshot = hub.engine.catalog().snapshot();
    let (mut count, mut off) = (0, 0);
    for (_, on) in snapshot.tools_with_state() {
        count += 1;
        off += usize::from(!on);
    }
    json!({"count": count, "off": off})
}

fn client_json(seen: &ClientRecord) -> Value {
    json!({
        "client": &*seen.label,
        "principal": &*seen.principal,
        "protocolVersion": seen.protocol_version,
        "firstSeen": seen.first_seen,
        "lastSeen": seen.last_seen,
        "tools": seen.tools_listed,
    })
}

/// Runs until `stop`.
pub async fn publish_changes(hub: Arc<HubState>, stop: CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => (),
        () = publish_calls(&hub) => (),
        () = publish_servers(&hub) => (),
        () = publish_tools(&hub) => (),
        () = publish_clients(&hub) => (),
        () = publish_runs(&hub) => (),
    }
}

async fn publish_calls(hub: &HubState) {
    let journal = hub.engine.catalog().journal();
    loop {
        let mut seen = hub.events.wait_for_page().await;
        let listening = journal.subscribe();
        while hub.events.has_open_pages() {
            if time::timeout(SERVER_STATS_INTERVAL, listening.wait_past(seen))
                .await
                .is_err()
            {
                continue;
            }
            time::sleep(BATCH_DELAY).await;
            for record in journal.since(seen, MAX_CALLS_PER_BATCH) {
                let owner = Some(Arc::clone(&record.asked.principal));
                hub.events
                    .publish("call", call_json(&record).to_string(), owner);
            }
            seen = journal.last_id();
        }
    }
}

async fn publish_servers(hub: &HubState) {
    let mut changes = hub.servers.changes();
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    loop {
        let now: BTreeMap<String, String> = hub
            .servers
            .list()
            .iter()
            .map(|it| {
                (
                    it.server.name.as_str().to_owned(),
                    servers::console_json(hub, it).to_string(),
                )
            })
            .collect();
        for (name, shown) in &now {
            if known.get(name) != Some(shown) {
                hub.events.publish("server", shown.clone(), None);
            }
        }
        for name in known.keys().filter(|it| !now.contains_key(*it)) {
            let gone = json!({"name": name, "removed": true});
            hub.events.publish("server", gone.to_string(), None);
        }
        known = now;
        let looked_at = async {
            if hub.events.has_open_pages() {
                time::sleep(SERVER_STATS_INTERVAL).await;
            } else {
                hub.events.wait_for_page().await;
            }
        };
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = looked_at => (),
        }
    }
}

async fn publish_tools(hub: &HubState) {
    let mut changes = hub.engine.catalog().subscribe();
    while changes.changed().await.is_ok() {
        // Servers that connect together change the catalog many times.
        time::sleep(BATCH_DELAY).await;
        changes.mark_unchanged();
        hub.events
            .publish("tool", tool_counts_json(hub).to_string(), None);
    }
}

/// Which run has changed; a page that shows it reads it again.
async fn publish_runs(hub: &HubState) {
    let mut changes = hub.agent.runs().changes();
    loop {
        match changes.recv().await {
            Ok(id) if hub.events.has_open_pages() => {
                let data = json!({"id": &*id}).to_string();
                hub.events.publish("run", data, None);
            }
            Ok(_) | Err(RecvError::Lagged(_)) => (),
            Err(RecvError::Closed) => return,
        }
    }
}

async fn publish_clients(hub: &HubState) {
    let clients = hub.engine.catalog().journal().clients();
    let mut changes = clients.subscribe();
    let mut told = BTreeMap::new();
    while changes.changed().await.is_ok() {
        time::sleep(BATCH_DELAY).await;
        changes.mark_unchanged();
        if !hub.events.has_open_pages() {
            continue;
        }
        for seen in clients.list() {
            let key = (Arc::clone(&seen.label), Arc::clone(&seen.principal));
            if told.get(&key) != Some(&seen.last_seen) {
                let owner = Some(Arc::clone(&seen.principal));
                hub.events
                    .publish("client", client_json(&seen).to_string(), owner);
                told.insert(key, seen.last_seen);
            }
        }
        told.retain(|_, last| *last + 86_400_000 > crate::observability::journal::now_millis());
    }
}
