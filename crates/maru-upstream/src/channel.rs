//! A link that multiplexes the messages of all calls: stdio and HTTP+SSE.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicI64, Ordering::Relaxed},
};

use ahash::AHashMap;
use maru_protocol::{
    CheckedJson, IgnoredLines, InvalidMessage, RpcError, RpcId, RpcMessage, code,
    write_notification, write_raw_request,
};
use maru_runtime::{
    message_queue::{self, TrySendError},
    tasks::Tasks,
    tasks::run_parser,
    traffic_budget::TrafficBudget,
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
};
use maru_tools::ClientConnection;

/// The most replies to the server's own requests that may be queued until it reads them.
const MAX_PENDING_REPLIES: usize = 256;

/// The pending calls of one link and its outgoing queue.
#[derive(Debug)]
pub(super) struct MessageChannel {
    outgoing: message_queue::MessageSender,
    tasks: Tasks,
    notification_sink: Arc<NotificationSink>,
    in_flight: Arc<InFlightCalls>,
    budget: TrafficBudget,
    /// One permit for each queued reply that the server has not read yet.
    reply_permits: Arc<Semaphore>,
    log: Arc<ServerLog>,
    pending_responses: Mutex<AHashMap<i64, oneshot::Sender<RawResponse>>>,
    next_id: AtomicI64,
    cause: Mutex<Option<Error>>,
    /// Cancelled when the connection is lost.
    pub(super) lost: CancellationToken,
    /// Cancelled when the link should be closed.
    pub(super) closing: CancellationToken,
    /// Cancelled when the program must end at once.
    pub(super) killed: CancellationToken,
    /// Cancelled when everything that belonged to the link has ended.
    pub(super) closed: CancellationToken,
}

/// The raw JSON of a result, or of the error that the server sent.
type RawResponse = Result<String, String>;

/// A request in progress on a [`MessageChannel`]; dropping it cancels the request.
#[derive(Debug)]
pub(super) struct ChannelCall {
    channel: Arc<MessageChannel>,
    id: i64,
    /// Present if the call was made for a client, which receives its notifications and
    /// requests.
    pub(super) guard: Option<CallGuard>,
    response: oneshot::Receiver<RawResponse>,
    done: bool,
}

impl MessageChannel {
    pub(super) fn new(
        out: message_queue::MessageSender,
        sink: Arc<NotificationSink>,
        context: &ConnectContext,
    ) -> Arc<Self> {
        Arc::new(Self {
            outgoing: out,
            tasks: context.tasks.clone(),
            log: Arc::clone(&context.log),
            notification_sink: sink,
            in_flight: Arc::default(),
            budget: TrafficBudget::new(context.traffic_rate),
            reply_permits: Arc::new(Semaphore::new(MAX_PENDING_REPLIES)),
            pending_responses: Mutex::default(),
            next_id: AtomicI64::new(1),
            cause: Mutex::default(),
            lost: CancellationToken::new(),
            closing: CancellationToken::new(),
            killed: CancellationToken::new(),
            closed: CancellationToken::new(),
        })
    }

    /// Sends a request. `client` is the connection it is made for, which receives the
    /// notifications and requests that belong to the call.
    pub(super) async fn start_call(
        self: &Arc<Self>,
        method: &str,
        params: &(dyn Fn(i64) -> String + Sync),
        client: Option<ClientConnection>,
    ) -> Result<ChannelCall, Error> {
        let id = self.next_id.fetch_add(1, Relaxed);
        let (sender, response) = oneshot::channel();
        let call = ChannelCall {
            channel: Arc::clone(self),
            id,
            guard: client.map(|it| self.in_flight.register(id, it)),
            response,
            done: false,
        };
        lock(&self.pending_responses).insert(id, sender);
        // Checked after the insertion, because `mark_lost` clears the map.
        if self.lost.is_cancelled() {
            return Err(match self.close_reason() {
                // The request was not sent, so it is safe to retry.
                error @ (Error::Lost(_) | Error::ProgramExited { .. }) => {
                    Error::Unreachable(error.to_string())
                }
                error => error,
            });
        }
        let text = write_raw_request(&RpcId::Number(id), method, &params(id));
        if let Err(error) = self.send(text).await {
            // The request was never sent, so the server cannot send requests on its
            // behalf.
            call.guard.iter().for_each(CallGuard::end);
            return Err(error);
        }
        Ok(call)
    }

