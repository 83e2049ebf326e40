//! Splits a byte stream into lines of bounded length, however it is cut into chunks.

use crate::IgnoredLines;

/// Maximum length of a line. A longer line is reported as soon as it exceeds this, and
/// skipped.
const MAX_LINE_BYTES: usize = 16 << 20;

/// Collects lines from chunks of bytes.
#[derive(Debug, Default)]
pub struct LineDecoder {
    line: Vec<u8>,
    too_long: bool,
}

/// A line without its line feed.
#[derive(Debug, PartialEq, Eq)]
pub enum DecodedLine {
    /// A complete line that is not blank.
    Whole(Vec<u8>),
    /// A line over 16 MiB; its bytes were dropped.
    TooLong,
}

impl DecodedLine {
    /// Number of bytes in the line; 0 if they were dropped.
    pub fn len(&self) -> usize {
        match self {
            Self::Whole(bytes) => bytes.len(),
            Self::TooLong => 0,
        }
    }

    /// Whether the line has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl LineDecoder {
    /// Consumes `chunk`, appends the lines that it completes to `out` and returns how
    /// many blank lines it had.
    pub fn feed(&mut self, mut chunk: &[u8], out: &mut Vec<DecodedLine>) -> IgnoredLines {
        let mut blank = IgnoredLines::default();
        while let Some(end) = memchr::memchr(b'\n', chunk) {
            out.extend(self.push(&chunk[..end]));
            let (size, was_too_long) = (self.line.len() + 1, self.too_long);
            match self.finish() {
                Some(line) => out.push(line),
                None if !was_too_long => {
                    blank.lines += 1;
                    blank.bytes += size;
                }
                None => (),
            }
            chunk = &chunk[end + 1..];
        }
        out.extend(self.push(chunk));
        blank
    }

    /// Returns the last line if the stream ended without a line feed.
    pub fn finish(&mut self) -> Option<DecodedLine> {
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.too_long) {
            // Reported when it became too long.
            return None;
        }
        let blank = line.iter().all(u8::is_ascii_whitespace);
        (!blank).then_some(DecodedLine::Whole(line))
    }

    fn push(&mut self, bytes: &[u8]) -> Option<DecodedLine> {
        if self.too_long {
            return None;
        }
        if self.line.len() + bytes.len() > MAX_LINE_BYTES {
            self.too_long = true;
            self.line = Vec::new();
            return Some(DecodedLine::TooLong);
        }
        self.line.extend_from_slice(bytes);
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{RpcMessage, validate_json};

    fn decode(chunks: &[&[u8]]) -> Vec<DecodedLine> {
        let mut decoder = LineDecoder::default();
        let mut out = Vec::new();
        for chunk in chunks {
            decoder.feed(chunk, &mut out);
        }
        out.extend(decoder.finish());
        out
    }

    #[test]
    fn overlong_line_is_reported_and_the_next_is_read() {
        let long = vec![b'x'; MAX_LINE_BYTES + 1];
        let lines = decode(&[&long, b"yy\n{}\r\n\n"]);
        assert_eq!(
            lines,
            [DecodedLine::TooLong, DecodedLine::Whole(b"{}\r".to_vec())]
        );
    }

    #[test]
    fn overlong_line_is_reported_before_it_ends() {
        let (mut decoder, mut out) = (LineDecoder::default(), Vec::new());
        for _ in 0..40 {
            decoder.feed(&vec![b'x'; 1 << 20], &mut out);
        }
        assert_eq!(out, [DecodedLine::TooLong]);
    }

    #[test]
    fn blank_lines_are_counted() {
        let (mut decoder, mut out) = (LineDecoder::default(), Vec::new());
        let blank = decoder.feed(b"\n \r\n{}\n\n", &mut out);
        assert_eq!(blank, IgnoredLines { lines: 3, bytes: 5 });
        assert_eq!(out.len(), 1);
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_messages(
            ids in prop::collection::vec("[가-힣a-z\"\\\\]{0,6}", 0..5),
            size in 1_usize..40,
        ) {
            let text: String = ids
                .iter()
                .map(|id| format!("{}\n", crate::write_result(&id.as_str().into(), "{}")))
                .collect();
            let whole = decode(&[text.as_bytes()]);
            let cut: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            prop_assert_eq!(&decode(&cut), &whole);
            prop_assert_eq!(whole.len(), ids.len());
            for (line, id) in whole.iter().zip(&ids) {
                let DecodedLine::Whole(bytes) = line else { panic!("a whole line") };
                let Ok(RpcMessage::Response(response)) = RpcMessage::parse(validate_json(bytes).unwrap()) else {
                    panic!("a response")
                };
                prop_assert_eq!(response.id, id.as_str().into());
            }
        }
    }
}
