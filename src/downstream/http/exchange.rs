//! One request, one answer: as JSON when it is quiet and quick, as an event
//! stream from its first message on.

use std::{
    convert::Infallible,
    future::{Future, ready},
    pin::Pin,
    sync::Arc,
    task::{self, Poll},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    http::{HeaderName, HeaderValue, StatusCode, header},
    response::Response,
};
use futures_util::{future::BoxFuture, stream};
use tokio::time;
use tokio_util::sync::CancellationToken;

use super::{headers::Accepts, reply};
use crate::{
    downstream::{
        Engine,
        feed::{Feed, STANDALONE},
        session::{Reading, Session},
        streams::GRACE,
    },
    mcp::{Version, event},
    queue,
    tasks::later,
};

/// How long an answer may take before it becomes a stream, which stays alive.
const QUIET: Duration = Duration::from_secs(5);
const KEEP_ALIVE: Duration = Duration::from_secs(15);
const ALIVE: &str = ": keep-alive\n\n";
/// A long event leaves in pieces, so that a slow reader shows that it reads.
const PIECE: usize = 64 << 10;

/// An answer in the making: its status and text, or nothing when cancelled.
pub(super) type Work = BoxFuture<'static, Option<(StatusCode, String)>>;

pub(super) struct Exchange {
    pub(super) engine: Arc<Engine>,
    pub(super) accepts: Accepts,
    /// A broken connection does not cancel the requests of a session.
    pub(super) session: Option<Arc<Session>>,
    pub(super) out: queue::Sender,
    pub(super) messages: queue::Receiver,
}

impl Exchange {
    pub(super) async fn run(mut self, work: Work) -> Response {
        let mut work = Surviving {
            work: Some(work),
            engine: self.session.as_ref().map(|_| Arc::clone(&self.engine)),
        };
        if !self.accepts.events {
            // Nobody reads messages on the way; who sends one learns it at once.
            drop(self.messages);
            return finish(work.await);
        }
        let first = tokio::select! {
            biased;
            done = &mut work, if self.accepts.json => match self.messages.try_recv() {
                None => return finish(done),
                // What it said on the way comes before its answer.
                first => return self.stream(first, Some(Box::pin(ready(done)))),
            },
            first = self.messages.recv() => first,
            () = later(QUIET), if self.accepts.json => None,
            () = ready(()), if !self.accepts.json => None,
        };
        self.stream(first, work.release())
    }

    fn stream(self, first: Option<String>, work: Option<Work>) -> Response {
        let session = self.session.as_ref();
        let number = session.map_or(STANDALONE, |it| it.number().unsigned_abs());
        let cancel = CancellationToken::new();
        let mut feed = Feed::of_request(self.messages, number, cancel.clone());
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
                // The reader has gone; there is nobody to tell.
                let _ = out.send(text).await;
            }
        });
        stream(feed, &self.engine, self.session.as_ref())
    }
}

/// The response that reads `feed`. With a session, a reader who leaves can
/// come back for a while; without one, leaving cancels the work.
pub(super) fn stream(feed: Feed, engine: &Arc<Engine>, session: Option<&Arc<Session>>) -> Response {
    let revoked = match session {
        Some(session) => session.streams.read(feed.number()),
        None => CancellationToken::new(),
    };
    let end = match session {
        None => CancellationToken::new(),
        Some(session) if feed.number() == STANDALONE => session.closing.clone(),
        Some(session) => session.end.clone(),
    };
    let reader = Reader {
        engine: Arc::clone(engine),
        _reading: session.map(Session::reading),
        session: session.cloned(),
        feed: Some(feed),
        end,
        revoked,
        done: false,
    };
    let first = reader.priming();
    respond(reader, first)
}

/// What an event stream is read from.
pub(in crate::downstream) trait Source: Send + 'static {
    /// The next events as text; `None` at the end.
    fn next(&mut self) -> impl Future<Output = Option<String>> + Send;

    /// Shows that what was read is on its way.
    fn alive(&self);
}

