//! Real servers of a test's own, gone when the test ends.

use std::{net::TcpListener, path::PathBuf, process::Stdio, time::Duration};

use maru::{
    outbound::{Policy, Tls},
    retrieval::{Chroma, Endpoint},
};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::{sleep, timeout},
};

use crate::{clients::tools, wire::Ask};

const PATIENCE: Duration = Duration::from_secs(60);

/// An embeddings endpoint with a real model.
pub(crate) struct Embeddings {
    _child: Child,
    port: u16,
}

/// A ChromaDB server.
pub(crate) struct ChromaServer {
    _child: Child,
    pub(crate) port: u16,
    _directory: tempfile::TempDir,
}

impl Embeddings {
    pub(crate) async fn start() -> Self {
        let mut child = ending(tools().join("words/bin/python"))
            .arg(tools().join("embeddings.py"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = timeout(PATIENCE, lines.next_line()).await.unwrap();
        let line = line.unwrap().expect("the server says its port");
        Self {
            _child: child,
            port: line.parse().unwrap(),
        }
    }

    /// An endpoint that answers in the way of `mode`.
    pub(crate) fn settings(&self, mode: &str) -> Endpoint {
        Endpoint {
            url: format!("http://127.0.0.1:{}/v1/{mode}", self.port),
            model: "wordllama".to_owned(),
            key: None,
            limit: PATIENCE,
            policy: local(),
            tls: Tls::default(),
        }
    }

    /// What it has counted.
    pub(crate) async fn counts(&self) -> Value {
        let address = format!("127.0.0.1:{}", self.port);
        Ask::new(&address, "GET", "/").send().await.json().await
    }
}

impl ChromaServer {
    pub(crate) async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let port = free_port();
        let child = ending(tools().join("chroma/bin/python"))
            .arg(tools().join("chroma/bin/chroma"))
            .args(["run", "--host", "127.0.0.1", "--port", &port.to_string()])
            .arg("--path")
            .arg(directory.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self {
            _child: child,
            port,
            _directory: directory,
        };
        timeout(PATIENCE, server.listening()).await.unwrap();
        server
    }

    pub(crate) fn settings(&self) -> Chroma {
        Chroma {
            host: "127.0.0.1".to_owned(),
            port: self.port,
            policy: local(),
            ..Chroma::default()
        }
    }

    async fn listening(&self) {
        let address = ("127.0.0.1", self.port);
        while tokio::net::TcpStream::connect(address).await.is_err() {
            sleep(Duration::from_millis(50)).await;
        }
    }
}

pub(crate) fn local() -> Policy {
    Policy {
        local: true,
        ..Policy::default()
    }
}

/// A program that ends with the test, however that ends.
pub(crate) fn ending(program: PathBuf) -> Command {
    let mut command = Command::new("setpriv");
    command
        .arg("--pdeathsig=KILL")
        .arg(program)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}
