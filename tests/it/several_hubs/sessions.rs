//! A session goes on at any hub, and what belongs to a stream reaches the hub that holds it.

use serde_json::{Value, json};

use super::TwoHubs;
use crate::{
    faults::PYTHON,
    http_client::{TestRequest, TestResponse, wait_until},
    suite_fixture::{slow_tool, suite_entries},
    test_hub::{TestHub, call_message, initialize_message, request_message},
};

const PAY_SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/questions/pay.py");
pub(super) const VERSION: &str = "2025-11-25";

/// Two hubs with the tools of the conformance suite and a slow one.
pub(super) async fn start_with_suite_tools() -> TwoHubs {
    let hubs = TwoHubs::start().await;
    for hub in [&hubs.one, &hubs.other] {
        let mut entries = suite_entries(hub.running.catalog());
        entries.push(slow_tool());
        hub.publish(&entries);
    }
    hubs
}

pub(super) fn list_tools() -> Value {
    request_message(1, "tools/list", json!({}))
}

/// Calls a tool that asks; returns its stream and the id of the question.
async fn call_until_asked(hub: &TestHub, session: &str) -> (TestResponse, Value, String) {
    let arguments = json!({"message": "Who?"});
    let body = call_message(7, "test_elicitation", arguments);
    let mut stream = hub.session_request(session, &body).send().await;
    assert!(stream.is_stream());
    let mut last_id = String::new();
    loop {
        let event = stream.next_event().await.unwrap();
        last_id = event.id.unwrap_or(last_id);
        if event.data.is_empty() {
            continue;
        }
        let message: Value = serde_json::from_str(&event.data).unwrap();
        assert_eq!(message["method"], "elicitation/create");
        return (stream, message["id"].clone(), last_id);
    }
}

fn acceptance(question: &Value) -> Value {
    let content = json!({"username": "kim", "email": "kim@example.com"});
    json!({"jsonrpc": "2.0", "id": question,
        "result": {"action": "accept", "content": content}})
}

