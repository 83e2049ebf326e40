//! Accepting connections, each bounded, until shutdown.

use std::{io, net, pin::pin, sync::Arc, time::Duration};

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream, UnixListener},
    sync::{OwnedSemaphorePermit, Semaphore},
    time,
};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, warn};

use super::{
    Guarded,
    admission::{Admission, ConnectionSlot},
    framing::FramedStream,
    tls::Certificates,
};
use crate::{lanes::Lanes, outbound::Joined, tasks::Tasks};

/// A request line and its headers together.
const MAX_HEADER_BYTES: usize = 32 << 10;
const HEADER_TIME: Duration = Duration::from_secs(10);
/// Programs of the same user that talk to the hub at once.
const LOCAL: usize = 100;

/// What connections are served with.
#[derive(Debug)]
pub struct Serving {
    /// Answers.
    pub service: Guarded,
    /// Encrypts.
    pub certificates: Arc<Certificates>,
    /// Bounds.
    pub admission: Arc<Admission>,
    /// The threads.
    pub lanes: Arc<Lanes>,
    /// Spawns and stops.
    pub tasks: Tasks,
}

/// Serves on `listener` until the tasks stop.
pub async fn serve(listener: TcpListener, serving: Serving) {
    let Serving { tasks, lanes, .. } = &serving;
    let stop = tasks.stop();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let Some((stream, from)) = taken(accepted).await else {
            continue;
        };
        let slot = serving.admission.enter(from.ip());
        let tls = serving.certificates.acceptor();
        let service = serving.service.seen_from(from.ip(), Arc::clone(&slot));
        let connection = tcp(stream.into_std(), tls, service, tasks.clone());
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
pub async fn serve_local(listener: UnixListener, service: Guarded, tasks: Tasks) {
    let stop = tasks.stop();
    let room = Arc::new(Semaphore::new(LOCAL));
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            accepted = accept(&room, listener.accept()) => accepted,
        };
        if let Some(((stream, _), permit)) = accepted {
            let connection = connection(stream, service.clone(), tasks.clone());
            tasks.spawn(async move {
                connection.await;
                drop(permit);
            });
        }
    }
}

async fn accept<T>(
    room: &Arc<Semaphore>,
    next: impl Future<Output = io::Result<T>>,
) -> Option<(T, OwnedSemaphorePermit)> {
    let permit = Arc::clone(room).acquire_owned().await.ok()?;
    Some((taken(next.await).await?, permit))
}

async fn taken<T>(accepted: io::Result<T>) -> Option<T> {
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
async fn tcp(
    stream: io::Result<net::TcpStream>,
    tls: Option<TlsAcceptor>,
    service: Guarded,
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
        return connection(stream, service, tasks).await;
    };
    match time::timeout(HEADER_TIME, tls.accept(stream)).await {
        Ok(Ok(stream)) => Box::pin(connection(stream, service, tasks)).await,
        Ok(Err(error)) => debug!(%error, "a connection could not be encrypted"),
        Err(_) => debug!("a connection was not encrypted in time"),
    }
}

async fn connection<S>(stream: S, service: Guarded, tasks: Tasks)
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let slot: Option<Arc<ConnectionSlot>> = service.slot().cloned();
    // It takes 100 headers at most. Saying so would put them on the heap.
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_header_size(MAX_HEADER_BYTES)
        .max_buf_size(MAX_HEADER_BYTES)
        .serve_connection(
            TokioIo::new(FramedStream::new(Joined(stream), slot)),
            service,
        );
    let mut served = pin!(served);
    let stop = tasks.stop();
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
