//! Unix sockets in the data directory for programs of the same user: the API, and MCP as
//! on stdin and stdout.
//!
//! `maru stdio` beside a running hub connects its own stdin and stdout to it, so that all
//! clients see the same tools and no server is connected twice.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, sync::Arc, time::Duration};

use maru_runtime::tasks::Tasks;
use tokio::{
    io::{
        self, AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader,
    },
    net::{UnixListener, UnixStream},
    sync::Semaphore,
    time,
};
use tracing::{debug, warn};

use crate::{
    auth::Principal,
    config::ToolListing,
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
    let mut input = BufReader::new(input);
    let view = match StdioView::read(&mut input).await {
        Ok(view) => view,
        Err(error) => return debug!(%error, "a program did not say what it wants to see"),
    };
    if let Err(error) = serve(engine, view.caller(), input, output).await {
        debug!(%error, "a program that joined by maru stdio is gone");
    }
}

/// What a client of `maru stdio` sees: everything, unless it says otherwise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StdioView {
    /// The toolset that it is limited to.
    pub toolset: Option<String>,
    /// Whether it lists or searches tools.
    pub tools: Option<ToolListing>,
}

/// The first byte of a line that describes a [`StdioView`]. No message of MCP begins with it.
const VIEW_MARK: u8 = b'#';
const MAX_VIEW_BYTES: u64 = 1024;

impl StdioView {
    /// The caller that sees this.
    pub fn caller(&self) -> Caller {
        let scope = match &self.toolset {
            Some(name) => CatalogScope::Toolset(name.as_str().into()),
            None => CatalogScope::All,
        };
        Caller {
            tool_listing: self.tools,
            ..Caller::new(Principal::local(), scope)
        }
    }

    /// Reads the view that the input begins with, if it does.
    async fn read(input: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Self> {
        if input.fill_buf().await?.first() != Some(&VIEW_MARK) {
            return Ok(Self::default());
        }
        let mut line = String::new();
        input.take(MAX_VIEW_BYTES).read_line(&mut line).await?;
        let mut words = line.trim_end().split(' ').skip(1);
        let mut word = || words.next().filter(|it| !it.is_empty()).map(str::to_owned);
        Ok(Self {
            tools: word().as_deref().and_then(ToolListing::parse),
            toolset: word(),
        })
    }

    /// The line that [`Self::read`] reads; empty for a client that sees everything.
    fn to_line(&self) -> String {
        if *self == Self::default() {
            return String::new();
        }
        let tools = self.tools.map_or("-", ToolListing::as_str);
        let toolset = self.toolset.as_deref().unwrap_or_default();
        format!("# {tools} {toolset}\n")
    }
}

/// Connects this process's stdin and stdout to the hub that runs on the data directory;
/// `None` if none runs.
pub async fn join_hub(data_dir: &Path, view: &StdioView) -> Option<io::Result<()>> {
    let stream = UnixStream::connect(data_dir.join(STDIO_SOCKET))
        .await
        .ok()?;
    let (mut from_hub, mut to_hub) = stream.into_split();
    let there = async {
        to_hub.write_all(view.to_line().as_bytes()).await?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn view_of_a_client_is_read_before_its_messages() {
        let view = StdioView {
            toolset: Some("support".to_owned()),
            tools: Some(ToolListing::Search),
        };
        for view in [
            StdioView::default(),
            view.clone(),
            StdioView {
                tools: None,
                ..view
            },
        ] {
            let text = format!("{}{{}}\n", view.to_line());
            let mut input = text.as_bytes();
            assert_eq!(StdioView::read(&mut input).await.unwrap(), view);
            assert_eq!(input, b"{}\n");
        }
    }
}
