//! Real servers of a test's own, gone when the test ends.

use std::{net::TcpListener, path::PathBuf, process::Stdio, time::Duration};

use maru_http::{AddressPolicy, ClientTls};
use maru_retrieval::{ChromaEndpoint, EmbeddingEndpoint};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::{sleep, timeout},
};

use crate::{clients::client_tools_dir, http_client::TestRequest};

const START_TIMEOUT: Duration = Duration::from_secs(60);

/// An embeddings endpoint with a real model.
pub(crate) struct EmbeddingServer {
    _child: Child,
    port: u16,
}

/// A ChromaDB server.
pub(crate) struct ChromaServer {
    _child: Child,
    pub(crate) port: u16,
    _directory: tempfile::TempDir,
}

impl EmbeddingServer {
    /// Starts a server with word vectors.
    pub(crate) async fn start() -> Self {
        Self::start_model("words", &[]).await
    }

    /// Starts a server with a small sentence model.
    pub(crate) async fn start_minilm() -> Self {
        Self::start_model("minilm", &["minilm"]).await
    }

    async fn start_model(environment: &str, arguments: &[&str]) -> Self {
        let python = client_tools_dir().join(environment).join("bin/python");
        let mut child = command_ending_with_test(python)
            .arg(client_tools_dir().join("embeddings.py"))
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = timeout(START_TIMEOUT, lines.next_line()).await.unwrap();
        let line = line.unwrap().expect("the server says its port");
        Self {
            _child: child,
            port: line.parse().unwrap(),
        }
    }

    /// An endpoint that answers in the way of `mode`.
    pub(crate) fn settings(&self, mode: &str) -> EmbeddingEndpoint {
        EmbeddingEndpoint {
            url: format!("http://127.0.0.1:{}/v1/{mode}", self.port),
            model: "wordllama".to_owned(),
            key: None,
            timeout: START_TIMEOUT,
            policy: local_policy(),
            tls: ClientTls::default(),
        }
    }

    /// What it has counted.
    pub(crate) async fn counts(&self) -> Value {
        let address = format!("127.0.0.1:{}", self.port);
        TestRequest::new(&address, "GET", "/")
            .send()
            .await
            .json()
            .await
    }
}

impl ChromaServer {
    pub(crate) async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let port = free_port();
        let child = command_ending_with_test(client_tools_dir().join("chroma/bin/python"))
            .arg(client_tools_dir().join("chroma/bin/chroma"))
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
        wait_until_listening(server.port).await;
        server
    }

    pub(crate) fn settings(&self) -> ChromaEndpoint {
        ChromaEndpoint {
            host: "127.0.0.1".to_owned(),
            port: self.port,
            policy: local_policy(),
            ..ChromaEndpoint::default()
        }
    }
}

/// Waits until a program that the test started listens on `port`.
pub(crate) async fn wait_until_listening(port: u16) {
    let listening = async {
        let address = ("127.0.0.1", port);
        while tokio::net::TcpStream::connect(address).await.is_err() {
            sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(START_TIMEOUT, listening).await.unwrap();
}

pub(crate) fn local_policy() -> AddressPolicy {
    AddressPolicy {
        serves_loopback_only: true,
        ..AddressPolicy::default()
    }
}

/// A program that ends with the test, however that ends.
pub(crate) fn command_ending_with_test(program: PathBuf) -> Command {
    let mut command = Command::new("setpriv");
    command
        .arg("--pdeathsig=KILL")
        .arg(program)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}
