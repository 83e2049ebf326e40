//! Accepting connections, each bounded, until shutdown.

use std::{pin::pin, sync::Arc, time::Duration};

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time,
};
use tracing::{debug, warn};

use super::Guarded;
use crate::tasks::Tasks;

const HEADER_BYTES: usize = 32 << 10;
const HEADER_TIME: Duration = Duration::from_secs(10);

/// Serves `service` on `listener` until `tasks` stops.
pub async fn serve(listener: TcpListener, service: Guarded, max_connections: usize, tasks: Tasks) {
    let stop = tasks.stop();
    let room = Arc::new(Semaphore::new(max_connections));
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            accepted = accept(&listener, &room) => accepted,
        };
        if let Some((stream, permit)) = accepted {
            let connection = connection(stream, service.clone(), tasks.clone());
            tasks.spawn(async move {
                connection.await;
                drop(permit);
            });
        }
    }
}

async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let permit = Arc::clone(room).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, permit)),
        Err(error) => {
            warn!(%error, "could not accept a connection");
            // Out of descriptors, most likely; others must close first.
            time::sleep(Duration::from_millis(50)).await;
            None
        }
    }
}

async fn connection(stream: TcpStream, service: Guarded, tasks: Tasks) {
    // Without it an event waits for the acknowledgement of the one before.
    if let Err(error) = stream.set_nodelay(true) {
        debug!(%error, "could not set TCP_NODELAY");
    }
    // It takes 100 headers at most. Saying so would put them on the heap.
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(HEADER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
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
