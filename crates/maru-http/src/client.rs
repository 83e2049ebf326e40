//! Requests over kept connections. A connection is read by the task that waits for
//! its answer, so a request costs no hop between tasks.
//!
//! hyper's client does more than is needed here: its connection is a machine of its
//! own, handed requests through one channel and answers through another, and every
//! header becomes an entry of a table. Of a call that is passed on it took a fifth of
//! the instructions; `words` and `line` take a third of that.

#[cfg(test)]
mod tests;

use std::{
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use maru_runtime::workers::{current_worker, yield_to_ready_tasks};

use bytes::Bytes;
use hyper::{StatusCode, header::HeaderName};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    AllowedUrl, ClientTls, Error,
    connect::open_connection,
    line::{Failure, Line, Written},
    words::{Head, Request},
};

/// Connections that a lane keeps.
const MAX_IDLE: usize = 64;
const MAX_IN_FLIGHT: usize = 1024;
/// Servers close idle connections too; this is below what most of them wait.
const IDLE: Duration = Duration::from_secs(50);
/// The largest answer that is taken whole.
const MAX_BODY: usize = 16 << 20;

/// A client of one origin.
#[derive(Debug)]
pub struct HttpClient {
    target: AllowedUrl,
    tls: ClientTls,
    idle: Mutex<Idle>,
    room: Arc<Semaphore>,
}

/// Boxed, because every request moves its line about.
type Idle = Vec<Box<Line>>;

/// An answer whose body may still be coming.
#[derive(Debug)]
pub struct HttpResponse {
    /// Its status.
    pub status: StatusCode,
    head: Head,
    /// What was read of a body that is taken whole.
    read: Vec<u8>,
    /// Its first piece; most bodies are one, which needs no copy.
    first: Bytes,
    line: Option<Box<Line>>,
    client: Arc<HttpClient>,
    _permit: OwnedSemaphorePermit,
}

impl HttpClient {
    /// A client of the origin of `target`.
    pub fn new(target: AllowedUrl, tls: ClientTls) -> Arc<Self> {
        Arc::new(Self {
            target,
            tls,
            idle: Mutex::default(),
            room: Arc::new(Semaphore::new(MAX_IN_FLIGHT)),
        })
    }

    /// Where requests go.
    pub fn target(&self) -> &AllowedUrl {
        &self.target
    }

    /// Sends `request`.
    pub async fn send(self: &Arc<Self>, request: &Request<'_>) -> Result<HttpResponse, Error> {
        let permit = Arc::clone(&self.room)
            .try_acquire_owned()
            .map_err(|_| Error::Busy(self.target.authority()))?;
        let (line, head) = self.exchange(Written::new(request)).await?;
        Ok(HttpResponse {
            status: head.status,
            head,
            read: Vec::new(),
            first: Bytes::new(),
            line: Some(line),
            client: Arc::clone(self),
            _permit: permit,
        })
    }

    /// Sends on a kept connection if there is one. The other side may have closed
    /// it meanwhile; a request that never left goes on the next.
    async fn exchange(&self, request: Written) -> Result<(Box<Line>, Head), Error> {
        yield_to_ready_tasks().await;
        while let Some(mut line) = self.take() {
            match line.ask(&request).await {
                Ok(head) => return Ok((line, head)),
                Err(Failure::Unsent) => (),
                Err(Failure::Broken) => return Err(self.broken()),
            }
        }
        // On its own: connecting is rare, and would make every request larger.
        Box::pin(self.exchange_anew(request)).await
    }

    async fn exchange_anew(&self, request: Written) -> Result<(Box<Line>, Head), Error> {
        let mut line = Box::new(Line::new(open_connection(&self.target, &self.tls).await?));
        match line.ask(&request).await {
            Ok(head) => Ok((line, head)),
            Err(_) => Err(self.broken()),
        }
    }

    fn broken(&self) -> Error {
        Error::Broken(self.target.authority())
    }

    /// A kept connection that the other side has not closed, as far as we know.
    fn take(&self) -> Option<Box<Line>> {
        loop {
            let mut line = self.pop()?;
            if line.used.elapsed() <= IDLE && line.is_quiet() {
                return Some(line);
            }
        }
    }

    /// The connection of this lane that was used last.
    fn pop(&self) -> Option<Box<Line>> {
        let mut idle = self.lock();
        let last = idle.iter().rposition(|it| it.lane == current_worker())?;
        Some(idle.remove(last))
    }

    fn give_back(&self, mut line: Box<Line>) {
        if !line.rests() {
            return;
        }
        let mut idle = self.lock();
        let kept = idle.iter().filter(|it| it.lane == line.lane).count();
        if kept < MAX_IDLE {
            idle.push(line);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HttpResponse {
    /// The first header of this name, if it is text.
    pub fn header(&self, name: &HeaderName) -> Option<&str> {
        self.head.header(name)
    }

    /// The next piece of the body; `None` at its end. Cancel-safe.
    pub async fn chunk(&mut self) -> Option<Result<Bytes, Error>> {
        match self.line.as_mut()?.piece().await {
            Some(Ok(data)) => Some(Ok(data)),
            Some(Err(_)) => {
                self.line = None;
                Some(Err(self.client.broken()))
            }
            None => {
                // Read to its end, the connection can carry the next request.
                if let Some(line) = self.line.take() {
                    self.client.give_back(line);
                }
                None
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
