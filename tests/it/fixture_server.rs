//! Direct tests of the fixture server, so that a failure through the hub is a defect of
//! the hub.

use std::{path::PathBuf, process::Stdio, time::Duration};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use crate::{
    clients::inspect,
    conformance::count_passed,
    http_client::TestRequest,
    test_hub::{call_message, initialize_message, request_message, stateless_message},
};

const FIXTURE_TIMEOUT: Duration = Duration::from_secs(10);

/// A fixture server that runs until it is dropped.
pub(crate) struct FixtureServer {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl FixtureServer {
    fn run(arguments: &[&str]) -> Self {
        let mut child = Command::new(fixture_program())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Starts the server over HTTP (`http`, `http-legacy` or `sse`) and returns its URL.
    pub(crate) async fn start(kind: &str) -> (Self, String) {
        Self::start_at(kind, "127.0.0.1:0").await
    }

    /// Starts the server over HTTP at a given address.
    pub(crate) async fn start_at(kind: &str, address: &str) -> (Self, String) {
        let mut server = Self::run(&[kind, address]);
        let url = server.line().await.expect("where it serves");
        (server, url)
    }

    async fn line(&mut self) -> Option<String> {
        let line = timeout(FIXTURE_TIMEOUT, self.lines.next_line()).await;
        line.expect("in time").unwrap()
    }

    async fn send(&mut self, message: &Value) {
        let stdin = self.child.stdin.as_mut().unwrap();
        let line = format!("{message}\n");
        stdin.write_all(line.as_bytes()).await.unwrap();
    }

    /// Returns the next message for which `wanted` holds.
    async fn receive(&mut self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let line = self.line().await.expect("another message");
            let message: Value = serde_json::from_str(&line).unwrap();
            if wanted(&message) {
                return message;
            }
        }
    }

    async fn wait_for_end(&mut self) {
        let status = timeout(FIXTURE_TIMEOUT, self.child.wait()).await;
        assert!(status.expect("in time").unwrap().success());
    }

    async fn terminate(&mut self) {
        let id = self.child.id().unwrap().to_string();
        let killed = Command::new("kill").args(["-TERM", &id]).status().await;
        assert!(killed.unwrap().success());
    }
}

/// The path of the server's program.
#[expect(
    clippy::disallowed_methods,
    reason = "the test command says where it built the server"
)]
pub(crate) fn fixture_program() -> PathBuf {
    let path = std::env::var("FIXTURE_SERVER").expect("FIXTURE_SERVER is set by `make test`");
    std::fs::canonicalize(path).expect("`make test` builds the fixture server")
}

#[tokio::test]
async fn every_required_scenario_with_sessions() {
    let (_server, url) = FixtureServer::start("http").await;
    assert_eq!(count_passed(&url, "2025-11-25", &[]).await, 30);
}

#[tokio::test]
async fn every_required_scenario_without_sessions() {
    let (_server, url) = FixtureServer::start("http").await;
    assert_eq!(count_passed(&url, "2026-07-28", &[]).await, 37);
}

#[tokio::test]
async fn every_required_scenario_of_an_old_server() {
    let (_server, url) = FixtureServer::start("http-legacy").await;
    assert_eq!(count_passed(&url, "2025-11-25", &[]).await, 30);
}

#[tokio::test]
async fn old_server_gets_no_newer_protocol_features() {
    let (_server, url) = FixtureServer::start("http-legacy").await;
    let address = url.strip_prefix("http://").unwrap();
    let address = address.strip_suffix("/mcp").unwrap();
    let reply = TestRequest::post(
        address,
        "/mcp",
        &stateless_message("server/discover", json!({})),
    )
    .header("mcp-protocol-version", "2026-07-28")
    .header("mcp-method", "server/discover")
    .send()
    .await;
    assert_eq!(reply.status, 400);
    assert_eq!(reply.json().await["error"]["code"], -32000);
}

#[tokio::test]
async fn inspector_lists_and_calls_over_every_transport() {
    let (_http, http) = FixtureServer::start("http").await;
    let (_legacy, legacy) = FixtureServer::start("http-legacy").await;
    let (_sse, sse) = FixtureServer::start("sse").await;
    let program = fixture_program().display().to_string();
    let transports = [
        vec![&*http, "--transport", "http", "--protocol-era", "modern"],
        vec![&*legacy, "--transport", "http"],
        vec![&*sse, "--transport", "sse"],
        vec![&*program, "stdio"],
    ];
    for transport in transports {
        let transport: Vec<String> = transport.into_iter().map(str::to_owned).collect();
        let listed = inspect(&transport, &["--method", "tools/list"]).await;
        assert!(
            listed.contains("test_simple_text"),
            "{transport:?}: {listed}"
        );
        let rest = ["--method", "tools/call", "--tool-name", "test_simple_text"];
        let called = inspect(&transport, &rest).await;
        let expected = "This is a simple text response for testing.";
        assert!(called.contains(expected), "{transport:?}: {called}");
    }
}

#[tokio::test]
async fn session_receives_requests_and_notifications() {
    let mut server = FixtureServer::run(&["stdio"]);
    let capabilities = json!({"elicitation": {}});
    server
        .send(&initialize_message("2025-06-18", &capabilities))
        .await;
    let welcome = server.receive(|it| it["id"] == 0).await;
    assert_eq!(welcome["result"]["protocolVersion"], "2025-06-18");
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    server.send(&initialized).await;

    let asking = "test_input_required_result_multi_round";
    server.send(&call_message(1, asking, json!({}))).await;
    for answer in [json!({"name": "Kim"}), json!({"color": "green"})] {
        let question = server
            .receive(|it| it["method"] == "elicitation/create")
            .await;
        let result = json!({"action": "accept", "content": answer});
        let response = json!({"jsonrpc": "2.0", "id": question["id"], "result": result});
        server.send(&response).await;
    }
    let answer = server.receive(|it| it["id"] == 1).await;
    assert_eq!(answer["result"]["content"][0]["text"], "All steps done");

    let watched = json!({"uri": "test://watched-resource"});
    let subscribe = request_message(2, "resources/subscribe", watched);
    server.send(&subscribe).await;
    server.receive(|it| it["id"] == 2).await;
    let update = call_message(3, "test_trigger_resource_update", json!({}));
    server.send(&update).await;
    let told = |it: &Value| it["method"] == "notifications/resources/updated";
    let news = server.receive(told).await;
    assert_eq!(news["params"]["uri"], "test://watched-resource");
    let change = call_message(4, "test_trigger_tool_change", json!({}));
    server.send(&change).await;
    let told = |it: &Value| it["method"] == "notifications/tools/list_changed";
    server.receive(told).await;
}

#[tokio::test]
async fn server_ends_with_its_input() {
    let mut server = FixtureServer::run(&["stdio"]);
    server
        .send(&initialize_message("2025-11-25", &json!({})))
        .await;
    server.receive(|it| it["id"] == 0).await;
    drop(server.child.stdin.take());
    server.wait_for_end().await;
}

#[tokio::test]
async fn server_exits_on_request() {
    for kind in ["http", "http-legacy", "sse"] {
        let (mut server, _) = FixtureServer::start(kind).await;
        server.terminate().await;
        server.wait_for_end().await;
    }
    let mut server = FixtureServer::run(&["stdio"]);
    server
        .send(&initialize_message("2025-11-25", &json!({})))
        .await;
    server.receive(|it| it["id"] == 0).await;
    server.terminate().await;
    server.wait_for_end().await;
}
