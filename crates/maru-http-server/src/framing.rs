//! Tracks where requests start and end on a connection, before hyper parses them.
//!
//! httparse accepts a bare line feed as the end of a line. A proxy that does not would see
//! other headers than we do (request smuggling), so such a head is refused. hyper remains
//! the parser: the tracking only decides which bytes are checked, and when a request has
//! arrived completely.

use std::{
    io,
    mem::MaybeUninit,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use memchr::memchr;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

use super::admission::ConnectionSlot;

/// Longer lines are not buffered, because hyper refuses the head.
const MAX_LINE_BYTES: usize = 64 << 10;
/// A byte that is invalid in a head, so that hyper responds with 400 and closes.
const INVALID_HEAD_BYTE: u8 = 0;
/// How long, and for how many bytes, the rest of a body is read and dropped after the
/// answer. Closing with unread bytes resets the connection, and a client that writes its
/// whole body before it reads, or fails at the first failed write (Node's fetch), would
/// lose the answer. As many bytes as the largest body that the settings can allow.
const LINGER_TIMEOUT: Duration = Duration::from_secs(5);
const MAX_LINGER_BYTES: usize = 64 << 20;
const LINGER_BUFFER_BYTES: usize = 16 << 10;

/// The position of a connection within its requests. Pure.
#[derive(Debug, Default)]
pub(super) struct RequestFraming {
    state: FramingState,
    /// The start of a line whose end has not been read yet.
    line: Vec<u8>,
}

#[derive(Debug)]
enum FramingState {
    Head(RequestHead),
    Body {
        left: u64,
    },
    ChunkSize,
    ChunkData {
        left: u64,
    },
    Trailers,
    /// The head is refused, and nothing after it is a request.
    Rejected,
}

/// What the head has declared so far about the body.
#[derive(Clone, Copy, Debug, Default)]
struct RequestHead {
    has_request_line: bool,
    length: u64,
    chunked: bool,
}

impl Default for FramingState {
    fn default() -> Self {
        Self::Head(RequestHead::default())
    }
}

impl RequestFraming {
    /// Advances over bytes that were read, and replaces a bare line feed in a head by a byte
    /// that hyper refuses.
    pub(super) fn advance(&mut self, mut bytes: &mut [u8]) {
        while !bytes.is_empty() {
            let used = match &mut self.state {
                FramingState::Rejected => return,
                FramingState::Body { left } | FramingState::ChunkData { left } => {
                    let used = usize::try_from(*left)
                        .unwrap_or(usize::MAX)
                        .min(bytes.len());
                    *left -= used as u64;
                    if *left == 0 {
                        self.state = match self.state {
                            FramingState::ChunkData { .. } => FramingState::ChunkSize,
                            _ => FramingState::default(),
                        };
                    }
                    used
                }
                FramingState::Head(_) | FramingState::ChunkSize | FramingState::Trailers => {
                    self.advance_line(bytes)
                }
            };
            bytes = &mut bytes[used..];
        }
    }

    /// Whether every request that started has arrived completely.
    pub(super) fn is_between_requests(&self) -> bool {
        matches!(
            self.state,
            FramingState::Head(RequestHead {
                has_request_line: false,
                ..
            })
        ) && self.line.is_empty()
    }

    /// Whether a body has started and not ended.
    fn is_in_body(&self) -> bool {
        !matches!(self.state, FramingState::Head(_) | FramingState::Rejected)
    }

    /// Advances over one line, or the part of it that was read; returns the bytes used.
    fn advance_line(&mut self, bytes: &mut [u8]) -> usize {
        let Some(end) = memchr(b'\n', bytes) else {
            self.line.extend_from_slice(bytes);
            if self.line.len() > MAX_LINE_BYTES {
                self.state = FramingState::Rejected;
            }
            return bytes.len();
        };
        let previous_byte = if end > 0 {
            bytes.get(end - 1)
        } else {
            self.line.last()
        };
        if previous_byte != Some(&b'\r') {
            bytes[end] = INVALID_HEAD_BYTE;
            self.state = FramingState::Rejected;
            return bytes.len();
        }
        if self.line.is_empty() {
            self.state = self.state.next_state(&bytes[..end - 1]);
        } else {
            self.line.extend_from_slice(&bytes[..end]);
            self.line.pop();
            self.state = self.state.next_state(&self.line);
            self.line.clear();
        }
        end + 1
    }
}

impl FramingState {
    /// The state after a line, which is passed without its line end.
    fn next_state(&self, line: &[u8]) -> Self {
        match *self {
            Self::Head(head) => head.next_state(line),
            Self::ChunkSize => match chunk_size(line) {
                // The data of a chunk ends with a line end.
                Some(size) if size > 0 => Self::ChunkData { left: size + 2 },
                Some(_) => Self::Trailers,
                None => Self::Rejected,
            },
            Self::Trailers if line.is_empty() => Self::default(),
            Self::Trailers => Self::Trailers,
            Self::Body { .. } | Self::ChunkData { .. } | Self::Rejected => Self::Rejected,
        }
    }
}

impl RequestHead {
    fn next_state(mut self, line: &[u8]) -> FramingState {
        match (line.is_empty(), self.has_request_line) {
            // Empty lines before a request are skipped.
            (true, false) => FramingState::default(),
            (true, true) if self.chunked => FramingState::ChunkSize,
            (true, true) if self.length > 0 => FramingState::Body { left: self.length },
            (true, true) => FramingState::default(),
            (false, false) => {
                self.has_request_line = true;
                FramingState::Head(self)
            }
            (false, true) => {
                self.read_header(line);
                FramingState::Head(self)
            }
        }
    }

    fn read_header(&mut self, line: &[u8]) {
        const CONTENT_LENGTH_NAME: &[u8] = b"content-length";
        const TRANSFER_ENCODING_NAME: &[u8] = b"transfer-encoding";
        let has_name = |name: &[u8]| {
            line.get(name.len()) == Some(&b':') && line[..name.len()].eq_ignore_ascii_case(name)
        };
        if has_name(CONTENT_LENGTH_NAME) {
            let value = std::str::from_utf8(&line[CONTENT_LENGTH_NAME.len() + 1..]).ok();
            // hyper refuses a value that is not a number.
            self.length = value.and_then(|it| it.trim().parse().ok()).unwrap_or(0);
        } else if has_name(TRANSFER_ENCODING_NAME) {
            // hyper refuses every other encoding.
            self.chunked = true;
        }
    }
}

/// Parses the size in the first line of a chunk and ignores its extensions.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.iter().take_while(|it| it.is_ascii_hexdigit()).count();
    let text = std::str::from_utf8(&line[..digits]).ok()?;
    u64::from_str_radix(text, 16)
        .ok()
        .filter(|it| *it < 1 << 60)
}

