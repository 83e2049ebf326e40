//! Calls that wait until a client has answered a question of the server.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time;

use super::{forward::Turn, link::Call, open::Live};
use crate::mcp::Id;

/// How long a client may take to answer.
const LIFE: Duration = Duration::from_secs(600);
const MAX: usize = 256;

/// The waiting calls of one connection, by a secret name.
#[derive(Debug, Default)]
pub(super) struct Parked(Mutex<HashMap<String, Waiting>>);

/// A call whose server waits for an answer.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) call: Call,
    /// The server's question.
    pub(super) question: Id,
    /// How its messages are passed on.
    pub(super) turn: Turn,
}

impl Parked {
    /// Keeps a call; the name brings it back. `None` when too many wait.
    pub(super) fn keep(live: &Arc<Live>, waiting: Waiting) -> Option<String> {
        let name = uuid::Uuid::new_v4().to_string();
        {
            let mut all = live.parked.0.lock().unwrap_or_else(PoisonError::into_inner);
            if all.len() >= MAX {
                return None;
            }
            waiting.call.set_open_question(true);
            all.insert(name.clone(), waiting);
        }
        let (kept, lost) = (Arc::downgrade(live), live.link.lost().clone());
        let forgotten = name.clone();
        live.spawn(async move {
            let _ends_anyway = time::timeout(LIFE, lost.cancelled()).await;
            if let Some(live) = kept.upgrade() {
                drop(live.parked.take(&forgotten));
            }
        });
        Some(name)
    }

    /// The call of this name, once.
    pub(super) fn take(&self, name: &str) -> Option<Waiting> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = all.remove(name)?;
        waiting.call.set_open_question(false);
        Some(waiting)
    }
}
