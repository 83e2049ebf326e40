//! HTTP/1.1 as a client writes and reads it. Pure: bytes in, bytes out.

#[cfg(test)]
mod tests;

use std::{mem::MaybeUninit, ops::Range};

use bytes::{Buf as _, Bytes, BytesMut};
use httparse::{Header, ParserConfig, Response, Status};
use hyper::{
    HeaderMap, Method, StatusCode, Uri,
    header::{CONNECTION, CONTENT_LENGTH, HeaderName, HeaderValue, TRANSFER_ENCODING},
};

const MAX_HEADERS: usize = 100;
const MAX_HEAD: usize = 64 << 10;
/// A line between two chunks, with what may be added to it, or all that comes after
/// the last.
const MAX_LINE: usize = 16 << 10;

/// A request to an origin.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What to do.
    pub method: &'a Method,
    /// Path and query.
    pub uri: &'a Uri,
    /// Headers, `Host` among them. The length of the body is added.
    pub headers: &'a HeaderMap,
    /// Headers of this request only, instead of others of the same name.
    pub more: &'a [(HeaderName, HeaderValue)],
    /// Empty for none.
    pub body: &'a Bytes,
}

/// What an answer begins with.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: StatusCode,
    bytes: Bytes,
    fields: Vec<Field>,
}

/// How an answer goes on behind its head.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Rest {
    pub(super) body: Body,
    /// Whether another answer can follow on the same connection.
    pub(super) keeps: bool,
}

/// Where a header stands.
#[derive(Debug)]
struct Field {
    name: Range<usize>,
    value: Range<usize>,
}

/// How far the body of an answer goes from here.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// As many bytes.
    Length(u64),
    /// A line that tells how long the next chunk is.
    Size,
    /// Bytes of a chunk.
    Chunk(u64),
    /// The line that ends a chunk.
    ChunkEnd,
    /// Lines behind the last chunk; so many bytes of them were read.
    Trailers(usize),
    /// To the end of the connection.
    ToEnd,
}

/// What comes next of a body.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Data(Bytes),
    /// More has to be read first.
    Unread,
    End,
}

/// The other side does not speak HTTP, or not as it should.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed;

