//! One exchange of messages between two hubs.

use std::{fmt, sync::Arc};

use maru_runtime::message_queue;

use super::{Error, PeerHubs};

/// How many messages may wait for their reader. All that a hub takes from the store at
/// once fit, and as many again.
const MAX_WAITING_MESSAGES: usize = 1024;

/// An exchange with another hub; dropping it ends it at both hubs.
pub struct Exchange {
    peers: Arc<PeerHubs>,
    hub: Arc<str>,
    id: String,
    incoming: message_queue::MessageReceiver,
}

/// Where the messages of an exchange go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExchangeAddress<'a> {
    pub(crate) hub: &'a Arc<str>,
    pub(crate) id: &'a str,
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
    /// The number of the next message to the other hub.
    pub(crate) next_sent: u64,
    /// The number of the next message from the other hub.
    pub(crate) next_received: u64,
}

impl OpenExchange {
    /// Numbers a message, so that the other hub notices one that is lost.
    pub(crate) fn number(&mut self, text: &str) -> String {
        let number = self.next_sent;
        self.next_sent += 1;
        format!("{number}:{text}")
    }

    /// Hands a numbered message to its reader; false if one before it is lost, or the
    /// reader does not keep up or is gone.
    pub(crate) fn deliver(&mut self, numbered: &str) -> bool {
        let Some((number, text)) = numbered.split_once(':') else {
            return false;
        };
        if number.parse() != Ok(self.next_received) {
            return false;
        }
        self.next_received += 1;
        self.incoming.try_send(text.to_owned()).is_ok()
    }
}

impl Exchange {
    pub(crate) fn new(peers: Arc<PeerHubs>, hub: Arc<str>, id: String) -> (Self, OpenExchange) {
        let (sender, incoming) = message_queue::channel_of(MAX_WAITING_MESSAGES);
        let open = OpenExchange {
            hub: Arc::clone(&hub),
            incoming: sender,
            next_sent: 0,
            next_received: 0,
        };
        let exchange = Self {
            peers,
            hub,
            id,
            incoming,
        };
        (exchange, open)
    }

    pub(crate) fn address(&self) -> ExchangeAddress<'_> {
        ExchangeAddress {
            hub: &self.hub,
            id: &self.id,
        }
    }

    /// Sends a message; it is on its way when this returns.
    pub async fn send(&mut self, text: &str) -> Result<(), Error> {
        self.peers.send_message(self.address(), text).await
    }

    /// Receives the next message; `None` when the other hub has ended the exchange or is
    /// gone, or a message is lost. Cancel-safe.
    pub async fn next(&mut self) -> Option<String> {
        self.incoming.recv().await
    }

    /// Receives the next message, or an error if the exchange ends without one.
    pub async fn receive(&mut self) -> Result<String, Error> {
        self.next().await.ok_or(Error::ExchangeEnded)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> (OpenExchange, message_queue::MessageReceiver) {
        let (incoming, receiver) = message_queue::channel_of(MAX_WAITING_MESSAGES);
        let open = OpenExchange {
            hub: "other".into(),
            incoming,
            next_sent: 0,
            next_received: 0,
        };
        (open, receiver)
    }

    #[test]
    fn lost_message_is_noticed_by_the_next_one() {
        let (mut sender, _unused) = open();
        let (mut receiver, mut messages) = open();
        let sent = ["a", "b:", "c"].map(|it| sender.number(it));
        assert!(receiver.deliver(&sent[0]));
        assert!(receiver.deliver(&sent[1]));
        assert_eq!(messages.try_recv().as_deref(), Some("a"));
        assert_eq!(messages.try_recv().as_deref(), Some("b:"));
        let (mut other_receiver, _messages) = open();
        assert!(other_receiver.deliver(&sent[0]));
        assert!(!other_receiver.deliver(&sent[2]));
        assert!(!receiver.deliver("without a number"));
    }

    #[test]
    fn largest_result_fits_behind_what_came_before_it() {
        let (mut sender, _unused) = open();
        let (mut receiver, _messages) = open();
        let progress = "x".repeat(1000);
        for _ in 0..600 {
            assert!(receiver.deliver(&sender.number(&progress)));
        }
        // 8 MiB of which every byte is escaped.
        assert!(receiver.deliver(&sender.number(&"x".repeat(16 << 20))));
        assert!(!receiver.deliver(&sender.number("y")));
    }
}
