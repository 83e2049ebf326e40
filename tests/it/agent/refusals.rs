//! Requests that are refused before a run, whoever refuses them.

use serde_json::{Value, json};

use super::{GENERATE_ROUTE, question_request};
use crate::{
    http_client::{TestRequest, TestResponse},
    test_hub::TestHub,
};

/// An error of JSON-RPC, and nothing else.
async fn check_envelope(reply: TestResponse, status: u16) {
    assert_eq!(reply.status, status);
    let answer = reply.json().await;
    let members = answer.as_object().unwrap().keys().cloned();
    let members: Vec<String> = members.collect();
    assert_eq!(members, ["jsonrpc", "id", "error"], "{status}: {answer}");
    assert_eq!(
        (&answer["jsonrpc"], &answer["id"]),
        (&json!("2.0"), &Value::Null)
    );
    assert!(answer["error"]["code"].is_i64(), "{status}: {answer}");
    assert_ne!(answer["error"]["message"], "", "{status}: {answer}");
}

#[tokio::test]
async fn every_refusal_is_an_error_of_json_rpc() {
    let hub = TestHub::start().await;
    let strict = TestHub::with_config(|config| config.require_token = true).await;
    let reader = strict
        .create_token(json!({"name": "reader", "role": "reader"}))
        .await;
    for path in [GENERATE_ROUTE, "/generate"] {
        let post =
            |hub: &TestHub| TestRequest::post(&hub.address, path, &question_request(json!({})));
        let large = json!({"x": "y".repeat(5 << 20)}).to_string();
        check_envelope(post(&strict).send().await, 401).await;
        let limited = post(&strict).header("authorization", &format!("Bearer {reader}"));
        check_envelope(limited.send().await, 403).await;
        check_envelope(post(&hub).header("host", "evil.test").send().await, 403).await;
        let get = TestRequest::new(&hub.address, "GET", path);
        check_envelope(get.send().await, 405).await;
        check_envelope(post(&hub).body(&large).send().await, 413).await;
        let text =
            TestRequest::new(&hub.address, "POST", path).header("content-type", "text/plain");
        check_envelope(text.body("{}").send().await, 415).await;
        for body in ["{", "[]", "5", "{\"id\": {}}"] {
            check_envelope(post(&hub).body(body).send().await, 400).await;
        }
    }
    let limited = TestHub::with_config(|config| config.limits.calls_per_minute = Some(1)).await;
    for status in [400, 429] {
        let reply = TestRequest::post(&limited.address, GENERATE_ROUTE, &json!({}));
        check_envelope(reply.send().await, status).await;
    }
}
