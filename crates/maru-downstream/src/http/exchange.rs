//! The response to one request: JSON if it finishes soon and sends no other messages, else
//! an event stream.

use std::{
    future::{Future, ready},
    pin::Pin,
    sync::Arc,
    task::{self, Poll},
    time::Duration,
};

use axum::{body::Bytes, http::StatusCode, response::Response};
use futures_util::{future::BoxFuture, stream};
use maru_protocol::{ProtocolVersion, write_event};
use maru_runtime::{memory::HeldText, message_queue};
use tokio::time;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::{event_stream::event_stream_from_bytes, headers::AcceptedTypes, reply};
use crate::{
    McpEngine,
    feed::{MessageFeed, STANDALONE_STREAM},
    session::{McpSession, ReaderGuard},
    streams::READER_GRACE,
};
use maru_observability::telemetry;

/// How long a request may take before its response becomes a stream, which has keep-alive
/// comments.
const MAX_JSON_WAIT: Duration = Duration::from_secs(5);
/// A long event is sent in pieces of this size, so that progress of a slow reader shows.
const MAX_PIECE_BYTES: usize = 64 << 10;

/// A response in progress: its status and text, or `None` if it was cancelled.
pub(super) type PendingResponse = BoxFuture<'static, Option<(StatusCode, HeldText)>>;

pub(super) struct HttpExchange {
    pub(super) engine: Arc<McpEngine>,
    pub(super) accepts: AcceptedTypes,
    /// The session, if the stream can be resumed. Without one, disconnecting cancels the
    /// request.
    pub(super) session: Option<Arc<McpSession>>,
    pub(super) out: message_queue::MessageSender,
    pub(super) messages: message_queue::MessageReceiver,
}

/// Attaches the request's span, because a streamed response is polled outside of it.
fn in_request_span(work: PendingResponse) -> PendingResponse {
    if telemetry::is_enabled() {
        Box::pin(work.in_current_span())
    } else {
        work
    }
}

impl HttpExchange {
    pub(super) async fn run(mut self, work: PendingResponse) -> Response {
        let work = in_request_span(work);
        let mut work = SurvivingWork {
            work: Some(work),
            engine: self.session.as_ref().map(|_| Arc::clone(&self.engine)),
        };
        if !self.accepts.events {
            // No other messages can be sent; dropping the receiver tells their senders.
            drop(self.messages);
            return json_response(work.await);
        }
        let first = tokio::select! {
            biased;
            done = &mut work, if self.accepts.json => match self.messages.try_recv() {
                None => return json_response(done),
                // Messages that the request sent come before its response.
                first => return self.feed_response(first, Some(Box::pin(ready(done)))),
            },
            first = self.messages.recv() => first,
            () = time::sleep(MAX_JSON_WAIT), if self.accepts.json => None,
            () = ready(()), if !self.accepts.json => None,
        };
        self.feed_response(first, work.into_work())
    }

    fn feed_response(self, first: Option<String>, work: Option<PendingResponse>) -> Response {
        let session = self.session.as_ref();
        let number = session.map_or(STANDALONE_STREAM, |it| it.next_number().unsigned_abs());
        let cancel = CancellationToken::new();
        let mut feed = MessageFeed::of_request(self.messages, number, cancel.clone());
        if let Some(first) = first {
            feed.push(first);
        }
        let out = self.out;
        self.engine.tasks.spawn(async move {
            let Some(work) = work else { return };
            let done = tokio::select! {
                done = work => done,
                () = cancel.cancelled() => None,
            };
            if let Some((_, text)) = done {
                // Fails if the reader has disconnected.
                let _ = out.send(text).await;
            }
        });
        stream(feed, &self.engine, self.session.as_ref())
    }
}

/// The response that reads `feed`. With a session the stream can be resumed for a while;
/// without one, disconnecting cancels the request.
pub(super) fn stream(
    feed: MessageFeed,
    engine: &Arc<McpEngine>,
    session: Option<&Arc<McpSession>>,
) -> Response {
    let reader = FeedReader::new(feed, engine, session);
    let first = reader.priming_event();
    stream_response(reader, first, engine.limits().keep_alive())
}

/// The source of an event stream.
pub(crate) trait EventSource: Send + 'static {
    /// The next events as text; `None` at the end.
    fn next(&mut self) -> impl Future<Output = Option<String>> + Send;

    /// Reports that the reader makes progress.
    fn report_progress(&self);
}

/// A response that sends `first` and then the events of `source`, in pieces, with a comment
/// after each silence of `keep_alive`.
pub(crate) fn stream_response(
    source: impl EventSource,
    first: Option<String>,
    keep_alive: Duration,
) -> Response {
    let rest = Bytes::from(first.unwrap_or_default());
    let events = stream::unfold((source, rest), |(mut source, mut rest)| async move {
        if rest.is_empty() {
            rest = Bytes::from(source.next().await?);
        }
        source.report_progress();
        let piece = rest.split_to(rest.len().min(MAX_PIECE_BYTES));
        Some((piece, (source, rest)))
    });
    event_stream_from_bytes(events, keep_alive)
}

