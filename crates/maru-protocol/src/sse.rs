//! Server-sent events: writing one, and reading many from any cut of the bytes.

use thiserror::Error;

/// One event as read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SseEvent {
    /// Its kind; `message` when none was named.
    pub name: String,
    /// Its payload, lines joined.
    pub data: String,
    /// Where to resume after it.
    pub id: Option<String>,
    /// How long to wait before reconnecting, in milliseconds.
    pub retry: Option<u64>,
}

/// The longest event a [`Reader`] keeps; more is an error of the sender.
const MAX_EVENT_BYTES: usize = 16 << 20;

/// Writes an event. `data` must be one line, as [`one_line`] makes it.
pub fn write_event(name: Option<&str>, id: Option<&str>, data: &str) -> String {
    let mut text = String::with_capacity(data.len() + 48);
    let mut field = |name: &str, value: &str| {
        text.push_str(name);
        text.push_str(value);
        text.push('\n');
    };
    if let Some(name) = name {
        field("event: ", name);
    }
    if let Some(id) = id {
        field("id: ", id);
    }
    field("data: ", data);
    text.push('\n');
    text
}

/// Puts JSON on one line; line breaks in JSON stand only between its parts.
pub fn to_single_line(text: String) -> String {
    match memchr::memchr2(b'\n', b'\r', text.as_bytes()) {
        None => text,
        Some(_) => text.replace(['\n', '\r'], " "),
    }
}

/// Reads events from chunks of bytes.
#[derive(Debug, Default)]
pub struct SseReader {
    line: Vec<u8>,
    event: SseEvent,
    has_data: bool,
    /// The last byte was `\r`: a `\n` now belongs to the same line end.
    after_cr: bool,
    started: bool,
}

/// An event grew beyond what is kept of one.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("an event of more than 16 MiB")]
pub struct EventTooLarge;

/// Lines that said nothing: comments, unknown fields, fields said twice. A sender
/// may write them without end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IgnoredLines {
    /// How many there were.
    pub lines: usize,
    /// How many bytes they had.
    pub bytes: usize,
}

impl SseReader {
    /// Takes `chunk` and appends every event that it completes to `out`. Tells which
    /// part of it was no part of an event.
    pub fn feed(
        &mut self,
        mut chunk: &[u8],
        out: &mut Vec<SseEvent>,
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
            let used = if self.line.is_empty() {
                self.end_line(line, out)
            } else {
                self.line.extend_from_slice(line);
                let whole = std::mem::take(&mut self.line);
                self.end_line(&whole, out)
            };
            if !used {
                ignored.lines += 1;
                ignored.bytes += line.len() + 1;
            }
        }
        self.line.extend_from_slice(chunk);
        if self.line.len() + self.event.data.len() > MAX_EVENT_BYTES {
            return Err(EventTooLarge);
        }
        Ok(ignored)
    }

    /// Takes a whole line; false if it says nothing.
    fn end_line(&mut self, bytes: &[u8], out: &mut Vec<SseEvent>) -> bool {
        if bytes.starts_with(b":") {
            self.started = true;
            return false;
        }
        let text = String::from_utf8_lossy(bytes);
        let mut line = text.as_ref();
        if !std::mem::replace(&mut self.started, true) {
            line = line.strip_prefix('\u{feff}').unwrap_or(line);
        }
        if line.is_empty() {
            return self.dispatch(out);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        self.set_field(field, value.strip_prefix(' ').unwrap_or(value))
    }

    fn set_field(&mut self, field: &str, value: &str) -> bool {
        let event = &mut self.event;
        match field {
            "event" => {
                let is_new = event.name.is_empty() && !value.is_empty();
                value.clone_into(&mut event.name);
                is_new
            }
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    event.data.push('\n');
                }
                event.data.push_str(value);
                true
            }
            "id" if !value.contains('\0') => event.id.replace(value.to_owned()).is_none(),
            "retry" => {
                let is_new = event.retry.is_none();
                event.retry = value.parse().ok();
                is_new && event.retry.is_some()
            }
            _comment_or_unknown => false,
        }
    }

    /// Ends the event; false if there was none. Events without data still carry an
    /// id or a retry time.
    fn dispatch(&mut self, out: &mut Vec<SseEvent>) -> bool {
        let mut event = std::mem::take(&mut self.event);
        let has_data = std::mem::take(&mut self.has_data);
        if has_data || event.id.is_some() || event.retry.is_some() {
            if event.name.is_empty() {
                "message".clone_into(&mut event.name);
            }
            out.push(event);
            return true;
        }
        false
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
    fn fields_comments_and_line_ends_are_understood() {
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
    fn lines_that_say_nothing_are_counted() {
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

    proptest! {
        #[test]
        fn any_cut_of_the_bytes_gives_the_same_events(
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
