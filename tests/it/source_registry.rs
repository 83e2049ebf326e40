//! Databases that are added, changed and removed while the hub runs.

use std::path::{Path, PathBuf};

use maru::config::Config;
use serde_json::{Value, json};

use crate::{http_client::TestRequest, test_hub::TestHub};

const SOURCES_ROUTE: &str = "/api/sources";

/// An SQLite file with a table of three rows.
fn shop_file(directory: &Path) -> PathBuf {
    let path = directory.join("shop.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "CREATE TABLE item (name TEXT, price INTEGER);
             INSERT INTO item VALUES ('가방', 30000), ('book', 12000), ('pen', 900)",
        )
        .unwrap();
    path
}

async fn send(hub: &TestHub, method: &'static str, path: &str, body: Value) -> (u16, Value) {
    let reply = hub.send_as_admin(method, path, body).await;
    let status = reply.status.as_u16();
    let text = reply.text().await;
    (status, serde_json::from_str(&text).unwrap_or_default())
}

async fn listed(hub: &TestHub, name: &str) -> Option<Value> {
    let (_, all) = send(hub, "GET", SOURCES_ROUTE, Value::Null).await;
    let all = all.as_array().unwrap().clone();
    all.into_iter().find(|it| it["name"] == name)
}

async fn call_text(hub: &TestHub, name: &str, arguments: Value) -> (String, bool) {
    let params = json!({"name": name, "arguments": arguments});
    let request = hub.stateless_request("tools/call", params);
    let answer = request.send().await.rpc_response().await;
    let result = &answer["result"];
    let text = result["content"][0]["text"].as_str();
    let text = text.map_or_else(|| answer.to_string(), str::to_owned);
    (text, result["isError"] != false)
}

#[tokio::test]
async fn source_is_added_changed_and_removed_without_a_restart() {
    let files = tempfile::tempdir().unwrap();
    let path = shop_file(files.path());
    let hub = TestHub::start().await;
    assert!(hub.tool_names().await.contains("search_docs "));
    let shop = json!({"name": "shop", "url": path});
    let (_, tested) = send(&hub, "POST", "/api/sources/test", shop.clone()).await;
    assert_eq!(tested, json!({"ok": true, "tables": 1}));
    assert_eq!(listed(&hub, "shop").await, None, "a test saves nothing");
    let (status, added) = send(&hub, "POST", SOURCES_ROUTE, shop.clone()).await;
    assert_eq!(
        (status, &added["origin"]),
        (201, &json!("console")),
        "{added}"
    );
    assert_eq!(listed(&hub, "shop").await.unwrap()["kind"], "sqlite");
    let (_, tables) = send(&hub, "GET", "/api/sources/shop/tables", Value::Null).await;
    assert_eq!(tables[0]["name"], "item");

    // Built-in and custom tools read it, and the sample tools step back.
    let names = hub.tool_names().await;
    assert!(!names.contains("search_docs "), "{names}");
    let sql = json!({"generated_sql": "SELECT sum(price) AS total FROM item"});
    let (text, failed) = call_text(&hub, "query_bga_database", sql).await;
    assert!(!failed && text.contains("42900"), "{text}");
    let tool = json!({
        "name": "prices", "description_agent": "Lists prices", "tool_type": "SQL", "source": "shop",
        "definition": "SELECT name FROM item ORDER BY price", "result_format": "rows",
    });
    let (status, answer) = send(&hub, "POST", "/api/custom-tools", tool).await;
    assert_eq!(status, 201, "{answer}");

    let (status, changed) = send(
        &hub,
        "PUT",
        "/api/sources/shop",
        json!({"url": path, "max_rows": 1}),
    )
    .await;
    assert_eq!((status, &changed["maxRows"]), (200, &json!(1)), "{changed}");
    let (text, _) = call_text(&hub, "prices", json!({})).await;
    assert!(
        text.contains("truncated") && !text.contains("book"),
        "{text}"
    );

    let (status, _) = send(&hub, "DELETE", "/api/sources/shop", Value::Null).await;
    assert_eq!(status, 204);
    assert!(hub.tool_names().await.contains("search_docs "));
    let (text, failed) = call_text(&hub, "prices", json!({})).await;
    assert!(failed && text.contains("there is no source"), "{text}");
    let (_, tool) = send(&hub, "GET", "/api/custom-tools/prices", Value::Null).await;
    assert!(tool["fault"].is_string(), "{tool}");
    send(&hub, "POST", SOURCES_ROUTE, shop).await;
    assert!(!call_text(&hub, "prices", json!({})).await.1, "it is back");
}

