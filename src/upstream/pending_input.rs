//! Calls that wait until a client has answered a question of the server.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use maru_protocol::RpcId;
use tokio::time;

use super::{connect::ActiveConnection, forward::CallRelay, link::UpstreamCall};

/// How long a client may take to answer.
const INPUT_TIMEOUT: Duration = Duration::from_secs(600);
const MAX_PENDING_INPUT_CALLS: usize = 256;

/// The waiting calls of one connection, by a secret name.
#[derive(Debug, Default)]
pub(super) struct PendingInput(Mutex<HashMap<String, PendingInputCall>>);

/// A call whose server waits for an answer.
#[derive(Debug)]
pub(super) struct PendingInputCall {
    pub(super) call: UpstreamCall,
    /// The server's question.
    pub(super) request_id: RpcId,
    /// How its messages are passed on.
    pub(super) relay: CallRelay,
}

impl PendingInput {
    /// Keeps a call; the name brings it back. `None` when too many wait.
    pub(super) fn insert(
        live: &Arc<ActiveConnection>,
        waiting: PendingInputCall,
    ) -> Option<String> {
        let name = uuid::Uuid::new_v4().to_string();
        {
            let mut all = live
                .pending_input
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if all.len() >= MAX_PENDING_INPUT_CALLS {
                return None;
            }
            all.insert(name.clone(), waiting);
        }
        let (kept, lost) = (Arc::downgrade(live), live.link.lost().clone());
        let forgotten = name.clone();
        live.spawn(async move {
            let _ends_anyway = time::timeout(INPUT_TIMEOUT, lost.cancelled()).await;
            if let Some(live) = kept.upgrade() {
                drop(live.pending_input.take(&forgotten));
            }
        });
        Some(name)
    }

    /// The call of this name, once.
    pub(super) fn take(&self, name: &str) -> Option<PendingInputCall> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(name)
    }
}
