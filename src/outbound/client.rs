//! Requests over kept connections. A connection is driven by the task that
//! waits for its answer, so a request costs no hop between tasks.

use std::{
    fmt,
    future::{Future, poll_fn},
    mem,
    pin::{Pin, pin},
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use http_body_util::{BodyExt as _, Full};
use hyper::{
    HeaderMap, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    client::conn::http1::{self, Connection, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::unconstrained,
    time::Instant,
};

use super::{
    Error, Joined, Target, Tls,
    dial::{Stream, dial},
};
use crate::lanes::{here, others_first};

/// Connections that a lane keeps.
const MAX_IDLE: usize = 64;
const MAX_IN_FLIGHT: usize = 1024;
/// Servers close idle connections too; this is below what most of them wait.
const IDLE: Duration = Duration::from_secs(50);
/// The largest answer that is taken whole.
const MAX_BODY: usize = 16 << 20;

/// A client of one origin.
#[derive(Debug)]
pub struct Client {
    target: Target,
    tls: Tls,
    idle: Mutex<Vec<Line>>,
    room: Arc<Semaphore>,
}

/// An answer whose body may still be coming.
#[derive(Debug)]
pub struct Reply {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    body: Incoming,
    /// What was read of a body that is taken whole.
    read: Vec<u8>,
    /// Its first piece; most bodies are one, which needs no copy.
    first: Bytes,
    line: Option<Line>,
    client: Arc<Client>,
    _permit: OwnedSemaphorePermit,
}

/// A connection and the way into it.
struct Line {
    sender: SendRequest<Full<Bytes>>,
    /// `None` once it has ended; dropping it tells whoever still waits for it.
    connection: Option<Moving>,
    used: Instant,
    /// The lane whose poller watches it.
    lane: usize,
}

type Moving = Pin<Box<Connection<TokioIo<Joined<Stream>>, Full<Bytes>>>>;

impl Client {
    /// A client of the origin of `target`.
    pub fn new(target: Target, tls: Tls) -> Arc<Self> {
        Arc::new(Self {
            target,
            tls,
            idle: Mutex::default(),
            room: Arc::new(Semaphore::new(MAX_IN_FLIGHT)),
        })
    }

    /// Where requests go.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Sends `request`, whose address is a path of the origin.
    pub async fn send(self: &Arc<Self>, request: Request<Full<Bytes>>) -> Result<Reply, Error> {
        let permit = Arc::clone(&self.room)
            .try_acquire_owned()
            .map_err(|_| Error::Busy(self.target.authority()))?;
        let (line, answer) = self.exchange(request).await?;
        let (parts, body) = answer.into_parts();
        Ok(Reply {
            status: parts.status,
            headers: parts.headers,
            body,
            read: Vec::new(),
            first: Bytes::new(),
            line: Some(line),
            client: Arc::clone(self),
            _permit: permit,
        })
    }

    /// Sends on a kept connection if there is one. The other side may have closed
    /// it meanwhile; a request that never left goes on the next.
    async fn exchange(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<(Line, Response<Incoming>), Error> {
        others_first().await;
        while let Some(mut line) = self.take() {
            let answer = line.sender.try_send_request(request);
            let mut failed = match drive(&mut line.connection, answer).await {
                Ok(answer) => return Ok((line, answer)),
                Err(failed) => failed,
            };
            let unsent = failed.take_message();
            request = unsent.ok_or_else(|| Error::Broken(self.target.authority()))?;
        }
        // On its own: connecting is rare, and would make every request larger.
        Box::pin(self.exchange_anew(request)).await
    }

    async fn exchange_anew(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<(Line, Response<Incoming>), Error> {
        let mut line = self.open().await?;
        let answer = line.sender.send_request(request);
        match drive(&mut line.connection, answer).await {
            Ok(answer) => Ok((line, answer)),
            Err(_) => Err(Error::Broken(self.target.authority())),
        }
    }

    /// A kept connection that the other side has not closed, as far as we know.
    fn take(&self) -> Option<Line> {
        loop {
            let mut line = self.pop()?;
            // Only a look: whoever uses the connection waits on it.
            let mut quiet = Context::from_waker(Waker::noop());
            let is_open = |it: &mut Moving| it.as_mut().poll(&mut quiet).is_pending();
            let open = line.connection.as_mut().is_some_and(is_open);
            if open && line.sender.is_ready() && line.used.elapsed() <= IDLE {
                return Some(line);
            }
        }
    }

    /// The connection of this lane that was used last.
    fn pop(&self) -> Option<Line> {
        let mut idle = self.lock();
        let last = idle.iter().rposition(|it| it.lane == here())?;
        Some(idle.remove(last))
    }

    async fn open(&self) -> Result<Line, Error> {
        let stream = dial(&self.target, &self.tls).await?;
        // It takes 100 headers at most. Saying so would put them on the heap.
        let stream = TokioIo::new(Joined(stream));
        let made = http1::Builder::new().handshake(stream).await;
        let (sender, connection) = made.map_err(|_| Error::Broken(self.target.authority()))?;
        Ok(Line {
            sender,
            connection: Some(Box::pin(connection)),
            used: Instant::now(),
            lane: here(),
        })
    }

    fn give_back(&self, mut line: Line) {
        line.used = Instant::now();
        let mut idle = self.lock();
        let kept = idle.iter().filter(|it| it.lane == line.lane).count();
        if line.connection.is_some() && kept < MAX_IDLE {
            idle.push(line);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Line>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reply {
    /// The next piece of the body; `None` at its end. Cancel-safe.
    pub async fn chunk(&mut self) -> Option<Result<Bytes, Error>> {
        loop {
            let line = self.line.as_mut()?;
            let frame = drive(&mut line.connection, self.body.frame()).await;
            match frame {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Some(Ok(data));
                    }
                }
                Some(Err(_)) => {
                    self.line = None;
                    return Some(Err(Error::Broken(self.client.target.authority())));
                }
                None => {
                    // Read to its end, the connection can carry the next request.
                    if let Some(line) = self.line.take() {
                        self.client.give_back(line);
                    }
                    return None;
                }
            }
        }
    }

    /// The whole body, if it is not too large. Cancel-safe.
    pub async fn text(&mut self) -> Result<Bytes, Error> {
        while let Some(chunk) = self.chunk().await {
            let chunk = chunk?;
            if self.first.is_empty() {
                self.first = chunk;
                continue;
            }
            if self.read.is_empty() {
                self.read.extend_from_slice(&self.first);
            }
            self.read.extend_from_slice(&chunk);
            if self.read.len() > MAX_BODY {
                return Err(Error::TooLarge(self.client.target.authority()));
            }
        }
        let (first, read) = (mem::take(&mut self.first), mem::take(&mut self.read));
        Ok(if read.is_empty() { first } else { read.into() })
    }
}

/// Waits for `work`, moving the connection it depends on. Only the connection
/// brings the work on, and both are looked at together: so the work wakes nobody,
/// and the task is not woken by itself.
async fn drive<T>(connection: &mut Option<Moving>, work: impl Future<Output = T>) -> T {
    // Unconstrained: out of budget, the work would wake itself to go on.
    let mut work = pin!(unconstrained(work));
    poll_fn(|context| {
        let mut quiet = Context::from_waker(Waker::noop());
        if let Poll::Ready(done) = work.as_mut().poll(&mut quiet) {
            return Poll::Ready(done);
        }
        if connection
            .as_mut()
            .is_some_and(|it| it.as_mut().poll(context).is_ready())
        {
            *connection = None;
        }
        // What the connection just read may be what is waited for.
        match connection.is_some() {
            true => work.as_mut().poll(&mut quiet),
            false => work.as_mut().poll(context),
        }
    })
    .await
}

impl fmt::Debug for Line {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Line(open: {})", self.connection.is_some())
    }
}