    /// Sends a message that expects no response.
    pub(super) async fn send(&self, text: String) -> Result<(), Error> {
        self.log.record_sent(&text);
        let busy = || Error::Busy("the server does not read its input".to_owned());
        self.outgoing.send(text).await.map_err(|_| {
            if self.lost.is_cancelled() {
                self.close_reason()
            } else {
                busy()
            }
        })
    }

    /// Marks the connection as lost and fails all pending calls.
    pub(super) fn mark_lost(&self, error: Error) {
        lock(&self.cause).get_or_insert(error);
        self.lost.cancel();
        lock(&self.pending_responses).clear();
        self.in_flight.clear();
    }

    /// Returns why the connection was lost.
    pub(super) fn close_reason(&self) -> Error {
        let cause = lock(&self.cause).clone();
        cause.unwrap_or_else(|| Error::Lost("the connection was closed".to_owned()))
    }

    /// Handles one message or batch from the server. An error means that the server
    /// exceeds its budget and must be disconnected.
    pub(super) async fn handle_bytes(&self, bytes: Vec<u8>) -> Result<(), Error> {
        let checked = run_parser(bytes.len(), move || CheckedJson::new(bytes)).await;
        let Ok(text) = checked.text() else {
            self.log.record_received_bytes(checked.bytes());
            return self.handle_unreadable(checked.bytes());
        };
        let message = RpcMessage::parse(text);
        self.log.record_received(text);
        if text.trim_start().starts_with('[') {
            let batch: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
            let mut batch = batch.iter().map(|it| it.get());
            return batch.try_for_each(|it| self.handle_message(it, RpcMessage::parse(it)));
        }
        self.handle_message(text, message)
    }

    /// Counts lines that are not messages, such as comments, against the server's budget.
    pub(super) fn count_ignored(&self, ignored: IgnoredLines) -> Result<(), Error> {
        Ok(self.budget.spend(ignored.lines, ignored.bytes)?)
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
        Ok(self.budget.spend_message(text.len())?)
    }

    /// Completes the call `id`; returns false if no call waits under that id.
    fn complete_call(&self, id: i64, outcome: impl FnOnce() -> RawResponse) -> bool {
        let caller = lock(&self.pending_responses).remove(&id);
        self.in_flight.end(id);
        match caller {
            Some(caller) => {
                let _caller_has_gone = caller.send(outcome());
                true
            }
            // A response without a call is late or invalid.
            None => false,
        }
    }

    /// Handles a line that is not valid JSON-RPC. One that looks like a response fails
    /// its call, so that the caller does not wait until the timeout.
    fn handle_unreadable(&self, bytes: &[u8]) -> Result<(), Error> {
        let failed = || {
            let error = RpcError::new(code::INTERNAL_ERROR, UNREADABLE_RESPONSE);
            Err(json!(error).to_string())
        };
        match malformed_response_id(bytes) {
            Some(id) if self.complete_call(id, failed) => Ok(()),
            _ => Ok(self.budget.spend_message(bytes.len())?),
        }
    }

    /// Queues the reply to a server's request. A server that does not read its replies is
    /// an error, because the queue would grow without bound.
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

    /// Sends a message in the background; returns false if too many are queued.
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
                // An error means that the server is gone.
                _ = out.send(text) => (),
                () = lost.cancelled() => (),
            }
            drop(permit);
        });
        true
    }
}

pub(super) const UNREADABLE_RESPONSE: &str = "the server sent something that is no answer";

/// Extracts the id of a malformed response.
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
    /// Returns the next message of the call; the response comes last. Cancel-safe.
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

    /// Replies to a request of the server.
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
            // If the queue is full, the server does not read, and the cancellation would
            // not reach it either.
            let _sent = self
                .channel
                .send_detached(write_notification("notifications/cancelled", &params));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
