//! What a server says beside its answers, and the messages that went to and fro:
//! the last of each, for the person who set the server up.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use maru_runtime::clock;

/// How many lines, and how many messages, are kept of a server.
const MAX_LOG_ENTRIES: usize = 300;
/// Bytes of one that are kept.
const MAX_LINE_BYTES: usize = 500;
const MAX_MESSAGE_BYTES: usize = 2 << 10;

/// The last lines and messages of one server.
#[derive(Debug, Default)]
pub(super) struct ServerLog {
    lines: Mutex<VecDeque<ServerLogEntry>>,
    messages: Mutex<VecDeque<ServerLogEntry>>,
}

/// One line or message.
#[derive(Clone, Debug)]
pub struct ServerLogEntry {
    /// When, in milliseconds since 1970.
    pub at: u64,
    /// Whose it is.
    pub kind: ServerLogKind,
    /// Its beginning. May hold secrets.
    pub text: Box<str>,
    /// How many bytes it had.
    pub bytes: usize,
}

/// Whose an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerLogKind {
    /// The program wrote it to stderr.
    Stderr,
    /// The connection changed.
    Event,
    /// A message from maru to the server.
    Sent,
    /// A message from the server to maru.
    Received,
}

impl ServerLog {
    /// Something happened to the connection.
    pub(super) fn record_event(&self, text: &str) {
        push(&self.lines, ServerLogKind::Event, text, MAX_LINE_BYTES);
    }

    /// The program wrote a line to stderr.
    pub(super) fn record_stderr(&self, line: &str) {
        push(&self.lines, ServerLogKind::Stderr, line, MAX_LINE_BYTES);
    }

    pub(super) fn record_sent(&self, message: &str) {
        push(
            &self.messages,
            ServerLogKind::Sent,
            message,
            MAX_MESSAGE_BYTES,
        );
    }

    pub(super) fn record_received(&self, message: &str) {
        push(
            &self.messages,
            ServerLogKind::Received,
            message,
            MAX_MESSAGE_BYTES,
        );
    }

    /// A message that is not readable as text, or no message at all.
    pub(super) fn record_received_bytes(&self, bytes: &[u8]) {
        // Only the beginning is kept, so only that is made text: it may have 16 MiB.
        let head = String::from_utf8_lossy(&bytes[..bytes.len().min(MAX_MESSAGE_BYTES)]);
        push_entry(
            &self.messages,
            ServerLogEntry {
                at: epoch_millis(),
                kind: ServerLogKind::Received,
                text: head.into(),
                bytes: bytes.len(),
            },
        );
    }

    /// Lines and events, oldest first.
    pub(super) fn lines(&self) -> Vec<ServerLogEntry> {
        lock(&self.lines).iter().cloned().collect()
    }

    /// Messages, oldest first.
    pub(super) fn messages(&self) -> Vec<ServerLogEntry> {
        lock(&self.messages).iter().cloned().collect()
    }
}

impl ServerLogKind {
    /// Its name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stderr => "stderr",
            Self::Event => "event",
            Self::Sent => "sent",
            Self::Received => "received",
        }
    }
}

/// Milliseconds since 1970.
pub(super) fn epoch_millis() -> u64 {
    u64::try_from(clock::now_ms()).unwrap_or(0)
}

fn push(entries: &Mutex<VecDeque<ServerLogEntry>>, kind: ServerLogKind, text: &str, limit: usize) {
    let kept = &text[..text.floor_char_boundary(limit)];
    push_entry(
        entries,
        ServerLogEntry {
            at: epoch_millis(),
            kind,
            text: kept.into(),
            bytes: text.len(),
        },
    );
}

fn push_entry(entries: &Mutex<VecDeque<ServerLogEntry>>, entry: ServerLogEntry) {
    let mut entries = lock(entries);
    if entries.len() == MAX_LOG_ENTRIES {
        entries.pop_front();
    }
    entries.push_back(entry);
}

fn lock(entries: &Mutex<VecDeque<ServerLogEntry>>) -> MutexGuard<'_, VecDeque<ServerLogEntry>> {
    entries.lock().unwrap_or_else(PoisonError::into_inner)
}
