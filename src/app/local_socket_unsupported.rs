//! A system without the sockets of `local_socket`: the command line uses the hub's
//! address, and `maru stdio` is a hub of its own.

use std::{io, path::Path, sync::Arc};

use maru_runtime::tasks::Tasks;

use crate::{downstream::McpEngine, http::GuardedRouter};

/// The name of the socket of `maru stdio` on other systems.
pub(super) const STDIO_SOCKET: &str = "hub.sock";
/// The name of the socket of the command line on other systems.
pub const HTTP_SOCKET: &str = "http.sock";

/// Serves nothing.
pub(super) fn listen_http(_data_dir: &Path, _service: GuardedRouter, _tasks: &Tasks) {}

/// Serves nothing.
pub(super) fn listen_stdio(_data_dir: &Path, _engine: &Arc<McpEngine>, _tasks: &Tasks) {}

/// No hub can be joined.
#[expect(clippy::unused_async, reason = "as on systems with sockets")]
pub async fn join_hub(_data_dir: &Path) -> Option<io::Result<()>> {
    None
}