#[tokio::test]
async fn password_of_a_source_is_sealed_masked_and_kept() {
    let directory = tempfile::tempdir().unwrap();
    let config = || Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        data_dir: directory.path().to_owned(),
        ..Config::default()
    };
    let hub = TestHub::with_directory(config()).await;
    let url = "postgres://reader:canary-in-source@127.0.0.1:9/db";
    let (status, answer) = send(
        &hub,
        "POST",
        SOURCES_ROUTE,
        json!({"name": "pg", "url": url}),
    )
    .await;
    assert_eq!(
        status, 201,
        "an unreachable database can be added: {answer}"
    );
    let (_, shown) = send(&hub, "GET", "/api/sources/pg", Value::Null).await;
    let masked = "postgres://reader:***@127.0.0.1:9/db";
    assert_eq!(shown["url"], masked);
    let (status, answer) = send(
        &hub,
        "PUT",
        "/api/sources/pg",
        json!({"url": masked, "max_rows": 7}),
    )
    .await;
    assert_eq!((status, &answer["maxRows"]), (200, &json!(7)), "{answer}");
    let other = "postgres://other:***@127.0.0.1:9/db";
    let (status, _) = send(&hub, "PUT", "/api/sources/pg", json!({"url": other})).await;
    assert_eq!(status, 400, "a masked password is none");
    let (_, audit) = send(&hub, "GET", "/api/audit", Value::Null).await;
    assert!(audit.to_string().contains("POST /api/sources"), "{audit}");
    let (_, list) = send(&hub, "GET", SOURCES_ROUTE, Value::Null).await;
    assert!(!format!("{audit}{list}").contains("canary"));
    hub.running.stop().await;

    for file in ["maru.db", "maru.db-wal"] {
        let bytes = std::fs::read(directory.path().join(file)).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains("canary-in-source"), "{file}");
    }
    let hub = TestHub::with_directory(config()).await;
    assert_eq!(listed(&hub, "pg").await.unwrap()["maxRows"], 7);
    let (_, shown) = send(&hub, "GET", "/api/sources/pg", Value::Null).await;
    assert_eq!(shown["url"], masked, "it still has its password");
}

#[tokio::test]
async fn what_is_no_source_is_refused() {
    let files = tempfile::tempdir().unwrap();
    let path = shop_file(files.path());
    let hub = TestHub::with_config(|config| {
        let definition = json!({"name": "fixed", "url": path});
        config.sources = vec![serde_json::from_value(definition).unwrap()];
    })
    .await;
    let own = hub.directory.path().join("maru.db");
    let cases = [
        (json!({"name": "a b", "url": path}), 400, "letter"),
        (json!({"name": "test", "url": path}), 400, "reserved"),
        (json!({"name": "sample", "url": path}), 400, "reserved"),
        (json!({"name": "fixed", "url": path}), 409, "exists"),
        (json!({"name": "x"}), 400, "url"),
        (
            json!({"name": "x", "url": path, "max_rows": 0}),
            400,
            "max_rows",
        ),
        (
            json!({"name": "x", "url": path, "maxrows": 5}),
            400,
            "maxrows",
        ),
        (json!({"name": "x", "url": own}), 400, "own files"),
        (
            json!({"name": "x", "url": "/no/such/file.db"}),
            400,
            "no such file",
        ),
        (
            json!({"name": "x", "url": "mysql://u:hush@db.example.com/db"}),
            400,
            "cannot read mysql://",
        ),
        (
            json!({"name": "x", "url": "postgres://u:p@10.0.0.7/db"}),
            400,
            "allowed_hosts",
        ),
        (
            json!({"name": "x", "url": "postgres://u:p@db.example.com/db"}),
            400,
            "allowed_hosts",
        ),
        (
            json!({"name": "x", "url": "postgres://u:p@127.0.0.1/db?hostaddr=10.0.0.7"}),
            400,
            "allowed_hosts",
        ),
    ];
    for (body, expected, words) in cases {
        let (status, answer) = send(&hub, "POST", SOURCES_ROUTE, body.clone()).await;
        assert_eq!(status, expected, "{body} {answer}");
        let message = answer["error"].to_string();
        assert!(message.contains(words), "{body} {answer}");
    }
    for (method, path) in [
        ("PUT", "/api/sources/fixed"),
        ("DELETE", "/api/sources/fixed"),
    ] {
        let (status, answer) = send(&hub, method, path, json!({"url": path})).await;
        assert_eq!(status, 409, "{answer}");
        assert!(
            answer["error"].to_string().contains("maru.yaml"),
            "{answer}"
        );
    }
    assert_eq!(listed(&hub, "fixed").await.unwrap()["origin"], "settings");
    let added = json!({"name": "added", "url": path});
    assert_eq!(send(&hub, "POST", SOURCES_ROUTE, added).await.0, 201);
    let (status, answer) = send(&hub, "PUT", "/api/sources/added", json!([])).await;
    assert_eq!(status, 400, "{answer}");
    let (status, _) = send(&hub, "DELETE", "/api/sources/none", Value::Null).await;
    assert_eq!(status, 404);
    // Programs on this machine may list sources and change none.
    let reply = TestRequest::post(
        &hub.address,
        SOURCES_ROUTE,
        &json!({"name": "x", "url": path}),
    );
    assert_eq!(reply.send().await.status, 401);
}

