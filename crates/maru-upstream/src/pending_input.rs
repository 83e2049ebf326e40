//! Calls that wait for input of a client that the server requested.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use maru_protocol::RpcId;
use tokio::time;

use super::{connect::ActiveConnection, forward::CallRelay, link::UpstreamCall};

/// How long a client may take to provide the input.
const INPUT_TIMEOUT: Duration = Duration::from_secs(600);
const MAX_PENDING_INPUT_CALLS: usize = 256;

/// The waiting calls of one connection by their secret state token.
#[derive(Debug, Default)]
pub(super) struct PendingInput(Mutex<HashMap<String, PendingInputCall>>);

/// A call whose server waits for input.
#[derive(Debug)]
pub(super) struct PendingInputCall {
    pub(super) call: UpstreamCall,
    /// The id of the server's request.
    pub(super) request_id: RpcId,
    /// Which of its notifications are relayed.
    pub(super) relay: CallRelay,
}

impl PendingInput {
    /// Stores a call and returns the token to resume it; `None` if too many wait.
    pub(super) fn insert(
        connection: &Arc<ActiveConnection>,
        waiting: PendingInputCall,
    ) -> Option<String> {
        let name = uuid::Uuid::new_v4().to_string();
        {
            let mut all = connection
                .pending_input
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if all.len() >= MAX_PENDING_INPUT_CALLS {
                return None;
            }
            all.insert(name.clone(), waiting);
        }
        let (kept, lost) = (Arc::downgrade(connection), connection.link.lost().clone());
        let forgotten = name.clone();
        connection.spawn(async move {
            let _ends_anyway = time::timeout(INPUT_TIMEOUT, lost.cancelled()).await;
            if let Some(connection) = kept.upgrade() {
                drop(connection.pending_input.take(&forgotten));
            }
        });
        Some(name)
    }

    /// Removes and returns the call with this token.
    pub(super) fn take(&self, name: &str) -> Option<PendingInputCall> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.remove(name)
    }
}
