//! One request and everything that comes back on it.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use hyper::{
    StatusCode,
    body::Bytes,
    header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue},
};
use serde_json::json;
use tokio::time;

use super::{Link, SESSION};
use crate::{
    mcp::{Event, Id, Message, Reader, notification},
    outbound::Reply,
    tasks::WorkSlice,
    upstream::{
        Error, budget::TrafficBudget, channel::UNREADABLE, in_flight::CallGuard, link::Received,
    },
};

/// Bytes of a stream that are looked at before other tasks go on.
const PIECE: usize = 16 << 10;
/// How often a stream that was cut is resumed.
const RESUMED: usize = 5;

/// A request in progress; dropping it cancels it.
#[derive(Debug)]
pub(in crate::upstream) struct Call {
    own: Own,
    /// Messages that come on another stream, if a client is behind the call.
    pub(in crate::upstream) client: Option<CallGuard>,
}

/// What comes back on the request itself.
#[derive(Debug)]
struct Own {
    pending: Pending,
    reply: Reply,
    /// Reads events, if that is how the answer comes.
    /// Boxed: most answers come without, and all are moved about.
    events: Option<Box<Events>>,
    resumed: usize,
}

/// A request that the server has to do with; it is told when nobody waits any more.
#[derive(Debug)]
pub(super) struct Pending {
    link: Arc<Link>,
    id: i64,
    method: &'static str,
    pub(super) done: bool,
}

