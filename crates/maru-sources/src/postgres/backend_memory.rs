//! How much memory a PostgreSQL server on this machine uses for one query.
//!
//! PostgreSQL has no bound for that, and no client is told. On Linux anybody may read it
//! of a process, so a query of a server beside the hub ends before the machine suffers.

use std::{fs, time::Duration};

use deadpool_postgres::Object;
use tokio::time;
use tokio_postgres::Statement;

use super::error;
use crate::{Error, process_memory::private_kilobytes};

/// The process that runs the statements of a session. Behind a pooler of transactions it is
/// the one of this transaction.
pub(super) const SELECT_BACKEND: &str =
    "SELECT pg_catalog.pg_backend_pid(), pg_catalog.inet_client_port()";

/// The most memory that the process which runs a query may have for itself.
const MAX_BACKEND_KILOBYTES: u64 = 128 * 1024;
/// How long the process runs between two looks. Writing 128 MiB takes it about 30 ms.
const CHECK_INTERVAL: Duration = Duration::from_millis(4);

/// The process of a server on this machine that serves a connection.
#[derive(Debug)]
pub(super) struct BackendProcess {
    pid: i32,
}

impl BackendProcess {
    /// The process of a session that [`SELECT_BACKEND`] was prepared in, if it is one of this
    /// machine.
    pub(super) async fn of_session(
        client: &Object,
        backend_query: &Statement,
    ) -> Result<Option<Self>, Error> {
        let row = client.query_one(backend_query, &[]).await;
        row.and_then(|it| Ok(Self::find(it.try_get(0)?, it.try_get(1)?)))
            .map_err(|error| error::from_internal_query(&error))
    }

    /// The process with this number, if it is one of this machine. Its title tells: it has
    /// the port that the connection has here, or none if it is a socket.
    pub(super) fn find(pid: i32, client_port: Option<i32>) -> Option<Self> {
        let title = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let title = String::from_utf8_lossy(&title);
        let peer = match client_port {
            Some(port) if port >= 0 => format!("({port})"),
            _ => "[local]".to_owned(),
        };
        let serves = title.starts_with("postgres: ") && title.contains(&peer);
        serves.then_some(Self { pid })
    }

    /// Waits until the process uses too much memory; for ever if that cannot be seen.
    pub(super) async fn wait_until_too_large(&self) {
        loop {
            time::sleep(CHECK_INTERVAL).await;
            match private_kilobytes(self.pid) {
                Some(size) if size > MAX_BACKEND_KILOBYTES => return,
                Some(_) => (),
                None => return std::future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_that_serves_the_connection_is_looked_at() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(BackendProcess::find(own, Some(5432)).is_none());
        assert!(BackendProcess::find(i32::MAX, None).is_none());
    }
}
