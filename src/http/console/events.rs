//! `GET /api/events`: one stream for a whole browser.
//!
//! Everything is published once and kept for a while; who was away for a moment
//! says where it stopped (`Last-Event-ID`) and gets the rest, who was away for
//! longer or reads too slowly gets a new `snapshot`.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    response::Response,
};
use futures_util::stream;
use maru_protocol::write_event;
use maru_runtime::tasks::Tasks;
use tokio::sync::{broadcast, watch};
use tokio_util::sync::CancellationToken;

use super::{super::HubState, publisher};
use crate::{
    auth::{AccessRole, Principal},
    downstream::http::{event_stream, reply},
    observability::journal::CallJournal,
};

/// How many events are kept for those who were away.
const MAX_KEPT_EVENTS: usize = 512;
/// How many streams may be open.
const MAX_EVENT_STREAMS: usize = 256;

/// Everything that is told to open pages.
#[derive(Debug)]
pub struct ConsoleEvents {
    sender: broadcast::Sender<Arc<ConsoleEvent>>,
    history: Mutex<EventHistory>,
    /// Tells this run of the hub from others.
    run_id: String,
    open_pages: watch::Sender<OpenPages>,
    stop: CancellationToken,
}

#[derive(Debug, Default)]
struct OpenPages {
    pages: usize,
    /// The number of the newest call when the first of them was opened.
    since: u64,
}

#[derive(Debug, Default)]
struct EventHistory {
    last: u64,
    events: VecDeque<Arc<ConsoleEvent>>,
}

#[derive(Debug)]
struct ConsoleEvent {
    number: u64,
    kind: &'static str,
    data: String,
    /// Whose it is; others see it only as admins.
    owner: Option<Arc<str>>,
}

impl ConsoleEvents {
    /// Nothing has happened yet. Streams end when `tasks` stops.
    pub fn new(tasks: &Tasks) -> Arc<Self> {
        Arc::new(Self {
            sender: broadcast::Sender::new(MAX_KEPT_EVENTS),
            history: Mutex::default(),
            run_id: uuid::Uuid::new_v4().simple().to_string()[..8].to_owned(),
            open_pages: watch::Sender::default(),
            stop: tasks.stop_token(),
        })
    }

    /// Tells every page; `owner`: only those of this principal, and admins.
    pub fn publish(&self, kind: &'static str, data: String, owner: Option<Arc<str>>) {
        let mut kept = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        kept.last += 1;
        let event = Arc::new(ConsoleEvent {
            number: kept.last,
            kind,
            data,
            owner,
        });
        if kept.events.len() == MAX_KEPT_EVENTS {
            kept.events.pop_front();
        }
        kept.events.push_back(Arc::clone(&event));
        // Under the lock, so that events are sent in the order of their numbers.
        let _nobody_may_listen = self.sender.send(event);
    }

    /// Whether any page is open.
    pub fn has_open_pages(&self) -> bool {
        self.open_pages.borrow().pages > 0
    }

    /// Resolves for everyone who waits when a page is open, with the number of
    /// the last call before it.
    pub(super) async fn wait_for_page(&self) -> u64 {
        let mut open = self.open_pages.subscribe();
        let opened = open.wait_for(|it| it.pages > 0).await;
        opened.map_or(0, |it| it.since)
    }

    /// One more page, opened after call `last`; `false` if there are too many.
    fn add_page(&self, last: u64) -> bool {
        self.open_pages.send_if_modified(|open| {
            let free = open.pages < MAX_EVENT_STREAMS;
            if open.pages == 0 {
                open.since = last;
            }
            open.pages += usize::from(free);
            free
        })
    }

    fn remove_page(&self) {
        self.open_pages.send_modify(|open| open.pages -= 1);
    }

