//! How often a program is started: once for each attempt to connect it.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::{http_client::wait_for, test_hub::TestHub};

/// A program that counts its starts, then does what its second argument says: `silent` ends
/// at once, `telling` says why, and `old` ends at a method that it does not know.
const COUNTED_PROGRAM: &str = r#"
import json, sys
with open(sys.argv[1], "a") as starts:
    starts.write("x")
if sys.argv[2] == "telling":
    sys.exit("starting\nFATAL: DB_HOST is not set\n  at line 3\nbye")
for line in sys.stdin if sys.argv[2] == "old" else []:
    message = json.loads(line)
    if message["method"] == "server/discover":
        sys.exit(3)
    if "id" not in message:
        continue
    result = {"tools": []}
    if message["method"] == "initialize":
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "old", "version": "1"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;

async fn server(hub: &TestHub, name: &str) -> Value {
    let path: &'static str = format!("/api/mcp/servers/{name}").leak();
    hub.send_as_admin("GET", path, Value::Null)
        .await
        .json()
        .await
}

async fn add(hub: &TestHub, directory: &Path, behaviour: &str) {
    let script = directory.join("counted.py");
    fs::write(&script, COUNTED_PROGRAM).unwrap();
    let body = json!({
        "name": behaviour, "transportType": "STDIO", "autoConnect": true, "acceptWarnings": true,
        "config": {"command": "python3", "args": [script, directory.join(behaviour), behaviour]},
    });
    let added = hub.send_as_admin("POST", "/api/mcp/servers", body).await;
    assert!(added.status == 201, "{}", added.text().await);
}

fn starts(directory: &Path, behaviour: &str) -> usize {
    fs::read_to_string(directory.join(behaviour)).unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn program_that_ends_is_started_once_for_each_attempt() {
    const RETRIES: u32 = 2;
    let hub = TestHub::with_config(|config| {
        let reconnection = &mut config.mcp.reconnection;
        reconnection.max_attempts = RETRIES;
        (reconnection.initial_delay_ms, reconnection.max_delay_ms) = (10, 10);
    })
    .await;
    let directory = tempfile::tempdir().unwrap();
    let files = directory.path();
    for behaviour in ["silent", "telling"] {
        add(&hub, files, behaviour).await;
        let ended = |it: &Value| it["status"] == "FAILED" && it["nextAttemptAt"].is_null();
        wait_for(
            async || server(&hub, behaviour).await,
            |it| ended(it) && it["attempts"] == RETRIES,
        )
        .await;
    }
    let attempts = 1 + usize::try_from(RETRIES).unwrap();
    assert_eq!(starts(files, "telling"), attempts);
    // It may have ended because of the first request, so the first attempt asks it another way.
    assert_eq!(starts(files, "silent"), attempts + 1);
    // The line that tells is the cause; those around it are in the log.
    let cause = server(&hub, "telling").await["cause"].clone();
    let cause = cause.as_str().unwrap();
    assert!(cause.contains("FATAL: DB_HOST is not set"), "{cause}");
    let log = hub.send_as_admin("GET", "/api/mcp/servers/telling/log", Value::Null);
    let log = log.await.text().await;
    for line in ["starting", "FATAL: DB_HOST is not set", "bye"] {
        assert!(log.contains(line), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn program_that_ends_at_an_unknown_method_is_connected_and_remembered() {
    let hub = TestHub::start().await;
    let directory = tempfile::tempdir().unwrap();
    add(&hub, directory.path(), "old").await;
    let is_connected = |it: &Value| it["status"] == "CONNECTED";
    wait_for(async || server(&hub, "old").await, is_connected).await;
    assert_eq!(starts(directory.path(), "old"), 2);
    for action in ["disconnect", "connect"] {
        let path: &'static str = format!("/api/mcp/servers/old/{action}").leak();
        let done = hub.send_as_admin("POST", path, Value::Null).await;
        assert!(done.status.is_success(), "{}", done.text().await);
    }
    wait_for(async || server(&hub, "old").await, is_connected).await;
    assert_eq!(starts(directory.path(), "old"), 3);
}
