//! The address that misbehaves, and the one it tries to send us to.

use std::{net::TcpListener, process::Stdio};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

use super::harness::PYTHON;
use crate::http_client::{TestRequest, within_test_timeout};

/// Two servers on neighbouring ports; they end when dropped.
pub(super) struct EvilHttpServer {
    pub(super) port: u16,
    server: Child,
    _trap: Child,
}

impl EvilHttpServer {
    pub(super) async fn start() -> Self {
        loop {
            let port = free_port();
            if let (Some(server), Some(trap)) = (try_serve(port).await, try_serve(port + 1).await) {
                return Self {
                    port,
                    server,
                    _trap: trap,
                };
            }
        }
    }

    /// What to register; the header must not go anywhere else.
    pub(super) fn registration(&self, kind: &str, mode: &str) -> Value {
        let mode = mode.replace("PORT", &(self.port + 1).to_string());
        let path = match kind {
            "SSE" => format!("e/{mode}/sse"),
            _ => format!("s/{mode}"),
        };
        json!({
            "url": format!("http://127.0.0.1:{}/{path}", self.port),
            "headers": {"Authorization": "Bearer canary-5ecret"},
        })
    }

    /// Requests that were received, those of tests aside.
    pub(super) async fn received(&self) -> Vec<Value> {
        received_requests(self.port).await
    }

    /// Requests that the other port received: there must be none.
    pub(super) async fn received_by_neighbour(&self) -> Vec<Value> {
        received_requests(self.port + 1).await
    }

    /// Ends the server, as a crash would.
    pub(super) async fn kill(&mut self) {
        self.server.kill().await.unwrap();
    }

    pub(super) async fn restart(&mut self) {
        self.server = try_serve(self.port).await.expect("its port is still free");
    }
}

async fn received_requests(port: u16) -> Vec<Value> {
    let address = format!("127.0.0.1:{port}");
    let reply = TestRequest::new(&address, "GET", "/ledger").send().await;
    let all = reply.json().await;
    let all = all.as_array().unwrap().iter();
    all.filter(|it| it["p"] != "/ledger").cloned().collect()
}

/// Serves, unless someone else was faster to take the port.
async fn try_serve(port: u16) -> Option<Child> {
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/security/faults/evil_http.py"
    );
    let mut server = Command::new(&*PYTHON)
        .args([script, &port.to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let ready = within_test_timeout(lines.next_line()).await.unwrap();
    ready.map(|_| server)
}

/// A port that is free, and its neighbour too. It is none of those that the
/// system gives away, so that it is still free when it is used again.
pub(crate) fn free_port() -> u16 {
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let mut chance = [0; 2];
    let random = || {
        getrandom::fill(&mut chance).unwrap();
        10_000 + u16::from_le_bytes(chance) % 20_000
    };
    std::iter::repeat_with(random)
        .find(|port| is_free(*port) && is_free(port + 1))
        .unwrap()
}
