//! Server-sent events: writing one, and reading many however the bytes are cut into chunks.

use thiserror::Error;

/// A server-sent event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// The `event` field; `message` if there was none.
    pub name: String,
    /// The `data` fields, joined by line feeds.
    pub data: String,
    /// The `id` field, to resume the stream behind this event.
    pub id: Option<String>,
    /// The `retry` field: how long to wait before reconnecting, in milliseconds.
    pub retry: Option<u64>,
}

/// A server-sent event that borrows from the [`SseReader`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SseEventRef<'a> {
    /// The `event` field; `message` if there was none.
    pub name: &'a str,
    /// The `data` fields, joined by line feeds. May not be UTF-8.
    pub data: &'a [u8],
    /// The `id` field, to resume the stream behind this event.
    pub id: Option<&'a str>,
    /// The `retry` field: how long to wait before reconnecting, in milliseconds.
    pub retry: Option<u64>,
}

impl From<SseEventRef<'_>> for SseEvent {
    fn from(event: SseEventRef<'_>) -> Self {
        Self {
            name: event.name.to_owned(),
            data: String::from_utf8_lossy(event.data).into_owned(),
            id: event.id.map(str::to_owned),
            retry: event.retry,
        }
    }
}

/// Default limit for the size of an event.
const MAX_EVENT_BYTES: usize = 16 << 20;
/// The name of an event without an `event` field.
const DEFAULT_EVENT_NAME: &str = "message";

/// Writes an event. `data` must be a single line; see [`to_single_line`].
pub fn write_event(name: Option<&str>, id: Option<&str>, data: &str) -> String {
    let mut text = String::with_capacity(data.len() + 48);
    if let Some(name) = name {
        push_field(&mut text, "event: ", name);
    }
    if let Some(id) = id {
        push_field(&mut text, "id: ", id);
    }
    begin_event(&mut text, None);
    text.push_str(data);
    end_event(&mut text);
    text
}

/// Begins an event, for a writer that appends its data, a single line, piece by piece.
pub fn begin_event(out: &mut String, name: Option<&str>) {
    if let Some(name) = name {
        push_field(out, "event: ", name);
    }
    out.push_str("data: ");
}

/// Ends an event whose data were appended.
pub fn end_event(out: &mut String) {
    out.push_str("\n\n");
}

/// Writes a comment, which readers skip, as an event of its own. `text` must be a single
/// line.
pub fn write_comment(text: &str) -> String {
    format!(": {text}\n\n")
}

fn push_field(out: &mut String, name: &str, value: &str) {
    out.push_str(name);
    out.push_str(value);
    out.push('\n');
}

/// Puts JSON on one line. This is safe because strings in JSON contain no raw line breaks.
pub fn to_single_line(text: String) -> String {
    match memchr::memchr2(b'\n', b'\r', text.as_bytes()) {
        None => text,
        Some(_) => text.replace(['\n', '\r'], " "),
    }
}

/// Parses server-sent events from chunks of bytes.
#[derive(Debug)]
pub struct SseReader {
    max_event_bytes: usize,
    /// The beginning of a line whose end has not arrived yet.
    line: Vec<u8>,
    event: PartialEvent,
    /// The last byte was `\r`: a `\n` that follows belongs to the same line end.
    after_cr: bool,
    started: bool,
}

/// The fields of an event whose end has not arrived yet.
#[derive(Debug, Default)]
struct PartialEvent {
    name: String,
    data: Vec<u8>,
    has_data: bool,
    id: Option<String>,
    retry: Option<u64>,
}

/// An event exceeds the limit of its [`SseReader`].
#[derive(Debug, Error, PartialEq, Eq)]
#[error("an event of more than {} MiB", .max_event_bytes >> 20)]
pub struct EventTooLarge {
    max_event_bytes: usize,
}

/// Counts lines without effect: comments, unknown fields and repeated fields. A peer may
/// send them without end, so callers limit them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IgnoredLines {
    /// Number of lines.
    pub lines: usize,
    /// Number of bytes in those lines.
    pub bytes: usize,
}

impl Default for SseReader {
    fn default() -> Self {
        Self::with_max_event_bytes(MAX_EVENT_BYTES)
    }
}

impl SseReader {
    /// Creates a reader that fails on an event of more than `max_event_bytes`.
    pub fn with_max_event_bytes(max_event_bytes: usize) -> Self {
        Self {
            max_event_bytes,
            line: Vec::new(),
            event: PartialEvent::default(),
            after_cr: false,
            started: false,
        }
    }

    /// Returns how many bytes of an event have arrived whose end is missing.
    pub fn buffered_bytes(&self) -> usize {
        self.line.len() + self.event.data.len()
    }

