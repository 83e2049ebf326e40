//! The messages to one reader, in order; recent ones are kept so that a stream can resume.

use std::collections::VecDeque;

use maru_protocol::write_notification;
use maru_runtime::message_queue;
use tokio_util::sync::CancellationToken;

use super::catalog_changes::CatalogChanges;

/// The number of the stream that belongs to no request.
pub(super) const STANDALONE_STREAM: u64 = 0;
const MAX_KEPT_MESSAGES: usize = 256;
const MAX_KEPT_BYTES: usize = 1 << 20;

/// The receiving end of a message queue, merged with changes of the catalog.
#[derive(Debug)]
pub(super) struct MessageFeed {
    messages: message_queue::MessageReceiver,
    changes: Option<CatalogChanges>,
    pending: VecDeque<String>,
    stream_number: u64,
    last_event: u64,
    kept: VecDeque<(u64, String)>,
    kept_bytes: usize,
    /// Kept messages that are sent again, under their own numbers.
    replay: VecDeque<(u64, String)>,
    cancel: Option<CancellationToken>,
}

impl MessageFeed {
    /// The stream of a session that belongs to no request.
    pub(super) fn standalone(
        messages: message_queue::MessageReceiver,
        changes: CatalogChanges,
    ) -> Self {
        let mut feed = Self::of_request(messages, STANDALONE_STREAM, CancellationToken::new());
        feed.changes = Some(changes);
        feed.cancel = None;
        feed
    }

    /// The stream of one request; `cancel` cancels that request.
    pub(super) fn of_request(
        messages: message_queue::MessageReceiver,
        stream_number: u64,
        cancel: CancellationToken,
    ) -> Self {
        Self {
            messages,
            changes: None,
            pending: VecDeque::new(),
            stream_number,
            last_event: 0,
            kept: VecDeque::new(),
            kept_bytes: 0,
            replay: VecDeque::new(),
            cancel: Some(cancel),
        }
    }

    /// The stream's number, unique in its session.
    pub(super) fn stream_number(&self) -> u64 {
        self.stream_number
    }

    /// Cancels the request that fills the stream.
    pub(super) fn cancel(&self) {
        if let Some(cancel) = &self.cancel {
            cancel.cancel();
        }
    }

    /// Whether the kept messages are small enough to keep them after the end.
    pub(super) fn fits_history(&self) -> bool {
        self.kept_bytes <= MAX_KEPT_BYTES
    }

    /// Tells the senders that the reader makes progress.
    pub(super) fn report_progress(&self) {
        self.messages.record_progress();
    }

    /// Adds notifications that every list has changed, for a client that may have missed
    /// some.
    pub(super) fn push_list_changes(&mut self) {
        let lists = self.changes.as_ref().map(CatalogChanges::all_lists);
        let lists = lists.into_iter().flatten();
        self.pending
            .extend(lists.map(|(method, params)| write_notification(method, &params)));
    }

    /// Adds a message before those that are still in the queue.
    pub(super) fn push(&mut self, message: String) {
        self.pending.push_back(message);
    }

    /// The next message; `None` at the end. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(message) = self.pending.pop_front() {
                return Some(message);
            }
            let Some(changes) = &mut self.changes else {
                return self.messages.recv().await;
            };
            tokio::select! {
                biased;
                message = self.messages.recv() => return message,
                items = changes.next() => self.pending.extend(
                    items.into_iter().map(|(method, params)| write_notification(method, &params)),
                ),
            }
        }
    }

    /// The next message with its event id; it is kept for a reader that resumes.
    /// Cancel-safe.
    pub(super) async fn next_event(&mut self) -> Option<(String, String)> {
        let (at, message) = match self.replay.pop_front() {
            Some(again) => again,
            None => {
                let message = self.next().await?;
                self.last_event += 1;
                (self.last_event, message)
            }
        };
        self.kept_bytes += message.len();
        self.kept.push_back((at, message.clone()));
        while self.kept.len() > MAX_KEPT_MESSAGES || (!self.fits_history() && self.kept.len() > 1) {
            let dropped = self.kept.pop_front();
            self.kept_bytes -= dropped.map_or(0, |(_, text)| text.len());
        }
        Some((self.event_id(at), message))
    }

    /// The event id to resume after if no event was read yet.
    pub(super) fn first_event_id(&self) -> String {
        self.event_id(self.kept.back().map_or(0, |(at, _)| *at))
    }

    fn event_id(&self, at: u64) -> String {
        format!("{}-{at}", self.stream_number)
    }

    /// Sends the kept messages after event `after` again.
    pub(super) fn replay_after(&mut self, after: u64) {
        self.replay = std::mem::take(&mut self.kept)
            .into_iter()
            .chain(std::mem::take(&mut self.replay))
            .filter(|(at, _)| *at > after)
            .collect();
        self.kept_bytes = 0;
    }
}

/// The id of an event, after which a stream resumes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct EventId {
    /// The hub that holds the stream, if several share their sessions.
    pub(super) hub: Option<String>,
    pub(super) stream: u64,
    pub(super) number: u64,
}

impl EventId {
    /// Parses `stream-number`, or `hub.stream-number`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (hub, text) = match text.split_once('.') {
            Some((hub, rest)) => (Some(hub.to_owned()), rest),
            None => (None, text),
        };
        let (stream, number) = text.split_once('-')?;
        Some(Self {
            hub,
            stream: stream.parse().ok()?,
            number: number.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn reader_who_comes_back_gets_what_it_missed_once_and_in_order() {
        let (sender, receiver) = message_queue::channel();
        let mut feed = MessageFeed::of_request(receiver, 3, CancellationToken::new());
        for text in ["a", "b", "c", "d"] {
            sender.send(text.to_owned()).await.unwrap();
        }
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(feed.next_event().await.unwrap().0);
        }
        assert_eq!(ids, ["3-1", "3-2", "3-3"]);
        let EventId {
            hub,
            stream,
            number,
        } = EventId::parse(&ids[0]).unwrap();
        assert_eq!((hub, stream), (None, 3));
        let elsewhere = EventId::parse("abc.3-1").unwrap();
        assert_eq!(
            (elsewhere.hub.as_deref(), elsewhere.number),
            (Some("abc"), 1)
        );
        feed.replay_after(number);
        let first = feed.next_event().await.unwrap();
        assert_eq!(first, ("3-2".to_owned(), "b".to_owned()));
        // Coming back a second time, in the middle of the replay.
        feed.replay_after(number);
        let mut rest = Vec::new();
        for _ in 0..3 {
            rest.push(feed.next_event().await.unwrap());
        }
        let expected = [("3-2", "b"), ("3-3", "c"), ("3-4", "d")];
        assert_eq!(
            rest,
            expected.map(|(id, text)| (id.to_owned(), text.to_owned()))
        );
    }

    #[tokio::test]
    async fn numbers_are_never_used_twice_however_far_back_the_reader_asks() {
        let (sender, receiver) = message_queue::channel();
        let mut feed = MessageFeed::of_request(receiver, 1, CancellationToken::new());
        for _ in 0..3 {
            sender.send("x".repeat(900_000)).await.unwrap();
            feed.next_event().await.unwrap();
        }
        sender.send("y".to_owned()).await.unwrap();
        feed.replay_after(0);
        let ids = [
            feed.next_event().await.unwrap().0,
            feed.next_event().await.unwrap().0,
        ];
        assert_eq!(ids, ["1-3", "1-4"]);
    }
}
