//! One request, one answer: as JSON when it is quiet and quick, as an event
//! stream from its first message on.

use std::{
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
    },
    mcp::{Version, event},
    queue,
    tasks::Tasks,
};

/// How long an answer may take before it becomes a stream, which stays alive.
const QUIET: Duration = Duration::from_secs(5);
/// How long work goes on for a client of a session whose connection broke.
const GRACE: Duration = Duration::from_secs(5);
const KEEP_ALIVE: Duration = Duration::from_secs(15);

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
            () = time::sleep(QUIET), if self.accepts.json => None,
            () = ready(()), if !self.accepts.json => None,
        };
        self.stream(first, work.release())
    }

    fn stream(self, first: Option<String>, work: Option<Work>) -> Response {
        let number = self
            .session
            .as_ref()
            .map_or(STANDALONE, |it| it.number().unsigned_abs());
        let mut feed = Feed::new(self.messages, number);
        if let Some(first) = first {
            feed.push(first);
        }
        let cancel = CancellationToken::new();
        let (cancelled, out) = (cancel.clone(), self.out);
        self.engine.tasks.spawn(async move {
            let Some(work) = work else { return };
            let done = tokio::select! {
                done = work => done,
                () = cancelled.cancelled() => None,
            };
            if let Some((_, text)) = done {
                // The reader has gone; there is nobody to tell.
                let _ = out.send(text).await;
            }
        });
        stream(feed, &self.engine, self.session.as_ref(), Some(cancel))
    }
}

/// The response that reads `feed`. With a session, a reader who leaves can
/// come back for a while; without one, leaving cancels the work.
pub(super) fn stream(
    feed: Feed,
    engine: &Engine,
    session: Option<&Arc<Session>>,
    cancel: Option<CancellationToken>,
) -> Response {
    let reader = Reader {
        feed: Some(feed),
        tasks: engine.tasks.clone(),
        reading: session.map(Session::reading),
        session: session.cloned(),
        end: session.map_or_else(|| engine.tasks.stop(), |it| it.end.clone()),
        cancel,
        done: false,
    };
    let first = reader.priming();
    let events = stream::unfold((reader, first), |(mut reader, first)| async move {
        let text = match first {
            Some(text) => text,
            None => reader.next().await?,
        };
        Some((
            Ok::<_, std::convert::Infallible>(Bytes::from(text)),
            (reader, None),
        ))
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

/// The next message, or a sign of life while there is none.
pub(in crate::downstream) async fn next_or_alive(feed: &mut Feed) -> Option<Option<String>> {
    match time::timeout(KEEP_ALIVE, feed.next()).await {
        Ok(message) => message.map(Some),
        Err(_) => Some(None),
    }
}

pub(in crate::downstream) const ALIVE: &str = ": keep-alive\n\n";

struct Reader {
    feed: Option<Feed>,
    tasks: Tasks,
    reading: Option<Reading>,
    session: Option<Arc<Session>>,
    end: CancellationToken,
    cancel: Option<CancellationToken>,
    done: bool,
}

impl Reader {
    /// Tells clients that know it where to resume, before there is anything.
    fn priming(&self) -> Option<String> {
        let session = self.session.as_ref()?;
        let feed = self.feed.as_ref()?;
        (session.version() >= Version::V2025_11_25)
            .then(|| format!("id: {}\ndata:\n\n", feed.event_id()))
    }

    async fn next(&mut self) -> Option<String> {
        let feed = self.feed.as_mut()?;
        let next = tokio::select! {
            biased;
            next = next_or_alive(feed) => next,
            () = self.end.cancelled() => None,
        };
        match next {
            None => {
                self.done = true;
                None
            }
            Some(None) => Some(ALIVE.to_owned()),
            Some(Some(message)) => {
                let id = self.session.is_some().then(|| feed.keep(&message));
                Some(event(Some("message"), id.as_deref(), &message))
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        drop(self.reading.take());
        let (Some(feed), Some(session), false) = (self.feed.take(), self.session.take(), self.done)
        else {
            if let Some(cancel) = &self.cancel {
                cancel.cancel();
            }
            return;
        };
        let number = feed.number();
        session.park(number, feed);
        let Some(cancel) = self.cancel.take() else {
            return;
        };
        self.tasks.spawn(async move {
            let _ended_early = time::timeout(GRACE, session.end.cancelled()).await;
            if session.unpark(number).is_some() {
                cancel.cancel();
            }
        });
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
