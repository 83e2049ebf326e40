//! What the hubs that share a store ask each other for their consoles.

use std::sync::Arc;

use maru_peers::PeerTopic;
use serde_json::{Value, json};

use super::{HubState, servers, tool_stream};

/// Answers the requests of other hubs until it is dropped.
pub async fn answer_peers(hub: Arc<HubState>) {
    let Some(peers) = &hub.peers else { return };
    let mut inputs = peers.serve(PeerTopic::ToolInput);
    let mut servers = peers.serve(PeerTopic::ServerState);
    loop {
        let (mut exchange, reply) = tokio::select! {
            Some(request) = inputs.recv() => {
                let is_taken = tool_stream::take_answer(&hub, &request.body);
                (request.exchange, is_taken.to_string())
            }
            Some(request) = servers.recv() => {
                let state = own_server_state(&hub, &request.body);
                (request.exchange, state.to_string())
            }
            else => return,
        };
        // A hub that is gone needs no reply.
        let _ = exchange.send(&reply).await;
    }
}

/// The state of a server at this hub and at the others, by the names of the hubs; `None` if
/// no other hub can share the store.
pub(super) async fn server_states(hub: &HubState, server: &str) -> Option<Value> {
    let peers = hub.peers.as_ref()?;
    let others = peers.request_all(PeerTopic::ServerState, server).await;
    let mut states = vec![named(peers.name(), own_server_state(hub, server))];
    states.extend(others.into_iter().filter_map(|(peer, reply)| {
        let state = serde_json::from_str(&reply).ok()?;
        Some(named(&peer.name, state))
    }));
    Some(states.into())
}

fn named(hub: &str, mut state: Value) -> Value {
    if let Value::Object(state) = &mut state {
        state.insert("hub".to_owned(), hub.into());
    }
    state
}

fn own_server_state(hub: &HubState, server: &str) -> Value {
    match hub.servers.get(server) {
        Ok(view) => servers::state_json(&view),
        Err(_) => json!({"status": null}),
    }
}
