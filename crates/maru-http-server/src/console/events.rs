//! `GET /api/events`: the event stream of open console pages.
//!
//! Every event is published once and kept for a while. A client that reconnects with
//! `Last-Event-ID` gets the events it missed; a client that was away for too long, or reads
//! too slowly, gets a new `snapshot`.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::Response,
};
use futures_util::stream;
use maru_protocol::{write_comment, write_event};
use maru_runtime::tasks::Tasks;
use tokio::{
    sync::{broadcast, watch},
    time,
};
use tokio_util::sync::CancellationToken;

use super::{super::HubState, publisher};
use maru_auth::{AccessRole, Principal};
use maru_downstream::http::{event_stream, reply};
use maru_observability::journal::CallJournal;

/// How many events are kept for clients that reconnect.
const MAX_KEPT_EVENTS: usize = 512;
/// How soon a stream without events ends after its principal is gone.
const PRINCIPAL_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// How many streams may be open.
const MAX_EVENT_STREAMS: usize = 256;

/// Publishes events to all open pages.
#[derive(Debug)]
pub struct ConsoleEvents {
    sender: broadcast::Sender<Arc<ConsoleEvent>>,
    history: Mutex<EventHistory>,
    /// Identifies this run of the hub in event ids.
    run_id: String,
    open_pages: watch::Sender<OpenPages>,
    stop: CancellationToken,
}

#[derive(Debug, Default)]
struct OpenPages {
    pages: usize,
    /// The id of the newest call when the first page was opened.
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
    /// The principal that may see the event besides admins; `None` means everyone.
    owner: Option<Arc<str>>,
}

impl ConsoleEvents {
    /// Creates the publisher. Its streams end when `tasks` stops.
    pub fn new(tasks: &Tasks) -> Arc<Self> {
        Arc::new(Self {
            sender: broadcast::Sender::new(MAX_KEPT_EVENTS),
            history: Mutex::default(),
            run_id: uuid::Uuid::new_v4().simple().to_string()[..8].to_owned(),
            open_pages: watch::Sender::default(),
            stop: tasks.stop_token(),
        })
    }

    /// Publishes an event to all pages, or to those of `owner` and of admins.
    pub fn publish(&self, kind: &'static str, data: String, owner: Option<Arc<str>>) {
        let mut history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        history.last += 1;
        let event = Arc::new(ConsoleEvent {
            number: history.last,
            kind,
            data,
            owner,
        });
        if history.events.len() == MAX_KEPT_EVENTS {
            history.events.pop_front();
        }
        history.events.push_back(Arc::clone(&event));
        // Sent under the lock, so that events arrive in the order of their numbers. An error
        // means that no page is open.
        let _ = self.sender.send(event);
    }

    /// Whether any page is open.
    pub fn has_open_pages(&self) -> bool {
        self.open_pages.borrow().pages > 0
    }

    /// Waits until a page is open; returns the id of the last call before the first one was
    /// opened.
    pub(super) async fn wait_for_page(&self) -> u64 {
        let mut open_pages = self.open_pages.subscribe();
        let opened = open_pages.wait_for(|it| it.pages > 0).await;
        opened.map_or(0, |it| it.since)
    }

    /// Adds a page that was opened after the call `last_call`; false if too many are open.
    fn add_page(&self, last_call: u64) -> bool {
        self.open_pages.send_if_modified(|open| {
            let is_allowed = open.pages < MAX_EVENT_STREAMS;
            if open.pages == 0 {
                open.since = last_call;
            }
            open.pages += usize::from(is_allowed);
            is_allowed
        })
    }

    fn remove_page(&self) {
        self.open_pages.send_modify(|open| open.pages -= 1);
    }

    /// Returns the events after the one with this id; `None` if they are no longer kept.
    fn events_after(&self, id: &str) -> Option<Vec<Arc<ConsoleEvent>>> {
        let number: u64 = id
            .strip_prefix(&self.run_id)?
            .strip_prefix('-')?
            .parse()
            .ok()?;
        let history = self.history.lock().unwrap_or_else(PoisonError::into_inner);
        let first_kept = history.events.front();
        let first = first_kept.map_or(history.last + 1, |it| it.number);
        if number + 1 < first || number > history.last {
            return None;
        }
        let missed = history.events.iter().filter(|it| it.number > number);
        Some(missed.cloned().collect())
    }

    fn last_number(&self) -> u64 {
        self.history
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .last
    }
}

/// The event stream of one open page.
struct PageStream {
    hub: Arc<HubState>,
    principal: Principal,
    /// Those of the request, by which the principal is looked up again.
    headers: HeaderMap,
    receiver: broadcast::Receiver<Arc<ConsoleEvent>>,
    pending: VecDeque<String>,
    /// The number of the last event that was sent or skipped.
    sent: u64,
}

