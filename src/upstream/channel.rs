//! A link on which messages of all calls come mixed: stdio and HTTP+SSE.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicI64, Ordering::Relaxed},
};

use ahash::AHashMap;
use serde_json::{json, value::RawValue};
use tokio::sync::{Semaphore, oneshot};
use tokio_util::sync::CancellationToken;

use super::{
    Error,
    budget::TrafficBudget,
    in_flight::{CallGuard, InFlightCalls},
    link::Received,
    log::Log,
    news::{News, Notification, answer_or_deliver, handle_notification},
    open::Means,
};
use crate::{
    mcp::{Id, IgnoredLines, Invalid, Message, RpcError, code, notification, raw_request},
    queue::{self, TrySendError},
    tasks::Tasks,
    tool::ClientConnection,
};

/// Answers to the server's own requests that wait until it reads.
const MAX_WAITING_REPLIES: usize = 256;

/// The calls on one link, and the way out.
#[derive(Debug)]
pub(super) struct Channel {
    out: queue::Sender,
    tasks: Tasks,
    news: Arc<News>,
    in_flight: Arc<InFlightCalls>,
    budget: TrafficBudget,
    /// One permit for each answer that waits until the server reads.
    replies: Arc<Semaphore>,
    log: Arc<Log>,
    answers: Mutex<AHashMap<i64, oneshot::Sender<Answer>>>,
    next: AtomicI64,
    cause: Mutex<Option<Error>>,
    /// The other side is gone.
    pub(super) lost: CancellationToken,
    /// Nobody needs the link any more.
    pub(super) closing: CancellationToken,
    /// Everything that belonged to the link has ended.
    pub(super) closed: CancellationToken,
}

/// A result, or an error as it was sent.
type Answer = Result<String, String>;

/// A request in progress; dropping it cancels it.
#[derive(Debug)]
pub(super) struct Call {
    channel: Arc<Channel>,
    id: i64,
    /// Present if a client is behind the call, who may be told and asked.
    pub(super) client: Option<CallGuard>,
    answer: oneshot::Receiver<Answer>,
    done: bool,
}

impl Channel {
    pub(super) fn new(out: queue::Sender, news: Arc<News>, means: &Means) -> Arc<Self> {
        Arc::new(Self {
            out,
            tasks: means.tasks.clone(),
            log: Arc::clone(&means.log),
            news,
            in_flight: Arc::default(),
            budget: TrafficBudget::new(means.traffic_rate),
            replies: Arc::new(Semaphore::new(MAX_WAITING_REPLIES)),
            answers: Mutex::default(),
            next: AtomicI64::new(1),
            cause: Mutex::default(),
            lost: CancellationToken::new(),
            closing: CancellationToken::new(),
            closed: CancellationToken::new(),
        })
    }

    /// Sends a request; `client` is the connection behind it, which may be told and asked.
    pub(super) async fn start(
        self: &Arc<Self>,
        method: &str,
        params: &(dyn Fn(i64) -> String + Sync),
        client: Option<ClientConnection>,
    ) -> Result<Call, Error> {
        let id = self.next.fetch_add(1, Relaxed);
        let (answer, answer_of_call) = oneshot::channel();
        let call = Call {
            channel: Arc::clone(self),
            id,
            client: client.map(|it| self.in_flight.register(id, it)),
            answer: answer_of_call,
            done: false,
        };
        lock(&self.answers).insert(id, answer);
        // Checked after it is on the list: `lose` empties the list.
        if self.lost.is_cancelled() {
            return Err(match self.why() {
                // Nothing was asked, so it can be asked again.
                why @ (Error::Lost(_) | Error::Ended { .. }) => Error::Unreachable(why.to_string()),
                why => why,
            });
        }
        let text = raw_request(&Id::Number(id), method, &params(id));
        if let Err(why) = self.send(text).await {
            // It was never sent, so the server cannot ask on behalf of it.
            call.client.iter().for_each(CallGuard::end);
            return Err(why);
        }
        Ok(call)
    }

    /// Sends a message that wants no answer.
    pub(super) async fn send(&self, text: String) -> Result<(), Error> {
        self.log.sent(&text);
        let busy = || Error::Busy("the server takes nothing in".to_owned());
        self.out
            .send(text)
            .await
            .map_err(|_| match self.lost.is_cancelled() {
                true => self.why(),
                false => busy(),
            })
    }

    /// The other side is gone: whoever waits learns so.
    pub(super) fn lose(&self, why: Error) {
        lock(&self.cause).get_or_insert(why);
        self.lost.cancel();
        lock(&self.answers).clear();
        self.in_flight.clear();
    }

