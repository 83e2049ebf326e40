//! Watches everything that pages show, and publishes what has changed.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::{sync::broadcast::error::RecvError, time};
use tokio_util::sync::CancellationToken;

use super::{super::Hub, assets::build};
use crate::{
    access::{Principal, Role},
    api::{calls, servers},
    journal::{Record, Seen},
};

/// Calls come in bunches; they are told this long after the first.
const GATHER: Duration = Duration::from_millis(15);
/// How often figures of servers that are being called are told.
const TICK: Duration = Duration::from_secs(3);
/// The most calls of one bunch that are told.
const BUNCH: usize = 100;

/// Everything there is, for a page that begins.
pub(super) fn snapshot(hub: &Hub, principal: &Principal) -> Value {
    let servers = hub.servers.list();
    let mut clients = hub.engine.catalog().journal().clients().list();
    clients.retain(|it| principal.role() == Role::Admin || *it.principal == *principal.name());
    json!({
        "build": build(),
        "version": env!("CARGO_PKG_VERSION"),
        "servers": servers.iter().map(|it| servers::live(hub, it)).collect::<Vec<_>>(),
        "clients": clients.iter().map(client).collect::<Vec<_>>(),
        "tools": tools(hub),
    })
}

/// A call, as lists show it.
pub(super) fn call(record: &Record) -> Value {
    calls::summary(record)
}

fn tools(hub: &Hub) -> Value {
    let snapshot = hub.engine.catalog().snapshot();
    let (mut count, mut off) = (0, 0);
    for (_, on) in snapshot.every_tool() {
        count += 1;
        off += usize::from(!on);
    }
    json!({"count": count, "off": off})
}

fn client(seen: &Seen) -> Value {
    json!({
        "client": &*seen.label,
        "principal": &*seen.principal,
        "protocolVersion": seen.version,
        "firstSeen": seen.first,
        "lastSeen": seen.last,
        "tools": seen.listed,
    })
}

/// Runs until `stop`.
pub async fn pump(hub: Arc<Hub>, stop: CancellationToken) {
    tokio::select! {
        () = stop.cancelled() => (),
        () = calls_told(&hub) => (),
        () = servers_told(&hub) => (),
        () = tools_told(&hub) => (),
        () = clients_told(&hub) => (),
        () = runs_told(&hub) => (),
    }
}

async fn calls_told(hub: &Hub) {
    let journal = hub.engine.catalog().journal();
    loop {
        let mut seen = hub.events.opened().await;
        let listening = journal.listen();
        while hub.events.is_heard() {
            if time::timeout(TICK, listening.more(seen)).await.is_err() {
                continue;
            }
            time::sleep(GATHER).await;
            for record in journal.since(seen, BUNCH) {
                let owner = Some(Arc::clone(&record.asked.principal));
                hub.events.publish("call", call(&record).to_string(), owner);
            }
            seen = journal.last();
        }
    }
}

async fn servers_told(hub: &Hub) {
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
                    servers::live(hub, it).to_string(),
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
            match hub.events.is_heard() {
                true => time::sleep(TICK).await,
                false => {
                    hub.events.opened().await;
                }
            }
        };
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = looked_at => (),
        }
    }
}

async fn tools_told(hub: &Hub) {
    let mut changes = hub.engine.catalog().watch();
    while changes.changed().await.is_ok() {
        // Servers that connect together change the catalog many times.
        time::sleep(GATHER).await;
        changes.mark_unchanged();
        hub.events.publish("tool", tools(hub).to_string(), None);
    }
}

/// Which run has changed; a page that shows it reads it again.
async fn runs_told(hub: &Hub) {
    let mut changes = hub.agent.runs().changes();
    loop {
        match changes.recv().await {
            Ok(id) if hub.events.is_heard() => {
                let data = json!({"id": &*id}).to_string();
                hub.events.publish("run", data, None);
            }
            Ok(_) | Err(RecvError::Lagged(_)) => (),
            Err(RecvError::Closed) => return,
        }
    }
}

async fn clients_told(hub: &Hub) {
    let clients = hub.engine.catalog().journal().clients();
    let mut changes = clients.changes();
    let mut told = BTreeMap::new();
    while changes.changed().await.is_ok() {
        time::sleep(GATHER).await;
        changes.mark_unchanged();
        if !hub.events.is_heard() {
            continue;
        }
        for seen in clients.list() {
            let key = (Arc::clone(&seen.label), Arc::clone(&seen.principal));
            if told.get(&key) != Some(&seen.last) {
                let owner = Some(Arc::clone(&seen.principal));
                hub.events
                    .publish("client", client(&seen).to_string(), owner);
                told.insert(key, seen.last);
            }
        }
        told.retain(|_, last| *last + 86_400_000 > crate::journal::now());
    }
}