    /// Consumes `chunk` and appends the events that it completes to `out`. Returns the count of
    /// lines without effect.
    pub fn feed(
        &mut self,
        chunk: &[u8],
        out: &mut Vec<SseEvent>,
    ) -> Result<IgnoredLines, EventTooLarge> {
        self.for_each_event(chunk, |event| out.push(event.into()))
    }

    /// Consumes `chunk` and calls `on_event` for every event that it completes. Returns the
    /// count of lines without effect.
    pub fn for_each_event(
        &mut self,
        mut chunk: &[u8],
        mut on_event: impl FnMut(SseEventRef<'_>),
    ) -> Result<IgnoredLines, EventTooLarge> {
        let mut ignored = IgnoredLines::default();
        loop {
            if self.after_cr && !chunk.is_empty() {
                self.after_cr = false;
                chunk = chunk.strip_prefix(b"\n").unwrap_or(chunk);
            }
            let Some(end) = memchr::memchr2(b'\n', b'\r', chunk) else {
                break;
            };
            let (line, rest) = chunk.split_at(end);
            self.after_cr = rest.starts_with(b"\r");
            chunk = &rest[1..];
            if !self.end_line(line, &mut on_event) {
                ignored.lines += 1;
                ignored.bytes += line.len() + 1;
            }
            self.check_size()?;
        }
        self.line.extend_from_slice(chunk);
        self.check_size()?;
        Ok(ignored)
    }

    /// Calls `on_event` for a last event without the empty line that completes it. The
    /// specification drops such an event, but model servers send it.
    pub fn finish(&mut self, mut on_event: impl FnMut(SseEventRef<'_>)) {
        self.end_line(b"", &mut on_event);
        self.end_line(b"", &mut on_event);
    }

    /// Completes the current line with `end`; false if the line had no effect.
    fn end_line(&mut self, end: &[u8], on_event: &mut impl FnMut(SseEventRef<'_>)) -> bool {
        if self.line.is_empty() {
            return self.take_line(end, on_event);
        }
        self.line.extend_from_slice(end);
        // The buffer is not reused: after one long line it would hold its memory as long as
        // the stream is open.
        let line = std::mem::take(&mut self.line);
        self.take_line(&line, on_event)
    }

    fn take_line(&mut self, mut line: &[u8], on_event: &mut impl FnMut(SseEventRef<'_>)) -> bool {
        if !std::mem::replace(&mut self.started, true) {
            line = line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line);
        }
        if line.is_empty() {
            return self.event.dispatch(on_event);
        }
        let colon = memchr::memchr(b':', line).unwrap_or(line.len());
        let (field, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or(value);
        self.event
            .set_field(field, value.strip_prefix(b" ").unwrap_or(value))
    }

    fn check_size(&self) -> Result<(), EventTooLarge> {
        let max_event_bytes = self.max_event_bytes;
        if self.line.len() + self.event.data.len() > max_event_bytes {
            Err(EventTooLarge { max_event_bytes })
        } else {
            Ok(())
        }
    }
}

impl PartialEvent {
    /// Sets a field; false if that had no effect.
    fn set_field(&mut self, field: &[u8], value: &[u8]) -> bool {
        match field {
            b"event" => {
                let is_new = self.name.is_empty() && !value.is_empty();
                self.name = String::from_utf8_lossy(value).into_owned();
                is_new
            }
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push(b'\n');
                }
                self.data.extend_from_slice(value);
                true
            }
            b"id" if !value.contains(&0) => {
                let id = String::from_utf8_lossy(value).into_owned();
                self.id.replace(id).is_none()
            }
            b"retry" => {
                let is_new = self.retry.is_none();
                self.retry = str::from_utf8(value).ok().and_then(|it| it.parse().ok());
                is_new && self.retry.is_some()
            }
            _comment_or_unknown => false,
        }
    }

    /// Completes the event; false if there was none. An event without data still carries an
    /// id or a retry time.
    fn dispatch(&mut self, on_event: &mut impl FnMut(SseEventRef<'_>)) -> bool {
        let event = std::mem::take(self);
        let is_event = event.has_data || event.id.is_some() || event.retry.is_some();
        if is_event {
            on_event(event.as_event());
        }
        is_event
    }

    fn as_event(&self) -> SseEventRef<'_> {
        let name = match self.name.as_str() {
            "" => DEFAULT_EVENT_NAME,
            name => name,
        };
        SseEventRef {
            name,
            data: &self.data,
            id: self.id.as_deref(),
            retry: self.retry,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(chunks: &[&[u8]]) -> Vec<SseEvent> {
        let mut reader = SseReader::default();
        let mut out = Vec::new();
        for chunk in chunks {
            reader.feed(chunk, &mut out).unwrap();
        }
        out
    }

    #[test]
    fn fields_comments_and_line_ends_are_parsed() {
        let text = "\u{feff}: hi\r\nevent: endpoint\rdata: /x\n\ndata:a\ndata: b\nid: 7\nretry: 10\n\n\nid: 8\n\n";
        let events = read(&[text.as_bytes()]);
        assert_eq!(events.len(), 3);
        assert_eq!(
            (events[0].name.as_str(), events[0].data.as_str()),
            ("endpoint", "/x")
        );
        assert_eq!(events[1].data, "a\nb");
        assert_eq!(
            (events[1].id.as_deref(), events[1].retry),
            (Some("7"), Some(10))
        );
        assert_eq!(
            (events[2].id.as_deref(), events[2].data.as_str()),
            (Some("8"), "")
        );
    }

    #[test]
    fn lines_without_effect_are_counted() {
        let ignored = |text: &str| {
            let mut out = Vec::new();
            let ignored = SseReader::default()
                .feed(text.as_bytes(), &mut out)
                .unwrap();
            (ignored.lines, ignored.bytes, out.len())
        };
        assert_eq!(ignored("event: message\nid: 1\ndata: x\n\n"), (0, 0, 1));
        assert_eq!(ignored(":\n: x\nfoo: bar\n"), (3, 15, 0));
        assert_eq!(ignored("id: 1\nid: 2\nevent: a\nevent: b\n\n"), (2, 15, 1));
        assert_eq!(ignored("\n\n\n"), (3, 3, 0));
    }

    /// The data of every event, including an incomplete one at the end.
    fn read_data(pieces: &[&[u8]]) -> Vec<String> {
        let mut reader = SseReader::default();
        let mut found = Vec::new();
        let mut on_event =
            |event: SseEventRef<'_>| found.push(String::from_utf8(event.data.to_vec()).unwrap());
        for piece in pieces {
            reader.for_each_event(piece, &mut on_event).unwrap();
        }
        reader.finish(&mut on_event);
        found
    }

    #[test]
    fn last_event_without_an_empty_line_is_read_under_every_chunking() {
        let text =
            "data: one\n\n: comment\n\nevent: x\ndata:two\r\n\r\ndata: a\ndata: 가\n\n\ndata: last";
        let expected = ["one", "two", "a\n가", "last"];
        assert_eq!(read_data(&[text.as_bytes()]), expected);
        for cut in 0..text.len() {
            let (before, after) = text.as_bytes().split_at(cut);
            assert_eq!(read_data(&[before, after]), expected, "cut at {cut}");
        }
        let single: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(read_data(&single), expected);
    }

    #[test]
    fn endless_lines_and_events_fail() {
        let check = |chunk: &[u8], count: usize| {
            let mut reader = SseReader::with_max_event_bytes(4 << 20);
            let fed = (0..count).map(|_| reader.for_each_event(chunk, |_| ()));
            let error = fed.last().unwrap().unwrap_err();
            assert_eq!(error.to_string(), "an event of more than 4 MiB");
        };
        let long = vec![b'a'; 1 << 20];
        check(&long, 5);
        check(&[b"data: ", long.as_slice(), b"\n"].concat(), 5);
        check(
            &[b":\ndata: ", long.repeat(5).as_slice(), b"\n\n"].concat(),
            1,
        );
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_events(
            text in "(event: [a-z]{0,3}|data:( ?[가-힣a-z:]{0,5})?|id: [0-9]|retry: [0-9]|: x|)(\r\n|\n|\r)(data: 한\n\n|\n|\r\n)?([a-z:\r\n]{0,8})",
            cuts in prop::collection::vec(0_usize..80, 0..6),
        ) {
            let bytes = text.repeat(3).into_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let mut chunks = Vec::new();
            let mut start = 0;
            for cut in cuts {
                chunks.push(&bytes[start..cut]);
                start = cut;
            }
            chunks.push(&bytes[start..]);
            prop_assert_eq!(read(&chunks), read(&[&bytes]));
        }

        #[test]
        fn written_events_are_read_back(data in "[ -~가-힣]{0,40}", id in "[0-9a-z]{1,8}") {
            let text = write_event(Some("message"), Some(&id), &data);
            let events = read(&[text.as_bytes()]);
            prop_assert_eq!(events.len(), 1);
            prop_assert_eq!(&events[0].data, &data);
            prop_assert_eq!(events[0].id.as_deref(), Some(id.as_str()));
        }
    }
}