impl Pending {
    pub(super) fn new(link: &Arc<Link>, id: i64, method: &'static str) -> Self {
        Self {
            link: Arc::clone(link),
            id,
            method,
            done: false,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Events {
    reader: Reader,
    read: Vec<Event>,
    ready: VecDeque<Event>,
    /// What was received and not looked at yet.
    rest: Bytes,
    slice: WorkSlice,
    /// Where to resume.
    pub(super) last: Option<String>,
    /// How long to wait before that.
    pub(super) retry: Option<Duration>,
}

impl Call {
    pub(super) async fn new(
        pending: Pending,
        reply: Reply,
        client: Option<CallGuard>,
    ) -> Result<Self, Error> {
        let mut own = Own {
            pending,
            reply,
            events: None,
            resumed: 0,
        };
        let opened = own.open().await;
        own.pending.done |= opened.is_err();
        if opened.is_err() {
            // Its status is the answer.
            client.iter().for_each(CallGuard::end);
        }
        opened.map(|()| Self { own, client })
    }

    /// The session that the server opened with this answer.
    pub(in crate::upstream) fn session(&self) -> Option<HeaderValue> {
        HeaderValue::from_str(self.own.reply.header(&SESSION)?).ok()
    }

    /// The link it runs on.
    pub(in crate::upstream) fn link(&self) -> &Arc<Link> {
        &self.own.pending.link
    }

    /// The next message that belongs to it; its answer is the last. Cancel-safe.
    pub(in crate::upstream) async fn next(&mut self) -> Result<Received, Error> {
        let Some(client) = &mut self.client else {
            return self.own.next().await;
        };
        tokio::select! {
            biased;
            Some(text) = client.messages.recv() => {
                self.own.pending.link.log.received(&text);
                Ok(Received::Message(text))
            }
            next = self.own.next() => {
                if matches!(&next, Ok(Received::Answer(_)) | Err(Error::Garbage(_))) {
                    client.end();
                }
                next
            }
        }
    }

    /// Answers a question of the server.
    pub(in crate::upstream) async fn answer(&self, text: String) -> Result<(), Error> {
        self.own.pending.link.send(text).await
    }
}

impl Own {
    /// Looks at status and kind of the answer.
    async fn open(&mut self) -> Result<(), Error> {
        let garbage = |why: &str| Err(Error::Garbage(why.to_owned()));
        if self.reply.header(&CONTENT_ENCODING).is_some() {
            return garbage("the server sent a compressed answer, which nobody asked for");
        }
        let kind = self.reply.header(&CONTENT_TYPE).unwrap_or_default();
        let is_json = kind.starts_with("application/json");
        let is_stream = kind.starts_with("text/event-stream");
        if !self.reply.status.is_success() {
            let link = &self.pending.link;
            let is_doubtful = self.reply.status == StatusCode::BAD_REQUEST;
            if is_doubtful && Box::pin(link.is_session_unknown()).await {
                return Err(Error::SessionOver);
            }
            let refused = link.refusal(&self.reply);
            // Since 2026-07-28 an error of the protocol has a status of its own.
            return match is_json && Box::pin(self.peek_error()).await {
                true => Ok(()),
                false => refused,
            };
        }
        match (is_json, is_stream) {
            (true, _) => Ok(()),
            (_, true) => {
                self.events = Some(Box::default());
                Ok(())
            }
            _ => garbage("the server answered with neither JSON nor an event stream"),
        }
    }

    /// Whether the body is a JSON-RPC error that answers us; keeps it if so.
    async fn peek_error(&mut self) -> bool {
        let Ok(body) = self.reply.text().await else {
            return false;
        };
        let Ok((text, message)) = Message::take(&body) else {
            return false;
        };
        let is_ours =
            matches!(message, Ok(Message::Response(it)) if it.id == Id::Number(self.pending.id));
        if is_ours {
            let event = Event {
                data: text.to_owned(),
                ..Event::default()
            };
            self.events = Some(Box::new(Events {
                ready: VecDeque::from([event]),
                ..Events::default()
            }));
        }
        is_ours
    }

    /// The next message on its own stream. Cancel-safe.
    async fn next(&mut self) -> Result<Received, Error> {
        if self.events.is_none() {
            return self.whole().await;
        }
        loop {
            let Some(event) = self.event().await? else {
                Box::pin(self.resume()).await?;
                continue;
            };
            let received = self.read(event.data.as_bytes())?;
            if let Some(Received::Answer(_)) = &received {
                self.pending.done = true;
                // Most streams end with the answer; then the connection is kept.
                let _end = self.reply.chunk().now_or_never();
            }
            if let Some(received) = received {
                return Ok(received);
            }
        }
    }

    async fn whole(&mut self) -> Result<Received, Error> {
        let body = self.reply.text().await;
        self.pending.done = true;
        match self.read(&body?)? {
            Some(answer @ Received::Answer(_)) => Ok(answer),
            Some(Received::Message(_)) | None => Err(Error::Garbage(UNREADABLE.to_owned())),
        }
    }

    async fn event(&mut self) -> Result<Option<Event>, Error> {
        let events = self.events.get_or_insert_default();
        let link = &self.pending.link;
        let next = events.next(&mut self.reply, &link.budget).await;
        next.inspect_err(|why| link.lose(why.clone()))
    }

    /// A message; none if it answers somebody else.
    fn read(&self, bytes: &[u8]) -> Result<Option<Received>, Error> {
        let garbage = || Error::Garbage(UNREADABLE.to_owned());
        let (text, message) = Message::take(bytes).map_err(|_| garbage())?;
        let received = match message.map_err(|_| garbage())? {
            Message::Response(response) if response.id == Id::Number(self.pending.id) => {
                Received::Answer(response.owned_outcome())
            }
            Message::Response(_) => {
                self.spend(text)?;
                return Ok(None);
            }
            Message::Request(_) | Message::Notification { .. } => {
                self.spend(text)?;
                Received::Message(text.to_owned())
            }
        };
        self.pending.link.log.received(text);
        Ok(Some(received))
    }

    /// Counts a message that nobody asked for; one too many ends the connection.
    fn spend(&self, text: &str) -> Result<(), Error> {
        let link = &self.pending.link;
        let spent = link.budget.spend_message(text.len());
        spent.inspect_err(|why| link.lose(why.clone()))
    }

    /// Opens the stream again where it was cut.
    async fn resume(&mut self) -> Result<(), Error> {
        let cut = || Error::Lost("the server ended its stream before it answered".to_owned());
        let events = self.events.as_ref().ok_or_else(cut)?;
        let last = events.last.clone();
        let last = last
            .filter(|_| !self.pending.link.version().is_modern() && self.resumed < RESUMED)
            .ok_or_else(cut)?;
        self.resumed += 1;
        let wait = events.retry.unwrap_or(Duration::from_secs(1));
        time::sleep(wait.clamp(Duration::from_millis(10), Duration::from_secs(30))).await;
        let reply = self.pending.link.listen_after(Some(&last)).await?;
        self.pending.link.refusal(&reply)?;
        self.reply = reply;
        Ok(())
    }
}

impl Events {
    /// Events of a stream that goes on behind the one of this id.
    pub(super) fn after(last: Option<String>) -> Self {
        Self {
            last,
            ..Self::default()
        }
    }

    /// The next event with data; `None` at the end of the stream. Cancel-safe.
    pub(super) async fn next(
        &mut self,
        reply: &mut Reply,
        budget: &TrafficBudget,
    ) -> Result<Option<Event>, Error> {
        loop {
            while let Some(event) = self.ready.pop_front() {
                if event.id.is_some() {
                    self.last.clone_from(&event.id);
                }
                if let Some(retry) = event.retry {
                    self.retry = Some(Duration::from_millis(retry));
                }
                if !event.data.is_empty() {
                    return Ok(Some(event));
                }
                budget.spend(1, 0)?;
            }
            if self.rest.is_empty() {
                let Some(Ok(bytes)) = reply.chunk().await else {
                    return Ok(None);
                };
                self.rest = bytes;
            }
            // In pieces, because other tasks wait while one is looked at. The wait
            // comes first, so that nothing is lost if it is not waited for.
            self.slice.spend(PIECE.min(self.rest.len())).await;
            let piece = self.rest.split_to(PIECE.min(self.rest.len()));
            let ignored = self.reader.feed(&piece, &mut self.read)?;
            self.ready.extend(self.read.drain(..));
            budget.spend(ignored.lines, ignored.bytes)?;
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // Since 2026-07-28 leaving is cancelling.
        if self.done
            || self.link.version().is_modern()
            || self.link.lost.is_cancelled()
            || self.method == "initialize"
        {
            return;
        }
        let params = json!({"requestId": self.id, "reason": "the client no longer waits"});
        let text = notification("notifications/cancelled", &params);
        // A server that takes nothing finds out by itself.
        let _sent = self.link.send_soon(text);
    }
}
