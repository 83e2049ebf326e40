//! One exchange of messages between two hubs.

use std::{fmt, sync::Arc};

use maru_runtime::message_queue;
use thiserror::Error;

use super::PeerHubs;

/// The other hub has ended, or cannot be reached through the store.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the hub that holds this is gone")]
pub struct PeerGone;

/// An exchange with another hub; dropping it ends it at both hubs.
pub struct Exchange {
    peers: Arc<PeerHubs>,
    hub: Arc<str>,
    id: String,
    incoming: message_queue::MessageReceiver,
}

/// An exchange that another hub opened.
#[derive(Debug)]
pub struct PeerRequest {
    /// What the other hub sent with it.
    pub body: String,
    /// The exchange, for the reply.
    pub exchange: Exchange,
}

/// The hub's side of an exchange: who sends, and where it goes.
#[derive(Debug)]
pub(crate) struct OpenExchange {
    pub(crate) hub: Arc<str>,
    pub(crate) incoming: message_queue::MessageSender,
}

impl Exchange {
    pub(crate) fn new(peers: Arc<PeerHubs>, hub: Arc<str>, id: String) -> (Self, OpenExchange) {
        let (sender, incoming) = message_queue::channel();
        let open = OpenExchange {
            hub: Arc::clone(&hub),
            incoming: sender,
        };
        let exchange = Self {
            peers,
            hub,
            id,
            incoming,
        };
        (exchange, open)
    }

    pub(crate) fn address(&self) -> (&Arc<str>, &str) {
        (&self.hub, &self.id)
    }

    /// Sends a message; it is on its way when this returns.
    pub async fn send(&self, text: &str) -> Result<(), PeerGone> {
        if !self.peers.has_exchange(&self.id) {
            return Err(PeerGone);
        }
        self.peers.send_message(self.address(), text).await
    }

    /// Receives the next message; `None` when the other hub has ended the exchange, or is
    /// gone. Cancel-safe.
    pub async fn next(&mut self) -> Option<String> {
        self.incoming.recv().await
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.peers.end_exchange(&self.hub, &self.id);
    }
}

impl fmt::Debug for Exchange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hub, id) = (&self.hub, &self.id);
        write!(out, "Exchange({id} with {hub})")
    }
}