async fn read_answer(stream: &mut TestResponse) -> String {
    let message = stream.next_message().await.unwrap();
    assert_eq!(message["id"], 7, "{message}");
    message["result"]["content"][0]["text"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn resume(hub: &TestHub, session: &str, last_id: &str) -> TestRequest {
    TestRequest::new(&hub.address, "GET", "/mcp")
        .header("accept", "text/event-stream")
        .header("mcp-session-id", session)
        .header("last-event-id", last_id)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_hub_goes_on_with_a_session_until_it_ends() {
    let hubs = TwoHubs::start().await;
    let (one, other) = (&hubs.one, &hubs.other);
    let token = one
        .create_token(json!({"name": "thief", "role": "agent"}))
        .await;
    let with_token =
        |request: TestRequest| request.header("authorization", &format!("Bearer {token}"));
    wait_until(async || {
        let request = TestRequest::new(&other.address, "GET", "/api/tools");
        with_token(request).send().await.status == 200
    })
    .await;
    for version in ["2025-03-26", "2025-06-18", VERSION] {
        let session = one.initialize_session(version, json!({})).await;
        for hub in [other, one, other] {
            let listed = hub.session_request(&session, &list_tools()).send().await;
            assert_eq!(listed.status, 200, "{version}");
            let listed = listed.rpc_response().await;
            assert!(listed["result"]["tools"].is_array());
        }
        let stolen = with_token(other.session_request(&session, &list_tools()));
        assert_eq!(stolen.send().await.status, 404);
        let end = TestRequest::new(&other.address, "DELETE", "/mcp");
        let ended = end.header("mcp-session-id", &session).send().await;
        assert_eq!(ended.status, 204);
        for hub in [one, other] {
            let gone = hub.session_request(&session, &list_tools()).send().await;
            assert_eq!(gone.status, 404, "{version}");
        }
    }
    hubs.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn question_is_answered_and_stream_resumed_at_any_hub() {
    let hubs = start_with_suite_tools().await;
    let (one, other) = (&hubs.one, &hubs.other);
    let session = one
        .initialize_session(VERSION, json!({"elicitation": {}}))
        .await;
    for (holder, helper) in [(one, other), (other, one)] {
        let (mut stream, question, _) = call_until_asked(holder, &session).await;
        let answered = helper
            .session_request(&session, &acceptance(&question))
            .send()
            .await;
        assert_eq!(answered.status, 202);
        assert!(read_answer(&mut stream).await.contains("accept"));

        // The connection breaks, and the balancer leads to the other hub.
        let (stream, question, last_id) = call_until_asked(holder, &session).await;
        drop(stream);
        let mut resumed = resume(helper, &session, &last_id).send().await;
        assert_eq!(resumed.status, 200);
        let answered = helper
            .session_request(&session, &acceptance(&question))
            .send()
            .await;
        assert_eq!(answered.status, 202);
        assert!(read_answer(&mut resumed).await.contains("accept"));
    }
    // What nobody holds any more is said to be gone.
    let (stream, question, last_id) = call_until_asked(one, &session).await;
    drop(stream);
    let TwoHubs { one, other, .. } = hubs;
    one.running.stop().await;
    let listed = other.session_request(&session, &list_tools()).send().await;
    assert_eq!(listed.status, 200);
    let late = other.session_request(&session, &acceptance(&question));
    assert_eq!(late.send().await.status, 404);
    assert_eq!(resume(&other, &session, &last_id).send().await.status, 404);
    other.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn call_is_cancelled_at_any_hub() {
    let hubs = start_with_suite_tools().await;
    let (one, other) = (&hubs.one, &hubs.other);
    let session = one.initialize_session(VERSION, json!({})).await;
    let slow = call_message(3, "slow", json!({}));
    let calling = one
        .session_request(&session, &slow)
        .header("accept", "text/event-stream");
    let mut stream = calling.send().await;
    let primed = stream.next_event().await.unwrap();
    assert!(primed.data.is_empty());
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 3}});
    let cancelled = other.session_request(&session, &cancel).send().await;
    assert_eq!(cancelled.status, 202);
    assert!(stream.next_message().await.is_none());
    hubs.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_of_http_sse_posts_to_any_hub() {
    let hubs = start_with_suite_tools().await;
    let (one, other) = (&hubs.one, &hubs.other);
    let mut stream = TestRequest::new(&one.address, "GET", "/sse")
        .header("accept", "text/event-stream")
        .send()
        .await;
    let endpoint = stream.next_event().await.unwrap().data;
    let list = list_tools();
    for hub in [one, other] {
        let posted = TestRequest::post(&hub.address, &endpoint, &list)
            .send()
            .await;
        assert_eq!(posted.status, 202);
        let listed = stream.next_message().await.unwrap();
        assert!(listed["result"]["tools"].is_array(), "{listed}");
    }
    let broken = TestRequest::post(&other.address, &endpoint, &json!(7));
    assert_eq!(broken.send().await.status, 400);
    drop(stream);
    wait_until(async || {
        let late = TestRequest::post(&other.address, &endpoint, &list);
        late.send().await.status == 404
    })
    .await;
    hubs.stop().await;
}

/// Two hubs with a server whose tool asks before it pays.
pub(super) async fn start_with_payments() -> TwoHubs {
    let hubs = TwoHubs::start().await;
    let (one, other) = (&hubs.one, &hubs.other);
    let server = json!({"name": "pay", "autoConnect": true, "transportType": "STDIO",
        "config": {"command": *PYTHON, "args": [PAY_SCRIPT, "stdio", "-"]}});
    let added = one.send_as_admin("POST", "/api/mcp/servers", server).await;
    assert_eq!(added.status, 201);
    for hub in [one, other] {
        wait_until(async || hub.tool_names().await.contains("pay__pay ")).await;
    }
    hubs
}

/// Calls the tool until it asks; returns the parameters of the call with the answer.
pub(super) async fn ask_to_pay(hub: &TestHub) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    });
    let mut params = json!({"name": "pay__pay", "arguments": {"now": true}, "_meta": meta});
    let asked = call(hub, &params).await;
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let questions = asked["inputRequests"].as_object().unwrap();
    let answers = questions.keys().map(|key| {
        let answer = json!({"action": "accept", "content": {"name": "kim"}});
        (key.clone(), answer)
    });
    params["inputResponses"] = answers.collect();
    params["requestState"] = asked["requestState"].clone();
    params
}

async fn call(hub: &TestHub, params: &Value) -> Value {
    let request = hub.stateless_request("tools/call", params.clone());
    request.send().await.rpc_response().await["result"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_to_a_waiting_call_reaches_its_hub() {
    let hubs = start_with_payments().await;
    let (one, other) = (&hubs.one, &hubs.other);
    for (holder, helper) in [(one, other), (other, one)] {
        let answer = ask_to_pay(holder).await;
        let paid = call(helper, &answer).await;
        assert_eq!(paid["content"][0]["text"], "accept", "{paid}");
    }
    hubs.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn token_revoked_at_one_hub_ends_its_streams_at_the_other() {
    let hubs = TwoHubs::start().await;
    let (one, other) = (&hubs.one, &hubs.other);
    let token = one
        .create_token(json!({"name": "gone", "role": "agent"}))
        .await;
    let authorized = |request: TestRequest| {
        let token = format!("Bearer {token}");
        request.header("authorization", &token)
    };
    let open = async |path: &str, session: &str| {
        let request = TestRequest::new(&other.address, "GET", path)
            .header("accept", "text/event-stream")
            .header("mcp-session-id", session);
        authorized(request).send().await
    };
    wait_until(async || open("/api/tools", "").await.status == 200).await;
    let message = initialize_message(VERSION, &json!({}));
    let begun = authorized(other.post(&message)).send().await;
    let session = begun.headers["mcp-session-id"].clone();
    let mut streams = [open("/mcp", &session).await, open("/api/events", "").await];
    assert!(streams.iter().all(|it| it.status == 200));
    let revoked = one.send_as_admin("DELETE", "/api/tokens/gone", Value::Null);
    assert!(revoked.await.status.is_success());
    for stream in &mut streams {
        while stream.next_event().await.is_some() {}
    }
    hubs.stop().await;
}
