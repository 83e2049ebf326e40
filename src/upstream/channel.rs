//! A link on which messages of all calls come mixed: stdio and HTTP+SSE.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicI64, Ordering::Relaxed},
};

use ahash::AHashMap;
use maru_protocol::{
    IgnoredLines, InvalidMessage, RpcError, RpcId, RpcMessage, code, write_notification,
    write_raw_request,
};
use maru_runtime::{
    message_queue::{self, TrySendError},
    tasks::Tasks,
};
use serde_json::{json, value::RawValue};
use tokio::sync::{Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

use super::{
    Error,
    connect::ConnectContext,
    in_flight::{CallGuard, InFlightCalls},
    link::CallEvent,
    notifications::{
        NotificationSink, ServerNotification, handle_notification, handle_server_request,
    },
    server_log::ServerLog,
    traffic_budget::TrafficBudget,
};
use crate::tools::ClientConnection;

/// Answers to the server's own requests that wait until it reads.
const MAX_PENDING_REPLIES: usize = 256;

/// The calls on one link, and the way out.
#[derive(Debug)]
pub(super) struct MessageChannel {
    outgoing: message_queue::MessageSender,
    tasks: Tasks,
    notification_sink: Arc<NotificationSink>,
    in_flight: Arc<InFlightCalls>,
    budget: TrafficBudget,
    /// One permit for each answer that waits until the server reads.
    reply_permits: Arc<Semaphore>,
    log: Arc<ServerLog>,
    pending_responses: Mutex<AHashMap<i64, oneshot::Sender<RawResponse>>>,
    next_id: AtomicI64,
    cause: Mutex<Option<Error>>,
    /// The other side is gone.
    pub(super) lost: CancellationToken,
    /// Nobody needs the link any more.
    pub(super) closing: CancellationToken,
    /// Everything that belonged to the link has ended.
    pub(super) closed: CancellationToken,
}

/// A result, or an error as it was sent.
type RawResponse = Result<String, String>;

/// A request in progress; dropping it cancels it.
#[derive(Debug)]
pub(super) struct ChannelCall {
    channel: Arc<MessageChannel>,
    id: i64,
    /// Present if a client is behind the call, who may be told and asked.
    pub(super) guard: Option<CallGuard>,
    response: oneshot::Receiver<RawResponse>,
    done: bool,
}

impl MessageChannel {
    pub(super) fn new(
        out: message_queue::MessageSender,
        news: Arc<NotificationSink>,
        means: &ConnectContext,
    ) -> Arc<Self> {
        Arc::new(Self {
            outgoing: out,
            tasks: means.tasks.clone(),
            log: Arc::clone(&means.log),
            notification_sink: news,
            in_flight: Arc::default(),
            budget: TrafficBudget::new(means.traffic_rate),
            reply_permits: Arc::new(Semaphore::new(MAX_PENDING_REPLIES)),
            pending_responses: Mutex::default(),
            next_id: AtomicI64::new(1),
            cause: Mutex::default(),
            lost: CancellationToken::new(),
            closing: CancellationToken::new(),
            closed: CancellationToken::new(),
        })
    }

    /// Sends a request; `client` is the connection behind it, which may be told and asked.
    pub(super) async fn start_call(
        self: &Arc<Self>,
        method: &str,
        params: &(dyn Fn(i64) -> String + Sync),
        client: Option<ClientConnection>,
    ) -> Result<ChannelCall, Error> {
        let id = self.next_id.fetch_add(1, Relaxed);
        let (answer, answer_of_call) = oneshot::channel();
        let call = ChannelCall {
            channel: Arc::clone(self),
            id,
            guard: client.map(|it| self.in_flight.register(id, it)),
            response: answer_of_call,
            done: false,
        };
        lock(&self.pending_responses).insert(id, answer);
        // Checked after it is on the list: `lose` empties the list.
        if self.lost.is_cancelled() {
            return Err(match self.close_reason() {
                // Nothing was asked, so it can be asked again.
                why @ (Error::Lost(_) | Error::ProgramExited { .. }) => {
                    Error::Unreachable(why.to_string())
                }
                why => why,
            });
        }
        let text = write_raw_request(&RpcId::Number(id), method, &params(id));
        if let Err(why) = self.send(text).await {
            // It was never sent, so the server cannot ask on behalf of it.
            call.guard.iter().for_each(CallGuard::end);
            return Err(why);
        }
        Ok(call)
    }

    /// Sends a message that wants no answer.
    pub(super) async fn send(&self, text: String) -> Result<(), Error> {
        self.log.record_sent(&text);
        let busy = || Error::Busy("the server takes nothing in".to_owned());
        self.outgoing.send(text).await.map_err(|_| {
            if self.lost.is_cancelled() {
                self.close_reason()
            } else {
                busy()
            }
        })
    }

    /// The other side is gone: whoever waits learns so.
    pub(super) fn mark_lost(&self, why: Error) {
        lock(&self.cause).get_or_insert(why);
        self.lost.cancel();
        lock(&self.pending_responses).clear();
        self.in_flight.clear();
    }

    /// Why the other side is gone.
    pub(super) fn close_reason(&self) -> Error {
        let cause = lock(&self.cause).clone();
        cause.unwrap_or_else(|| Error::Lost("the connection was closed".to_owned()))
    }

    /// Takes one message from the other side. An error says that the server sends
    /// too much and must be disconnected.
    pub(super) fn handle_bytes(&self, bytes: &[u8]) -> Result<(), Error> {
        let Ok((text, message)) = RpcMessage::parse_bytes(bytes) else {
            self.log.record_received_bytes(bytes);
            return self.handle_unreadable(bytes);
        };
        self.log.record_received(text);
        if text.trim_start().starts_with('[') {
            let batch: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
            let mut batch = batch.iter().map(|it| it.get());
            return batch.try_for_each(|it| self.handle_message(it, RpcMessage::parse(it)));
        }
        self.handle_message(text, message)
    }

    /// Counts what the server sends beside messages, such as comments.
    pub(super) fn count_ignored(&self, ignored: IgnoredLines) -> Result<(), Error> {
        self.budget.spend(ignored.lines, ignored.bytes)
    }

    fn handle_message(
        &self,
        text: &str,
        message: Result<RpcMessage<'_>, InvalidMessage>,
    ) -> Result<(), Error> {
        match message {
            Err(_) => return self.handle_unreadable(text.as_bytes()),
            Ok(RpcMessage::Response(response)) => {
                if let RpcId::Number(id) = response.id
                    && self.complete_call(id, || response.owned_outcome())
                {
                    return Ok(());
                }
            }
            Ok(RpcMessage::Notification { method, params }) => {
                let notification = ServerNotification {
                    method: &method,
                    params,
                    text,
                };
                handle_notification(&self.in_flight, &self.notification_sink, notification);
            }
            Ok(RpcMessage::Request(request)) => {
                if let Some(reply) = handle_server_request(&self.in_flight, &request, text) {
                    self.send_reply(reply)?;
                }
            }
        }
        self.budget.spend_message(text.len())
    }

    /// Ends the call `id`; false if it waits for no answer.
    fn complete_call(&self, id: i64, outcome: impl FnOnce() -> RawResponse) -> bool {
        let waiting = lock(&self.pending_responses).remove(&id);
        self.in_flight.end(id);
        match waiting {
            Some(waiting) => {
                let _caller_has_gone = waiting.send(outcome());
                true
            }
            // An answer to nobody is late, or nonsense.
            None => false,
        }
    }

    /// Programs write all kinds of lines; one that was meant as an answer ends
    /// its call, so that nobody waits for a better one.
    fn handle_unreadable(&self, bytes: &[u8]) -> Result<(), Error> {
        let failed = || {
            let why = RpcError::new(code::INTERNAL_ERROR, UNREADABLE_RESPONSE);
            Err(json!(why).to_string())
        };
        match malformed_response_id(bytes) {
            Some(id) if self.complete_call(id, failed) => Ok(()),
            _ => self.budget.spend_message(bytes.len()),
        }
    }

    /// Answers a request of the server. A server that asks and does not read the
    /// answers is an error: they would be kept without end.
    fn send_reply(&self, text: String) -> Result<(), Error> {
        let flood = || {
            Error::Lost(format!(
                "the server sends requests and does not read the answers ({MAX_PENDING_REPLIES} wait), so it was disconnected"
            ))
        };
        if self.send_detached(text) {
            Ok(())
        } else {
            Err(flood())
        }
    }

    /// Sends a message that nobody waits for; false if too many wait already.
    fn send_detached(&self, text: String) -> bool {
        self.log.record_sent(&text);
        let text = match self.outgoing.try_send(text) {
            Ok(()) | Err(TrySendError::Closed(_)) => return true,
            Err(TrySendError::Full(text)) => text,
        };
        let Ok(permit) = Arc::clone(&self.reply_permits).try_acquire_owned() else {
            return false;
        };
        let (out, lost) = (self.outgoing.clone(), self.lost.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                // Gone, then there is nobody to answer.
                _ = out.send(text) => (),
                () = lost.cancelled() => (),
            }
            drop(permit);
        });
        true
    }
}

