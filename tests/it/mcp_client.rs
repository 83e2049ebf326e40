//! A client of one endpoint, in one version.

use std::{collections::HashMap, path::Path, process::Stdio};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

use crate::{
    http_client::{TestRequest, TestResponse, within_test_timeout},
    test_hub::{TestHub, initialize_message, modern, request_message},
};

pub(crate) const LEGACY_VERSIONS: [&str; 4] =
    ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];

/// A client of one endpoint.
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
    /// A child's stdin and stdout.
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
        let agreed = reply.json().await["result"]["protocolVersion"]
            .as_str()
            .unwrap()
            .to_owned();
        assert_eq!(agreed, version);
        let headers = HashMap::from([("mcp-session-id", id), ("mcp-protocol-version", agreed)]);
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
        let mut door = Self::Sse {
            address: hub.address.clone(),
            endpoint: first.data,
            stream,
        };
        door.handshake(version).await;
        door
    }

    /// A process of its own.
    pub(crate) async fn stdio(directory: &Path, version: &str) -> Self {
        Self::over_stdio(directory, "stdio", version).await
    }

    /// A process that joins the hub.
    pub(crate) async fn stdio_joining(hub: &TestHub, version: &str) -> Self {
        Self::over_stdio(hub.directory.path(), ".", version).await
    }

    async fn over_stdio(directory: &Path, data_dir: &str, version: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_maru"))
            .args(["stdio", "--data-dir", data_dir])
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        let modern = version == "2026-07-28";
        let mut door = Self::Stdio {
            _child: child,
            input,
            output,
            modern,
        };
        if !modern {
            door.handshake(version).await;
        }
        door
    }

    async fn handshake(&mut self, version: &str) {
        let done = self
            .exchange(initialize_message(version, &client_capabilities()))
            .await;
        assert_eq!(done["result"]["protocolVersion"], version);
        assert_eq!(done["result"]["serverInfo"]["name"], "maru");
    }

    pub(crate) async fn ask(&mut self, id: i64, method: &str, params: Value) -> Value {
        let body = match self {
            Self::Stateless { .. } | Self::Stdio { modern: true, .. } => {
                let mut body = modern(method, params);
                body["id"] = id.into();
                body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] =
                    client_capabilities();
                body
            }
            _ => request_message(id, method, params),
        };
        let answer = self.exchange(body).await;
        assert_eq!(answer["id"], id, "{answer}");
        answer
    }

    /// Asks, answers what the hub asks back, and returns the answer.
    pub(crate) async fn request_answering_inputs(
        &mut self,
        id: i64,
        method: &str,
        mut params: Value,
    ) -> Value {
        let mut answer = self.ask(id, method, params.clone()).await;
        for round in 1..5 {
            if answer["result"]["resultType"] != "input_required" {
                break;
            }
            let asked = answer["result"]["inputRequests"]
                .as_object()
                .unwrap()
                .clone();
            params["inputResponses"] = asked
                .into_iter()
                .map(|(key, it)| (key, answer_to_input_request(&it)))
                .collect();
            params["requestState"] = answer["result"]["requestState"].clone();
            answer = self.ask(id + round * 1000, method, params.clone()).await;
        }
        answer
    }

    async fn exchange(&mut self, body: Value) -> Value {
        let mut answers = match self {
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
        if matches!(self, Self::Session { .. }) && !answers.is_stream() {
            return answers.json().await;
        }
        self.read_response(Some(&mut answers)).await
    }

    /// The next message that is no request; requests are answered.
    async fn read_response(&mut self, stream_of_request: Option<&mut TestResponse>) -> Value {
        let mut own = stream_of_request;
        loop {
            let message = match (&mut *self, &mut own) {
                (Self::Sse { stream, .. }, _) => stream.next_message().await.unwrap(),
                (Self::Stdio { output, .. }, _) => {
                    let line = within_test_timeout(output.next_line())
                        .await
                        .unwrap()
                        .unwrap();
                    serde_json::from_str(&line).unwrap()
                }
                (_, Some(own)) => own.next_message().await.unwrap(),
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
            Self::Stateless { .. } => panic!("nobody asks a client without a session"),
        }
    }
}

async fn post(
    address: &str,
    path: &str,
    headers: &HashMap<&'static str, String>,
    body: &Value,
) -> TestResponse {
    let mut ask = TestRequest::post(address, path, body);
    for (name, value) in headers {
        ask = ask.header(name, value);
    }
    ask.send().await
}

/// What the client can be asked for.
fn client_capabilities() -> Value {
    json!({"elicitation": {}, "sampling": {}, "roots": {}})
}

/// What the client answers to a question.
fn answer_to_input_request(question: &Value) -> Value {
    match question["method"].as_str().unwrap() {
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
