//! Tokens that are good for some servers and tools: in lists and in calls.

use std::sync::Arc;

use futures_util::FutureExt as _;
use maru::tools::{CatalogEntry, CatalogEntryKind, EntryHandler, EntryResponse, EntryResult};
use serde_json::{Value, json};

use crate::{http_client::TestRequest, test_hub::TestHub};

/// A hub with its own tools, and a server `fx` with two tools and a prompt.
async fn hub_with_fixture_server() -> TestHub {
    let hub = TestHub::start().await;
    let offer = |kind: CatalogEntryKind, name: &str| {
        let handler: EntryHandler = Arc::new(|_| {
            async {
                Ok(EntryResponse::Complete(EntryResult::structured(
                    &json!({"ok": true}),
                )))
            }
            .boxed()
        });
        let described = json!({"inputSchema": {"type": "object"}});
        let offer =
            CatalogEntry::from_server(&"fx".into(), kind, name.to_owned(), &described, handler);
        Arc::new(offer)
    };
    let offers = [
        offer(CatalogEntryKind::Tool, "test_simple_text"),
        offer(CatalogEntryKind::Tool, "test_image_content"),
        offer(CatalogEntryKind::Prompt, "ask"),
    ];
    hub.running.catalog().publish("fx", &offers);
    hub
}

async fn listed_names(hub: &TestHub, token: &str, method: &str, path: &str) -> Vec<String> {
    let asked = TestRequest::post(
        &hub.address,
        path,
        &crate::test_hub::stateless_message(method, json!({})),
    )
    .header("mcp-protocol-version", "2026-07-28")
    .header("mcp-method", method)
    .header("authorization", &format!("Bearer {token}"));
    let answer = asked.send().await.rpc_response().await;
    let lists = ["tools", "prompts", "resources"];
    let list = lists.iter().find_map(|it| answer["result"][it].as_array());
    list.cloned()
        .unwrap_or_default()
        .iter()
        .map(|it| it["name"].as_str().unwrap().to_owned())
        .collect()
}

async fn call(hub: &TestHub, token: &str, name: &str) -> Value {
    let asked = hub.stateless_request("tools/call", json!({"name": name, "arguments": {}}));
    let asked = asked.header("authorization", &format!("Bearer {token}"));
    asked.send().await.rpc_response().await
}

#[tokio::test(flavor = "multi_thread")]
async fn unlisted_tools_cannot_be_called_by_any_name() {
    let hub = hub_with_fixture_server().await;
    let body = json!({"name": "one", "role": "agent", "servers": ["fx"], "tools": ["fx__test_simple_text"]});
    let token = hub.create_token(body).await;
    let listed = listed_names(&hub, &token, "tools/list", "/mcp").await;
    assert_eq!(listed, ["fx__test_simple_text"]);
    assert_eq!(
        listed_names(&hub, &token, "tools/list", "/mcp/s/fx").await,
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
async fn empty_list_allows_nothing_and_an_absent_list_everything() {
    let hub = hub_with_fixture_server().await;
    let nothing = json!({"name": "nothing", "role": "agent", "tools": []});
    let nothing = hub.create_token(nothing).await;
    for method in ["tools/list", "prompts/list", "resources/list"] {
        let listed = listed_names(&hub, &nothing, method, "/mcp").await;
        assert_eq!(listed, [""; 0], "{method}");
    }
    let own = json!({"name": "own", "role": "reader", "servers": ["maru"]});
    let own = hub.create_token(own).await;
    let listed = listed_names(&hub, &own, "tools/list", "/mcp").await;
    assert!(listed.contains(&"get_all_employees".to_owned()));
    assert!(!listed.iter().any(|it| it.starts_with("fx__")));
    let all = hub
        .create_token(json!({"name": "all", "role": "reader"}))
        .await;
    let listed = listed_names(&hub, &all, "tools/list", "/mcp").await;
    assert!(listed.contains(&"fx__test_simple_text".to_owned()));
}

/// Routes that do not know the lists are closed to tokens that have some.
#[tokio::test(flavor = "multi_thread")]
async fn restricted_token_sees_only_its_lists() {
    let hub = hub_with_fixture_server().await;
    let body = json!({"name": "some", "role": "admin", "servers": ["gx"], "allowUnknown": true});
    let bearer = format!("Bearer {}", hub.create_token(body).await);
    let ask = async |method, path: &str| {
        let asked = TestRequest::new(&hub.address, method, path).header("authorization", &bearer);
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
    let hub = hub_with_fixture_server().await;
    let token = hub
        .create_token(json!({"name": "gone", "role": "agent"}))
        .await;
    let bearer = format!("Bearer {token}");
    let mut stream = TestRequest::new(&hub.address, "GET", "/sse")
        .header("accept", "text/event-stream")
        .header("authorization", &bearer)
        .send()
        .await;
    let path = stream.next_event().await.unwrap().data;
    let gone = hub
        .send_as_admin("DELETE", "/api/tokens/gone", Value::Null)
        .await;
    assert_eq!(gone.status, 204);
    assert!(stream.next_event().await.is_none());
    let refused = TestRequest::post(&hub.address, &path, &json!({}));
    let refused = refused.header("authorization", &bearer).send().await;
    assert_eq!(refused.status, 401);
    let listed = hub
        .send_as_admin("GET", "/api/tokens", Value::Null)
        .await
        .text()
        .await;
    assert!(
        !listed.contains("gone") && !listed.contains(&token),
        "{listed}"
    );
}
