//! `GET /api/events`: one stream for a whole browser.
//!
//! Everything is published once and kept for a while; who was away for a moment
//! says where it stopped (`Last-Event-ID`) and gets the rest, who was away for
//! longer or reads too slowly gets a new `snapshot`.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use futures_util::stream;
use tokio::{
    sync::{broadcast, watch},
    time,
};
use tokio_util::sync::CancellationToken;

use super::{super::Hub, pump};
use crate::{
    access::{Principal, Role},
    downstream::http::reply,
    journal::Journal,
    mcp::event,
    tasks::Tasks,
};

/// How many events are kept for those who were away.
const KEPT: usize = 512;
/// How many streams may be open.
const MAX_STREAMS: usize = 256;
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Everything that is told to open pages.
#[derive(Debug)]
pub struct Events {
    sender: broadcast::Sender<Arc<Event>>,
    kept: Mutex<Kept>,
    /// Tells this run of the hub from others.
    run: String,
    open: watch::Sender<Open>,
    stop: CancellationToken,
}

#[derive(Debug, Default)]
struct Open {
    pages: usize,
    /// The number of the newest call when the first of them was opened.
    since: u64,
}

#[derive(Debug, Default)]
struct Kept {
    last: u64,
    events: VecDeque<Arc<Event>>,
}

#[derive(Debug)]
struct Event {
    number: u64,
    kind: &'static str,
    data: String,
    /// Whose it is; others see it only as admins.
    owner: Option<Arc<str>>,
}

impl Events {
    /// Nothing has happened yet. Streams end when `tasks` stops.
    pub fn new(tasks: &Tasks) -> Arc<Self> {
        Arc::new(Self {
            sender: broadcast::Sender::new(KEPT),
            kept: Mutex::default(),
            run: uuid::Uuid::new_v4().simple().to_string()[..8].to_owned(),
            open: watch::Sender::default(),
            stop: tasks.stop(),
        })
    }

    /// Tells every page; `owner`: only those of this principal, and admins.
    pub fn publish(&self, kind: &'static str, data: String, owner: Option<Arc<str>>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.last += 1;
        let event = Arc::new(Event {
            number: kept.last,
            kind,
            data,
            owner,
        });
        if kept.events.len() == KEPT {
            kept.events.pop_front();
        }
        kept.events.push_back(Arc::clone(&event));
        // Under the lock, so that events are sent in the order of their numbers.
        let _nobody_may_listen = self.sender.send(event);
    }

    /// Whether any page is open.
    pub fn is_heard(&self) -> bool {
        self.open.borrow().pages > 0
    }

    /// Resolves for everyone who waits when a page is open, with the number of
    /// the last call before it.
    pub(super) async fn opened(&self) -> u64 {
        let mut open = self.open.subscribe();
        let opened = open.wait_for(|it| it.pages > 0).await;
        opened.map_or(0, |it| it.since)
    }

    /// One more page, opened after call `last`; `false` if there are too many.
    fn join(&self, last: u64) -> bool {
        self.open.send_if_modified(|open| {
            let free = open.pages < MAX_STREAMS;
            if open.pages == 0 {
                open.since = last;
            }
            open.pages += usize::from(free);
            free
        })
    }

    fn leave(&self) {
        self.open.send_modify(|open| open.pages -= 1);
    }

    /// What came after `last`; `None` if that is not known any more.
    fn after(&self, last: &str) -> Option<Vec<Arc<Event>>> {
        let number: u64 = last
            .strip_prefix(&self.run)?
            .strip_prefix('-')?
            .parse()
            .ok()?;
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let first = kept.events.front().map_or(kept.last + 1, |it| it.number);
        if number + 1 < first || number > kept.last {
            return None;
        }
        Some(
            kept.events
                .iter()
                .filter(|it| it.number > number)
                .cloned()
                .collect(),
        )
    }

    fn last(&self) -> u64 {
        self.kept
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .last
    }
}

/// One open page.
struct Stream {
    hub: Arc<Hub>,
    principal: Principal,
    receiver: broadcast::Receiver<Arc<Event>>,
    ready: VecDeque<String>,
    /// Events up to this number were sent.
    sent: u64,
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.hub.events.leave();
    }
}