pub(super) const UNREADABLE_RESPONSE: &str = "the server sent something that is no answer";

/// The id of what looks like a message but cannot be read.
fn malformed_response_id(bytes: &[u8]) -> Option<i64> {
    let head = String::from_utf8_lossy(bytes.get(..200).unwrap_or(bytes));
    let after = head
        .trim_start()
        .strip_prefix('{')
        .filter(|it| it.contains("\"jsonrpc\""))?;
    let (_, id) = after.split_once("\"id\"")?;
    let id = id.trim_start().strip_prefix(':')?.trim_start();
    let end = id.find(|c: char| !c.is_ascii_digit()).unwrap_or(id.len());
    id[..end].parse().ok()
}

impl ChannelCall {
    /// The next message that belongs to it; its answer is the last. Cancel-safe.
    pub(super) async fn next_event(&mut self) -> Result<CallEvent, Error> {
        let side = async {
            match &mut self.guard {
                Some(client) => client.messages.recv().await,
                None => None,
            }
        };
        tokio::select! {
            biased;
            Some(text) = side => Ok(CallEvent::Message(text)),
            answer = &mut self.response => {
                self.done = true;
                answer.map(CallEvent::Answer).map_err(|_| self.channel.close_reason())
            }
        }
    }

    /// Answers a question of the server.
    pub(super) async fn respond(&self, text: String) -> Result<(), Error> {
        self.channel.send(text).await
    }
}

impl Drop for ChannelCall {
    fn drop(&mut self) {
        let waited = lock(&self.channel.pending_responses)
            .remove(&self.id)
            .is_some();
        if waited && !self.done && !self.channel.lost.is_cancelled() {
            let params = json!({"requestId": self.id, "reason": "the client no longer waits"});
            // A server that reads nothing finds out by itself.
            let _sent = self
                .channel
                .send_detached(write_notification("notifications/cancelled", &params));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
