//! How often a minute.

use serde_json::json;

use crate::hub::{TestHub, call};

#[tokio::test(flavor = "multi_thread")]
async fn call_beyond_the_minute_is_refused_and_says_until_when() {
    let hub = TestHub::start().await;
    let set = hub.admin(
        "PUT",
        "/api/limits/TOOL/get_all_employees",
        json!({"max_per_minute": 2}),
    );
    assert_eq!(set.await.status, 200);
    let session = hub.session("2025-11-25", json!({})).await;
    let ask = async |tool: &str| {
        let asked = hub.ask(&session, &call(1, tool, json!({}))).send().await;
        asked.answer().await["result"].clone()
    };
    for _ in 0..2 {
        assert_ne!(ask("get_all_employees").await["isError"], true);
    }
    let refused = ask("get_all_employees").await;
    assert_eq!(refused["isError"], true, "{refused}");
    let why = refused["content"][0]["text"].as_str().unwrap();
    assert!(
        why.contains("2 calls a minute; try again in 30 s, at "),
        "{why}"
    );
    let listed = hub
        .admin("GET", "/api/limits", json!(null))
        .await
        .json()
        .await;
    let expected =
        json!([{"target_type": "TOOL", "target_id": "get_all_employees", "max_per_minute": 2}]);
    assert_eq!(listed, expected);
    let removed = hub
        .admin("DELETE", "/api/limits/TOOL/get_all_employees", json!(null))
        .await;
    assert_eq!(removed.status, 204);
    assert_ne!(ask("get_all_employees").await["isError"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_token_has_its_own_minute() {
    let hub = TestHub::with(|config| config.limits.calls_per_minute = Some(1)).await;
    for name in ["one", "two"] {
        let token = hub.token(json!({"name": name, "role": "agent"})).await;
        let ask = async || {
            let params = json!({"name": "get_all_employees", "arguments": {}});
            let asked = hub.modern("tools/call", params);
            let asked = asked.header("authorization", &format!("Bearer {token}"));
            asked.send().await.answer().await["result"]["isError"] == true
        };
        assert!(!ask().await, "{name}");
        assert!(ask().await, "{name}");
    }
}