    /// Why the other side is gone.
    pub(super) fn why(&self) -> Error {
        let cause = lock(&self.cause).clone();
        cause.unwrap_or_else(|| Error::Lost("the connection was closed".to_owned()))
    }

    /// Takes one message from the other side. An error says that the server sends
    /// too much and must be disconnected.
    pub(super) fn take(&self, bytes: &[u8]) -> Result<(), Error> {
        let Ok((text, message)) = Message::take(bytes) else {
            self.log.received_bytes(bytes);
            return self.take_unreadable(bytes);
        };
        self.log.received(text);
        if text.trim_start().starts_with('[') {
            let batch: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
            let mut batch = batch.iter().map(|it| it.get());
            return batch.try_for_each(|it| self.take_one(it, Message::read(it)));
        }
        self.take_one(text, message)
    }

    /// Counts what the server sends beside messages, such as comments.
    pub(super) fn take_ignored(&self, ignored: IgnoredLines) -> Result<(), Error> {
        self.budget.spend(ignored.lines, ignored.bytes)
    }

    fn take_one(&self, text: &str, message: Result<Message<'_>, Invalid>) -> Result<(), Error> {
        match message {
            Err(_) => return self.take_unreadable(text.as_bytes()),
            Ok(Message::Response(response)) => {
                if let Id::Number(id) = response.id
                    && self.answer_call(id, || response.owned_outcome())
                {
                    return Ok(());
                }
            }
            Ok(Message::Notification { method, params }) => {
                let notification = Notification {
                    method: &method,
                    params,
                    text,
                };
                handle_notification(&self.in_flight, &self.news, notification);
            }
            Ok(Message::Request(request)) => {
                if let Some(reply) = answer_or_deliver(&self.in_flight, &request, text) {
                    self.reply(reply)?;
                }
            }
        }
        self.budget.spend_message(text.len())
    }

    /// Ends the call `id`; false if it waits for no answer.
    fn answer_call(&self, id: i64, outcome: impl FnOnce() -> Answer) -> bool {
        let waiting = lock(&self.answers).remove(&id);
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
    fn take_unreadable(&self, bytes: &[u8]) -> Result<(), Error> {
        let failed = || {
            let why = RpcError::new(code::INTERNAL, UNREADABLE);
            Err(json!(why).to_string())
        };
        match broken_answer(bytes) {
            Some(id) if self.answer_call(id, failed) => Ok(()),
            _ => self.budget.spend_message(bytes.len()),
        }
    }

    /// Answers a request of the server. A server that asks and does not read the
    /// answers is an error: they would be kept without end.
    fn reply(&self, text: String) -> Result<(), Error> {
        let flood = || {
            Error::Lost(format!(
                "the server sends requests and does not read the answers ({MAX_WAITING_REPLIES} wait), so it was disconnected"
            ))
        };
        if self.send_soon(text) {
            Ok(())
        } else {
            Err(flood())
        }
    }

    /// Sends a message that nobody waits for; false if too many wait already.
    fn send_soon(&self, text: String) -> bool {
        self.log.sent(&text);
        let text = match self.out.try_send(text) {
            Ok(()) | Err(TrySendError::Gone(_)) => return true,
            Err(TrySendError::Full(text)) => text,
        };
        let Ok(permit) = Arc::clone(&self.replies).try_acquire_owned() else {
            return false;
        };
        let (out, lost) = (self.out.clone(), self.lost.clone());
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

pub(super) const UNREADABLE: &str = "the server sent something that is no answer";

/// The id of what looks like a message but cannot be read.
fn broken_answer(bytes: &[u8]) -> Option<i64> {
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

impl Call {
    /// The next message that belongs to it; its answer is the last. Cancel-safe.
    pub(super) async fn next(&mut self) -> Result<Received, Error> {
        let side = async {
            match &mut self.client {
                Some(client) => client.messages.recv().await,
                None => None,
            }
        };
        tokio::select! {
            biased;
            Some(text) = side => Ok(Received::Message(text)),
            answer = &mut self.answer => {
                self.done = true;
                answer.map(Received::Answer).map_err(|_| self.channel.why())
            }
        }
    }

    /// Answers a question of the server.
    pub(super) async fn answer(&self, text: String) -> Result<(), Error> {
        self.channel.send(text).await
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let waited = lock(&self.channel.answers).remove(&self.id).is_some();
        if waited && !self.done && !self.channel.lost.is_cancelled() {
            let params = json!({"requestId": self.id, "reason": "the client no longer waits"});
            // A server that reads nothing finds out by itself.
            let _sent = self
                .channel
                .send_soon(notification("notifications/cancelled", &params));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
