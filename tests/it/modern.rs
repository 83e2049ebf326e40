//! 2026-07-28: rounds of questions, in both eras, and their state.

use serde_json::{Value, json};

use crate::{
    hub::{TestHub, call},
    wire::Ask,
};

const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const TOOL: &str = "test_input_required_result_multi_round";

fn ask(hub: &TestHub, name: &str, extra: &Value) -> Ask {
    let mut params = json!({
        "name": name, "arguments": {},
        "_meta": {CAPABILITIES: {"elicitation": {}}},
    });
    for (key, value) in extra.as_object().unwrap() {
        params[key] = value.clone();
    }
    hub.modern("tools/call", params)
}

#[tokio::test]
async fn modern_client_answers_by_asking_again_with_sealed_state() {
    let hub = TestHub::with_fixture().await;
    let one = ask(&hub, TOOL, &json!({})).send().await.answer().await["result"].clone();
    assert_eq!(one["resultType"], "input_required");
    let accepted = json!({"action": "accept", "content": {"name": "x"}});
    let two = json!({"inputResponses": {"step1": accepted}, "requestState": one["requestState"]});
    let two = ask(&hub, TOOL, &two).send().await.answer().await["result"].clone();
    assert!(two["inputRequests"]["step2"].is_object(), "{two}");
    let three = json!({"inputResponses": {"step2": accepted}, "requestState": two["requestState"]});
    let three = ask(&hub, TOOL, &three).send().await.answer().await["result"].clone();
    assert_eq!(
        (&three["resultType"], &three["content"][0]["text"]),
        (&json!("complete"), &json!("All steps done"))
    );
}

#[tokio::test]
async fn state_of_another_request_is_refused() {
    let hub = TestHub::with_fixture().await;
    let one = ask(&hub, TOOL, &json!({})).send().await.answer().await["result"].clone();
    let stolen = json!({"inputResponses": {}, "requestState": one["requestState"]});
    let refused = ask(&hub, "test_input_required_result_request_state", &stolen)
        .send()
        .await
        .answer()
        .await;
    assert_eq!(refused["error"]["code"], -32602);
}

#[tokio::test]
async fn legacy_client_is_asked_on_the_stream_of_its_request() {
    let hub = TestHub::with_fixture().await;
    let session = hub.session("2025-06-18", json!({"elicitation": {}})).await;
    let mut stream = hub.ask(&session, &call(9, TOOL, json!({}))).send().await;
    for expected in [
        "Step 1: What is your name?",
        "Step 2: What is your favorite color?",
    ] {
        let asked = stream.message().await.unwrap();
        assert_eq!(asked["method"], "elicitation/create");
        assert_eq!(asked["params"]["message"], expected);
        let result = json!({"action": "accept", "content": {}});
        let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": result});
        assert_eq!(hub.ask(&session, &answer).send().await.status, 202);
    }
    let done = stream.message().await.unwrap();
    assert_eq!(done["result"]["content"][0]["text"], "All steps done");
    assert!(done["result"]["resultType"].is_null());
}

#[tokio::test]
async fn client_that_cannot_be_asked_is_told_so() {
    let hub = TestHub::with_fixture().await;
    let session = hub.session("2025-11-25", json!({})).await;
    let refused = hub
        .ask(&session, &call(1, TOOL, json!({})))
        .send()
        .await
        .answer()
        .await;
    assert_eq!(refused["error"]["code"], -32021);
    assert_eq!(
        refused["error"]["data"]["requiredCapabilities"],
        json!({"elicitation": {}})
    );
    let modern = hub
        .modern("tools/call", json!({"name": TOOL, "arguments": {}}))
        .send()
        .await;
    assert_eq!(modern.status, 400);
}

#[tokio::test]
async fn leaving_cancels_a_modern_request() {
    let hub = TestHub::with_fixture().await;
    let slow = hub
        .modern("tools/call", json!({"name": "slow", "arguments": {}}))
        .send();
    let left = tokio::time::timeout(std::time::Duration::from_millis(200), slow).await;
    assert!(left.is_err());
    // Nothing is left for the shutdown to wait for: it would take seconds.
    let began = tokio::time::Instant::now();
    hub.running.stop().await;
    assert!(began.elapsed() < std::time::Duration::from_secs(4));
}
