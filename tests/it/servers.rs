//! The servers behind the hub, as admins see them: the API, the files, the
//! command line.

use std::{collections::BTreeMap, fs, path::Path};

use maru::config::{McpServerDefinition, SecretString};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::{
    fixture_server::{FixtureServer, fixture_program},
    http_client::{TestRequest, within_test_timeout},
    postgres_cluster::PostgresCluster,
    test_hub::{TestHub, call_message},
};

const SERVERS_ROUTE: &str = "/api/mcp/servers";

fn stdio_server_body(name: &str) -> Value {
    let config = json!({"command": fixture_program(), "args": ["stdio"], "env": {"API_KEY": "s3cret-canary"}});
    json!({"name": name, "autoConnect": true, "transportType": "STDIO", "config": config, "description": "a fixture"})
}

/// A server is registered, shown, changed, closed, connected and removed.
async fn check_server_lifecycle(hub: &TestHub) {
    let made = hub
        .send_as_admin("POST", SERVERS_ROUTE, stdio_server_body("up"))
        .await;
    assert_eq!(made.status, 201);
    let made = made.json().await;
    assert_eq!(
        (&made["status"], &made["autoConnect"]),
        (&json!("CONNECTED"), &json!(true)),
        "{made}"
    );
    assert!(
        made["toolCount"].as_u64().unwrap() > 10
            && made["createdAt"].as_i64().unwrap() > 1_700_000_000_000
    );
    assert_eq!(made["id"].as_str().unwrap().len(), 36);
    assert_eq!(
        hub.send_as_admin("POST", SERVERS_ROUTE, stdio_server_body("up"))
            .await
            .status,
        409
    );

    let one = format!("{SERVERS_ROUTE}/up");
    let shown = TestRequest::new(&hub.address, "GET", &one)
        .send()
        .await
        .json()
        .await;
    assert!(
        shown["tools"]
            .as_array()
            .unwrap()
            .contains(&json!("test_simple_text"))
    );
    assert_eq!(shown["config"]["env"]["API_KEY"], "***");
    assert!(!shown.to_string().contains("s3cret-canary"));
    assert!(hub.tool_names().await.contains("up__test_simple_text"));

    let changed = json!({"description": "changed", "config": shown["config"]});
    let changed = hub.send_as_admin("PUT", &one, changed).await.json().await;
    assert_eq!(
        (&changed["description"], &changed["status"]),
        (&json!("changed"), &json!("CONNECTED"))
    );
    assert!(changed["updatedAt"].as_i64() >= shown["updatedAt"].as_i64());

    let closed = hub
        .send_as_admin("POST", &format!("{one}/disconnect"), Value::Null)
        .await
        .json()
        .await;
    assert_eq!(
        (&closed["status"], &closed["toolCount"]),
        (&json!("DISCONNECTED"), &json!(0))
    );
    assert!(!hub.tool_names().await.contains("up__"));
    // A call by name brings it back, too.
    let woken = hub.stateless_request("tools/call", json!({"name": "up.test_simple_text"}));
    let woken = woken.send().await.rpc_response().await;
    assert_eq!(woken["result"]["content"][0]["type"], "text", "{woken}");
    let opened = hub
        .send_as_admin("POST", &format!("{one}/connect"), Value::Null)
        .await
        .json()
        .await;
    assert_eq!(opened["status"], "CONNECTED");

    let off = hub
        .send_as_admin("POST", &format!("{one}/disable"), Value::Null)
        .await
        .json()
        .await;
    assert_eq!(
        (&off["status"], &off["enabled"]),
        (&json!("DISABLED"), &json!(false))
    );
    let stays = hub
        .send_as_admin("POST", &format!("{one}/connect"), Value::Null)
        .await
        .json()
        .await;
    assert_eq!(stays["status"], "DISABLED");
    let on = hub
        .send_as_admin("PUT", &one, json!({"enabled": true}))
        .await
        .json()
        .await;
    assert_eq!(on["status"], "CONNECTED", "{on}");

    assert_eq!(
        hub.send_as_admin("DELETE", &one, Value::Null).await.status,
        204
    );
    assert_eq!(
        hub.send_as_admin("GET", &one, Value::Null).await.status,
        404
    );
    assert_eq!(
        hub.send_as_admin("DELETE", &one, Value::Null).await.status,
        404
    );
    assert!(!hub.tool_names().await.contains("up__"));
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_are_stored_in_the_data_directory() {
    let hub = TestHub::start().await;
    check_server_lifecycle(&hub).await;
    hub.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_stored_in_memory_leave_nothing_behind() {
    let hub = TestHub::with_config(|config| {
        config.store_url = Some(SecretString::from("memory".to_owned()));
    })
    .await;
    check_server_lifecycle(&hub).await;
    assert!(!hub.directory.path().join("maru.db").exists());
    hub.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_are_stored_in_postgresql() {
    let database = PostgresCluster::start().await;
    let url = SecretString::from(database.url(&database.create_database()));
    let hub = TestHub::with_config(|config| config.store_url = Some(url.clone())).await;
    check_server_lifecycle(&hub).await;
    let body = json!({"name": "kept", "transportType": "SSE", "config": {"url": "http://127.0.0.1:9/sse"}, "autoConnect": false});
    assert_eq!(
        hub.send_as_admin("POST", SERVERS_ROUTE, body).await.status,
        201
    );
    hub.running.stop().await;
    let again = TestHub::with_config(|config| config.store_url = Some(url)).await;
    let kept = again
        .send_as_admin("GET", SERVERS_ROUTE, Value::Null)
        .await
        .json()
        .await;
    assert_eq!(
        (&kept[0]["name"], &kept[0]["status"]),
        (&json!("kept"), &json!("PENDING"))
    );
    again.running.stop().await;
}

#[tokio::test]
async fn changes_need_the_admin_and_reading_does_not() {
    let hub = TestHub::start().await;
    for (method, path) in [
        ("POST", SERVERS_ROUTE),
        ("PUT", "/api/mcp/servers/x"),
        ("DELETE", "/api/mcp/servers/x"),
        ("POST", "/api/mcp/servers/x/connect"),
        ("POST", "/api/mcp/import"),
        ("POST", "/mcp/add"),
        ("DELETE", "/mcp/remove"),
    ] {
        let refused = TestRequest::new(&hub.address, method, path)
            .header("content-type", "application/json")
            .body("{}")
            .send()
            .await;
        assert_eq!(refused.status, 401, "{method} {path}");
        assert!(refused.headers.contains_key("www-authenticate"));
        let body = refused.json().await;
        assert!(body["error"].is_string(), "{method} {path}: {body}");
    }
    for path in [SERVERS_ROUTE, "/mcp/list", "/api/openapi.json"] {
        assert_eq!(
            TestRequest::new(&hub.address, "GET", path)
                .send()
                .await
                .status,
            200,
            "{path}"
        );
    }
}

#[tokio::test]
async fn invalid_registrations_name_the_field() {
    let hub = TestHub::start().await;
    for (body, field) in [
        (
            json!({"name": "A", "transportType": "SSE", "config": {"url": "http://127.0.0.1:9/"}}),
            "name",
        ),
        (
            json!({"name": "a", "transportType": "FTP", "config": {}}),
            "transportType",
        ),
        (
            json!({"name": "a", "transportType": "STDIO", "config": {}}),
            "config.command",
        ),
        (
            json!({"name": "a", "transportType": "HTTP", "config": {}}),
            "config.url",
        ),
        (
            json!({"name": "a", "transportType": "HTTP", "config": {"url": "http://169.254.169.254/"}}),
            "config.url",
        ),
        (
            json!({"name": "a", "transportType": "HTTP", "config": {"url": format!("http://{}/mcp", hub.address)}}),
            "config.url",
        ),
        (
            json!({"name": "a", "transportType": "STDIO", "config": {"command": "./sh"}}),
            "config.command",
        ),
        (
            json!({"name": "a", "transportType": "STDIO", "config": {"command": "x"}, "trustMe": true}),
            "trustMe",
        ),
    ] {
        let refused = hub.send_as_admin("POST", SERVERS_ROUTE, body.clone()).await;
        assert_eq!(refused.status, 400, "{body}");
        assert_eq!(refused.json().await["field"], field, "{body}");
    }
}

#[test]
fn documented_routes_exist() {
    let text = include_str!("../../docs/openapi.json");
    let document: Value = serde_json::from_str(text).unwrap();
    let known: Vec<String> = maru::http::route_rules()
        .iter()
        .map(|it| format!("{} {}", it.method, it.path.replace("{*", "{")))
        .collect();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            let route = format!("{} {path}", method.to_uppercase());
            assert!(known.contains(&route), "{route}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn server_list_follows_every_change() {
    let hub = TestHub::start().await;
    let (_server, url) = FixtureServer::start("sse").await;
    let file = || fs::read_to_string(hub.directory.path().join("mcp.json")).unwrap();
    assert_eq!(file(), "[]\n");
    let added = hub
        .send_as_admin("POST", "/mcp/add", json!({"name": "tts", "url": url}))
        .await
        .json()
        .await;
    assert_eq!(
        added,
        json!({"name": "tts", "url": url, "message": "registered", "status": "CONNECTED"})
    );
    assert_eq!(
        serde_json::from_str::<Value>(&file()).unwrap(),
        json!([{"name": "tts", "url": url}])
    );
    let called = hub
        .stateless_request(
            "tools/call",
            json!({"name": "tts__test_simple_text", "arguments": {}}),
        )
        .send()
        .await
        .rpc_response()
        .await;
    assert_eq!(called["result"]["content"][0]["type"], "text", "{called}");

    let moved = json!({"name": "tts", "url": "http://127.0.0.1:9/sse"});
    assert_eq!(
        hub.send_as_admin("POST", "/mcp/add", moved.clone())
            .await
            .status,
        200
    );
    assert_eq!(
        hub.send_as_admin("GET", "/mcp/list", Value::Null)
            .await
            .json()
            .await,
        json!({"servers": [moved]})
    );
    let removed = hub
        .send_as_admin("DELETE", "/mcp/remove", json!({"name": "tts"}))
        .await
        .json()
        .await;
    assert_eq!(removed, json!({"name": "tts", "message": "removed"}));
    assert_eq!(
        hub.send_as_admin("DELETE", "/mcp/remove", json!({"name": "tts"}))
            .await
            .status,
        404
    );
    assert_eq!(file(), "[]\n");
    hub.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn configured_servers_seed_the_store_only_once() {
    let seed = |url: &str| McpServerDefinition {
        run: None,
        auth: None,
        name: "seeded".to_owned(),
        transport: "sse".to_owned(),
        url: Some(url.to_owned()),
        headers: BTreeMap::default(),
        command: None,
        args: Vec::new(),
        env: BTreeMap::default(),
        cwd: None,
        description: None,
        version: None,
        auto_connect: false,
        trust: None,
        protocol_version: None,
    };
    let hub =
        TestHub::with_config(|config| config.mcp.servers = vec![seed("http://127.0.0.1:9/sse")])
            .await;
    let shown = hub
        .send_as_admin("GET", "/api/mcp/servers/seeded", Value::Null)
        .await
        .json()
        .await;
    assert_eq!(
        (&shown["origin"], &shown["differsFromFile"]),
        (&json!("file"), &json!(false))
    );
    let change = json!({"config": {"url": "http://127.0.0.1:9/other"}});
    let shown = hub
        .send_as_admin("PUT", "/api/mcp/servers/seeded", change)
        .await
        .json()
        .await;
    assert_eq!(shown["differsFromFile"], true);
    let TestHub {
        running, directory, ..
    } = hub;
    running.stop().await;
    let again = TestHub::with_config(|config| {
        config.data_dir = directory.path().to_owned();
        config.mcp.servers = vec![seed("http://127.0.0.1:9/sse")];
    })
    .await;
    let shown = again
        .send_as_admin("GET", "/api/mcp/servers/seeded", Value::Null)
        .await
        .json()
        .await;
    assert_eq!(shown["config"]["url"], "http://127.0.0.1:9/other");
    again.running.stop().await;
}

pub(crate) async fn run_maru(
    directory: &Path,
    arguments: &[&str],
) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_maru"));
    let output = command
        .arg("--data-dir")
        .arg(directory)
        .args(arguments)
        .output()
        .await
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn command_line_manages_the_running_hub() {
    let hub = TestHub::start().await;
    let directory = hub.directory.path();
    let fixture = fixture_program().display().to_string();
    let (code, shown, why) = run_maru(
        directory,
        &[
            "servers",
            "add",
            "up",
            "--env",
            "KEY=s3cret",
            "--",
            &fixture,
            "stdio",
        ],
    )
    .await;
    assert_eq!(code, Some(0), "{why}");
    assert!(shown.starts_with("up is CONNECTED, "), "{shown}");
    let (_, shown, _) = run_maru(directory, &["servers", "list"]).await;
    assert!(
        shown.starts_with("NAME") && shown.contains("CONNECTED"),
        "{shown}"
    );
    let (_, shown, _) = run_maru(directory, &["servers", "show", "up"]).await;
    assert!(
        shown.contains("test_simple_text") && shown.contains("***") && !shown.contains("s3cret"),
        "{shown}"
    );
    let (code, shown, _) = run_maru(directory, &["call", "up__test_simple_text"]).await;
    assert_eq!(
        (code, shown.as_str()),
        (Some(0), "This is a simple text response for testing.\n")
    );
    let (code, _, why) = run_maru(
        directory,
        &["servers", "add", "gone", "--", "no-such-program"],
    )
    .await;
    assert_eq!(code, Some(1), "{why}");
    assert!(why.contains("gone is not added"), "{why}");
    let (_, shown, _) = run_maru(directory, &["servers", "list"]).await;
    assert!(!shown.contains("gone"), "{shown}");
    let add = ["servers", "add", "up", "--replace", "--", "no-such-program"];
    let (code, _, why) = run_maru(directory, &add).await;
    assert_eq!(code, Some(2), "{why}");
    assert!(why.contains("up is not replaced"), "{why}");
    let (code, shown, _) = run_maru(directory, &["servers", "restart", "up"]).await;
    assert_eq!(code, Some(0));
    assert!(shown.starts_with("up is CONNECTED, "), "{shown}");
    let (code, shown, _) = run_maru(directory, &["servers", "logs", "up"]).await;
    assert!(code == Some(0) && shown.contains("event"), "{shown}");
    let edit = directory.join("edit.json");
    let change = "{\n  // for people\n  \"description\": \"the fixture\",\n}\n";
    fs::write(&edit, change).unwrap();
    let edit = ["servers", "edit", "up", "--file", edit.to_str().unwrap()];
    let (code, _, why) = run_maru(directory, &edit).await;
    assert_eq!(code, Some(0), "{why}");
    let (_, shown, _) = run_maru(directory, &["servers", "show", "up"]).await;
    assert!(shown.contains("the fixture"), "{shown}");
    let (code, _, why) = run_maru(directory, &["servers", "show", "nobody"]).await;
    assert_eq!(
        (code, why.as_str()),
        (
            Some(2),
            "maru: no server is named \"nobody\"; see maru servers list\n"
        )
    );

    let file = directory.join("client.json");
    let servers =
        json!({"mcpServers": {"My Tools": {"command": fixture, "args": ["stdio"]}, "bad": {}}});
    fs::write(&file, servers.to_string()).unwrap();
    let (code, shown, _) =
        run_maru(directory, &["servers", "import", file.to_str().unwrap()]).await;
    assert_eq!(code, Some(1));
    assert!(
        shown.contains("my-tools is CONNECTED")
            && shown.contains("bad is not imported: url: is missing"),
        "{shown}"
    );
    let (code, shown, _) = run_maru(directory, &["servers", "remove", "up", "--json"]).await;
    assert_eq!((code, shown.as_str()), (Some(0), "null\n"));
    hub.running.stop().await;
    let (code, _, why) = run_maru(directory, &["servers", "list"]).await;
    assert!(
        code == Some(2) && why.contains("no hub runs on the data directory"),
        "{why}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_handshake_quotes_the_servers_message() {
    const REFUSING_SCRIPT: &str = r#"
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" in asked:
        why = {"code": -32000, "message": "no license\x1b for token=s3cret-canary " + "x" * 5000}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": why}), flush=True)
"#;
    let hub = TestHub::start().await;
    let directory = hub.directory.path();
    let script = directory.join("refuse.py").display().to_string();
    fs::write(&script, REFUSING_SCRIPT).unwrap();
    let add = [
        "servers",
        "add",
        "old",
        "--keep",
        "--protocol-version",
        "2025-06-18",
        "--trust",
        "pin",
        "--cwd",
        "/tmp",
        "--",
        "python3",
        &script,
    ];
    let (code, shown, why) = run_maru(directory, &add).await;
    assert_eq!(code, Some(1), "{why}");
    for part in [
        "in protocol version 2025-06-18 with error -32000: no license",
        "\\u{1b} for token=***",
        "hold it to another one with protocol-version",
    ] {
        assert!(shown.contains(part), "{shown}");
    }
    assert!(shown.len() < 700 && !shown.contains("s3cret"), "{shown}");
    let (_, shown, _) = run_maru(directory, &["servers", "show", "old"]).await;
    for part in ["requires 2025-06-18", "pin", "\"cwd\":\"/tmp\""] {
        assert!(shown.contains(part), "{shown}");
    }
    let log = hub
        .send_as_admin("GET", &format!("{SERVERS_ROUTE}/old/log"), Value::Null)
        .await;
    let log = log.text().await;
    assert!(!log.contains("gave up"), "{log}");
    assert!(log.contains("maru servers connect old"), "{log}");
    // Those who call are told that it failed, but not in its words.
    let (code, _, why) = run_maru(directory, &["call", "old__anything"]).await;
    assert_eq!(code, Some(2), "{why}");
    assert!(
        why.contains("server old is FAILED: the server refused the handshake"),
        "{why}"
    );
    assert!(!why.contains("license"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn command_line_suggests_the_nearest_command() {
    let hub = TestHub::start().await;
    let directory = hub.directory.path();
    let quoted = ["servers", "add", "x", "--", "npx -y foo"];
    let (code, _, why) = run_maru(directory, &quoted).await;
    assert_eq!(code, Some(2));
    assert!(why.contains("maru servers add x -- npx -y foo"), "{why}");
    let create = ["token", "create", "bot", "--server", "flies"];
    let (code, _, why) = run_maru(directory, &create).await;
    assert_eq!(code, Some(2), "{why}");
    assert!(why.contains("unknown server: flies"), "{why}");
    let create = [&create[..], &["--allow-unknown"]].concat();
    let (code, shown, why) = run_maru(directory, &create).await;
    assert_eq!(code, Some(0), "{why}");
    assert!(shown.starts_with("maru_"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_is_down_is_connected_by_a_call() {
    let hub = TestHub::start().await;
    let (server, url) = FixtureServer::start("http").await;
    hub.register_server("up", "HTTP", json!({"url": url})).await;
    drop(server);
    let session = hub.initialize_session("2025-11-25", json!({})).await;
    let request = call_message(1, "up__test_simple_text", json!({}));
    let failed = hub
        .session_request(&session, &request)
        .send()
        .await
        .rpc_response()
        .await;
    assert_eq!(failed["result"]["isError"], true, "{failed}");
    assert!(
        failed["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("server up did not answer"),
        "{failed}"
    );
    let port = url.split(':').nth(2).unwrap().split('/').next().unwrap();
    let _server = FixtureServer::start_at("http", &format!("127.0.0.1:{port}")).await;
    let answered = hub
        .session_request(&session, &request)
        .send()
        .await
        .rpc_response()
        .await;
    assert_eq!(
        answered["result"]["content"][0]["type"], "text",
        "{answered}"
    );
    hub.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn registration_does_not_connect_by_default() {
    let hub = TestHub::start().await;
    let config = json!({"command": fixture_program(), "args": ["stdio"]});
    let body = json!({"name": "quiet", "transportType": "STDIO", "config": config});
    let made = hub.send_as_admin("POST", SERVERS_ROUTE, body).await;
    assert_eq!(made.status, 201);
    let made = made.json().await;
    assert_eq!(
        (&made["autoConnect"], &made["version"], &made["status"]),
        (&json!(false), &json!("1.0.0"), &json!("PENDING"))
    );
    hub.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn disconnected_server_shows_its_next_attempt() {
    let hub = TestHub::start().await;
    let body = json!({"name": "gone", "autoConnect": true, "transportType": "HTTP", "config": {"url": "http://127.0.0.1:9/mcp"}});
    let made = hub
        .send_as_admin("POST", SERVERS_ROUTE, body)
        .await
        .json()
        .await;
    assert_eq!(
        (&made["status"], &made["attempts"]),
        (&json!("FAILED"), &json!(0))
    );
    assert!(made["nextAttemptAt"].as_i64() > made["createdAt"].as_i64());
    let log = hub
        .send_as_admin("GET", "/api/mcp/servers/gone/log", Value::Null)
        .await
        .text()
        .await;
    assert!(log.contains("attempt 1 of 5 follows in"), "{log}");
    hub.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn call_does_not_reconnect_where_reconnecting_is_off() {
    let hub = TestHub::with_config(|config| config.mcp.reconnection.enabled = false).await;
    let (server, url) = FixtureServer::start("http").await;
    let address = url.split('/').nth(2).unwrap().to_owned();
    let body =
        json!({"name": "up", "autoConnect": true, "transportType": "HTTP", "config": {"url": url}});
    let made = hub
        .send_as_admin("POST", SERVERS_ROUTE, body)
        .await
        .json()
        .await;
    assert_eq!(made["status"], "CONNECTED");
    let session = hub.initialize_session("2025-06-18", json!({})).await;
    let ask = async || {
        let echo = call_message(1, "up__test_simple_text", json!({}));
        let answer = hub
            .session_request(&session, &echo)
            .send()
            .await
            .rpc_response()
            .await;
        answer["result"]["isError"] != true
    };
    assert!(ask().await);
    let one = format!("{SERVERS_ROUTE}/up");
    let shown = async || {
        hub.send_as_admin("GET", &one, Value::Null)
            .await
            .json()
            .await
    };
    drop(server);
    within_test_timeout(async {
        // A call whose connection breaks says nothing yet about the server.
        while shown().await["status"] == "CONNECTED" {
            ask().await;
        }
    })
    .await;
    let (_server, _) = FixtureServer::start_at("http", &address).await;
    assert!(!ask().await);
    let shown = shown().await;
    assert_eq!(
        (&shown["status"], &shown["nextAttemptAt"]),
        (&json!("FAILED"), &Value::Null)
    );
    let connect = format!("{one}/connect");
    let connected = hub.send_as_admin("POST", &connect, Value::Null);
    assert_eq!(connected.await.json().await["status"], "CONNECTED");
    assert!(ask().await);
    hub.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_is_held_to_a_protocol_version() {
    let hub = TestHub::start().await;
    let (_modern, url) = FixtureServer::start("http").await;
    let (_legacy, old) = FixtureServer::start("http-legacy").await;
    let body = |name: &str, url: &str, version: &str| {
        json!({"name": name, "autoConnect": true, "transportType": "HTTP", "config": {"url": url},
            "requiredProtocolVersion": version})
    };
    for (name, version) in [("held", "2025-06-18"), ("newest", "2026-07-28")] {
        let made = hub
            .send_as_admin("POST", SERVERS_ROUTE, body(name, &url, version))
            .await;
        assert_eq!(made.json().await["status"], "CONNECTED");
        let one = format!("{SERVERS_ROUTE}/{name}");
        let shown = hub
            .send_as_admin("GET", &one, Value::Null)
            .await
            .json()
            .await;
        assert_eq!(shown["protocolVersion"], version);
        assert_eq!(shown["requiredProtocolVersion"], version);
    }
    let made = hub
        .send_as_admin("POST", SERVERS_ROUTE, body("old", &old, "2026-07-28"))
        .await;
    let made = made.json().await;
    assert_eq!(made["status"], "FAILED");
    let cause = made["cause"].as_str().unwrap();
    assert!(
        cause.contains("held to protocol version 2026-07-28"),
        "{cause}"
    );
    // Another version, or none: the connection is made anew.
    let free = json!({"requiredProtocolVersion": null});
    let freed = hub
        .send_as_admin("PUT", &format!("{SERVERS_ROUTE}/held"), free)
        .await;
    assert_eq!(freed.json().await["protocolVersion"], "2026-07-28");
    let wrong = hub
        .send_as_admin("POST", SERVERS_ROUTE, body("wrong", &url, "2020-01-01"))
        .await;
    assert_eq!(wrong.status, 400);
    assert_eq!(wrong.json().await["field"], "requiredProtocolVersion");
    hub.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exposed_hub_uses_servers_of_its_machine_that_the_settings_name() {
    let (_one, by_host) = FixtureServer::start("http").await;
    let (_two, by_seed) = FixtureServer::start("http").await;
    let (_three, unnamed) = FixtureServer::start("http").await;
    let authority = by_host.split('/').nth(2).unwrap().to_owned();
    let hub = TestHub::with_config(|config| {
        config.behind_tls_proxy = true;
        config.outbound.allowed_hosts = vec![authority];
        config.mcp.servers = vec![McpServerDefinition {
            run: None,
            auth: None,
            name: "seeded".to_owned(),
            transport: "http".to_owned(),
            url: Some(by_seed),
            headers: BTreeMap::default(),
            command: None,
            args: Vec::new(),
            env: BTreeMap::default(),
            cwd: None,
            description: None,
            version: None,
            auto_connect: true,
            trust: None,
            protocol_version: None,
        }];
    })
    .await;
    hub.running.servers().wait_for_first_connect().await;
    let shown = hub
        .send_as_admin("GET", "/api/mcp/servers/seeded", Value::Null)
        .await
        .json()
        .await;
    assert_eq!(shown["status"], "CONNECTED");
    let body = |name: &str, url: &str| json!({"name": name, "autoConnect": true, "transportType": "HTTP", "config": {"url": url}});
    let named = hub
        .send_as_admin("POST", SERVERS_ROUTE, body("named", &by_host))
        .await;
    assert_eq!(named.json().await["status"], "CONNECTED");
    let refused = hub
        .send_as_admin("POST", SERVERS_ROUTE, body("unnamed", &unnamed))
        .await;
    assert_eq!(refused.status, 400);
    let why = refused.text().await;
    assert!(why.contains("outbound.allowed_hosts"), "{why}");
    hub.running.stop().await;
}
