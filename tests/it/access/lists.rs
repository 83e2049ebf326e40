//! Tokens that are good for some servers and tools: in lists and in calls.

use std::sync::Arc;

use futures_util::FutureExt as _;
use maru::tool::{Answer, Handler, Kind, Offer, output};
use serde_json::{Value, json};

use crate::{hub::TestHub, wire::Ask};

/// A hub with its own tools, and a server `fx` with two tools and a prompt.
async fn hub() -> TestHub {
    let hub = TestHub::start().await;
    let offer = |kind: Kind, name: &str| {
        let handler: Handler = Arc::new(|_| {
            async { Ok(Answer::Complete(output::structured(&json!({"ok": true})))) }.boxed()
        });
        let described = json!({"inputSchema": {"type": "object"}});
        let offer = Offer::of_server(&"fx".into(), kind, name.to_owned(), &described, handler);
        Arc::new(offer)
    };
    let offers = [
        offer(Kind::Tool, "test_simple_text"),
        offer(Kind::Tool, "test_image_content"),
        offer(Kind::Prompt, "ask"),
    ];
    hub.running.catalog().publish("fx", &offers);
    hub
}

async fn names(hub: &TestHub, token: &str, method: &str, path: &str) -> Vec<String> {
    let asked = Ask::post(&hub.address, path, &crate::hub::modern(method, json!({})))
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", method)
        .header("authorization", &format!("Bearer {token}"));
    let answer = asked.send().await.answer().await;
    let lists = ["tools", "prompts", "resources"];
    let list = lists.iter().find_map(|it| answer["result"][it].as_array());
    list.cloned()
        .unwrap_or_default()
        .iter()
        .map(|it| it["name"].as_str().unwrap().to_owned())
        .collect()
}

async fn call(hub: &TestHub, token: &str, name: &str) -> Value {
    let asked = hub.modern("tools/call", json!({"name": name, "arguments": {}}));
    let asked = asked.header("authorization", &format!("Bearer {token}"));
    asked.send().await.answer().await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_listed_cannot_be_called_by_any_name() {
    let hub = hub().await;
    let body = json!({"name": "one", "role": "agent", "servers": ["fx"], "tools": ["fx__test_simple_text"]});
    let token = hub.token(body).await;
    let listed = names(&hub, &token, "tools/list", "/mcp").await;
    assert_eq!(listed, ["fx__test_simple_text"]);
    assert_eq!(
        names(&hub, &token, "tools/list", "/mcp/s/fx").await,
        ["test_simple_text"]
    );
    let allowed = call(&hub, &token, "fx__test_simple_text").await;
    assert!(allowed["result"]["content"].is_array(), "{allowed}");
    let dotted = call(&hub, &token, "fx.test_simple_text").await;
    assert!(dotted["result"]["content"].is_array(), "{dotted}");
    for name in [
        "get_all_employees",
        "fx__test_image_content",
        "fx.test_image_content",
        "maru.get_all_employees",
    ] {
        let refused = call(&hub, &token, name).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        let told = refused["error"]["message"].as_str().unwrap();
        assert!(
            told.contains("unknown tool") && !told.contains("did you mean get"),
            "{told}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn empty_list_means_nothing_and_an_absent_one_everything() {
    let hub = hub().await;
    let nothing = json!({"name": "nothing", "role": "agent", "tools": []});
    let nothing = hub.token(nothing).await;
    for method in ["tools/list", "prompts/list", "resources/list"] {
        let listed = names(&hub, &nothing, method, "/mcp").await;
        assert_eq!(listed, [""; 0], "{method}");
    }
    let own = json!({"name": "own", "role": "reader", "servers": ["maru"]});
    let own = hub.token(own).await;
    let listed = names(&hub, &own, "tools/list", "/mcp").await;
    assert!(listed.contains(&"get_all_employees".to_owned()));
    assert!(!listed.iter().any(|it| it.starts_with("fx__")));
    let all = hub.token(json!({"name": "all", "role": "reader"})).await;
    let listed = names(&hub, &all, "tools/list", "/mcp").await;
    assert!(listed.contains(&"fx__test_simple_text".to_owned()));
}

/// Routes that do not know the lists are closed to tokens that have some.
#[tokio::test(flavor = "multi_thread")]
async fn restricted_token_learns_nothing_beside_its_lists() {
    let hub = hub().await;
    let body = json!({"name": "some", "role": "admin", "servers": ["gx"]});
    let bearer = format!("Bearer {}", hub.token(body).await);
    let ask = async |method, path: &str| {
        let asked = Ask::new(&hub.address, method, path).header("authorization", &bearer);
        asked.send().await
    };
    for path in [
        "/api/tokens",
        "/api/custom-tools",
        "/api/sources",
        "/api/limits",
    ] {
        assert_eq!(ask("GET", path).await.status, 403, "{path}");
    }
    assert_eq!(ask("GET", "/api/mcp/servers").await.json().await, json!([]));
    assert_eq!(ask("POST", "/mcp/s/fx").await.status, 404);
    let ready = ask("GET", "/readyz").await.json().await;
    assert_eq!(ready["tools"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_token_and_its_sessions_end_at_once() {
    let hub = hub().await;
    let token = hub.token(json!({"name": "gone", "role": "agent"})).await;
    let bearer = format!("Bearer {token}");
    let mut stream = Ask::new(&hub.address, "GET", "/sse")
        .header("accept", "text/event-stream")
        .header("authorization", &bearer)
        .send()
        .await;
    let path = stream.event().await.unwrap().data;
    let gone = hub.admin("DELETE", "/api/tokens/gone", Value::Null).await;
    assert_eq!(gone.status, 204);
    assert!(stream.event().await.is_none());
    let refused = Ask::post(&hub.address, &path, &json!({}));
    let refused = refused.header("authorization", &bearer).send().await;
    assert_eq!(refused.status, 401);
    let listed = hub
        .admin("GET", "/api/tokens", Value::Null)
        .await
        .text()
        .await;
    assert!(
        !listed.contains("gone") && !listed.contains(&token),
        "{listed}"
    );
}