#[tokio::test]
async fn sample_is_switched_off_in_one_place() {
    let hub = TestHub::start().await;
    let mode = async |mode: &str| {
        send(&hub, "PUT", "/api/sources/sample", json!({"mode": mode}))
            .await
            .0
    };
    let sample_tools = async || {
        let names = hub.tool_names().await;
        (
            names.contains("search_docs "),
            names.contains("query_bga_database "),
        )
    };
    assert_eq!(sample_tools().await, (true, true));
    assert_eq!(mode("off").await, 200);
    assert_eq!(sample_tools().await, (false, false));
    assert_eq!(listed(&hub, "sample").await.unwrap()["enabled"], false);
    assert_eq!(mode("on").await, 200);
    let files = tempfile::tempdir().unwrap();
    let shop = json!({"name": "shop", "url": shop_file(files.path())});
    send(&hub, "POST", SOURCES_ROUTE, shop).await;
    assert_eq!(sample_tools().await, (true, true), "on means always");
    assert_eq!(mode("auto").await, 200);
    assert_eq!(sample_tools().await, (false, true));
    // A custom tool may take the name of a sample tool that is gone, and keeps it.
    let tool = json!({"name": "search_docs", "description_agent": "Mine", "tool_type": "PYTHON", "definition": "'mine'"});
    assert_eq!(send(&hub, "POST", "/api/custom-tools", tool).await.0, 201);
    assert_eq!(mode("on").await, 200);
    assert_eq!(call_text(&hub, "search_docs", json!({})).await.0, "mine");
}

#[tokio::test]
async fn limit_of_the_document_is_the_one_that_is_enforced() {
    let hub = TestHub::start().await;
    let tool = json!({
        "name": "get_user_daily_limit", "description_agent": "특정 사용자의 일일 제한량을 조회합니다.",
        "tool_type": "SQL", "source": "sample",
        "definition": "SELECT u.user_nm, l.max_count\nFROM h_user u\nJOIN h_mcp_tool_limit l ON u.uid = l.target_id\nWHERE u.user_nm = :user_name AND l.target_type = 'USER'",
        "params": [{"param_name": "user_name", "param_type": "STRING"}],
    });
    assert_eq!(send(&hub, "POST", "/api/custom-tools", tool).await.0, 201);
    let told = async |user: &str| {
        let arguments = json!({"user_name": user});
        call_text(&hub, "get_user_daily_limit", arguments).await.0
    };
    let (_, limits) = send(&hub, "GET", "/api/limits", Value::Null).await;
    let hong = limits
        .as_array()
        .unwrap()
        .iter()
        .find(|it| it["target_id"] == "hong");
    assert_eq!(hong.unwrap()["max_count"], 50, "{limits}");
    assert_eq!(told("hong").await, r#"{"user_nm":"hong","max_count":50}"#);

    send(
        &hub,
        "PUT",
        "/api/limits/USER/hong",
        json!({"max_count": 2}),
    )
    .await;
    send(
        &hub,
        "PUT",
        "/api/limits/USER/new-user",
        json!({"max_count": 9, "allow_unknown": true}),
    )
    .await;
    assert_eq!(told("hong").await, r#"{"user_nm":"hong","max_count":2}"#);
    assert_eq!(
        told("new-user").await,
        r#"{"user_nm":"new-user","max_count":9}"#
    );
    let token = hub
        .create_token(json!({"name": "hong", "role": "agent"}))
        .await;
    let call = async || {
        let params = json!({"name": "search_docs", "arguments": {"query": "연차"}});
        let request = hub.stateless_request("tools/call", params);
        let request = request.header("authorization", &format!("Bearer {token}"));
        request.send().await.rpc_response().await.to_string()
    };
    for _ in 0..2 {
        assert!(!call().await.contains("the 2 calls of today"));
    }
    let refused = call().await;
    assert!(refused.contains("the 2 calls of today"), "{refused}");
    send(&hub, "DELETE", "/api/limits/USER/hong", Value::Null).await;
    assert_eq!(told("hong").await, "[]", "no limit is no row");
}
