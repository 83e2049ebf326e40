//! Server-sent events: writing one, and reading many from any cut of the bytes.

/// One event as read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
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
const MAX_EVENT: usize = 16 << 20;

/// Writes an event. `data` must be one line, as [`one_line`] makes it.
pub fn event(name: Option<&str>, id: Option<&str>, data: &str) -> String {
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
pub fn one_line(text: String) -> String {
    match memchr::memchr2(b'\n', b'\r', text.as_bytes()) {
        None => text,
        Some(_) => text.replace(['\n', '\r'], " "),
    }
}

/// Reads events from chunks of bytes.
#[derive(Debug, Default)]
pub struct Reader {
    line: Vec<u8>,
    event: Event,
    has_data: bool,
    /// The last byte was `\r`: a `\n` now belongs to the same line end.
    after_cr: bool,
    started: bool,
}

impl Reader {
    /// Takes `chunk` and appends every event that it completes to `out`.
    /// False when an event grows beyond [`MAX_EVENT`].
    #[must_use]
    pub fn feed(&mut self, chunk: &[u8], out: &mut Vec<Event>) -> bool {
        for &byte in chunk {
            let ends = match byte {
                b'\n' if self.after_cr => {
                    self.after_cr = false;
                    continue;
                }
                b'\n' | b'\r' => true,
                _ => false,
            };
            self.after_cr = byte == b'\r';
            if ends {
                self.end_line(out);
            } else {
                self.line.push(byte);
            }
        }
        self.line.len() + self.event.data.len() <= MAX_EVENT
    }

    fn end_line(&mut self, out: &mut Vec<Event>) {
        let bytes = std::mem::take(&mut self.line);
        let text = String::from_utf8_lossy(&bytes);
        let mut line = text.as_ref();
        if !std::mem::replace(&mut self.started, true) {
            line = line.strip_prefix('\u{feff}').unwrap_or(line);
        }
        if line.is_empty() {
            return self.dispatch(out);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        self.set(field, value.strip_prefix(' ').unwrap_or(value));
    }

    fn set(&mut self, field: &str, value: &str) {
        match field {
            "event" => value.clone_into(&mut self.event.name),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            "id" if !value.contains('\0') => self.event.id = Some(value.to_owned()),
            "retry" => self.event.retry = value.parse().ok(),
            _comment_or_unknown => (),
        }
    }

    /// Events without data still carry an id or a retry time.
    fn dispatch(&mut self, out: &mut Vec<Event>) {
        let mut event = std::mem::take(&mut self.event);
        let has_data = std::mem::take(&mut self.has_data);
        if has_data || event.id.is_some() || event.retry.is_some() {
            if event.name.is_empty() {
                "message".clone_into(&mut event.name);
            }
            out.push(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(chunks: &[&[u8]]) -> Vec<Event> {
        let mut reader = Reader::default();
        let mut out = Vec::new();
        for chunk in chunks {
            assert!(reader.feed(chunk, &mut out));
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
            let text = event(Some("message"), Some(&id), &data);
            let events = read(&[text.as_bytes()]);
            prop_assert_eq!(events.len(), 1);
            prop_assert_eq!(&events[0].data, &data);
            prop_assert_eq!(events[0].id.as_deref(), Some(id.as_str()));
        }
    }
}
