//! One connection to an origin: a request goes out, its answer is read.

use std::{
    fmt,
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
};

use bytes::{Bytes, BytesMut};
use maru_runtime::workers::current_worker;
use tokio::{io::AsyncWrite as _, time::Instant};
use tokio_util::io::poll_read_buf;

use super::{
    connect::MaybeTlsStream,
    words::{Body, Head, Piece, Request, Rest},
};

/// Bodies up to this go out in one piece with what is before them.
const JOINED: usize = 16 << 10;
/// What is read at once, at first and at most; and what is kept between requests.
const READ: usize = 8 << 10;
const MAX_READ: usize = 256 << 10;

/// A connection.
pub(super) struct Line {
    stream: MaybeTlsStream,
    buffer: BytesMut,
    /// How much is read at once.
    room: usize,
    /// What is left of the answer.
    rest: Rest,
    pub(super) used: Instant,
    /// The lane whose poller watches it.
    pub(super) lane: usize,
}

/// A request as it is written; it can be written again.
pub(super) struct Written {
    head: Vec<u8>,
    /// What is not in one piece with the head.
    body: Bytes,
}

/// No answer came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Nothing of the request left.
    Unsent,
    Broken,
}

impl Written {
    pub(super) fn new(request: &Request<'_>) -> Self {
        let body = request.body;
        if body.len() > JOINED {
            let (head, body) = (request.head(0), body.clone());
            return Self { head, body };
        }
        let mut head = request.head(body.len());
        head.extend_from_slice(body);
        let body = Bytes::new();
        Self { head, body }
    }

    /// What is to be written when so much is.
    fn rest(&self, sent: usize) -> &[u8] {
        match self.head.get(sent..) {
            Some(rest) if !rest.is_empty() => rest,
            _ => &self.body[sent - self.head.len()..],
        }
    }
}

impl Line {
    pub(super) fn new(stream: MaybeTlsStream) -> Self {
        Self {
            stream,
            buffer: BytesMut::new(),
            room: READ,
            rest: Rest {
                body: Body::Length(0),
                keeps: true,
            },
            used: Instant::now(),
            lane: current_worker(),
        }
    }

    /// Whether the other side has neither closed it nor said anything unasked. Only a
    /// look: whoever uses the connection waits on it.
    pub(super) fn is_quiet(&mut self) -> bool {
        let mut quiet = Context::from_waker(Waker::noop());
        self.poll_fill(&mut quiet).is_pending()
    }

    /// Sends a request and waits for the head of its answer. A refusal may come before
    /// everything is sent; then the rest is not.
    pub(super) async fn ask(&mut self, request: &Written) -> Result<Head, Failure> {
        let (mut sent, mut known) = (0, 0);
        let (mut writes, mut begun) = (true, None);
        let answer = poll_fn(|context| {
            if writes {
                match self.poll_write(context, request, &mut sent) {
                    Poll::Pending => (),
                    Poll::Ready(Err(_)) if sent == 0 => return Poll::Ready(Err(Failure::Unsent)),
                    // It may have answered before it stopped listening.
                    Poll::Ready(Ok(()) | Err(_)) => writes = false,
                }
            }
            let (head, rest) = match begun.take() {
                Some(begun) => begun,
                None => ready!(self.poll_head(context, &mut known))?,
            };
            if writes && head.status.is_success() {
                begun = Some((head, rest));
                return Poll::Pending;
            }
            Poll::Ready(Ok((head, rest)))
        });
        let (head, rest) = answer.await?;
        self.rest = rest;
        // Behind a request that was not sent whole there is no other.
        self.rest.keeps &= sent == request.head.len() + request.body.len();
        Ok(head)
    }

    fn poll_write(
        &mut self,
        context: &mut Context<'_>,
        request: &Written,
        sent: &mut usize,
    ) -> Poll<io::Result<()>> {
        while let rest = request.rest(*sent)
            && !rest.is_empty()
        {
            match ready!(Pin::new(&mut self.stream).poll_write(context, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => *sent += written,
            }
        }
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_head(
        &mut self,
        context: &mut Context<'_>,
        known: &mut usize,
    ) -> Poll<Result<(Head, Rest), Failure>> {
        loop {
            match ready!(self.poll_fill(context)) {
                Ok(1..) => (),
                Ok(0) | Err(_) => return Poll::Ready(Err(Failure::Broken)),
            }
            match Head::take(&mut self.buffer, *known) {
                Ok(Some(begun)) => return Poll::Ready(Ok(begun)),
                Ok(None) => *known = self.buffer.len(),
                Err(_) => return Poll::Ready(Err(Failure::Broken)),
            }
        }
    }

    /// The next piece of the answer's body; `None` at its end. Cancel-safe.
    pub(super) async fn piece(&mut self) -> Option<Result<Bytes, Failure>> {
        poll_fn(|context| self.poll_piece(context)).await
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Failure>>> {
        loop {
            match self.rest.body.next(&mut self.buffer) {
                Ok(Piece::Data(data)) => return Poll::Ready(Some(Ok(data))),
                Ok(Piece::End) => return Poll::Ready(None),
                Ok(Piece::Unread) => (),
                Err(_) => return Poll::Ready(Some(Err(Failure::Broken))),
            }
            match ready!(self.poll_fill(context)) {
                Ok(1..) => (),
                Ok(0) if self.rest.body == Body::ToEnd => return Poll::Ready(None),
                Ok(0) | Err(_) => return Poll::Ready(Some(Err(Failure::Broken))),
            }
        }
    }

    /// Reads what is there behind what was read.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.buffer.capacity() - self.buffer.len() < READ / 8 {
            self.buffer.reserve(self.room);
        }
        let room = self.buffer.capacity() - self.buffer.len();
        let stream = Pin::new(&mut self.stream);
        let read = ready!(poll_read_buf(stream, context, &mut self.buffer))?;
        if read == room {
            self.room = (self.room * 2).min(MAX_READ);
        }
        Poll::Ready(Ok(read))
    }

    /// Whether another request can follow; gives back what only this one needed.
    pub(super) fn rests(&mut self) -> bool {
        if !self.rest.keeps || self.rest.body != Body::Length(0) || !self.buffer.is_empty() {
            return false;
        }
        if self.room > READ {
            (self.room, self.buffer) = (READ, BytesMut::new());
        }
        self.used = Instant::now();
        true
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Line({:?})", self.rest)
    }
}
