//! A link on which messages of all calls come mixed: stdio and HTTP+SSE.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicI64, Ordering::Relaxed},
};

use ahash::AHashMap;
use serde_json::{json, value::RawValue};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::{
    Error,
    desk::Desk,
    link::Received,
    log::Log,
    news::{News, answer_or_give, tell},
    open::Means,
};
use crate::{
    mcp::{Id, Invalid, Message, Request, RpcError, code, notification, raw_request},
    queue,
    tasks::Tasks,
};

/// The calls on one link, and the way out.
#[derive(Debug)]
pub(super) struct Channel {
    out: queue::Sender,
    tasks: Tasks,
    news: Arc<News>,
    desk: Desk,
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
    side: Option<mpsc::Receiver<String>>,
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
            desk: Desk::default(),
            answers: Mutex::default(),
            next: AtomicI64::new(1),
            cause: Mutex::default(),
            lost: CancellationToken::new(),
            closing: CancellationToken::new(),
            closed: CancellationToken::new(),
        })
    }

    /// Sends a request; `owner` is the client behind it, who may be told and asked.
    pub(super) async fn start(
        self: &Arc<Self>,
        method: &str,
        params: &(dyn Fn(i64) -> String + Sync),
        owner: Option<&Arc<str>>,
    ) -> Result<Call, Error> {
        let id = self.next.fetch_add(1, Relaxed);
        let (answer, answer_of_call) = oneshot::channel();
        let call = Call {
            channel: Arc::clone(self),
            id,
            side: owner.map(|owner| self.desk.sit(id, owner)),
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
        self.send(text).await?;
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
        self.desk.clear();
    }

    /// Why the other side is gone.
    pub(super) fn why(&self) -> Error {
        let cause = lock(&self.cause).clone();
        cause.unwrap_or_else(|| Error::Lost("the connection was closed".to_owned()))
    }

    /// Takes one message from the other side.
    pub(super) fn take(&self, bytes: &[u8]) {
        let Ok((text, message)) = Message::take(bytes) else {
            self.log.received(&String::from_utf8_lossy(bytes));
            return self.unreadable(bytes);
        };
        self.log.received(text);
        if text.trim_start().starts_with('[') {
            let batch: Vec<&RawValue> = serde_json::from_str(text).unwrap_or_default();
            let batch = batch.iter().map(|it| it.get());
            return batch.for_each(|it| self.take_one(it, Message::read(it)));
        }
        self.take_one(text, message);
    }

    fn take_one(&self, text: &str, message: Result<Message<'_>, Invalid>) {
        match message {
            Err(_) => self.unreadable(text.as_bytes()),
            Ok(Message::Response(response)) => {
                let Id::Number(id) = response.id else { return };
                // An answer to nobody is late, or nonsense.
                if let Some(waiting) = lock(&self.answers).remove(&id) {
                    let _ = waiting.send(response.owned_outcome());
                }
            }
            Ok(Message::Notification { method, params }) => {
                tell(&self.desk, &self.news, &method, params, text);
            }
            Ok(Message::Request(request)) => self.asked(&request, text),
        }
    }

    fn asked(&self, request: &Request<'_>, text: &str) {
        if let Some(answer) = answer_or_give(&self.desk, request, text) {
            self.send_soon(answer);
        }
    }

    /// Programs write all kinds of lines; one that was meant as an answer ends
    /// its call, so that nobody waits for a better one.
    fn unreadable(&self, bytes: &[u8]) {
        let Some(id) = broken_answer(bytes) else {
            return;
        };
        if let Some(waiting) = lock(&self.answers).remove(&id) {
            let why = RpcError::new(code::INTERNAL, UNREADABLE);
            let _ = waiting.send(Err(json!(why).to_string()));
        }
    }

    fn send_soon(&self, text: String) {
        self.log.sent(&text);
        let (out, lost) = (self.out.clone(), self.lost.clone());
        self.tasks.spawn(async move {
            tokio::select! {
                // Gone, then there is nobody to answer.
                _ = out.send(text) => (),
                () = lost.cancelled() => (),
            }
        });
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
            match &mut self.side {
                Some(side) => side.recv().await,
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
        self.channel.desk.leave(self.id);
        if waited && !self.done && !self.channel.lost.is_cancelled() {
            let params = json!({"requestId": self.id, "reason": "the client no longer waits"});
            self.channel
                .send_soon(notification("notifications/cancelled", &params));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
