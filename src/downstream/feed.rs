//! Messages on their way to one reader, in order, some kept for a second try.

use std::collections::VecDeque;

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
    kept: VecDeque<(u64, String)>,
    kept_bytes: usize,
    last: u64,
}

impl Feed {
    pub(super) fn new(messages: queue::Receiver, number: u64) -> Self {
        Self {
            messages,
            news: None,
            waiting: VecDeque::new(),
            number,
            kept: VecDeque::new(),
            kept_bytes: 0,
            last: 0,
        }
    }

    /// Also tells of every change of the catalog from now on.
    pub(super) fn with_news(mut self, news: News) -> Self {
        self.news = Some(news);
        self
    }

    /// The stream's number, unique in its session.
    pub(super) fn number(&self) -> u64 {
        self.number
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

    /// Keeps `message` for a reader who comes back; returns its event id.
    pub(super) fn keep(&mut self, message: &str) -> String {
        self.last += 1;
        self.kept_bytes += message.len();
        self.kept.push_back((self.last, message.to_owned()));
        while self.kept.len() > KEPT_MESSAGES
            || (self.kept_bytes > KEPT_BYTES && self.kept.len() > 1)
        {
            let dropped = self.kept.pop_front();
            self.kept_bytes -= dropped.map_or(0, |(_, text)| text.len());
        }
        self.event_id()
    }

    /// The id after which a reader can resume now.
    pub(super) fn event_id(&self) -> String {
        format!("{}-{}", self.number, self.last)
    }

    /// Sends again what was kept after event `last`.
    pub(super) fn rewind(&mut self, last: u64) {
        let again: Vec<String> = self
            .kept
            .drain(..)
            .filter(|(at, _)| *at > last)
            .map(|(_, text)| text)
            .collect();
        self.kept_bytes = 0;
        self.last = self.last.min(last);
        for message in again.into_iter().rev() {
            self.waiting.push_front(message);
        }
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
        let mut feed = Feed::new(receiver, 3);
        for text in ["a", "b", "c", "d"] {
            sender.send(text.to_owned()).await.unwrap();
        }
        let mut ids = Vec::new();
        for _ in 0..3 {
            let message = feed.next().await.unwrap();
            ids.push(feed.keep(&message));
        }
        assert_eq!(ids, ["3-1", "3-2", "3-3"]);
        let (stream, event) = parse_event_id(&ids[0]).unwrap();
        assert_eq!(stream, 3);
        feed.rewind(event);
        let mut rest = Vec::new();
        for _ in 0..3 {
            let message = feed.next().await.unwrap();
            rest.push((feed.keep(&message), message));
        }
        let expected = [("3-2", "b"), ("3-3", "c"), ("3-4", "d")];
        assert_eq!(
            rest,
            expected.map(|(id, text)| (id.to_owned(), text.to_owned()))
        );
    }
}
