//! Lines of a byte stream, bounded, from any cut of the bytes.

use crate::IgnoredLines;

/// The longest line taken; a longer one is reported as soon as it is, and skipped.
const MAX_LINE_BYTES: usize = 16 << 20;

/// Collects lines from chunks.
#[derive(Debug, Default)]
pub struct LineDecoder {
    line: Vec<u8>,
    too_long: bool,
}

/// One line, without its end.
#[derive(Debug, PartialEq, Eq)]
pub enum DecodedLine {
    /// A whole line that is not blank.
    Whole(Vec<u8>),
    /// A line over 16 MiB; its bytes are dropped.
    TooLong,
}

impl DecodedLine {
    /// How many bytes of it are kept.
    pub fn len(&self) -> usize {
        match self {
            Self::Whole(bytes) => bytes.len(),
            Self::TooLong => 0,
        }
    }

    /// Whether nothing of it is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl LineDecoder {
    /// Takes `chunk` and appends the lines that it completes to `out`. Tells how many
    /// of its lines were blank.
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

    /// What was left unfinished at the end of the stream.
    pub fn finish(&mut self) -> Option<DecodedLine> {
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.too_long) {
            // It was reported when it became too long.
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

    fn read(chunks: &[&[u8]]) -> Vec<DecodedLine> {
        let mut lines = LineDecoder::default();
        let mut out = Vec::new();
        for chunk in chunks {
            lines.feed(chunk, &mut out);
        }
        out.extend(lines.finish());
        out
    }

    #[test]
    fn overlong_line_is_reported_and_the_next_is_read() {
        let long = vec![b'x'; MAX_LINE_BYTES + 1];
        let read = read(&[&long, b"yy\n{}\r\n\n"]);
        assert_eq!(
            read,
            [DecodedLine::TooLong, DecodedLine::Whole(b"{}\r".to_vec())]
        );
    }

    #[test]
    fn overlong_line_is_reported_before_it_ends() {
        let (mut lines, mut out) = (LineDecoder::default(), Vec::new());
        for _ in 0..40 {
            lines.feed(&vec![b'x'; 1 << 20], &mut out);
        }
        assert_eq!(out, [DecodedLine::TooLong]);
    }

    #[test]
    fn blank_lines_are_counted() {
        let (mut lines, mut out) = (LineDecoder::default(), Vec::new());
        let blank = lines.feed(b"\n \r\n{}\n\n", &mut out);
        assert_eq!(blank, IgnoredLines { lines: 3, bytes: 5 });
        assert_eq!(out.len(), 1);
    }

    proptest! {
        #[test]
        fn any_cut_of_the_bytes_gives_the_same_messages(
            ids in prop::collection::vec("[가-힣a-z\"\\\\]{0,6}", 0..5),
            size in 1_usize..40,
        ) {
            let text: String = ids
                .iter()
                .map(|id| format!("{}\n", crate::write_result(&id.as_str().into(), "{}")))
                .collect();
            let whole = read(&[text.as_bytes()]);
            let cut: Vec<&[u8]> = text.as_bytes().chunks(size).collect();
            prop_assert_eq!(&read(&cut), &whole);
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
