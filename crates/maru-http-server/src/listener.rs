//! Accepts and serves connections until shutdown.

use std::{io, net, pin::pin, sync::Arc, time::Duration};

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use maru_runtime::{tasks::Tasks, workers::WorkerPool};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time,
};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use super::{
    GuardedRouter,
    admission::{ConnectionAdmission, ConnectionSlot},
    framing::FramedStream,
    tls::TlsCertificates,
};

/// The maximum size of a request line and its headers together.
const MAX_HEADER_BYTES: usize = 32 << 10;
/// How long a TLS handshake, or a request line and its headers, may take.
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum connections on the local socket.
#[cfg(unix)]
const MAX_LOCAL_CONNECTIONS: usize = 100;
/// How long to wait after a failed accept.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Everything that serving a connection needs.
#[derive(Debug)]
pub struct ServeContext {
    /// Handles requests.
    pub service: GuardedRouter,
    /// The current TLS certificate.
    pub certificates: Arc<TlsCertificates>,
    /// Limits open connections.
    pub admission: Arc<ConnectionAdmission>,
    /// The threads that serve connections.
    pub workers: Arc<WorkerPool>,
    /// The tasks that stop with the hub.
    pub tasks: Tasks,
}

/// Serves on `listener` until the tasks stop.
pub async fn serve(listener: TcpListener, context: ServeContext) {
    let tasks = &context.tasks;
    let stop = tasks.stop_token();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Some((stream, address)) = accepted_or_pause(accepted).await else {
            continue;
        };
        let remote_ip = address.ip();
        let slot = context.admission.open_slot(remote_ip);
        let tls = context.certificates.load_acceptor();
        let service = context.service.for_connection(remote_ip, Arc::clone(&slot));
        let connection = serve_tcp(stream.into_std(), tls, service, tasks.clone());
        context.workers.spawn(tasks, async move {
            tokio::select! {
                () = connection => (),
                () = slot.evicted.cancelled() => {
                    debug!(from = %remote_ip, "closed an unidentified connection to accept a new one");
                }
            }
        });
    }
}

/// Serves `service` on the socket of the data directory, for the command line.
#[cfg(unix)]
pub async fn serve_local(listener: tokio::net::UnixListener, service: GuardedRouter, tasks: Tasks) {
    let stop = tasks.stop_token();
    let permits = Arc::new(Semaphore::new(MAX_LOCAL_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            accepted = accept_with_permit(&permits, listener.accept()) => accepted,
        };
        if let Some(((stream, _), permit)) = accepted {
            let connection = serve_connection(stream, service.clone(), tasks.clone());
            tasks.spawn(async move {
                connection.await;
                drop(permit);
            });
        }
    }
}

#[cfg(unix)]
async fn accept_with_permit<T>(
    permits: &Arc<Semaphore>,
    accept: impl Future<Output = io::Result<T>>,
) -> Option<(T, OwnedSemaphorePermit)> {
    let permit = Arc::clone(permits).acquire_owned().await.ok()?;
    Some((accepted_or_pause(accept.await).await?, permit))
}

async fn accepted_or_pause<T>(accepted: io::Result<T>) -> Option<T> {
    match accepted {
        Ok(accepted) => Some(accepted),
        Err(error) => {
            warn!(%error, "failed to accept a connection");
            // Most likely there are no file descriptors left until others close.
            time::sleep(ACCEPT_RETRY_DELAY).await;
            None
        }
    }
}

/// Serves a TCP connection that may have been accepted on another thread.
async fn serve_tcp(
    stream: io::Result<net::TcpStream>,
    tls: Option<TlsAcceptor>,
    service: GuardedRouter,
    tasks: Tasks,
) {
    let stream = match stream.and_then(TcpStream::from_std) {
        Ok(stream) => stream,
        Err(error) => return warn!(%error, "failed to register a connection on its worker"),
    };
    // Otherwise an event would wait until the client has acknowledged the previous one.
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "failed to set TCP_NODELAY");
    }
    let Some(tls) = tls else {
        return serve_connection(stream, service, tasks).await;
    };
    match time::timeout(HEADER_READ_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => Box::pin(serve_connection(stream, service, tasks)).await,
        Ok(Err(error)) => debug!(%error, "a TLS handshake failed"),
        Err(_) => debug!("a TLS handshake timed out"),
    }
}

async fn serve_connection<S>(stream: S, service: GuardedRouter, tasks: Tasks)
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let slot: Option<Arc<ConnectionSlot>> = service.slot().cloned();
    // hyper accepts 100 headers by default; setting a limit would allocate them on the heap.
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_READ_TIMEOUT)
        .max_header_size(MAX_HEADER_BYTES)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(FramedStream::new(stream, slot)), service);
    let mut connection = pin!(connection);
    let stop = tasks.stop_token();
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = outcome {
        debug!(%error, "a connection ended with an error");
    }
}
