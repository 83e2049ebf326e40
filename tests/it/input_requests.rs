//! Questions of a server reach the one client connection whose call they belong to.

use std::{
    io::{BufRead as _, BufReader},
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    faults::PYTHON,
    http_client::wait_for,
    mcp_client::{LEGACY_VERSIONS, McpClient},
    test_hub::{TestHub, call_message},
};

const PAY_SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/questions/pay.py");
const AMBIGUOUS_CLIENT_ERROR: &str = "calls of several clients are in progress or unanswered on this connection, and the request does not say which of them it belongs to; try again when they have ended";

/// How a client reaches the hub.
#[derive(Clone, Copy, Debug)]
enum ClientTransport {
    Session(&'static str),
    Stateless,
    Sse(&'static str),
    Stdio(&'static str),
}

impl ClientTransport {
    async fn connect(self, hub: &TestHub) -> McpClient {
        match self {
            Self::Session(version) => McpClient::streamable_http(hub, "/mcp", version).await,
            Self::Stateless => McpClient::Stateless {
                hub: hub.address.clone(),
            },
            Self::Sse(version) => McpClient::sse(hub, version).await,
            Self::Stdio(version) => McpClient::stdio_joining(hub, version).await,
        }
    }

    /// Every transport in every version.
    fn all() -> Vec<Self> {
        let mut all = vec![Self::Stateless, Self::Stdio("2026-07-28")];
        for version in LEGACY_VERSIONS {
            all.extend([Self::Sse(version), Self::Stdio(version)]);
        }
        // Sessions came with the second version.
        all.extend(LEGACY_VERSIONS.into_iter().skip(1).map(Self::Session));
        all
    }
}

/// A server that asks, reached in one of three ways.
struct PayServer {
    hub: TestHub,
    /// Absent if the hub has started it.
    process: Option<Child>,
}

impl Drop for PayServer {
    fn drop(&mut self) {
        if let Some(process) = &mut self.process {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }
}

impl PayServer {
    async fn start(transport: &str, mode: &str) -> Self {
        Self::start_behind(TestHub::start().await, transport, mode).await
    }

    async fn start_behind(hub: TestHub, transport: &str, mode: &str) -> Self {
        if transport == "STDIO" {
            let config = json!({"command": *PYTHON, "args": [PAY_SCRIPT, "stdio", mode]});
            let view = hub.register_server("pay", "STDIO", config).await;
            assert_eq!(view.status.state.as_str(), "CONNECTED", "{:?}", view.status);
            return Self { hub, process: None };
        }
        let mut process = Command::new(&*PYTHON)
            .args([PAY_SCRIPT, "http", mode])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        let output = process.stdout.take().unwrap();
        BufReader::new(output).read_line(&mut port).unwrap();
        let path = if transport == "SSE" { "sse" } else { "mcp" };
        let url = format!("http://127.0.0.1:{}/{path}", port.trim());
        let view = hub
            .register_server("pay", transport, json!({"url": url}))
            .await;
        assert_eq!(view.status.state.as_str(), "CONNECTED", "{:?}", view.status);
        let process = Some(process);
        Self { hub, process }
    }

    /// Waits until `pay` is in progress on the server.
    async fn until_paying(&self) {
        let mut watcher = ClientTransport::Stateless.connect(&self.hub).await;
        let state = async || call_accepting(&mut watcher, "state", json!({})).await;
        wait_for(state, |it| it == "paying").await;
    }
}

/// Calls a tool, answers every question with yes, and returns the text.
async fn call_accepting(client: &mut McpClient, tool: &str, arguments: Value) -> String {
    let params = json!({"name": format!("pay__{tool}"), "arguments": arguments});
    let answer = client
        .request_answering_inputs(1, "tools/call", params)
        .await;
    match answer["result"]["content"][0]["text"].as_str() {
        Some(text) => text.to_owned(),
        None => panic!("{answer}"),
    }
}

/// One client calls `pay`, another then calls `slow`; the question must be refused.
async fn check_two_clients(transport: &str, payer: ClientTransport, other: ClientTransport) {
    let server = PayServer::start(transport, "-").await;
    let mut client = payer.connect(&server.hub).await;
    let paying = call_accepting(&mut client, "pay", json!({}));
    let asking = async {
        server.until_paying().await;
        let mut client = other.connect(&server.hub).await;
        call_accepting(&mut client, "slow", json!({})).await
    };
    let (paid, said) = tokio::join!(paying, asking);
    assert_eq!(
        said, AMBIGUOUS_CLIENT_ERROR,
        "{transport} {payer:?} {other:?}"
    );
    assert_eq!(
        paid, AMBIGUOUS_CLIENT_ERROR,
        "{transport} {payer:?} {other:?}"
    );
}

/// The same, but the first client has left when the question comes.
async fn check_first_client_leaves(
    transport: &str,
    payer: ClientTransport,
    other: ClientTransport,
) {
    let server = PayServer::start(transport, "-").await;
    let mut client = payer.connect(&server.hub).await;
    tokio::select! {
        said = call_accepting(&mut client, "pay", json!({})) => panic!("{said}"),
        () = server.until_paying() => drop(client),
    }
    let mut client = other.connect(&server.hub).await;
    let said = call_accepting(&mut client, "slow", json!({})).await;
    assert_eq!(
        said, AMBIGUOUS_CLIENT_ERROR,
        "{transport} {payer:?} {other:?}"
    );
}

async fn check_all_transports(transport: &'static str) {
    let all = ClientTransport::all();
    for (at, one) in all.iter().enumerate() {
        // With itself, and with one of each other kind in turn.
        let other = all[(at * 5 + 1) % all.len()];
        check_two_clients(transport, *one, *one).await;
        check_two_clients(transport, *one, other).await;
        check_first_client_leaves(transport, *one, *one).await;
        check_first_client_leaves(transport, other, *one).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn input_request_of_a_program_never_reaches_the_wrong_client() {
    check_all_transports("STDIO").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn input_request_on_an_event_stream_never_reaches_the_wrong_client() {
    check_all_transports("SSE").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn input_request_on_a_get_stream_never_reaches_the_wrong_client() {
    check_all_transports("HTTP").await;
}

/// A call whose first question is still open may ask a second one, so it counts.
#[tokio::test(flavor = "multi_thread")]
async fn second_input_request_never_reaches_another_client() {
    let others = ClientTransport::all();
    for (transport, other) in ["STDIO", "SSE", "HTTP"].iter().cycle().zip(others) {
        let server = PayServer::start(transport, "-").await;
        let capabilities = json!({"elicitation": {}});
        let session = server
            .hub
            .initialize_session("2025-11-25", capabilities)
            .await;
        let pay = call_message(7, "pay__pay", json!({"now": true}));
        let mut paying = server.hub.session_request(&session, &pay).send().await;
        while let Some(event) = paying.next_event().await {
            if event.data.contains("elicitation/create") {
                break;
            }
        }
        let mut client = other.connect(&server.hub).await;
        let said = call_accepting(&mut client, "slow", json!({})).await;
        assert_eq!(said, AMBIGUOUS_CLIENT_ERROR, "{transport} {other:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn input_request_reaches_the_only_possible_client() {
    for transport in ["STDIO", "SSE", "HTTP"] {
        let server = PayServer::start(transport, "-").await;
        for way in ClientTransport::all() {
            let mut client = way.connect(&server.hub).await;
            let said = call_accepting(&mut client, "pay", json!({"now": true})).await;
            assert_eq!(said, "accept", "{transport} {way:?}");
        }
    }
}

/// A client that never answers keeps others from being asked for a bounded time only.
#[tokio::test(flavor = "multi_thread")]
async fn unanswered_input_request_ends_and_others_are_asked() {
    tokio::join!(
        check_unanswered("STDIO"),
        check_unanswered("SSE"),
        check_unanswered("HTTP")
    );
}

async fn check_unanswered(transport: &str) {
    let hub = TestHub::with_config(|config| config.mcp.input_timeout_ms = 3000).await;
    let server = PayServer::start_behind(hub, transport, "-").await;
    let mut silent = ClientTransport::Stateless.connect(&server.hub).await;
    let mut params = json!({"name": "pay__pay", "arguments": {"now": true}});
    let asked = silent.request(1, "tools/call", params.clone()).await;
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");

    let stateless = ClientTransport::Stdio("2026-07-28");
    let mut other = stateless.connect(&server.hub).await;
    let state = async || call_accepting(&mut other, "state", json!({})).await;
    wait_for(state, |it| it == "waiting").await;
    let said = call_accepting(&mut other, "pay", json!({"now": true})).await;
    assert_eq!(said, "accept", "{transport}");

    params["requestState"] = asked["result"]["requestState"].clone();
    params["inputResponses"] = json!({"question": {"action": "accept"}});
    let late = silent.request(2, "tools/call", params).await;
    let message = late["error"]["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("no longer waits for this answer"),
        "{late}"
    );
}

/// A server asks for roots when it is initialized; the call of a client that comes at
/// that moment must not suffer, and roots reach the server during a client's call.
#[tokio::test(flavor = "multi_thread")]
async fn roots_of_a_client_reach_the_server_and_disturb_nobody() {
    for transport in ["STDIO", "SSE", "HTTP"] {
        let server = PayServer::start(transport, "roots").await;
        for _ in 0..10 {
            let servers = server.hub.running.servers();
            servers.disconnect("pay").await.unwrap();
            servers.connect("pay").await.unwrap();
            let params = json!({"name": "pay__state", "arguments": {}});
            let ask = server.hub.stateless_request("tools/call", params);
            let answer = ask.send().await.rpc_response().await;
            assert_eq!(
                answer["result"]["content"][0]["text"], "waiting",
                "{answer}"
            );
        }
        for way in ClientTransport::all() {
            let mut client = way.connect(&server.hub).await;
            let said = call_accepting(&mut client, "folders", json!({})).await;
            assert!(said.contains("file:///maru"), "{transport} {way:?}: {said}");
        }
        let params = json!({"name": "pay__folders", "arguments": {}});
        let ask = server.hub.stateless_request("tools/call", params);
        let answer = ask.send().await.rpc_response().await;
        let said = answer["result"]["content"][0]["text"].as_str().unwrap();
        assert!(said.contains(r#""roots": []"#), "{said}");
    }
}
