//! Who did what: calls and changes, in the store before anyone hears of a change.

use maru_store::{AuditFilter, Store};
use serde_json::{Value, json};

use crate::{
    http_client::{TestRequest, wait_for},
    postgres_cluster::PostgresCluster,
    test_hub::{TestHub, call_message},
};

async fn audit_records(hub: &TestHub, query: &str) -> Vec<Value> {
    let path = format!("/api/audit?{query}");
    let answer = hub.send_as_admin("GET", &path, Value::Null).await;
    assert_eq!(answer.status, 200);
    answer.json().await.as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn change_is_recorded_when_it_is_acknowledged() {
    let hub = TestHub::start().await;
    let body = json!({"name": "fx", "transportType": "HTTP", "autoConnect": false,
        "config": {"url": "http://127.0.0.1:9/", "headers": {"X-Any": "s3cret"}}});
    let made = hub.send_as_admin("POST", "/api/mcp/servers", body).await;
    assert_eq!(made.status, 201);
    // Read from the file itself, at once.
    let store = Store::open(&hub.directory.path().join("maru.db"))
        .await
        .unwrap();
    let filter = AuditFilter {
        limit: 10,
        ..AuditFilter::default()
    };
    let rows = store.audit_rows(&filter).await.unwrap();
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!(
        (row.principal.as_str(), row.origin.as_str()),
        ("admin", "127.0.0.1")
    );
    assert_eq!(row.action, "POST /api/mcp/servers");
    assert_eq!(row.outcome, "201");
    assert!(
        row.arguments.contains("\"X-Any\":\"***\"") && row.request.len() == 32,
        "{row:?}"
    );
    // A token is not written down, and who may not is.
    let token = hub
        .create_token(json!({"name": "r", "role": "reader"}))
        .await;
    let refused = TestRequest::new(&hub.address, "DELETE", "/api/mcp/servers/fx")
        .header("authorization", &format!("Bearer {token}"));
    assert_eq!(refused.send().await.status, 403);
    let refused = async || audit_records(&hub, "principal=r&outcome=403").await;
    wait_for(refused, |it| !it.is_empty()).await;
    let all = hub
        .send_as_admin("GET", "/api/audit", Value::Null)
        .await
        .text()
        .await;
    assert!(!all.contains("s3cret") && !all.contains(&token), "{all}");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_recorded_soon_and_can_be_found() {
    let hub = TestHub::start().await;
    let session = hub.initialize_session("2025-11-25", json!({})).await;
    let arguments = json!({"employee_id": "EMP001"});
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let mut body = call_message(1, "get_employee_info", arguments);
    body["params"]["_meta"] = json!({"traceparent": format!("00-{trace}-00f067aa0ba902b7-01")});
    hub.session_request(&session, &body)
        .send()
        .await
        .rpc_response()
        .await;
    let secret = json!({"query": "x", "password": "s3cret"});
    hub.session_request(&session, &call_message(2, "search_docs", secret))
        .send()
        .await
        .rpc_response()
        .await;
    let calls = async || audit_records(&hub, "action=tools/call").await;
    let found = wait_for(calls, |it| it.len() == 2).await;
    assert_eq!(found[1]["target"], "get_employee_info");
    assert_eq!(found[1]["outcome"], "ok");
    assert_eq!(found[1]["principal"], "local");
    assert_eq!(found[1]["client"], "test 1");
    assert_eq!(found[1]["arguments"], "{\"employee_id\":\"EMP001\"}");
    assert!(!found[0].to_string().contains("s3cret"), "{}", found[0]);
    assert_eq!(
        audit_records(&hub, &format!("request={trace}")).await.len(),
        1
    );
    assert_eq!(audit_records(&hub, "outcome=failed").await.len(), 0);
    let first = found[1]["id"].as_i64().unwrap();
    assert_eq!(
        audit_records(&hub, &format!("before={}&action=tools/call", first + 1))
            .await
            .len(),
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_records_are_immutable_and_old_ones_are_deleted() {
    let store = Store::in_memory().await.unwrap();
    let row = |at: i64| maru_store::AuditRow {
        at,
        principal: "p".to_owned(),
        ..maru_store::AuditRow::default()
    };
    store.insert_audit_rows((0..20).map(row)).await.unwrap();
    store.trim_audit(5, 10).await.unwrap();
    let filter = AuditFilter {
        limit: 100,
        ..AuditFilter::default()
    };
    let left = store.audit_rows(&filter).await.unwrap();
    let times: Vec<i64> = left.iter().map(|it| it.at).collect();
    assert_eq!(times, (10..20).rev().collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_can_be_searched_after_a_restart() {
    let hub = TestHub::start().await;
    let call = async |name: &str, arguments: Value| {
        let body = json!({ "arguments": arguments });
        hub.send_as_admin("POST", &format!("/api/tools/{name}/call"), body)
            .await
    };
    call("get_employee_info", json!({"employee_id": "EMP001"})).await;
    let wrong = json!({"query": 5, "password": "s3cret"});
    call("search_docs", wrong).await;
    // The call that just ended is found, although calls are written in batches.
    let failed = hub.send_as_admin("GET", "/api/calls?outcome=error", Value::Null);
    let failed = failed.await.json().await;
    assert_eq!(failed["calls"].as_array().unwrap().len(), 1, "{failed}");
    let hub = hub.restart().await;
    let read = async |path: &str| {
        let shown = hub.send_as_admin("GET", path, Value::Null).await;
        shown.json().await
    };
    let found = read("/api/calls?since=1h&tool=search_docs&text=not%20of%20type").await;
    let found = &found["calls"][0];
    assert_eq!(found["outcome"], "refused", "{found}");
    assert_eq!(
        (&found["server"], &found["principal"]),
        (&json!("maru"), &json!("admin"))
    );
    assert!(
        found["error"]
            .as_str()
            .unwrap()
            .contains("query: 5 is not of type"),
        "{found}"
    );
    let shown = read(&format!("/api/calls/{}", found["id"])).await;
    let arguments = shown["arguments"].as_str().unwrap();
    assert!(
        arguments.contains("\"query\":5") && !arguments.contains("s3cret"),
        "{shown}"
    );
    assert_eq!(read("/api/calls?until=1h").await["calls"], json!([]));
    let usage = read("/api/call-usage?range=30d&tool=search_docs").await;
    assert_eq!(
        (&usage["total"]["calls"], &usage["total"]["errors"]),
        (&json!(1), &json!(1)),
        "{usage}"
    );
    let tool = &usage["tools"][0];
    assert_eq!(
        (&tool["name"], &tool["server"]),
        (&json!("search_docs"), &json!("maru"))
    );
    let slots = usage["slots"].as_array().unwrap();
    let in_slots: i64 = slots.iter().filter_map(|it| it["calls"].as_i64()).sum();
    assert_eq!(
        (in_slots, usage["callers"][0]["name"].as_str()),
        (1, Some("admin")),
        "{usage}"
    );
    // What the sums do not have is counted from the calls.
    let counted = async |query: &str| {
        let usage = read(&format!("/api/call-usage?{query}")).await;
        assert!(usage["firstCounted"].is_null(), "{usage}");
        let slots = usage["slots"].as_array().unwrap();
        let in_slots: i64 = slots.iter().filter_map(|it| it["calls"].as_i64()).sum();
        assert_eq!(usage["total"]["calls"], in_slots, "{usage}");
        in_slots
    };
    for (query, expected) in [
        ("outcome=error&text=not%20of%20type", 1),
        ("outcome=error&text=no-such-text", 0),
        ("since=1h&outcome=refused", 1),
        ("since=2h&until=1h", 0),
        ("until=1h&outcome=refused", 0),
        ("slower=600000", 0),
    ] {
        assert_eq!(counted(query).await, expected, "{query}");
    }
    let refused = read("/api/calls?outcome=broken").await;
    assert!(
        refused["error"].as_str().unwrap().contains("none of ok"),
        "{refused}"
    );
    hub.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_text_stops_the_audit_log_on_postgresql() {
    let cluster = PostgresCluster::start().await;
    let database = cluster.create_database();
    let hub = TestHub::with_config(|config| {
        config.store_url = Some(cluster.url(&database).into());
        config.oauth.serve = true;
    })
    .await;
    // NUL, which PostgreSQL stores in no text.
    let page = TestRequest::new(&hub.address, "POST", "/oauth/sign-in")
        .header("content-type", "application/x-www-form-urlencoded")
        .body("name=%00&passphrase=wrong+passphrase");
    assert_eq!(page.send().await.status, 403);
    let session = json!({"name": "\0", "passphrase": "wrong passphrase"});
    let session = TestRequest::post(&hub.address, "/api/session", &session);
    assert_eq!(session.send().await.status, 403);
    for path in ["/api/servers/a%00/tools", "/api/audit?principal=%00"] {
        let read = hub.send_as_admin("GET", path, Value::Null).await;
        assert!(read.status.as_u16() < 500, "{path} {}", read.status);
    }
    let mcp = hub.initialize_session("2025-11-25", json!({})).await;
    let call = async |tool: &str| {
        let message = call_message(1, tool, json!({"text": "a\0b"}));
        let request = hub.session_request(&mcp, &message);
        request.send().await.rpc_response().await
    };
    call("\0").await;
    // A name that no index of PostgreSQL takes.
    let long: String = (0..3000_u32)
        .filter_map(|it| char::from_u32(0x4e00 + it * 7 % 20_000))
        .collect();
    call(&long).await;
    let records = async || audit_records(&hub, "limit=100").await;
    let kept = wait_for(records, |it| it.len() == 4).await;
    let names: Vec<&str> = kept.iter().filter_map(|it| it["target"].as_str()).collect();
    assert_eq!(names.iter().filter(|it| **it == "\u{fffd}").count(), 3);
    // A record that the database refuses is dropped, and no other.
    let refuse = "ALTER TABLE audit ADD CONSTRAINT refused CHECK (target <> 'refused')";
    cluster.run_sql(&database, refuse);
    for tool in ["before", "refused", "after"] {
        call(tool).await;
    }
    let kept = wait_for(records, |it| it.len() == 6).await;
    assert_eq!(
        (&kept[0]["target"], &kept[1]["target"]),
        (&json!("after"), &json!("before"))
    );
    hub.running.stop().await;
}
