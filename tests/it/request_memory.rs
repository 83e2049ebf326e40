//! What large requests keep in memory while a model or a tool takes its time is bounded for
//! all of them together.

use serde_json::{Value, json};

use crate::{
    http_client::{TestRequest, TestResponse, wait_until},
    openai::{
        chat_client::{chat_body, chat_request},
        fake_model::{FakeModelServer, ScriptStep, delta_step, stream_head},
    },
    test_hub::{TestHub, call_message, initialize_message},
};

const LARGE_TEXT_BYTES: usize = 40 << 20;
/// How many of them fit into what one caller may hold.
const LARGE_REQUESTS: usize = 5;
/// How many calls of MCP do: while one is read, its body takes as much as the call.
const LARGE_CALLS: usize = 4;

fn large_text() -> String {
    "x".repeat(LARGE_TEXT_BYTES)
}

/// Sends requests until one is refused, and returns the others.
async fn send_until_refused(
    mut send: impl AsyncFnMut() -> TestResponse,
) -> (Vec<TestResponse>, TestResponse) {
    let mut accepted = Vec::new();
    loop {
        let response = send().await;
        if response.status == 503 {
            return (accepted, response);
        }
        assert!(response.status.is_success(), "{}", response.status);
        accepted.push(response);
        assert!(accepted.len() <= LARGE_REQUESTS);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_requests_that_wait_for_a_model_are_bounded_together() {
    let backend = FakeModelServer::start(|_, _| {
        let text = delta_step(json!({"content": "Hello"}), None);
        vec![stream_head(), text, ScriptStep::WaitForClose]
    })
    .await;
    let hub = TestHub::with_config(|config| {
        backend.configure(config);
        config.models[0].max_concurrent = Some(1);
        config.limits.max_body_bytes = 64 << 20;
    })
    .await;
    let body = chat_body(json!({
        "stream": true,
        "messages": [{"role": "user", "content": large_text()}],
    }));
    let send = async || chat_request(&hub, &body).send().await;
    let (accepted, refused) = send_until_refused(send).await;
    assert_eq!(accepted.len(), LARGE_REQUESTS);
    let error = refused.json().await;
    let message = error["error"]["message"].as_str().unwrap();
    assert!(message.contains("too many large requests"), "{message}");
    // Small requests and those of other callers are accepted.
    let small = chat_body(json!({"stream": true}));
    assert_eq!(chat_request(&hub, &small).send().await.status, 200);
    let token = hub
        .create_token(json!({"name": "other", "role": "agent"}))
        .await;
    let other = chat_request(&hub, &body).header("authorization", &format!("Bearer {token}"));
    assert_eq!(other.send().await.status, 200);
    // Whoever leaves gives the share back.
    drop(accepted);
    wait_until(async || send().await.status == 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_calls_in_progress_are_bounded_together() {
    let hub = TestHub::with_config(|config| {
        config.limits.max_body_bytes = 64 << 20;
        config.limits.tool_timeout_ms = 600_000;
    })
    .await;
    hub.publish_fixture();
    let mut stream = TestRequest::new(&hub.address, "GET", "/sse")
        .header("accept", "text/event-stream")
        .send()
        .await;
    let endpoint = stream.next_event().await.unwrap().data;
    let post = async |message: &Value| {
        TestRequest::post(&hub.address, &endpoint, message)
            .send()
            .await
    };
    let handshake = initialize_message("2024-11-05", &json!({}));
    assert_eq!(post(&handshake).await.status, 202);
    let text = large_text();
    let mut id = 1;
    // The response comes in the stream, so the POST ends long before its call does.
    let (accepted, _) = send_until_refused(async || {
        id += 1;
        post(&call_message(id, "slow", json!({"text": text}))).await
    })
    .await;
    assert_eq!(accepted.len(), LARGE_CALLS);
    let ping = json!({"jsonrpc": "2.0", "id": "p", "method": "ping"});
    assert_eq!(post(&ping).await.status, 202);
    drop(stream);
    let hub_is_free = async || {
        let call = call_message(1, "slow", json!({"milliseconds": 0, "text": text}));
        TestRequest::post(&hub.address, "/sse", &call)
            .send()
            .await
            .status
            == 200
    };
    wait_until(hub_is_free).await;
}

/// A list of short lists takes ninety times its text as values.
#[tokio::test(flavor = "multi_thread")]
async fn body_of_many_short_lists_is_refused() {
    let hub = TestHub::start().await;
    let lists = format!("[{}[0]]", "[0],".repeat(250_000));
    let model_request = format!(r#"{{"model": "m", "messages": {lists}}}"#);
    let call = format!(
        r#"{{"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {{"name": "find_tools", "arguments": {{"query": {lists}}}}}}}"#
    );
    for (path, body) in [
        ("/v1/chat/completions", &model_request),
        ("/v1/messages", &model_request),
        ("/v1/responses", &model_request),
        ("/api/chat", &model_request),
        ("/api/tools/find_tools/call", &model_request),
        ("/generate", &model_request),
        ("/sse", &call),
    ] {
        let request = TestRequest::post(&hub.address, path, &Value::Null).body(body);
        assert_eq!(request.send().await.status, 413, "{path}");
    }
}
