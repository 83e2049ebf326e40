//! The address that misbehaves, and the one it tries to send us to.

use std::{net::TcpListener, process::Stdio, time::Duration};

use serde_json::{Value, json};
use tokio::{
    net::TcpStream,
    process::{Child, Command},
    time::sleep,
};

use super::bench::PYTHON;
use crate::wire::{Ask, within};

/// Two servers on neighbouring ports; they end when dropped.
pub(super) struct Evil {
    pub(super) port: u16,
    server: Child,
    _trap: Child,
}

impl Evil {
    pub(super) async fn start() -> Self {
        let port = two_ports();
        Self {
            port,
            server: serve(port).await,
            _trap: serve(port + 1).await,
        }
    }

    /// What to register; the header must not go anywhere else.
    pub(super) fn config(&self, kind: &str, mode: &str) -> Value {
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
        ledger(self.port).await
    }

    /// Requests that the other port received: there must be none.
    pub(super) async fn stolen(&self) -> Vec<Value> {
        ledger(self.port + 1).await
    }

    /// Ends the server, as a crash would.
    pub(super) async fn kill(&mut self) {
        self.server.kill().await.unwrap();
    }

    pub(super) async fn restart(&mut self) {
        self.server = serve(self.port).await;
    }
}

async fn ledger(port: u16) -> Vec<Value> {
    let address = format!("127.0.0.1:{port}");
    let reply = Ask::new(&address, "GET", "/ledger").send().await;
    let all = reply.json().await;
    let all = all.as_array().unwrap().iter();
    all.filter(|it| it["p"] != "/ledger").cloned().collect()
}

async fn serve(port: u16) -> Child {
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/security/faults/evil_http.py"
    );
    let server = Command::new(&*PYTHON)
        .args([script, &port.to_string()])
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    within(async {
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    server
}

/// A free port whose neighbour is free too.
fn two_ports() -> u16 {
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    let random = || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    std::iter::repeat_with(random)
        .find(|port| *port < u16::MAX && is_free(*port) && is_free(port + 1))
        .unwrap()
}
