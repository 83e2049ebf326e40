//! Calls of clients that are in progress on one connection to a server, and which
//! of them a message belongs to that does not say so.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ahash::AHashMap;
use maru_runtime::message_queue;

use crate::tools::ClientConnection;

/// Abandoned calls that are remembered one by one.
const MAX_ABANDONED_CALLS: usize = 1024;

/// The calls in progress on one connection.
#[derive(Debug, Default)]
pub(super) struct InFlightCalls(Mutex<InFlightState>);

#[derive(Debug, Default)]
struct InFlightState {
    waiting: AHashMap<i64, WaitingCall>,
    /// Calls whose clients left before the answer. A server may go on with such a call
    /// and ask for it at any time, until it answers it or the connection ends.
    abandoned: AHashMap<i64, ClientConnection>,
    /// Whether more calls were abandoned than are remembered.
    has_untracked_calls: bool,
}

#[derive(Debug)]
struct WaitingCall {
    messages: message_queue::MessageSender,
    connection: ClientConnection,
}

/// A registered call; dropping it says that its client has left.
#[derive(Debug)]
pub(super) struct CallGuard {
    calls: Arc<InFlightCalls>,
    id: i64,
    /// Messages that belong to the call.
    pub(super) messages: message_queue::MessageReceiver,
}

/// What became of a message that names no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    Delivered,
    /// No client waits for anything.
    NoCall,
    /// It could belong to several clients, and must not reach the wrong one.
    Ambiguous,
    /// Its client does not read the messages that it has already.
    Full,
}

impl InFlightCalls {
    /// Notes that the call `id` of `connection` is in progress.
    pub(super) fn register(self: &Arc<Self>, id: i64, connection: ClientConnection) -> CallGuard {
        let (sender, messages) = message_queue::channel();
        let call = WaitingCall {
            messages: sender,
            connection,
        };
        self.lock().waiting.insert(id, call);
        CallGuard {
            calls: Arc::clone(self),
            id,
            messages,
        }
    }

    /// The server has answered `id`, or never received it: it asks nothing more on
    /// behalf of it.
    pub(super) fn end(&self, id: i64) {
        let mut calls = self.lock();
        if calls.waiting.remove(&id).is_none() {
            calls.abandoned.remove(&id);
        }
    }

    /// Gives a message to the call that it names. One that its client does not
    /// read fast enough is dropped.
    pub(super) fn deliver_to(&self, id: i64, text: &str) {
        if let Some(call) = self.lock().waiting.get(&id) {
            let _dropped_if_full = call.messages.try_send(text.to_owned());
        }
    }

    /// Gives a message to the newest call, if every call that it could belong to is
    /// of one client connection. Two clients may share a token, so only the
    /// connection tells them apart. A call whose question is not answered yet counts
    /// like any other: its server may ask a second one meanwhile.
    pub(super) fn deliver(&self, text: &str) -> Delivery {
        let calls = self.lock();
        let newest = calls.waiting.iter().max_by_key(|(id, _)| **id);
        let Some((_, newest)) = newest else {
            return Delivery::NoCall;
        };
        let waiting = calls.waiting.values().map(|it| it.connection);
        let mut others = waiting.chain(calls.abandoned.values().copied());
        if calls.has_untracked_calls || others.any(|it| it != newest.connection) {
            return Delivery::Ambiguous;
        }
        match newest.messages.try_send(text.to_owned()) {
            Ok(()) => Delivery::Delivered,
            Err(_) => Delivery::Full,
        }
    }

    /// The connection is over, and with it all calls.
    pub(super) fn clear(&self) {
        *self.lock() = InFlightState::default();
    }

    fn lock(&self) -> MutexGuard<'_, InFlightState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InFlightState {
    fn abandon(&mut self, id: i64, connection: ClientConnection) {
        if self.abandoned.len() < MAX_ABANDONED_CALLS {
            self.abandoned.insert(id, connection);
        } else {
            self.has_untracked_calls = true;
        }
    }
}

impl CallGuard {
    /// The server has answered the call, or never received it.
    pub(super) fn end(&self) {
        self.calls.end(self.id);
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        let mut calls = self.calls.lock();
        if let Some(call) = calls.waiting.remove(&self.id) {
            calls.abandon(self.id, call.connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two_connections() -> [ClientConnection; 2] {
        [ClientConnection::unique(), ClientConnection::unique()]
    }

    #[tokio::test]
    async fn message_without_a_name_never_reaches_another_connection() {
        let calls = Arc::new(InFlightCalls::default());
        let [one, other] = two_connections();
        assert_eq!(calls.deliver("x"), Delivery::NoCall);
        let mut first = calls.register(1, one);
        let mut second = calls.register(2, one);
        assert_eq!(calls.deliver("x"), Delivery::Delivered);
        assert_eq!(first.messages.try_recv(), None);
        assert_eq!(second.messages.try_recv().as_deref(), Some("x"));
        let mut third = calls.register(3, other);
        assert_eq!(calls.deliver("y"), Delivery::Ambiguous);
        for call in [&mut first, &mut second, &mut third] {
            assert_eq!(call.messages.try_recv(), None);
        }
        third.end();
        drop(third);
        assert_eq!(calls.deliver("z"), Delivery::Delivered);
    }

    #[tokio::test]
    async fn abandoned_call_counts_until_the_server_has_answered_it() {
        let calls = Arc::new(InFlightCalls::default());
        let [one, other] = two_connections();
        drop(calls.register(1, one));
        let _second = calls.register(2, other);
        assert_eq!(calls.deliver("pay?"), Delivery::Ambiguous);
        calls.end(1);
        assert_eq!(calls.deliver("own"), Delivery::Delivered);
    }

    #[tokio::test]
    async fn too_many_abandoned_calls_make_everything_ambiguous() {
        let calls = Arc::new(InFlightCalls::default());
        let connection = ClientConnection::unique();
        for id in 0..2000 {
            drop(calls.register(id, connection));
        }
        let _last = calls.register(3000, connection);
        assert_eq!(calls.deliver("x"), Delivery::Ambiguous);
        calls.clear();
        let _next = calls.register(3001, connection);
        assert_eq!(calls.deliver("x"), Delivery::Delivered);
    }

    #[tokio::test]
    async fn messages_that_nobody_reads_are_bounded_by_bytes() {
        let calls = Arc::new(InFlightCalls::default());
        let mut call = calls.register(1, ClientConnection::unique());
        let large = "x".repeat(400 << 10);
        for _ in 0..100 {
            calls.deliver_to(1, &large);
        }
        let mut bytes = 0;
        while let Some(message) = call.messages.try_recv() {
            bytes += message.len();
        }
        assert!(bytes <= 1 << 20, "{bytes}");
    }
}
