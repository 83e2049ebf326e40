//! Unix sockets in the data directory for programs of the same user: the API, and MCP as
//! on stdin and stdout.
//!
//! `maru stdio` beside a running hub connects its own stdin and stdout to it, so that all
//! clients see the same tools and no server is connected twice.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, sync::Arc, time::Duration};

use maru_runtime::tasks::Tasks;
use tokio::{
    io::{self, AsyncWriteExt as _},
    net::{UnixListener, UnixStream},
    sync::Semaphore,
    time,
};
use tracing::{debug, warn};

use crate::{
    auth::Principal,
    downstream::{McpEngine, stdio::serve},
    http::{GuardedRouter, serve_local},
    tools::{Caller, CatalogScope},
};

/// The socket of `maru stdio`; only the owner may enter its directory.
pub(super) const STDIO_SOCKET: &str = "hub.sock";
const MAX_STDIO_CONNECTIONS: usize = 100;

/// The socket through which the command line reaches the hub, independent of its address.
pub const HTTP_SOCKET: &str = "http.sock";

/// Serves the API on a socket in the data directory, whose lock the hub holds.
pub(super) fn listen_http(data_dir: &Path, service: GuardedRouter, tasks: &Tasks) {
    match bind(&data_dir.join(HTTP_SOCKET)) {
        Ok(listener) => tasks.spawn(serve_local(listener, service, tasks.clone())),
        Err(error) => warn!(%error, "the command line reaches this hub by its address only"),
    }
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    // A killed hub leaves its socket behind.
    let _ = fs::remove_file(path);
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Serves MCP on a socket in the data directory, whose lock the hub holds.
pub(super) fn listen_stdio(data_dir: &Path, engine: &Arc<McpEngine>, tasks: &Tasks) {
    match bind(&data_dir.join(STDIO_SOCKET)) {
        Ok(listener) => tasks.spawn(accept(listener, Arc::clone(engine), tasks.clone())),
        // The path may be too long for a socket.
        Err(error) => warn!(%error, "maru stdio cannot join this hub and will start its own"),
    }
}

async fn accept(listener: UnixListener, engine: Arc<McpEngine>, tasks: Tasks) {
    let stop = tasks.stop_token();
    let permits = Arc::new(Semaphore::new(MAX_STDIO_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match (accepted, Arc::clone(&permits).try_acquire_owned()) {
            (Ok((stream, _)), Ok(turn)) => {
                let engine = Arc::clone(&engine);
                tasks.spawn(async move {
                    let _turn = turn;
                    serve_connection(&engine, stream).await;
                });
            }
            (Ok(_), Err(_)) => {
                warn!("more than {MAX_STDIO_CONNECTIONS} programs want to join by maru stdio");
            }
            (Err(error), _) => {
                warn!(%error, "could not accept a connection");
                time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn serve_connection(engine: &Arc<McpEngine>, stream: UnixStream) {
    let (input, output) = stream.into_split();
    let caller = Caller::new(Principal::local(), CatalogScope::All);
    if let Err(error) = serve(engine, caller, input, output).await {
        debug!(%error, "a program that joined by maru stdio is gone");
    }
}

/// Connects this process's stdin and stdout to the hub that runs on the data directory;
/// `None` if none runs.
pub async fn join_hub(data_dir: &Path) -> Option<io::Result<()>> {
    let stream = UnixStream::connect(data_dir.join(STDIO_SOCKET))
        .await
        .ok()?;
    let (mut from_hub, mut to_hub) = stream.into_split();
    let there = async {
        io::copy(&mut io::stdin(), &mut to_hub).await?;
        // The hub finishes pending requests, then closes its side.
        to_hub.shutdown().await
    };
    let back = async {
        let mut output = io::stdout();
        io::copy(&mut from_hub, &mut output).await?;
        output.flush().await
    };
    tokio::pin!(there, back);
    Some(tokio::select! {
        done = &mut back => done,
        // If the hub is gone, its last output must still be read.
        _ = &mut there => back.await,
    })
}
