//! 2026-07-28: rounds of questions, in both eras, and their state.

use serde_json::{Value, json};

use crate::{
    http_client::TestRequest,
    test_hub::{TestHub, call_message},
};

const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const MULTI_ROUND_TOOL: &str = "test_input_required_result_multi_round";

fn call_request(hub: &TestHub, name: &str, extra: &Value) -> TestRequest {
    let mut params = json!({
        "name": name, "arguments": {},
        "_meta": {CAPABILITIES: {"elicitation": {}}},
    });
    for (key, value) in extra.as_object().unwrap() {
        params[key] = value.clone();
    }
    hub.stateless_request("tools/call", params)
}

#[tokio::test]
async fn modern_client_answers_input_requests_with_sealed_state() {
    let hub = TestHub::with_suite_and_slow_tool().await;
    let one = call_request(&hub, MULTI_ROUND_TOOL, &json!({}))
        .send()
        .await
        .rpc_response()
        .await["result"]
        .clone();
    assert_eq!(one["resultType"], "input_required");
    let accepted = json!({"action": "accept", "content": {"name": "x"}});
    let two = json!({"inputResponses": {"step1": accepted}, "requestState": one["requestState"]});
    let two = call_request(&hub, MULTI_ROUND_TOOL, &two)
        .send()
        .await
        .rpc_response()
        .await["result"]
        .clone();
    assert!(two["inputRequests"]["step2"].is_object(), "{two}");
    let three = json!({"inputResponses": {"step2": accepted}, "requestState": two["requestState"]});
    let three = call_request(&hub, MULTI_ROUND_TOOL, &three)
        .send()
        .await
        .rpc_response()
        .await["result"]
        .clone();
    assert_eq!(
        (&three["resultType"], &three["content"][0]["text"]),
        (&json!("complete"), &json!("All steps done"))
    );
}

#[tokio::test]
async fn state_of_another_request_is_refused() {
    let hub = TestHub::with_suite_and_slow_tool().await;
    let one = call_request(&hub, MULTI_ROUND_TOOL, &json!({}))
        .send()
        .await
        .rpc_response()
        .await["result"]
        .clone();
    let stolen = json!({"inputResponses": {}, "requestState": one["requestState"]});
    let refused = call_request(&hub, "test_input_required_result_request_state", &stolen)
        .send()
        .await
        .rpc_response()
        .await;
    assert_eq!(refused["error"]["code"], -32602);
}

#[tokio::test]
async fn legacy_client_gets_input_requests_on_the_stream_of_its_call() {
    let hub = TestHub::with_suite_and_slow_tool().await;
    let session = hub
        .initialize_session("2025-06-18", json!({"elicitation": {}}))
        .await;
    let mut stream = hub
        .session_request(&session, &call_message(9, MULTI_ROUND_TOOL, json!({})))
        .send()
        .await;
    for expected in [
        "Step 1: What is your name?",
        "Step 2: What is your favorite color?",
    ] {
        let asked = stream.next_message().await.unwrap();
        assert_eq!(asked["method"], "elicitation/create");
        assert_eq!(asked["params"]["message"], expected);
        let result = json!({"action": "accept", "content": {}});
        let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": result});
        assert_eq!(
            hub.session_request(&session, &answer).send().await.status,
            202
        );
    }
    let done = stream.next_message().await.unwrap();
    assert_eq!(done["result"]["content"][0]["text"], "All steps done");
    assert!(done["result"]["resultType"].is_null());
}

#[tokio::test]
async fn client_without_input_capabilities_gets_an_error() {
    let hub = TestHub::with_suite_and_slow_tool().await;
    let session = hub.initialize_session("2025-11-25", json!({})).await;
    let refused = hub
        .session_request(&session, &call_message(1, MULTI_ROUND_TOOL, json!({})))
        .send()
        .await
        .rpc_response()
        .await;
    assert_eq!(refused["error"]["code"], -32021);
    assert_eq!(
        refused["error"]["data"]["requiredCapabilities"],
        json!({"elicitation": {}})
    );
    let modern = hub
        .stateless_request(
            "tools/call",
            json!({"name": MULTI_ROUND_TOOL, "arguments": {}}),
        )
        .send()
        .await;
    assert_eq!(modern.status, 400);
}

#[tokio::test]
async fn disconnecting_cancels_a_modern_request() {
    let hub = TestHub::with_suite_and_slow_tool().await;
    let slow = hub
        .stateless_request("tools/call", json!({"name": "slow", "arguments": {}}))
        .send();
    let left = tokio::time::timeout(std::time::Duration::from_millis(200), slow).await;
    assert!(left.is_err());
    // Nothing is left for the shutdown to wait for: it would take seconds.
    let began = tokio::time::Instant::now();
    hub.running.stop().await;
    assert!(began.elapsed() < std::time::Duration::from_secs(4));
}
