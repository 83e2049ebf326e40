//! What a server says beside its answers, and the messages that went to and fro:
//! the last of each, for the person who set the server up.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::clock;

/// How many lines, and how many messages, are kept of a server.
const MAX: usize = 300;
/// Bytes of one that are kept.
const LINE: usize = 500;
const MESSAGE: usize = 2 << 10;

/// The last lines and messages of one server.
#[derive(Debug, Default)]
pub(super) struct Log {
    lines: Mutex<VecDeque<Entry>>,
    messages: Mutex<VecDeque<Entry>>,
}

/// One line or message.
#[derive(Clone, Debug)]
pub struct Entry {
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// Whose it is.
    pub kind: EntryKind,
    /// Its beginning. May hold secrets.
    pub text: Box<str>,
    /// How many bytes it had.
    pub bytes: usize,
}

/// Whose an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// The program wrote it to stderr.
    Said,
    /// The connection changed.
    Event,
    /// A message from maru to the server.
    Sent,
    /// A message from the server to maru.
    Received,
}

impl Log {
    /// Something happened to the connection.
    pub(super) fn event(&self, text: &str) {
        push(&self.lines, EntryKind::Event, text, LINE);
    }

    /// The program wrote a line to stderr.
    pub(super) fn said(&self, line: &str) {
        push(&self.lines, EntryKind::Said, line, LINE);
    }

    pub(super) fn sent(&self, message: &str) {
        push(&self.messages, EntryKind::Sent, message, MESSAGE);
    }

    pub(super) fn received(&self, message: &str) {
        push(&self.messages, EntryKind::Received, message, MESSAGE);
    }

    /// A message that is not readable as text, or no message at all.
    pub(super) fn received_bytes(&self, bytes: &[u8]) {
        // Only the beginning is kept, so only that is made text: it may have 16 MiB.
        let head = String::from_utf8_lossy(&bytes[..bytes.len().min(MESSAGE)]);
        push_entry(
            &self.messages,
            Entry {
                at: now(),
                kind: EntryKind::Received,
                text: head.into(),
                bytes: bytes.len(),
            },
        );
    }

    /// Lines and events, oldest first.
    pub(super) fn lines(&self) -> Vec<Entry> {
        lock(&self.lines).iter().cloned().collect()
    }

    /// Messages, oldest first.
    pub(super) fn messages(&self) -> Vec<Entry> {
        lock(&self.messages).iter().cloned().collect()
    }
}

impl EntryKind {
    /// Its name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Said => "stderr",
            Self::Event => "event",
            Self::Sent => "sent",
            Self::Received => "received",
        }
    }
}

/// Milliseconds since 1970.
pub(super) fn now() -> u64 {
    u64::try_from(clock::now()).unwrap_or(0)
}

fn push(entries: &Mutex<VecDeque<Entry>>, kind: EntryKind, text: &str, limit: usize) {
    let kept = &text[..text.floor_char_boundary(limit)];
    push_entry(
        entries,
        Entry {
            at: now(),
            kind,
            text: kept.into(),
            bytes: text.len(),
        },
    );
}

fn push_entry(entries: &Mutex<VecDeque<Entry>>, entry: Entry) {
    let mut entries = lock(entries);
    if entries.len() == MAX {
        entries.pop_front();
    }
    entries.push_back(entry);
}

fn lock(entries: &Mutex<VecDeque<Entry>>) -> MutexGuard<'_, VecDeque<Entry>> {
    entries.lock().unwrap_or_else(PoisonError::into_inner)
}
