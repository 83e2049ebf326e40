//! Requests to one origin over kept connections, by hyper's client.

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
use hyper_util::{
    client::legacy,
    rt::{TokioExecutor, TokioTimer},
};
use maru_runtime::workers::current_worker;
use tokio::sync::Semaphore;

use super::{
    AllowedUrl, ClientTls, Error, HttpResponse, Request,
    connect::{ConnectError, OriginConnector},
};

/// Connections that a worker keeps.
const MAX_IDLE_CONNECTIONS: usize = 64;
const MAX_REQUESTS_IN_FLIGHT: usize = 1024;
/// Servers close idle connections too; this is below what most of them wait.
const IDLE_TIMEOUT: Duration = Duration::from_secs(50);
/// The largest head of an answer. HTTP/1.1 heads have 100 headers at most, which is
/// hyper's default: saying so would put them on the heap.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// How often an HTTP/2 connection with open requests is asked whether it still works,
/// and how long the answer may take.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// A client of one origin.
#[derive(Debug)]
pub struct HttpClient {
    connector: OriginConnector,
    /// By worker: a connection stays on its thread, because a call that crosses threads
    /// costs a third more.
    pools: Mutex<HashMap<usize, WorkerPoolClient>>,
    permits: Arc<Semaphore>,
}

type WorkerPoolClient = legacy::Client<OriginConnector, Full<Bytes>>;

impl HttpClient {
    /// A client of the origin of `target`.
    pub fn new(target: AllowedUrl, tls: ClientTls) -> Arc<Self> {
        Arc::new(Self {
            connector: OriginConnector::new(target, tls),
            pools: Mutex::default(),
            permits: Arc::new(Semaphore::new(MAX_REQUESTS_IN_FLIGHT)),
        })
    }

    /// Where requests go.
    pub fn target(&self) -> &AllowedUrl {
        self.connector.target()
    }

    /// Sends `request` and waits for the head of its answer. A request that never left,
    /// because the server had closed the kept connection, is sent on another one.
    pub async fn send(self: &Arc<Self>, request: &Request<'_>) -> Result<HttpResponse, Error> {
        let permit = Arc::clone(&self.permits)
            .try_acquire_owned()
            .map_err(|_| Error::Busy(self.target().authority()))?;
        let request = request.build_hyper_request(self.target())?;
        let response = self.worker_pool().request(request).await;
        let response = response.map_err(|error| self.to_error(&error))?;
        Ok(HttpResponse::new(response, Arc::clone(self), permit))
    }

    pub(super) fn broken(&self) -> Error {
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
            Some(ConnectError(why)) => Error::Unreachable {
                place: self.target().authority(),
                why: why.clone(),
            },
            None => self.broken(),
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