/// Reads a feed as events; dropping it lets the stream wait for its next reader.
pub(crate) struct FeedReader {
    engine: Arc<McpEngine>,
    session: Option<Arc<McpSession>>,
    _reading: Option<ReaderGuard>,
    feed: Option<MessageFeed>,
    end: CancellationToken,
    /// Cancelled when another connection takes over the stream.
    revoked: CancellationToken,
    done: bool,
}

impl FeedReader {
    pub(crate) fn new(
        feed: MessageFeed,
        engine: &Arc<McpEngine>,
        session: Option<&Arc<McpSession>>,
    ) -> Self {
        let revoked = match session {
            Some(session) => session.streams.start_reading(feed.stream_number()),
            None => CancellationToken::new(),
        };
        let end = match session {
            None => CancellationToken::new(),
            Some(session) if feed.stream_number() == STANDALONE_STREAM => session.closing.clone(),
            Some(session) => session.end.clone(),
        };
        Self {
            engine: Arc::clone(engine),
            _reading: session.map(McpSession::track_reader),
            session: session.cloned(),
            feed: Some(feed),
            end,
            revoked,
            done: false,
        }
    }

    /// The id of an event, with this hub if others may resume the stream.
    fn public_id(&self, id: String) -> String {
        match self.session.as_ref().and_then(|it| it.hub()) {
            Some(hub) => format!("{hub}.{id}"),
            None => id,
        }
    }

    /// An event without data that gives clients of 2025-11-25 an id to resume after.
    pub(crate) fn priming_event(&self) -> Option<String> {
        let session = self.session.as_ref()?;
        let feed = self.feed.as_ref()?;
        (session.version() >= ProtocolVersion::V2025_11_25)
            .then(|| format!("id: {}\ndata:\n\n", self.public_id(feed.first_event_id())))
    }
}

impl EventSource for FeedReader {
    async fn next(&mut self) -> Option<String> {
        let feed = self.feed.as_mut()?;
        let resumable = self.session.is_some();
        let next = async {
            let (id, message) = if resumable {
                feed.next_event().await.map(|(id, text)| (Some(id), text))?
            } else {
                (None, feed.next().await?)
            };
            Some((id, message))
        };
        let event = tokio::select! {
            biased;
            () = self.revoked.cancelled() => return None,
            event = next => event,
            () = self.end.cancelled() => None,
        };
        self.done = event.is_none();
        let (id, message) = event?;
        let id = id.map(|it| self.public_id(it));
        Some(write_event(Some("message"), id.as_deref(), &message))
    }

    fn report_progress(&self) {
        if let Some(feed) = &self.feed {
            feed.report_progress();
        }
    }
}

impl Drop for FeedReader {
    fn drop(&mut self) {
        let Some(feed) = self.feed.take() else {
            return;
        };
        let Some(session) = self.session.take() else {
            return feed.cancel();
        };
        let number = feed.stream_number();
        if self.done && !feed.fits_history() {
            return session.streams.remove(number);
        }
        let wait = session.next_number().unsigned_abs();
        session.streams.park(feed, wait);
        if number != STANDALONE_STREAM {
            self.engine.tasks.spawn(async move {
                let leaving = session.closing.cancelled();
                let _ended_early = time::timeout(READER_GRACE, leaving).await;
                session.streams.forget(number, wait);
            });
        }
    }
}

/// A request that continues for [`READER_GRACE`] if it is dropped early and has an engine.
struct SurvivingWork {
    work: Option<PendingResponse>,
    engine: Option<Arc<McpEngine>>,
}

impl SurvivingWork {
    fn into_work(mut self) -> Option<PendingResponse> {
        self.work.take()
    }
}

impl Future for SurvivingWork {
    type Output = Option<(StatusCode, HeldText)>;

    fn poll(mut self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<Self::Output> {
        let Some(work) = &mut self.work else {
            return Poll::Ready(None);
        };
        let done = task::ready!(work.as_mut().poll(context));
        self.work = None;
        Poll::Ready(done)
    }
}

impl Drop for SurvivingWork {
    fn drop(&mut self) {
        if let (Some(work), Some(engine)) = (self.work.take(), &self.engine) {
            engine.tasks.spawn(async move {
                let _unread = time::timeout(READER_GRACE, work).await;
            });
        }
    }
}

fn json_response(done: Option<(StatusCode, HeldText)>) -> Response {
    match done {
        Some((status, text)) => reply::json(status, Bytes::from_owner(text)),
        // Its client cancelled it and expects no response.
        None => event_stream_from_bytes(stream::empty(), READER_GRACE),
    }
}
