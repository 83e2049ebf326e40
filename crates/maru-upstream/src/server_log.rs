//! Keeps the recent stderr lines, events and messages of a server for its owner.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
};

use maru_runtime::clock;

/// The most lines, and the most messages, that are kept per server.
const MAX_LOG_ENTRIES: usize = 300;
/// The most bytes that are kept of one.
const MAX_LINE_BYTES: usize = 500;
const MAX_MESSAGE_BYTES: usize = 2 << 10;

/// The recent lines and messages of one server.
#[derive(Debug, Default)]
pub(super) struct ServerLog {
    lines: Mutex<VecDeque<ServerLogEntry>>,
    messages: Mutex<VecDeque<ServerLogEntry>>,
}

/// One line, event or message.
#[derive(Clone, Debug)]
pub struct ServerLogEntry {
    /// When it was recorded, in Unix milliseconds.
    pub at: u64,
    /// What kind of entry it is.
    pub kind: ServerLogKind,
    /// The beginning of the text, which may contain secrets.
    pub text: Box<str>,
    /// The original length in bytes.
    pub bytes: usize,
}

/// The kind of a log entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerLogKind {
    /// A line that the program wrote to stderr.
    Stderr,
    /// A change of the connection.
    Event,
    /// A message from maru to the server.
    Sent,
    /// A message from the server to maru.
    Received,
}

impl ServerLog {
    /// Records a connection event.
    pub(super) fn record_event(&self, text: &str) {
        push(&self.lines, ServerLogKind::Event, text, MAX_LINE_BYTES);
    }

    /// Records a line that the program wrote to stderr.
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

    /// Records received bytes that are not valid UTF-8 or not a message.
    pub(super) fn record_received_bytes(&self, bytes: &[u8]) {
        // Only the kept beginning is decoded, because a message may have 16 MiB.
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

    /// Returns lines and events, oldest first.
    pub(super) fn lines(&self) -> Vec<ServerLogEntry> {
        lock(&self.lines).iter().cloned().collect()
    }

    /// Returns messages, oldest first.
    pub(super) fn messages(&self) -> Vec<ServerLogEntry> {
        lock(&self.messages).iter().cloned().collect()
    }
}

impl ServerLogKind {
    /// Returns the name used in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stderr => "stderr",
            Self::Event => "event",
            Self::Sent => "sent",
            Self::Received => "received",
        }
    }
}

/// Returns the current time in Unix milliseconds.
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