impl Drop for PageStream {
    fn drop(&mut self) {
        self.hub.events.remove_page();
    }
}

/// `GET /api/events`.
pub(crate) async fn stream(State(hub): State<Arc<HubState>>, request: Request) -> Response {
    let Some(principal) = request.extensions().get::<Principal>().cloned() else {
        return reply::reject(StatusCode::UNAUTHORIZED, "a token is required");
    };
    if !hub
        .events
        .add_page(hub.engine.catalog().journal().last_id())
    {
        let message = "too many pages are open; close one";
        return reply::reject(StatusCode::SERVICE_UNAVAILABLE, message);
    }
    let last_id = request.headers().get("last-event-id");
    let last_id = last_id.and_then(|it| it.to_str().ok()).map(str::to_owned);
    // Subscribed before the snapshot is taken, so that no event is missed in between.
    let receiver = hub.events.sender.subscribe();
    let mut page = PageStream {
        hub,
        principal,
        headers: request.headers().clone(),
        receiver,
        pending: VecDeque::new(),
        sent: 0,
    };
    page.resume(last_id.as_deref());
    let keep_alive = page.hub.engine.limits().keep_alive();
    let events = stream::unfold(page, |mut page| async { Some((page.next().await?, page)) });
    let mut response = event_stream(events, keep_alive);
    // Events must not stay in the browser's cache after sign-out.
    let no_store = HeaderValue::from_static("no-store");
    response
        .headers_mut()
        .insert(header::CACHE_CONTROL, no_store);
    response
}

impl PageStream {
    fn resume(&mut self, last_id: Option<&str>) {
        let (event, call) = last_id.and_then(|it| it.rsplit_once('-')).unzip();
        let Some(missed) = event.and_then(|it| self.hub.events.events_after(it)) else {
            return self.push_snapshot();
        };
        self.sent = self.hub.events.last_number();
        let texts: Vec<String> = missed
            .iter()
            .filter_map(|it| self.visible_text(it))
            .collect();
        self.pending.extend(texts);
        // Calls are published only while a page is open; the journal has the others.
        let journal = self.journal();
        let last_call = call.and_then(|it| it.parse().ok()).unwrap_or(u64::MAX);
        for record in journal.since(last_call, 100) {
            if self.may_see(Some(&record.request.principal)) {
                let data = publisher::call_json(&self.hub, &record).to_string();
                let text = self.format_event(self.sent, "call", &data);
                self.pending.push_back(text);
            }
        }
        // Shows the page that the stream is open, even if nothing was missed.
        self.pending.push_back(write_comment("here"));
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
            let received = tokio::select! {
                biased;
                () = stop.cancelled() => return None,
                received = self.receiver.recv() => received.map(Some),
                () = time::sleep(PRINCIPAL_CHECK_INTERVAL) => Ok(None),
            };
            if !self.is_still_allowed() {
                return None;
            }
            match received {
                Err(broadcast::error::RecvError::Closed) => return None,
                Err(broadcast::error::RecvError::Lagged(_)) => {
                    self.receiver = self.receiver.resubscribe();
                    self.push_snapshot();
                }
                Ok(None) => (),
                Ok(Some(event)) if event.number <= self.sent => (),
                Ok(Some(event)) => {
                    self.sent = event.number;
                    if let Some(text) = self.visible_text(&event) {
                        return Some(text);
                    }
                }
            }
        }
    }

    /// Whether the token or the sign-in of the page is still valid, and that of the same
    /// principal. A program on this machine has neither.
    fn is_still_allowed(&self) -> bool {
        let now = self.hub.identify(&self.headers);
        now.is_ok_and(|it| it == self.principal || it.is_local() && self.principal.is_local())
    }

    fn visible_text(&self, event: &ConsoleEvent) -> Option<String> {
        self.may_see(event.owner.as_ref())
            .then(|| self.format_event(event.number, event.kind, &event.data))
    }

    fn may_see(&self, owner: Option<&Arc<str>>) -> bool {
        self.principal.role() == AccessRole::Admin
            || owner.is_none_or(|it| **it == *self.principal.name())
    }

    /// Formats an event. Its id has the numbers of the last event and of the last call.
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
    async fn all_waiters_are_notified_when_a_first_page_opens() {
        let events = ConsoleEvents::new(&Tasks::default());
        for call in [7, 9] {
            let waiting = async { tokio::join!(events.wait_for_page(), events.wait_for_page()) };
            let (last_calls, added) = tokio::join!(waiting, async { events.add_page(call) });
            assert!(added && events.add_page(call + 1) && events.has_open_pages());
            assert_eq!(last_calls, (call, call));
            events.remove_page();
            events.remove_page();
            assert!(!events.has_open_pages());
        }
    }
}
