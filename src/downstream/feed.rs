//! Messages on their way to one reader, in order, some kept for a second try.

use std::collections::VecDeque;

use tokio_util::sync::CancellationToken;

use super::news::News;
use crate::{mcp::notification, queue};

/// The number of the stream that belongs to no request.
pub(super) const STANDALONE: u64 = 0;
const KEPT_MESSAGES: usize = 256;
const KEPT_BYTES: usize = 1 << 20;

/// The reading end of a queue, with news of the catalog mixed in.
#[derive(Debug)]
pub(super) struct Feed {
    messages: queue::Receiver,
    news: Option<News>,
    waiting: VecDeque<String>,
    number: u64,
    last: u64,
    kept: VecDeque<(u64, String)>,
    kept_bytes: usize,
    /// Kept messages that are sent again, under their own numbers.
    again: VecDeque<(u64, String)>,
    cancel: Option<CancellationToken>,
}

impl Feed {
    /// The stream of a session that belongs to no request.
    pub(super) fn standalone(messages: queue::Receiver, news: News) -> Self {
        let mut feed = Self::of_request(messages, STANDALONE, CancellationToken::new());
        feed.news = Some(news);
        feed.cancel = None;
        feed
    }

    /// The stream of one request; `cancel` ends the work that fills it.
    pub(super) fn of_request(
        messages: queue::Receiver,
        number: u64,
        cancel: CancellationToken,
    ) -> Self {
        Self {
            messages,
            news: None,
            waiting: VecDeque::new(),
            number,
            last: 0,
            kept: VecDeque::new(),
            kept_bytes: 0,
            again: VecDeque::new(),
            cancel: Some(cancel),
        }
    }

    /// The stream's number, unique in its session.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Ends the work that fills the stream.
    pub(super) fn cancel(&self) {
        if let Some(cancel) = &self.cancel {
            cancel.cancel();
        }
    }

    /// Whether what is kept is small enough to be kept a little longer.
    pub(super) fn is_small(&self) -> bool {
        self.kept_bytes <= KEPT_BYTES
    }

    /// Shows the senders that the reader is busy with what it took.
    pub(super) fn alive(&self) {
        self.messages.alive();
    }

    /// Puts a message in front of those still to come.
    pub(super) fn push(&mut self, message: String) {
        self.waiting.push_back(message);
    }

    /// The next message; `None` at the end. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(message) = self.waiting.pop_front() {
                return Some(message);
            }
            let Some(news) = &mut self.news else {
                return self.messages.recv().await;
            };
            tokio::select! {
                biased;
                message = self.messages.recv() => return message,
                items = news.next() => self.waiting.extend(
                    items.into_iter().map(|(method, params)| notification(method, &params)),
                ),
            }
        }
    }

    /// The next message with its event id; it is kept for a reader who comes
    /// back. Cancel-safe.
    pub(super) async fn next_event(&mut self) -> Option<(String, String)> {
        let (at, message) = match self.again.pop_front() {
            Some(again) => again,
            None => {
                let message = self.next().await?;
                self.last += 1;
                (self.last, message)
            }
        };
        self.kept_bytes += message.len();
        self.kept.push_back((at, message.clone()));
        while self.kept.len() > KEPT_MESSAGES || (!self.is_small() && self.kept.len() > 1) {
            let dropped = self.kept.pop_front();
            self.kept_bytes -= dropped.map_or(0, |(_, text)| text.len());
        }
        Some((self.event_id(at), message))
    }

    /// The id to resume after when nothing was read yet.
    pub(super) fn first_event_id(&self) -> String {
        self.event_id(self.kept.back().map_or(0, |(at, _)| *at))
    }

    fn event_id(&self, at: u64) -> String {
        format!("{}-{at}", self.number)
    }

    /// Sends again what was kept after event `after`.
    pub(super) fn rewind(&mut self, after: u64) {
        self.again = std::mem::take(&mut self.kept)
            .into_iter()
            .chain(std::mem::take(&mut self.again))
            .filter(|(at, _)| *at > after)
            .collect();
        self.kept_bytes = 0;
    }
}

/// Reads an event id: the stream's number and the event's.
pub(super) fn parse_event_id(text: &str) -> Option<(u64, u64)> {
    let (stream, event) = text.split_once('-')?;
    Some((stream.parse().ok()?, event.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn reader_who_comes_back_gets_what_it_missed_once_and_in_order() {
        let (sender, receiver) = queue::channel();
        let mut feed = Feed::of_request(receiver, 3, CancellationToken::new());
        for text in ["a", "b", "c", "d"] {
            sender.send(text.to_owned()).await.unwrap();
        }
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(feed.next_event().await.unwrap().0);
        }
        assert_eq!(ids, ["3-1", "3-2", "3-3"]);
        let (stream, event) = parse_event_id(&ids[0]).unwrap();
        assert_eq!(stream, 3);
        feed.rewind(event);
        let first = feed.next_event().await.unwrap();
        assert_eq!(first, ("3-2".to_owned(), "b".to_owned()));
        // Coming back a second time, in the middle of the replay.
        feed.rewind(event);
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
        let (sender, receiver) = queue::channel();
        let mut feed = Feed::of_request(receiver, 1, CancellationToken::new());
        for _ in 0..3 {
            sender.send("x".repeat(900_000)).await.unwrap();
            feed.next_event().await.unwrap();
        }
        sender.send("y".to_owned()).await.unwrap();
        feed.rewind(0);
        let ids = [
            feed.next_event().await.unwrap().0,
            feed.next_event().await.unwrap().0,
        ];
        assert_eq!(ids, ["1-3", "1-4"]);
    }
}