/// `GET /api/events`.
pub(in crate::api) async fn stream(State(hub): State<Arc<Hub>>, request: Request) -> Response {
    let Some(principal) = request.extensions().get::<Principal>().cloned() else {
        return reply::refuse(StatusCode::UNAUTHORIZED, "nobody asks");
    };
    if !hub.events.join(hub.engine.catalog().journal().last()) {
        let why = "too many pages are open; close one";
        return reply::refuse(StatusCode::SERVICE_UNAVAILABLE, why);
    }
    let last = request.headers().get("last-event-id");
    let last = last.and_then(|it| it.to_str().ok()).map(str::to_owned);
    // Before the snapshot is taken, so that nothing falls between the two.
    let receiver = hub.events.sender.subscribe();
    let mut page = Stream {
        hub,
        principal,
        receiver,
        ready: VecDeque::new(),
        sent: 0,
    };
    page.begin(last.as_deref());
    let body = stream::unfold(page, |mut page| async {
        let text = page.next().await?;
        Some((Ok::<_, std::convert::Infallible>(Bytes::from(text)), page))
    });
    let mut response = Response::new(Body::from_stream(body));
    let headers = response.headers_mut();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/event-stream"),
    );
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

impl Stream {
    fn begin(&mut self, last: Option<&str>) {
        let (place, call) = last.and_then(|it| it.rsplit_once('-')).unzip();
        let Some(missed) = place.and_then(|it| self.hub.events.after(it)) else {
            return self.snapshot();
        };
        self.sent = self.hub.events.last();
        let texts: Vec<String> = missed.iter().filter_map(|it| self.text(it)).collect();
        self.ready.extend(texts);
        // Calls are published only while someone listens; the journal has the rest.
        let journal = self.journal();
        let seen = call.and_then(|it| it.parse().ok()).unwrap_or(u64::MAX);
        for record in journal.since(seen, 100) {
            if self.may_see(Some(&record.asked.principal)) {
                let data = pump::call(&record).to_string();
                let text = self.write(self.sent, "call", &data);
                self.ready.push_back(text);
            }
        }
        // So that the page knows it is live, even when nothing was missed.
        self.ready.push_back(": here\n\n".to_owned());
    }

    fn snapshot(&mut self) {
        self.sent = self.hub.events.last();
        let data = pump::snapshot(&self.hub, &self.principal).to_string();
        let text = self.write(self.sent, "snapshot", &data);
        self.ready.push_back(text);
    }

    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(text) = self.ready.pop_front() {
                return Some(text);
            }
            let stop = self.hub.events.stop.clone();
            let heard = tokio::select! {
                biased;
                () = stop.cancelled() => return None,
                heard = time::timeout(KEEP_ALIVE, self.receiver.recv()) => heard,
            };
            match heard {
                Err(_) => return Some(": still here\n\n".to_owned()),
                Ok(Err(broadcast::error::RecvError::Closed)) => return None,
                Ok(Err(broadcast::error::RecvError::Lagged(_))) => {
                    self.receiver = self.receiver.resubscribe();
                    self.snapshot();
                }
                Ok(Ok(event)) if event.number <= self.sent => (),
                Ok(Ok(event)) => {
                    self.sent = event.number;
                    if let Some(text) = self.text(&event) {
                        return Some(text);
                    }
                }
            }
        }
    }

    fn text(&self, event: &Event) -> Option<String> {
        self.may_see(event.owner.as_ref())
            .then(|| self.write(event.number, event.kind, &event.data))
    }

    fn may_see(&self, owner: Option<&Arc<str>>) -> bool {
        self.principal.role() == Role::Admin
            || owner.is_none_or(|it| **it == *self.principal.name())
    }

    /// An id says which event was last, and which call.
    fn write(&self, number: u64, kind: &str, data: &str) -> String {
        let (run, call) = (&self.hub.events.run, self.journal().last());
        event(Some(kind), Some(&format!("{run}-{number}-{call}")), data)
    }

    fn journal(&self) -> &Journal {
        self.hub.engine.catalog().journal()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everyone_who_waits_hears_of_every_page_after_the_last_was_closed() {
        let events = Events::new(&Tasks::default());
        for call in [7, 9] {
            let waiting = async { tokio::join!(events.opened(), events.opened()) };
            let (heard, joined) = tokio::join!(waiting, async { events.join(call) });
            assert!(joined && events.join(call + 1) && events.is_heard());
            assert_eq!(heard, (call, call));
            events.leave();
            events.leave();
            assert!(!events.is_heard());
        }
    }
}
