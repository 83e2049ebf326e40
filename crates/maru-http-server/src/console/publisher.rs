//! Watches everything that console pages show, and publishes changes.

use std::{
    collections::{BTreeMap, BTreeSet},
    future,
    sync::Arc,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{sync::broadcast::error::RecvError, time};
use tokio_util::sync::CancellationToken;

use super::{super::HubState, assets::build};
use crate::{calls, servers};
use maru_auth::{AccessRole, Principal};
use maru_observability::journal::{CallRecord, ClientRecord, now_millis};

/// How long to collect changes before they are published together.
const BATCH_DELAY: Duration = Duration::from_millis(15);
/// How often the statistics of servers are published while a page is open.
const SERVER_STATS_INTERVAL: Duration = Duration::from_secs(3);
/// How often the calls of other hubs are read while a page is open.
const PEER_CALLS_INTERVAL: Duration = Duration::from_secs(1);
/// How many records before the newest one are read again.
const PEER_CALLS_OVERLAP: i64 = 200;
/// How many calls of other hubs are read at a time.
const MAX_PEER_CALLS: i64 = 2 * PEER_CALLS_OVERLAP;
/// The maximum number of calls that are published together.
const MAX_CALLS_PER_BATCH: usize = 100;

/// The current state, for a page that was just opened.
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

/// The JSON of a call without its arguments and result.
pub(super) fn call_json(hub: &HubState, record: &CallRecord) -> Value {
    calls::summary(hub, record)
}

fn tool_counts_json(hub: &HubState) -> Value {
    let snapshot = hub.engine.catalog().snapshot();
    let (mut count, mut disabled) = (0, 0);
    for (_, enabled) in snapshot.tools_with_state() {
        count += 1;
        disabled += usize::from(!enabled);
    }
    json!({"count": count, "off": disabled})
}

fn client_json(client: &ClientRecord) -> Value {
    json!({
        "client": &*client.label,
        "principal": &*client.principal,
        "protocolVersion": client.protocol_version,
        "firstSeen": client.first_seen,
        "lastSeen": client.last_seen,
        "tools": client.tools_listed,
    })
}

/// Publishes changes of calls, servers, tools, clients and runs until `stop`.
pub async fn publish_changes(hub: Arc<HubState>, stop: CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => (),
        () = publish_calls(&hub) => (),
        () = publish_calls_of_peers(&hub) => (),
        () = publish_servers(&hub) => (),
        () = publish_tools(&hub) => (),
        () = publish_clients(&hub) => (),
        () = publish_runs(&hub) => (),
    }
}

async fn publish_calls(hub: &HubState) {
    let journal = hub.engine.catalog().journal();
    loop {
        let mut last_call = hub.events.wait_for_page().await;
        let new_calls = journal.subscribe();
        while hub.events.has_open_pages() {
            if time::timeout(SERVER_STATS_INTERVAL, new_calls.wait_past(last_call))
                .await
                .is_err()
            {
                continue;
            }
            time::sleep(BATCH_DELAY).await;
            for record in journal.since(last_call, MAX_CALLS_PER_BATCH) {
                let owner = Some(Arc::clone(&record.request.principal));
                hub.events
                    .publish("call", call_json(hub, &record).to_string(), owner);
            }
            last_call = journal.last_id();
        }
    }
}

/// Publishes the calls of the other hubs, which are in the store moments after they ended.
async fn publish_calls_of_peers(hub: &HubState) {
    let Some(own_name) = hub.own_name() else {
        return future::pending().await;
    };
    loop {
        hub.events.wait_for_page().await;
        let Ok(mut newest) = hub.store.last_record().await else {
            time::sleep(PEER_CALLS_INTERVAL).await;
            continue;
        };
        // Rows of one transaction may become visible after those of a later one.
        let first = newest;
        let mut published = BTreeSet::new();
        while hub.events.has_open_pages() {
            time::sleep(PEER_CALLS_INTERVAL).await;
            let after = first.max(newest - PEER_CALLS_OVERLAP);
            let calls = hub
                .store
                .calls_of_other_hubs(own_name, after, MAX_PEER_CALLS);
            let calls = calls.await.unwrap_or_default();
            if i64::try_from(calls.len()).is_ok_and(|it| it == MAX_PEER_CALLS) {
                // More than a page shows; it goes on with the newest.
                newest = hub.store.last_record().await.unwrap_or(newest);
            }
            for row in calls {
                newest = newest.max(row.id);
                if published.insert(row.id) {
                    let owner = Some(row.principal.as_str().into());
                    let call = calls::stored_json(&row).to_string();
                    hub.events.publish("call", call, owner);
                }
            }
            published.retain(|it| *it > newest - PEER_CALLS_OVERLAP);
        }
    }
}

async fn publish_servers(hub: &HubState) {
    let mut changes = hub.servers.changes();
    let mut published: BTreeMap<String, String> = BTreeMap::new();
    loop {
        let current: BTreeMap<String, String> = hub
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
        for (name, json) in &current {
            if published.get(name) != Some(json) {
                hub.events.publish("server", json.clone(), None);
            }
        }
        for name in published.keys().filter(|it| !current.contains_key(*it)) {
            let removed = json!({"name": name, "removed": true});
            hub.events.publish("server", removed.to_string(), None);
        }
        published = current;
        let next_update = async {
            if hub.events.has_open_pages() {
                time::sleep(SERVER_STATS_INTERVAL).await;
            } else {
                hub.events.wait_for_page().await;
            }
        };
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = next_update => (),
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

/// Publishes the ids of changed runs; a page that shows one fetches it again.
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
    let mut published = BTreeMap::new();
    while changes.changed().await.is_ok() {
        time::sleep(BATCH_DELAY).await;
        changes.mark_unchanged();
        if !hub.events.has_open_pages() {
            continue;
        }
        for client in clients.list() {
            let key = (Arc::clone(&client.label), Arc::clone(&client.principal));
            if published.get(&key) != Some(&client.last_seen) {
                let owner = Some(Arc::clone(&client.principal));
                hub.events
                    .publish("client", client_json(&client).to_string(), owner);
                published.insert(key, client.last_seen);
            }
        }
        // Clients that were not seen for a day are forgotten.
        published.retain(|_, last_seen| *last_seen + 86_400_000 > now_millis());
    }
}
