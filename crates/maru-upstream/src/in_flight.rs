//! Tracks the calls in progress on one connection, and finds the call to which a server's
//! message without an id belongs.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ahash::AHashMap;
use maru_runtime::message_queue;

use maru_tools::ClientConnection;

/// The most abandoned calls that are tracked individually.
const MAX_ABANDONED_CALLS: usize = 1024;

/// The calls of clients in progress on one connection.
#[derive(Debug, Default)]
pub(super) struct InFlightCalls(Mutex<InFlightState>);

#[derive(Debug, Default)]
struct InFlightState {
    waiting: AHashMap<i64, WaitingCall>,
    /// Calls whose clients left before the response. The server may keep working on such
    /// a call and send requests for it until it responds or the connection ends.
    abandoned: AHashMap<i64, ClientConnection>,
    /// Whether more calls were abandoned than are tracked.
    has_untracked_calls: bool,
}

#[derive(Debug)]
struct WaitingCall {
    messages: message_queue::MessageSender,
    connection: ClientConnection,
}

/// A registered call; dropping it marks the call as abandoned by its client.
#[derive(Debug)]
pub(super) struct CallGuard {
    calls: Arc<InFlightCalls>,
    id: i64,
    /// Receives the messages that belong to the call.
    pub(super) messages: message_queue::MessageReceiver,
}

/// How a message without a call id was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    Delivered,
    /// No call is in progress.
    NoCall,
    /// The message could belong to several clients and must not reach the wrong one.
    Ambiguous,
    /// The client's queue is full.
    Full,
}

impl InFlightCalls {
    /// Registers the call `id` of `connection`.
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

    /// Ends the call `id`, because the server has responded or never received it, and
    /// will send no requests for it.
    pub(super) fn end(&self, id: i64) {
        let mut calls = self.lock();
        if calls.waiting.remove(&id).is_none() {
            calls.abandoned.remove(&id);
        }
    }

    /// Delivers a message to the call `id`; drops it if the client's queue is full.
    pub(super) fn deliver_to(&self, id: i64, text: &str) {
        if let Some(call) = self.lock().waiting.get(&id) {
            let _dropped_if_full = call.messages.try_send(text.to_owned());
        }
    }

    /// Delivers a message to the newest call, if all calls that it could belong to come
    /// from one client connection. Two clients may share a token, so only the connection
    /// distinguishes them. A call that waits for input counts too, because its server may
    /// send a second request meanwhile. One that the server has responded to does not: a
    /// request for a call comes before its response, and if late ones were expected of every
    /// former client, no later client could be asked.
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

    /// Forgets all calls because the connection has ended.
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
    /// Ends the call, because the server has responded or never received it.
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
    async fn question_after_a_response_belongs_to_the_calls_that_still_wait() {
        let calls = Arc::new(InFlightCalls::default());
        let [one, other] = two_connections();
        let first = calls.register(1, one);
        let mut second = calls.register(2, other);
        assert_eq!(calls.deliver("whose?"), Delivery::Ambiguous);
        first.end();
        assert_eq!(calls.deliver("late"), Delivery::Delivered);
        assert_eq!(second.messages.try_recv().as_deref(), Some("late"));
        second.end();
        assert_eq!(calls.deliver("nobody's"), Delivery::NoCall);
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
