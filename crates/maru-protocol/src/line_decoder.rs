//! Lines of a byte stream, bounded, from any cut of the bytes.

/// The longest line taken; a longer one is reported and skipped.
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
    /// A line over [`MAX_LINE`]; its bytes are dropped.
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
    /// Takes `chunk` and appends the lines that it completes to `out`.
    pub fn feed(&mut self, mut chunk: &[u8], out: &mut Vec<DecodedLine>) {
        while let Some(end) = memchr::memchr(b'\n', chunk) {
            self.push(&chunk[..end]);
            chunk = &chunk[end + 1..];
            out.extend(self.finish());
        }
        self.push(chunk);
    }

    /// What was left unfinished at the end of the stream.
    pub fn finish(&mut self) -> Option<DecodedLine> {
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.too_long) {
            return Some(DecodedLine::TooLong);
        }
        let blank = line.iter().all(u8::is_ascii_whitespace);
        (!blank).then_some(DecodedLine::Whole(line))
    }

    fn push(&mut self, bytes: &[u8]) {
        if self.line.len() + bytes.len() > MAX_LINE_BYTES {
            self.too_long = true;
            self.line = Vec::new();
        } else if !self.too_long {
            self.line.extend_from_slice(bytes);
        }
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
