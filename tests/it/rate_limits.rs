//! How often a minute.

use serde_json::json;

use crate::{
    http_client::TestRequest,
    openai::fake_model::{FakeModelServer, streamed_by_byte},
    test_hub::{TestHub, call_message},
};

#[tokio::test(flavor = "multi_thread")]
async fn call_beyond_the_minute_limit_is_refused_with_the_reset_time() {
    let hub = TestHub::start().await;
    let set = hub.send_as_admin(
        "PUT",
        "/api/limits/TOOL/get_all_employees",
        json!({"max_per_minute": 2}),
    );
    assert_eq!(set.await.status, 200);
    let session = hub.initialize_session("2025-11-25", json!({})).await;
    let ask = async |tool: &str| {
        let asked = hub
            .session_request(&session, &call_message(1, tool, json!({})))
            .send()
            .await;
        asked.rpc_response().await["result"].clone()
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
        .send_as_admin("GET", "/api/limits", json!(null))
        .await
        .json()
        .await;
    let expected =
        json!({"target_type": "TOOL", "target_id": "get_all_employees", "max_per_minute": 2});
    assert!(listed.as_array().unwrap().contains(&expected), "{listed}");
    let removed = hub
        .send_as_admin("DELETE", "/api/limits/TOOL/get_all_employees", json!(null))
        .await;
    assert_eq!(removed.status, 204);
    assert_ne!(ask("get_all_employees").await["isError"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_token_has_its_own_minute() {
    let hub = TestHub::with_config(|config| config.limits.calls_per_minute = Some(1)).await;
    for name in ["one", "two"] {
        let token = hub
            .create_token(json!({"name": name, "role": "agent"}))
            .await;
        let ask = async || {
            let params = json!({"name": "get_all_employees", "arguments": {}});
            let asked = hub.stateless_request("tools/call", params);
            let asked = asked.header("authorization", &format!("Bearer {token}"));
            asked.send().await.rpc_response().await["result"]["isError"] == true
        };
        assert!(!ask().await, "{name}");
        assert!(ask().await, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn model_request_beyond_the_limit_is_answered_with_429() {
    let backend = FakeModelServer::start_with_steps(streamed_by_byte("안녕하세요!", "stop")).await;
    let hub = TestHub::with_config(|config| config.models = vec![backend.model()]).await;
    let token = hub
        .create_token(json!({"name": "one", "role": "agent"}))
        .await;
    let set = |limit: serde_json::Value| hub.send_as_admin("PUT", "/api/limits/USER/one", limit);
    assert_eq!(set(json!({"max_per_minute": 2})).await.status, 200);
    let ask = async |path: &str, body: serde_json::Value| {
        TestRequest::post(&hub.address, path, &body)
            .header("authorization", &format!("Bearer {token}"))
            .send()
            .await
    };
    let chat = json!({"model": "small", "messages": [{"role": "user", "content": "안녕"}]});
    assert_eq!(ask("/v1/chat/completions", chat.clone()).await.status, 200);
    let embed = json!({"input": "안녕"});
    assert_eq!(ask("/v1/embeddings", embed).await.status, 200);
    let refused = ask("/v1/chat/completions", chat).await;
    assert_eq!(refused.status, 429);
    let wait: u64 = refused.headers["retry-after"].parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    let told = refused.json().await;
    assert_eq!(told["error"]["code"], "rate_limit_exceeded", "{told}");
    assert_eq!(ask("/generate", json!({})).await.status, 429);
    assert_eq!(backend.seen().len(), 1);

    let removed = hub.send_as_admin("DELETE", "/api/limits/USER/one", json!(null));
    assert_eq!(removed.await.status, 204);
    assert_eq!(set(json!({"max_count": 0})).await.status, 200);
    let refused = ask("/generate_with_mcp", json!({})).await;
    assert_eq!(refused.status, 429);
    let told = refused.text().await;
    assert!(told.contains("the limit resets at"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn limit_or_token_for_a_name_that_is_not_there_is_refused_with_a_suggestion() {
    let hub = TestHub::start().await;
    let send = async |method: &'static str, path: &str, body: serde_json::Value| {
        let answer = hub.send_as_admin(method, path, body).await;
        (answer.status.as_u16(), answer.json().await)
    };
    hub.create_token(json!({"name": "colleague", "role": "agent"}))
        .await;
    let limit = |more: bool| json!({"max_count": 5, "allow_unknown": more});
    for (path, suggestion) in [
        (
            "/api/limits/TOOL/get_al_employees",
            "did you mean get_all_employees?",
        ),
        ("/api/limits/USER/coleague", "did you mean colleague?"),
    ] {
        let (status, refused) = send("PUT", path, limit(false)).await;
        let message = refused["error"].as_str().unwrap();
        assert!(status == 400 && message.contains(suggestion), "{refused}");
        assert_eq!(send("PUT", path, limit(true)).await.0, 200);
        // A limit that is there can be changed.
        assert_eq!(send("PUT", path, limit(false)).await.0, 200);
    }
    for (body, suggestion) in [
        (json!({"servers": ["maro"]}), "did you mean maru?"),
        (
            json!({"tools": ["search_doc"]}),
            "did you mean search_docs?",
        ),
    ] {
        let mut token = json!({"name": "t", "role": "agent"});
        token
            .as_object_mut()
            .unwrap()
            .extend(body.as_object().unwrap().clone());
        let (status, refused) = send("POST", "/api/tokens", token).await;
        let message = refused["error"].as_str().unwrap();
        assert!(status == 400 && message.contains(suggestion), "{refused}");
    }
}
