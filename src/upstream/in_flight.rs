//! Calls of clients that are in progress on one connection to a server, and which
//! of them a message belongs to that does not say so.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ahash::AHashMap;
use maru_runtime::message_queue;
use tokio::time::Instant;

use crate::tools::ClientConnection;

/// How long a server may still ask on behalf of a call whose client has left. A
/// server need not answer such a call, so nothing else tells that it is over.
const ABANDONED_CALL_TTL: Duration = Duration::from_secs(120);
/// Abandoned calls that are remembered one by one.
const MAX_ABANDONED_CALLS: usize = 1024;

/// The calls in progress on one connection.
#[derive(Debug, Default)]
pub(super) struct InFlightCalls(Mutex<InFlightState>);

#[derive(Debug, Default)]
struct InFlightState {
    waiting: AHashMap<i64, WaitingCall>,
    /// Calls whose clients left before the answer, oldest first.
    abandoned: VecDeque<AbandonedCall>,
    /// Until then there may be abandoned calls that are not remembered.
    untracked_until: Option<Instant>,
    /// Whether the server has asked again before its question was answered.
    asks_in_parallel: bool,
}

#[derive(Debug)]
struct WaitingCall {
    messages: message_queue::MessageSender,
    connection: ClientConnection,
    /// Whether the server waits for the answer to a question.
    has_open_question: bool,
}

#[derive(Debug)]
struct AbandonedCall {
    id: i64,
    connection: ClientConnection,
    expires_at: Instant,
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
            has_open_question: false,
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
            calls.abandoned.retain(|it| it.id != id);
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
    /// connection tells them apart.
    pub(super) fn deliver(&self, text: &str) -> Delivery {
        let mut calls = self.lock();
        calls.expire_abandoned(Instant::now());
        calls.deliver(text, |_any_call| true)
    }

    /// Gives a question to the call that it belongs to, by the same rule. A call whose
    /// last question is not answered yet asks nothing more, so that a person who takes
    /// long, or never answers, does not keep all others from being asked; unless this
    /// server is known to ask several questions at once.
    pub(super) fn deliver_question(&self, text: &str) -> Delivery {
        let mut calls = self.lock();
        calls.expire_abandoned(Instant::now());
        let is_idle = |call: &WaitingCall| !call.has_open_question;
        if !calls.waiting.is_empty() && !calls.waiting.values().any(is_idle) {
            calls.asks_in_parallel = true;
        }
        if calls.asks_in_parallel {
            return calls.deliver(text, |_any_call| true);
        }
        calls.deliver(text, is_idle)
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
    fn deliver(&self, text: &str, may_own: impl Fn(&WaitingCall) -> bool) -> Delivery {
        let owners = || self.waiting.iter().filter(|(_, call)| may_own(call));
        let Some((_, newest)) = owners().max_by_key(|(id, _)| **id) else {
            return Delivery::NoCall;
        };
        let others = owners().map(|(_, call)| call.connection);
        let mut others = others.chain(self.abandoned.iter().map(|it| it.connection));
        if self.untracked_until.is_some() || others.any(|it| it != newest.connection) {
            return Delivery::Ambiguous;
        }
        match newest.messages.try_send(text.to_owned()) {
            Ok(()) => Delivery::Delivered,
            Err(_) => Delivery::Full,
        }
    }

    fn abandon(&mut self, id: i64, connection: ClientConnection) {
        let now = Instant::now();
        self.expire_abandoned(now);
        let until = now + ABANDONED_CALL_TTL;
        if self.abandoned.len() >= MAX_ABANDONED_CALLS {
            self.untracked_until = Some(until);
            return;
        }
        self.abandoned.push_back(AbandonedCall {
            id,
            connection,
            expires_at: until,
        });
    }

    fn expire_abandoned(&mut self, now: Instant) {
        while self
            .abandoned
            .front()
            .is_some_and(|it| it.expires_at <= now)
        {
            self.abandoned.pop_front();
        }
        self.untracked_until = self.untracked_until.filter(|until| *until > now);
    }
}

impl CallGuard {
    /// The server has answered the call, or never received it.
    pub(super) fn end(&self) {
        self.calls.end(self.id);
    }

    /// Says whether the server waits for the answer to a question of the call.
    pub(super) fn set_open_question(&self, is_open: bool) {
        if let Some(call) = self.calls.lock().waiting.get_mut(&self.id) {
            call.has_open_question = is_open;
        }
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
    async fn open_question_of_one_client_does_not_keep_another_from_being_asked() {
        let calls = Arc::new(InFlightCalls::default());
        let [one, other] = two_connections();
        let mut first = calls.register(1, one);
        assert_eq!(calls.deliver_question("pay?"), Delivery::Delivered);
        first.set_open_question(true);
        let mut second = calls.register(2, other);
        assert_eq!(calls.deliver_question("name?"), Delivery::Delivered);
        assert_eq!(second.messages.try_recv().as_deref(), Some("name?"));
        assert_eq!(calls.deliver("log"), Delivery::Ambiguous);
        first.set_open_question(false);
        assert_eq!(calls.deliver_question("pay more?"), Delivery::Ambiguous);
        assert_eq!(first.messages.try_recv().as_deref(), Some("pay?"));
    }

    #[tokio::test]
    async fn server_that_asks_in_parallel_is_refused_where_it_could_mean_two_clients() {
        let calls = Arc::new(InFlightCalls::default());
        let [one, other] = two_connections();
        let first = calls.register(1, one);
        first.set_open_question(true);
        assert_eq!(calls.deliver_question("and this?"), Delivery::Delivered);
        let _second = calls.register(2, other);
        assert_eq!(calls.deliver_question("pay?"), Delivery::Ambiguous);
    }

    #[tokio::test(start_paused = true)]
    async fn call_that_was_abandoned_may_still_be_asked_about() {
        let calls = Arc::new(InFlightCalls::default());
        let [one, other] = two_connections();
        drop(calls.register(1, one));
        let _second = calls.register(2, other);
        assert_eq!(calls.deliver("pay?"), Delivery::Ambiguous);
        calls.end(1);
        assert_eq!(calls.deliver("own"), Delivery::Delivered);
        drop(calls.register(3, one));
        assert_eq!(calls.deliver("pay?"), Delivery::Ambiguous);
        tokio::time::advance(ABANDONED_CALL_TTL).await;
        assert_eq!(calls.deliver("own"), Delivery::Delivered);
    }

    #[tokio::test(start_paused = true)]
    async fn too_many_abandoned_calls_make_everything_ambiguous() {
        let calls = Arc::new(InFlightCalls::default());
        let [one, other] = two_connections();
        for id in 0..2000 {
            drop(calls.register(id, one));
        }
        let _last = calls.register(3000, one);
        assert_eq!(calls.deliver("x"), Delivery::Ambiguous);
        let _other = calls.register(3001, other);
        tokio::time::advance(ABANDONED_CALL_TTL).await;
        assert_eq!(calls.deliver("x"), Delivery::Ambiguous);
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
