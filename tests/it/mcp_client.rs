//! An MCP client for tests, for every transport and protocol version.

use std::{collections::HashMap, path::Path, process::Stdio};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::{
    http_client::{TestRequest, TestResponse, within_test_timeout},
    test_hub::{TestHub, initialize_message, request_message, stateless_message},
};

pub(crate) const LEGACY_VERSIONS: [&str; 4] =
    ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// A client of one transport in one protocol version.
pub(crate) enum McpClient {
    /// Streamable HTTP with a session.
    Session {
        address: String,
        path: &'static str,
        headers: HashMap<&'static str, String>,
    },
    /// Streamable HTTP, stateless.
    Stateless { hub: String },
    /// HTTP+SSE.
    Sse {
        address: String,
        endpoint: String,
        stream: Box<TestResponse>,
    },
    /// The stdin and stdout of a child process.
    Stdio {
        _child: Child,
        input: ChildStdin,
        output: Lines<BufReader<ChildStdout>>,
        modern: bool,
    },
}

impl McpClient {
    pub(crate) async fn streamable_http(hub: &TestHub, path: &'static str, version: &str) -> Self {
        let reply = TestRequest::post(
            &hub.address,
            path,
            &initialize_message(version, &client_capabilities()),
        )
        .send()
        .await;
        let id = reply.headers["mcp-session-id"].clone();
        let negotiated = reply.json().await["result"]["protocolVersion"]
            .as_str()
            .unwrap()
            .to_owned();
        assert_eq!(negotiated, version);
        let headers = HashMap::from([("mcp-session-id", id), ("mcp-protocol-version", negotiated)]);
        Self::Session {
            address: hub.address.clone(),
            path,
            headers,
        }
    }

    pub(crate) async fn sse(hub: &TestHub, version: &str) -> Self {
        let get =
            TestRequest::new(&hub.address, "GET", "/sse").header("accept", "text/event-stream");
        let mut stream = Box::new(get.send().await);
        let first = stream.next_event().await.unwrap();
        assert_eq!(first.name, "endpoint");
        let mut client = Self::Sse {
            address: hub.address.clone(),
            endpoint: first.data,
            stream,
        };
        client.handshake(version).await;
        client
    }

    /// Starts `maru stdio` with a data directory of its own.
    pub(crate) async fn stdio(directory: &Path, version: &str) -> Self {
        Self::over_stdio(directory, "stdio", version).await
    }

    /// Starts `maru stdio` on the data directory of a running hub, which it joins.
    pub(crate) async fn stdio_joining(hub: &TestHub, version: &str) -> Self {
        Self::over_stdio(hub.directory.path(), ".", version).await
    }

    async fn over_stdio(directory: &Path, data_dir: &str, version: &str) -> Self {
        Self::stdio_with(directory, data_dir, &[], version).await
    }