    /// What came after `last`; `None` if that is not known any more.
    fn events_after(&self, last: &str) -> Option<Vec<Arc<ConsoleEvent>>> {
        let number: u64 = last
            .strip_prefix(&self.run_id)?
            .strip_prefix('-')?
            .parse()
            .ok()?;
        let kept = self.history.lock().unwrap_or_else(PoisonError::into_inner);
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

    fn last_number(&self) -> u64 {
        self.history
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .last
    }
}

/// One open page.
struct PageStream {
    hub: Arc<HubState>,
    principal: Principal,
    receiver: broadcast::Receiver<Arc<ConsoleEvent>>,
    pending: VecDeque<String>,
    /// Events up to this number were sent.
    sent: u64,
}

impl Drop for PageStream {
    fn drop(&mut self) {
        self.hub.events.remove_page();
    }
}

/// `GET /api/events`.
pub(in crate::http) async fn stream(
    State(hub): State<Arc<HubState>>,
    request: Request,
) -> Response {
    let Some(principal) = request.extensions().get::<Principal>().cloned() else {
        return reply::reject(StatusCode::UNAUTHORIZED, "nobody asks");
    };
    if !hub
        .events
        .add_page(hub.engine.catalog().journal().last_id())
    {
        let why = "too many pages are open; close one";
        return reply::reject(StatusCode::SERVICE_UNAVAILABLE, why);
    }
    let last = request.headers().get("last-event-id");
    let last = last.and_then(|it| it.to_str().ok()).map(str::to_owned);
    // Before the snapshot is taken, so that nothing falls between the two.
    let receiver = hub.events.sender.subscribe();
    let mut page = PageStream {
        hub,
        principal,
        receiver,
        pending: VecDeque::new(),
        sent: 0,
    };
    page.resume(last.as_deref());
    let mut response = event_stream(stream::unfold(page, |mut page| async {
        Some((page.next().await?, page))
    }));
    // What a person may see does not stay in the browser's cache.
    let no_store = HeaderValue::from_static("no-store");
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, no_store);
    response
}

impl PageStream {
    fn resume(&mut self, last: Option<&str>) {
        let (place, call) = last.and_then(|it| it.rsplit_once('-')).unzip();
        let Some(missed) = place.and_then(|it| self.hub.events.events_after(it)) else {
            return self.push_snapshot();
        };
        self.sent = self.hub.events.last_number();
        let texts: Vec<String> = missed
            .iter()
            .filter_map(|it| self.visible_text(it))
            .collect();
        self.pending.extend(texts);
        // Calls are published only while someone listens; the journal has the rest.
        let journal = self.journal();
        let seen = call.and_then(|it| it.parse().ok()).unwrap_or(u64::MAX);
        for record in journal.since(seen, 100) {
            if self.may_see(Some(&record.asked.principal)) {
                let data = publisher::call_json(&record).to_string();
                let text = self.format_event(self.sent, "call", &data);
                self.pending.push_back(text);
            }
        }
        // So that the page knows it is live, even when nothing was missed.
        self.pending.push_back(": here\n\n".to_owned());
    }

    fn push_snapshot(&mut self) {
        self.sent = self.hub.events.last_number();
        let data = publisher::snapshot(&self.hub, &self.principal).to_string();
        let text = self.format_event(self.sent, "snapshot", &data);
        self.pending.push_back(text);
    }

    async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(text) = self.pending.pop_front() {
                return Some(text);
            }
            let stop = self.hub.events.stop.clone();
            let heard = tokio::select! {
                biased;
                () = stop.cancelled() => return None,
                heard = self.receiver.recv() => heard,
            };
            match heard {
                Err(broadcast::error::RecvError::Closed) => return None,
                Err(broadcast::error::RecvError::Lagged(_)) => {
                    self.receiver = self.receiver.resubscribe();
                    self.push_snapshot();
                }
                Ok(event) if event.number <= self.sent => (),
                Ok(event) => {
                    self.sent = event.number;
                    if let Some(text) = self.visible_text(&event) {
                        return Some(text);
                    }
                }
            }
        }
    }

    fn visible_text(&self, event: &ConsoleEvent) -> Option<String> {
        self.may_see(event.owner.as_ref())
            .then(|| self.format_event(event.number, event.kind, &event.data))
    }

    fn may_see(&self, owner: Option<&Arc<str>>) -> bool {
        self.principal.role() == AccessRole::Admin
            || owner.is_none_or(|it| **it == *self.principal.name())
    }

    /// An id says which event was last, and which call.
    fn format_event(&self, number: u64, kind: &str, data: &str) -> String {
        let (run, call) = (&self.hub.events.run_id, self.journal().last_id());
        write_event(Some(kind), Some(&format!("{run}-{number}-{call}")), data)
    }

    fn journal(&self) -> &CallJournal {
        self.hub.engine.catalog().journal()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn everyone_who_waits_hears_of_every_page_after_the_last_was_closed() {
        let events = ConsoleEvents::new(&Tasks::default());
        for call in [7, 9] {
            let waiting = async { tokio::join!(events.wait_for_page(), events.wait_for_page()) };
            let (heard, joined) = tokio::join!(waiting, async { events.add_page(call) });
            assert!(joined && events.add_page(call + 1) && events.has_open_pages());
            assert_eq!(heard, (call, call));
            events.remove_page();
            events.remove_page();
            assert!(!events.has_open_pages());
        }
    }
}