impl Request<'_> {
    /// Everything up to the body.
    pub(super) fn head(&self, room: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(512 + room);
        out.extend_from_slice(self.method.as_str().as_bytes());
        out.push(b' ');
        let path = self.uri.path_and_query().map_or("/", |it| it.as_str());
        out.extend_from_slice(path.as_bytes());
        out.extend_from_slice(b" HTTP/1.1\r\n");
        let is_other = |name: &HeaderName| self.more.iter().all(|(it, _)| it != name);
        let usual = self.headers.iter().filter(|(name, _)| is_other(name));
        let more = self.more.iter().map(|(name, value)| (name, value));
        for (name, value) in usual.chain(more) {
            push_header(&mut out, name, value.as_bytes());
        }
        if !self.body.is_empty() || *self.method != Method::GET {
            let mut digits = itoa::Buffer::new();
            let length = digits.format(self.body.len());
            push_header(&mut out, &CONTENT_LENGTH, length.as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        out
    }
}

fn push_header(out: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    out.extend_from_slice(name.as_str().as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

impl Head {
    /// Takes a head from the start of `buffer`, of which `known` bytes were looked at
    /// before; `None` if it is not all there.
    pub(super) fn take(
        buffer: &mut BytesMut,
        mut known: usize,
    ) -> Result<Option<(Self, Rest)>, Malformed> {
        // No empty lines before it either: they could come for ever.
        if buffer.first().is_some_and(|it| *it != b'H') {
            return Err(Malformed);
        }
        while may_end(buffer, known)
            && let Some((head, rest)) = Self::parse(buffer)?
        {
            match head.status {
                // Nobody asked for another protocol.
                StatusCode::SWITCHING_PROTOCOLS => return Err(Malformed),
                status if status.is_informational() => known = 0,
                _ => return Ok(Some((head, rest))),
            }
        }
        if buffer.len() > MAX_HEAD {
            Err(Malformed)
        } else {
            Ok(None)
        }
    }

    fn parse(buffer: &mut BytesMut) -> Result<Option<(Self, Rest)>, Malformed> {
        // Room that is not cleared first: most answers need little of it.
        let mut room = [const { MaybeUninit::uninit() }; MAX_HEADERS];
        let mut response = Response::new(&mut []);
        let parsed = ParserConfig::default().parse_response_with_uninit_headers(
            &mut response,
            buffer,
            &mut room,
        );
        let end = match parsed.map_err(|_| Malformed)? {
            Status::Complete(end) => end,
            Status::Partial => return Ok(None),
        };
        let code = response.code.ok_or(Malformed)?;
        let status = StatusCode::from_u16(code).map_err(|_| Malformed)?;
        let is_new = response.version == Some(1);
        let rest = rest(status, is_new, response.headers)?;
        let fields = response.headers.iter().map(|it| Field {
            name: place(buffer, it.name.as_bytes()),
            value: place(buffer, it.value),
        });
        let fields = fields.collect();
        let bytes = buffer.split_to(end).freeze();
        let head = Self {
            status,
            bytes,
            fields,
        };
        Ok(Some((head, rest)))
    }

    /// The first header of this name, if it is text.
    pub(super) fn header(&self, name: &HeaderName) -> Option<&str> {
        let is_it = |it: &&Field| {
            self.bytes[it.name.clone()].eq_ignore_ascii_case(name.as_str().as_bytes())
        };
        let found = self.fields.iter().find(is_it)?;
        str::from_utf8(&self.bytes[found.value.clone()]).ok()
    }
}

/// Whether a head may be over in what is new; spares reading it anew for every byte.
fn may_end(bytes: &[u8], known: usize) -> bool {
    let new = &bytes[known.saturating_sub(3)..];
    memchr::memchr_iter(b'\n', new).any(|at| {
        let before = &new[..at];
        before.ends_with(b"\n\r") || before.ends_with(b"\n")
    })
}

/// Where `part` of `whole` stands in it.
fn place(whole: &[u8], part: &[u8]) -> Range<usize> {
    let start = part.as_ptr().addr() - whole.as_ptr().addr();
    start..start + part.len()
}

/// How long the body is, and whether the connection goes on behind it.
fn rest(status: StatusCode, is_new: bool, headers: &[Header<'_>]) -> Result<Rest, Malformed> {
    let all = |name: HeaderName| {
        let named = move |it: &&Header<'_>| it.name.eq_ignore_ascii_case(name.as_str());
        headers.iter().filter(named).map(|it| it.value)
    };
    let is = |word: &[u8], what: &str| word.eq_ignore_ascii_case(what.as_bytes());
    let says = |what: &str| all(CONNECTION).flat_map(words).any(|it| is(it, what));
    let keeps = if is_new {
        !says("close")
    } else {
        says("keep-alive")
    };
    let length = length(all(CONTENT_LENGTH))?;
    let has_none = status.is_informational()
        || matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let (body, keeps) = match (all(TRANSFER_ENCODING).last(), length) {
        _ if has_none => (Body::Length(0), keeps),
        (Some(_), _) if !is_new => return Err(Malformed),
        // With both, two readers may see two answers; what follows is not trusted.
        (Some(last), other) if words(last).last().is_some_and(|it| is(it, "chunked")) => {
            (Body::Size, keeps && other.is_none())
        }
        (Some(_), _) | (None, None) => (Body::ToEnd, false),
        (None, Some(length)) => (Body::Length(length), keeps),
    };
    Ok(Rest { body, keeps })
}

/// The length that all of them say.
fn length<'a>(values: impl Iterator<Item = &'a [u8]>) -> Result<Option<u64>, Malformed> {
    let mut length = None;
    for value in values {
        let this = number(value).ok_or(Malformed)?;
        if length.is_some_and(|other| other != this) {
            return Err(Malformed);
        }
        length = Some(this);
    }
    Ok(length)
}

fn words(value: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    value.split(|it| *it == b',').map(<[u8]>::trim_ascii)
}

/// A number of digits and nothing else.
fn number(value: &[u8]) -> Option<u64> {
    let digits = value.iter().all(u8::is_ascii_digit);
    let text = str::from_utf8(value).ok().filter(|_| digits)?;
    text.parse().ok()
}

impl Body {
    /// The next piece, taken from the start of `buffer`.
    pub(super) fn next(&mut self, buffer: &mut BytesMut) -> Result<Piece, Malformed> {
        loop {
            match self {
                Self::Length(0) => return Ok(Piece::End),
                _ if buffer.is_empty() => return Ok(Piece::Unread),
                Self::ToEnd => return Ok(Piece::Data(buffer.split().freeze())),
                Self::Length(left) => return Ok(Piece::Data(split(left, buffer))),
                Self::Chunk(left) => {
                    let data = split(left, buffer);
                    if *left == 0 {
                        *self = Self::ChunkEnd;
                    }
                    return Ok(Piece::Data(data));
                }
                // To httparse a line without a digit says 0.
                Self::Size if !buffer[0].is_ascii_hexdigit() => return Err(Malformed),
                Self::Size => match httparse::parse_chunk_size(buffer).map_err(|_| Malformed)? {
                    Status::Partial => return unread(buffer, 0),
                    Status::Complete((line, size)) => {
                        buffer.advance(line);
                        *self = match size {
                            0 => Self::Trailers(0),
                            size => Self::Chunk(size),
                        };
                    }
                },
                Self::ChunkEnd => match buffer.get(..2) {
                    None => return unread(buffer, 0),
                    Some(b"\r\n") => {
                        buffer.advance(2);
                        *self = Self::Size;
                    }
                    Some(_) => return Err(Malformed),
                },
                Self::Trailers(read) => match memchr::memchr(b'\n', buffer) {
                    None => return unread(buffer, *read),
                    Some(end) => {
                        let is_last = matches!(&buffer[..end], b"" | b"\r");
                        *read += end + 1;
                        buffer.advance(end + 1);
                        if is_last {
                            *self = Self::Length(0);
                        } else if *read > MAX_LINE {
                            return Err(Malformed);
                        }
                    }
                },
            }
        }
    }
}

/// As much of `left` bytes as is there.
fn split(left: &mut u64, buffer: &mut BytesMut) -> Bytes {
    let there = usize::try_from(*left).unwrap_or(usize::MAX);
    let there = there.min(buffer.len());
    *left -= there as u64;
    buffer.split_to(there).freeze()
}

fn unread(buffer: &BytesMut, before: usize) -> Result<Piece, Malformed> {
    if buffer.len() + before > MAX_LINE {
        Err(Malformed)
    } else {
        Ok(Piece::Unread)
    }
}