    /// Starts `maru stdio` with these options.
    pub(crate) async fn stdio_with(
        directory: &Path,
        data_dir: &str,
        options: &[&str],
        version: &str,
    ) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_maru"))
            .args(["stdio", "--data-dir", data_dir])
            .args(options)
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        let modern = version == "2026-07-28";
        let mut client = Self::Stdio {
            _child: child,
            input,
            output,
            modern,
        };
        if !modern {
            client.handshake(version).await;
        }
        client
    }

    async fn handshake(&mut self, version: &str) {
        let response = self
            .exchange(initialize_message(version, &client_capabilities()))
            .await;
        assert_eq!(response["result"]["protocolVersion"], version);
        assert_eq!(response["result"]["serverInfo"]["name"], "maru");
    }

    pub(crate) async fn request(&mut self, id: i64, method: &str, params: Value) -> Value {
        let body = match self {
            Self::Stateless { .. } | Self::Stdio { modern: true, .. } => {
                let mut body = stateless_message(method, params);
                body["id"] = id.into();
                body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
                    client_capabilities();
                body
            }
            _ => request_message(id, method, params),
        };
        let response = self.exchange(body).await;
        assert_eq!(response["id"], id, "{response}");
        response
    }

    /// Sends a request, answers the input requests of the hub, and returns the response.
    pub(crate) async fn request_answering_inputs(
        &mut self,
        id: i64,
        method: &str,
        mut params: Value,
    ) -> Value {
        let mut response = self.request(id, method, params.clone()).await;
        for round in 1..5 {
            if response["result"]["resultType"] != "input_required" {
                break;
            }
            let input_requests = response["result"]["inputRequests"]
                .as_object()
                .unwrap()
                .clone();
            params["inputResponses"] = input_requests
                .into_iter()
                .map(|(key, it)| (key, answer_to_input_request(&it)))
                .collect();
            params["requestState"] = response["result"]["requestState"].clone();
            response = self
                .request(id + round * 1000, method, params.clone())
                .await;
        }
        response
    }

    async fn exchange(&mut self, body: Value) -> Value {
        let mut reply = match self {
            Self::Session {
                address,
                path,
                headers,
            } => post(address, path, headers, &body).await,
            Self::Stateless { hub } => {
                let mut headers = HashMap::from([
                    ("mcp-protocol-version", "2026-07-28".to_owned()),
                    ("mcp-method", body["method"].as_str().unwrap().to_owned()),
                ]);
                let name = body["params"]["name"]
                    .as_str()
                    .or(body["params"]["uri"].as_str());
                if let Some(name) = name {
                    headers.insert("mcp-name", name.to_owned());
                }
                return post(hub, "/mcp", &headers, &body)
                    .await
                    .rpc_response()
                    .await;
            }
            Self::Sse {
                address, endpoint, ..
            } => {
                let posted = TestRequest::post(address, endpoint, &body).send().await;
                assert_eq!(posted.status, 202);
                posted
            }
            Self::Stdio { input, .. } => {
                let line = format!("{body}\n");
                input.write_all(line.as_bytes()).await.unwrap();
                return self.read_response(None).await;
            }
        };
        if matches!(self, Self::Session { .. }) && !reply.is_stream() {
            return reply.json().await;
        }
        self.read_response(Some(&mut reply)).await
    }

    /// Returns the next response; requests that arrive before it are answered.
    async fn read_response(&mut self, mut reply: Option<&mut TestResponse>) -> Value {
        loop {
            let message = match (&mut *self, &mut reply) {
                (Self::Sse { stream, .. }, _) => stream.next_message().await.unwrap(),
                (Self::Stdio { output, .. }, _) => {
                    let line = within_test_timeout(output.next_line())
                        .await
                        .unwrap()
                        .unwrap();
                    serde_json::from_str(&line).unwrap()
                }
                (_, Some(reply)) => reply.next_message().await.unwrap(),
                (_, None) => panic!("no stream to read"),
            };
            if message.get("method").is_none() {
                return message;
            }
            if message.get("id").is_some() {
                let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": answer_to_input_request(&message)});
                self.send(&answer).await;
            }
        }
    }

    async fn send(&mut self, message: &Value) {
        match self {
            Self::Session {
                address,
                path,
                headers,
            } => assert_eq!(post(address, path, headers, message).await.status, 202),
            Self::Sse {
                address, endpoint, ..
            } => assert_eq!(
                TestRequest::post(address, endpoint, message)
                    .send()
                    .await
                    .status,
                202
            ),
            Self::Stdio { input, .. } => {
                let line = format!("{message}\n");
                input.write_all(line.as_bytes()).await.unwrap();
            }
            Self::Stateless { .. } => panic!("a stateless client receives no requests"),
        }
    }
}

async fn post(
    address: &str,
    path: &str,
    headers: &HashMap<&'static str, String>,
    body: &Value,
) -> TestResponse {
    let mut request = TestRequest::post(address, path, body);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    request.send().await
}

/// The capabilities that the client declares.
fn client_capabilities() -> Value {
    json!({"elicitation": {}, "sampling": {}, "roots": {}})
}

/// The client's result for a request of the hub.
fn answer_to_input_request(request: &Value) -> Value {
    match request["method"].as_str().unwrap() {
        "elicitation/create" => {
            json!({"action": "accept", "content": {"username": "마루", "email": "m@example.com", "name": "마루"}})
        }
        "sampling/createMessage" => {
            json!({"role": "assistant", "model": "test", "content": {"type": "text", "text": "sampled"}})
        }
        "roots/list" => json!({"roots": [{"uri": "file:///maru", "name": "maru"}]}),
        other => panic!("{other}"),
    }
}
