//! Accepting connections, each bounded, until shutdown.

use std::{io, net, pin::pin, sync::Arc, time::Duration};

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use maru_runtime::{tasks::Tasks, workers::WorkerPool};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream, UnixListener},
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

/// A request line and its headers together.
const MAX_HEADER_BYTES: usize = 32 << 10;
const HEADER_READ_TIMEOUT: Duration = Duration::from_secs(10);
/// Programs of the same user that talk to the hub at once.
const MAX_LOCAL_CONNECTIONS: usize = 100;

/// What connections are served with.
#[derive(Debug)]
pub struct ServeContext {
    /// Answers.
    pub service: GuardedRouter,
    /// Encrypts.
    pub certificates: Arc<TlsCertificates>,
    /// Bounds.
    pub admission: Arc<ConnectionAdmission>,
    /// The threads.
    pub workers: Arc<WorkerPool>,
    /// Spawns and stops.
    pub tasks: Tasks,
}

/// Serves on `listener` until the tasks stop.
pub async fn serve(listener: TcpListener, serving: ServeContext) {
    let ServeContext {
        tasks,
        workers: lanes,
        ..
    } = &serving;
    let stop = tasks.stop_token();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Some((stream, from)) = accepted_or_pause(accepted).await else {
            continue;
        };
        let slot = serving.admission.open_slot(from.ip());
        let tls = serving.certificates.load_acceptor();
        let service = serving.service.for_connection(from.ip(), Arc::clone(&slot));
        let connection = serve_tcp(stream.into_std(), tls, service, tasks.clone());
        lanes.spawn(tasks, async move {
            tokio::select! {
                () = connection => (),
                () = slot.evicted.cancelled() => {
                    debug!(from = %from.ip(), "an unidentified connection made room for another");
                }
            }
        });
    }
}

/// Serves `service` on a socket of the data directory, for the command line.
pub async fn serve_local(listener: UnixListener, service: GuardedRouter, tasks: Tasks) {
    let stop = tasks.stop_token();
    let room = Arc::new(Semaphore::new(MAX_LOCAL_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            accepted = accept_with_permit(&room, listener.accept()) => accepted,
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

async fn accept_with_permit<T>(
    room: &Arc<Semaphore>,
    next: impl Future<Output = io::Result<T>>,
) -> Option<(T, OwnedSemaphorePermit)> {
    let permit = Arc::clone(room).acquire_owned().await.ok()?;
    Some((accepted_or_pause(next.await).await?, permit))
}

async fn accepted_or_pause<T>(accepted: io::Result<T>) -> Option<T> {
    match accepted {
        Ok(accepted) => Some(accepted),
        Err(error) => {
            warn!(%error, "could not accept a connection");
            // Out of descriptors, most likely; others must close first.
            time::sleep(Duration::from_millis(50)).await;
            None
        }
    }
}

/// Serves `stream`, which may have been accepted on another thread.
async fn serve_tcp(
    stream: io::Result<net::TcpStream>,
    tls: Option<TlsAcceptor>,
    service: GuardedRouter,
    tasks: Tasks,
) {
    let stream = match stream.and_then(TcpStream::from_std) {
        Ok(stream) => stream,
        Err(error) => return warn!(%error, "could not take a connection over"),
    };
    // Without it an event waits for the acknowledgement of the one before.
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "could not set TCP_NODELAY");
    }
    let Some(tls) = tls else {
        return serve_connection(stream, service, tasks).await;
    };
    match time::timeout(HEADER_READ_TIMEOUT, tls.accept(stream)).await {
        Ok(Ok(stream)) => Box::pin(serve_connection(stream, service, tasks)).await,
        Ok(Err(error)) => debug!(%error, "a connection could not be encrypted"),
        Err(_) => debug!("a connection was not encrypted in time"),
    }
}

async fn serve_connection<S>(stream: S, service: GuardedRouter, tasks: Tasks)
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let slot: Option<Arc<ConnectionSlot>> = service.slot().cloned();
    // It takes 100 headers at most. Saying so would put them on the heap.
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_READ_TIMEOUT)
        .max_header_size(MAX_HEADER_BYTES)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(TokioIo::new(FramedStream::new(stream, slot)), service);
    let mut served = pin!(served);
    let stop = tasks.stop_token();
    let done = tokio::select! {
        done = served.as_mut() => done,
        () = stop.cancelled() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = done {
        debug!(%error, "a connection ended early");
    }
}