/// A stream that tracks the requests it reads.
pub(super) struct FramedStream<S> {
    stream: S,
    framing: RequestFraming,
    slot: Option<Arc<ConnectionSlot>>,
    linger: Option<LingeringClose>,
}

struct LingeringClose {
    deadline: Pin<Box<Sleep>>,
    bytes_left: usize,
}

impl<S> FramedStream<S> {
    pub(super) fn new(stream: S, slot: Option<Arc<ConnectionSlot>>) -> Self {
        Self {
            stream,
            framing: RequestFraming::default(),
            slot,
            linger: None,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FramedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, into))?;
        self.framing.advance(&mut into.filled_mut()[before..]);
        if let Some(slot) = &self.slot {
            slot.set_between_requests(self.framing.is_between_requests());
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for FramedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.linger.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
            if !self.framing.is_in_body() {
                return Poll::Ready(Ok(()));
            }
            self.linger = Some(LingeringClose {
                deadline: Box::pin(sleep(LINGER_TIMEOUT)),
                bytes_left: MAX_LINGER_BYTES,
            });
        }
        let this = &mut *self;
        this.linger.as_mut().map_or(Poll::Ready(Ok(())), |linger| {
            linger.poll(&mut this.stream, context)
        })
    }
}

impl LingeringClose {
    /// Reads and discards what the client still sends, up to the limits.
    fn poll<S: AsyncRead + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut buffer = [MaybeUninit::uninit(); LINGER_BUFFER_BYTES];
        while self.bytes_left > 0 && self.deadline.as_mut().poll(context).is_pending() {
            let mut dropped = ReadBuf::uninit(&mut buffer);
            match ready!(Pin::new(&mut *stream).poll_read(context, &mut dropped)) {
                Ok(()) if !dropped.filled().is_empty() => {
                    self.bytes_left = self.bytes_left.saturating_sub(dropped.filled().len());
                }
                // The client has closed: nobody is left who could lose the answer.
                Ok(()) | Err(_) => return Poll::Ready(Ok(())),
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tracks `text` in one piece and byte by byte, which must give the same result.
    fn track(text: &str) -> (String, bool) {
        let mut whole = RequestFraming::default();
        let mut bytes = text.as_bytes().to_vec();
        whole.advance(&mut bytes);
        let mut single = RequestFraming::default();
        let mut pieces = text.as_bytes().to_vec();
        for byte in pieces.chunks_mut(1) {
            single.advance(byte);
        }
        assert_eq!(bytes, pieces, "{text:?}");
        assert_eq!(
            whole.is_between_requests(),
            single.is_between_requests(),
            "{text:?}"
        );
        let text = String::from_utf8(bytes).unwrap();
        (text, whole.is_between_requests())
    }

    #[test]
    fn complete_requests_pass_unchanged() {
        for text in [
            "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
            "POST / HTTP/1.1\r\ncontent-LENGTH:  3 \r\n\r\n\n\n\nGET / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2;a=b\r\n\n\n\r\n0\r\nX: y\r\n\r\nGET / HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
        ] {
            assert_eq!(track(text), (text.to_owned(), true));
        }
    }

    #[test]
    fn unfinished_requests_are_incomplete() {
        for text in [
            "G",
            "GET / HTTP/1.1\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\n{}",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
        ] {
            assert_eq!(track(text), (text.to_owned(), false));
        }
    }

    #[test]
    fn bare_line_feed_in_any_head_is_refused_and_in_a_body_is_not() {
        for (text, refused) in [
            ("GET / HTTP/1.1\n\n", "GET / HTTP/1.1\0\n"),
            ("\nGET / HTTP/1.1\r\n\r\n", "\0GET / HTTP/1.1\r\n\r\n"),
            (
                "GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n",
                "GET / HTTP/1.1\r\nHost: a\0X: y\r\n\r\n",
            ),
            (
                "POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\n\nGET / HTTP/1.1\n\n",
                "POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\n\nGET / HTTP/1.1\0\n",
            ),
            (
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n\n\r\n0\r\n\r\nGET / HTTP/1.1\n\n",
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n\n\r\n0\r\n\r\nGET / HTTP/1.1\0\n",
            ),
        ] {
            assert_eq!(track(text).0, refused);
        }
    }
}
