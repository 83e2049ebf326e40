//! The data of server-sent events, from any cut of the bytes and mostly without
//! a copy.

use memchr::memchr;

/// The longest event that is taken; a call with a file in its arguments fits.
const MAX_EVENT_BYTES: usize = 4 << 20;

/// Reads the `data` of events; names, ids and comments do not matter here.
#[derive(Debug, Default)]
pub(super) struct SseDataReader {
    /// A line that has not ended yet.
    line: Vec<u8>,
    /// Data of an event that has not ended yet.
    data: Vec<u8>,
    has_data: bool,
}

/// An event was longer than [`MAX_EVENT`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SseDataTooLarge;

impl SseDataReader {
    /// Hands every event that `chunk` completes to `each`.
    pub(super) fn feed(
        &mut self,
        mut chunk: &[u8],
        mut each: impl FnMut(&[u8]),
    ) -> Result<(), SseDataTooLarge> {
        while let Some(end) = memchr(b'\n', chunk) {
            let (line, rest) = (&chunk[..end], &chunk[end + 1..]);
            chunk = rest;
            if self.line.is_empty() {
                // The usual event is one line, an empty one after it.
                let alone = !self.has_data && rest.first() == Some(&b'\n');
                match data(trim(line)) {
                    Some(data) if alone => {
                        chunk = &rest[1..];
                        each(data);
                    }
                    _ => self.end_line(trim(line), &mut each),
                }
            } else {
                self.line.extend_from_slice(line);
                let line = std::mem::take(&mut self.line);
                self.end_line(trim(&line), &mut each);
            }
            self.check_size()?;
        }
        self.line.extend_from_slice(chunk);
        self.check_size()
    }

    /// The stream has ended, maybe without the empty line.
    pub(super) fn finish(&mut self, mut each: impl FnMut(&[u8])) {
        let line = std::mem::take(&mut self.line);
        self.end_line(trim(&line), &mut each);
        self.end_line(b"", &mut each);
    }

    fn end_line(&mut self, line: &[u8], each: &mut impl FnMut(&[u8])) {
        if line.is_empty() {
            if std::mem::take(&mut self.has_data) {
                each(&self.data);
                self.data.clear();
            }
        } else if let Some(data) = data(line) {
            if std::mem::replace(&mut self.has_data, true) {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(data);
        }
    }

    fn check_size(&self) -> Result<(), SseDataTooLarge> {
        if self.line.len() + self.data.len() > MAX_EVENT_BYTES {
            Err(SseDataTooLarge)
        } else {
            Ok(())
        }
    }
}

fn trim(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

fn data(line: &[u8]) -> Option<&[u8]> {
    let data = line.strip_prefix(b"data:")?;
    Some(data.strip_prefix(b" ").unwrap_or(data))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&[u8]]) -> Vec<String> {
        let mut found = Vec::new();
        let mut events = SseDataReader::default();
        let mut each = |data: &[u8]| found.push(String::from_utf8(data.to_vec()).unwrap());
        for piece in pieces {
            events.feed(piece, &mut each).unwrap();
        }
        events.finish(&mut each);
        found
    }

    #[test]
    fn every_cut_gives_the_same_events() {
        let text =
            "data: one\n\n: comment\n\nevent: x\ndata:two\r\n\r\ndata: a\ndata: 가\n\n\ndata: last";
        let expected = ["one", "two", "a\n가", "last"];
        assert_eq!(read(&[text.as_bytes()]), expected);
        for cut in 0..text.len() {
            let (before, after) = text.as_bytes().split_at(cut);
            assert_eq!(read(&[before, after]), expected, "cut at {cut}");
        }
        let single: Vec<&[u8]> = text.as_bytes().chunks(1).collect();
        assert_eq!(read(&single), expected);
    }

    #[test]
    fn endless_lines_and_events_are_refused() {
        let mut events = SseDataReader::default();
        let long = vec![b'a'; 1 << 20];
        let fed = (0..5).map(|_| events.feed(&long, |_| ()));
        assert_eq!(fed.last(), Some(Err(SseDataTooLarge)));
        let mut events = SseDataReader::default();
        let line = [b"data: ", long.as_slice(), b"\n"].concat();
        let fed = (0..5).map(|_| events.feed(&line, |_| ()));
        assert_eq!(fed.last(), Some(Err(SseDataTooLarge)));
    }
}