/// A response that sends `first` and then what `source` gives, in pieces.
pub(in crate::downstream) fn respond(source: impl Source, first: Option<String>) -> Response {
    let rest = Bytes::from(first.unwrap_or_default());
    let events = stream::unfold((source, rest), |(mut source, mut rest)| async move {
        if rest.is_empty() {
            rest = Bytes::from(source.next().await?);
        }
        source.alive();
        let piece = rest.split_to(rest.len().min(PIECE));
        Some((Ok::<_, Infallible>(piece), (source, rest)))
    });
    event_stream(Body::from_stream(events))
}

/// A response of server-sent events.
pub(in crate::downstream) fn event_stream(body: Body) -> Response {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, no-transform"),
    );
    headers.insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    response
}

/// What `next` gives, or a sign of life while that is nothing.
pub(in crate::downstream) async fn or_alive(
    next: impl Future<Output = Option<String>>,
) -> Option<String> {
    match time::timeout(KEEP_ALIVE, next).await {
        Ok(text) => text,
        Err(_) => Some(ALIVE.to_owned()),
    }
}

struct Reader {
    engine: Arc<Engine>,
    session: Option<Arc<Session>>,
    _reading: Option<Reading>,
    feed: Option<Feed>,
    end: CancellationToken,
    /// Someone else wants to read the stream.
    revoked: CancellationToken,
    done: bool,
}

impl Reader {
    /// Tells clients that know it where to resume, before there is anything.
    fn priming(&self) -> Option<String> {
        let session = self.session.as_ref()?;
        let feed = self.feed.as_ref()?;
        (session.version() >= Version::V2025_11_25)
            .then(|| format!("id: {}\ndata:\n\n", feed.first_event_id()))
    }
}

impl Source for Reader {
    async fn next(&mut self) -> Option<String> {
        let feed = self.feed.as_mut()?;
        let resumable = self.session.is_some();
        let next = async {
            let (id, message) = match resumable {
                true => feed.next_event().await.map(|(id, text)| (Some(id), text))?,
                false => (None, feed.next().await?),
            };
            Some(event(Some("message"), id.as_deref(), &message))
        };
        let text = tokio::select! {
            biased;
            () = self.revoked.cancelled() => return None,
            text = or_alive(next) => text,
            () = self.end.cancelled() => None,
        };
        self.done = text.is_none();
        text
    }

    fn alive(&self) {
        if let Some(feed) = &self.feed {
            feed.alive();
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let Some(feed) = self.feed.take() else {
            return;
        };
        let Some(session) = self.session.take() else {
            return feed.cancel();
        };
        let number = feed.number();
        if self.done && !feed.is_small() {
            return session.streams.remove(number);
        }
        let wait = session.number().unsigned_abs();
        session.streams.park(feed, wait);
        if number != STANDALONE {
            self.engine.tasks.spawn(async move {
                let leaving = session.closing.cancelled();
                let _ended_early = time::timeout(GRACE, leaving).await;
                session.streams.forget(number, wait);
            });
        }
    }
}

/// Work that, dropped before its end, goes on for [`GRACE`] if it has an engine.
struct Surviving {
    work: Option<Work>,
    engine: Option<Arc<Engine>>,
}

impl Surviving {
    fn release(mut self) -> Option<Work> {
        self.work.take()
    }
}

impl Future for Surviving {
    type Output = Option<(StatusCode, String)>;

    fn poll(mut self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<Self::Output> {
        let Some(work) = &mut self.work else {
            return Poll::Ready(None);
        };
        let done = task::ready!(work.as_mut().poll(context));
        self.work = None;
        Poll::Ready(done)
    }
}

impl Drop for Surviving {
    fn drop(&mut self) {
        if let (Some(work), Some(engine)) = (self.work.take(), &self.engine) {
            engine.tasks.spawn(async move {
                let _unread = time::timeout(GRACE, work).await;
            });
        }
    }
}

fn finish(done: Option<(StatusCode, String)>) -> Response {
    match done {
        Some((status, text)) => reply::json(status, text),
        // Cancelled by its own client, which waits for nothing.
        None => event_stream(Body::empty()),
    }
}
