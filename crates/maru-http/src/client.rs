//! Sends requests to one origin over pooled connections, with hyper's client.

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    error,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::Request;
use hyper_util::{
    client::legacy,
    rt::{TokioExecutor, TokioTimer},
};
use maru_runtime::workers::current_worker;
use tokio::sync::Semaphore;

use super::{
    AllowedUrl, ClientTls, Error, HttpRequest, HttpResponse,
    connect::{ConnectError, OriginConnector},
};

/// Idle connections in the pool of a worker.
const MAX_IDLE_CONNECTIONS: usize = 64;
const MAX_REQUESTS_IN_FLIGHT: usize = 1024;
/// Servers close idle connections too; most of them wait longer than this.
const IDLE_TIMEOUT: Duration = Duration::from_secs(50);
/// Maximum size of the head of a response. The number of HTTP/1.1 headers is limited to
/// 100 by hyper's default; setting the limit would make hyper allocate them on the heap.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// Interval of the pings that detect a dead HTTP/2 connection with open requests.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// An HTTP client of one origin.
#[derive(Debug)]
pub struct HttpClient {
    connector: OriginConnector,
    /// One connection pool per worker: a connection stays on its thread, because a call
    /// that crosses threads costs a third more CPU.
    pools: Mutex<HashMap<usize, WorkerPoolClient>>,
    permits: Arc<Semaphore>,
}

type WorkerPoolClient = legacy::Client<OriginConnector, Full<Bytes>>;

impl HttpClient {
    /// Creates a client of the origin of `target`.
    pub fn new(target: AllowedUrl, tls: ClientTls) -> Arc<Self> {
        Arc::new(Self {
            connector: OriginConnector::new(target, tls),
            pools: Mutex::default(),
            permits: Arc::new(Semaphore::new(MAX_REQUESTS_IN_FLIGHT)),
        })
    }

    /// Returns the URL that this client was created for.
    pub fn target(&self) -> &AllowedUrl {
        self.connector.target()
    }

    /// Sends `request` and waits for the head of its response. If the server has closed
    /// the pooled connection before the request was sent, it is sent on another one.
    pub async fn send(self: &Arc<Self>, request: &HttpRequest<'_>) -> Result<HttpResponse, Error> {
        let permit = Arc::clone(&self.permits)
            .try_acquire_owned()
            .map_err(|_| Error::Busy(self.target().authority()))?;
        let request = request.build_hyper_request(self.target())?;
        let response = self.dispatch(request).await;
        let response = response.map_err(|error| self.to_error(&error))?;
        Ok(HttpResponse::new(response, Arc::clone(self), permit))
    }

    // Not in the async function itself: rustc compiles its body, and so all of hyper's
    // generic client, once more into each crate that awaits it (ADR 0010).
    fn dispatch(&self, request: Request<Full<Bytes>>) -> legacy::ResponseFuture {
        self.worker_pool().request(request)
    }

    pub(super) fn broken_connection(&self) -> Error {
        Error::Broken(self.target().authority())
    }

    fn worker_pool(&self) -> WorkerPoolClient {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        let pool = pools.entry(current_worker());
        pool.or_insert_with(|| new_pool(&self.connector)).clone()
    }

    fn to_error(&self, error: &legacy::Error) -> Error {
        let source = error::Error::source(error);
        match source.and_then(|it| it.downcast_ref::<ConnectError>()) {
            Some(ConnectError(reason)) => Error::Unreachable {
                authority: self.target().authority(),
                reason: reason.clone(),
            },
            None => self.broken_connection(),
        }
    }
}

fn new_pool(connector: &OriginConnector) -> WorkerPoolClient {
    legacy::Client::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
        .http1_max_buf_size(MAX_HEAD_BYTES)
        .http2_max_header_list_size(MAX_HEAD_BYTES as u32)
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .build(connector.clone())
}
