//! One hub becomes several: its store moves to PostgreSQL, is backed up and comes back.

use std::{fs, path::Path, process::Command};

use maru::config::{Config, SecretString};
use maru_store::{AuditRow, Store};
use serde_json::{Value, json};

use super::{call, get, tool};
use crate::{
    fixture_server::fixture_program, http_client::wait_until, postgres_cluster::PostgresCluster,
    test_hub::TestHub,
};

const PATHS: [&str; 6] = [
    "/api/custom-tools/next_number",
    "/api/tokens",
    "/api/limits",
    "/api/allowed-hosts",
    "/api/toolsets",
    "/api/mcp/servers/far",
];

/// What people set in a hub.
async fn settings(hub: &TestHub) -> Vec<Value> {
    let mut all = Vec::new();
    for path in PATHS {
        let mut shown = get(hub, path).await;
        // The admin of each hub, and what differs with each start.
        if let Some(tokens) = shown.as_array_mut() {
            tokens.retain(|it| {
                !it["name"]
                    .as_str()
                    .is_some_and(|it| it.starts_with("admin"))
            });
        }
        if path.ends_with("far") {
            shown = json!({"env": shown["config"]["env"], "status": shown["status"]});
        }
        all.push(shown);
    }
    all
}

async fn fill(hub: &TestHub) {
    let server = json!({"name": "far", "autoConnect": true, "transportType": "STDIO", "config": {
        "command": fixture_program(), "args": ["stdio"], "env": {"API_KEY": "s3cret-value"}}});
    let toolset = json!({"include": ["serialize_for_cell"]});
    for (method, path, body) in [
        ("POST", "/api/mcp/servers", server),
        ("POST", "/api/custom-tools", tool("n + 1")),
        (
            "POST",
            "/api/tokens",
            json!({"name": "ci", "role": "reader", "servers": ["far"]}),
        ),
        ("PUT", "/api/limits/USER/local", json!({"max_count": 700})),
        ("PUT", "/api/allowed-hosts/tools.example", json!({})),
        ("PUT", "/api/toolsets/few", toolset),
    ] {
        let response = hub.send_as_admin(method, path, body).await;
        assert!(
            response.status.is_success(),
            "{path}: {}",
            response.text().await
        );
    }
}

/// Runs a command of maru on a data directory; returns its output.
fn maru(directory: &Path, url: Option<&str>, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_maru"));
    command.arg("--data-dir").arg(directory).args(arguments);
    command.current_dir(directory).env_remove("MARU_CONFIG");
    if let Some(url) = url {
        command.env("MARU_STORE_URL", url);
    }
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() {
        Ok(text(output.stdout))
    } else {
        Err(text(output.stderr))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn store_moves_to_postgres_and_comes_back_from_a_backup() {
    let cluster = PostgresCluster::start().await;
    let database = cluster.create_database();
    let url = cluster.url(&database);
    let directory = tempfile::tempdir().unwrap();
    let data_dir = directory.path().to_owned();
    let start = async |change: &dyn Fn(&mut Config)| {
        let mut config = Config {
            listen: "127.0.0.1:0".parse().unwrap(),
            data_dir: data_dir.clone(),
            ..Config::default()
        };
        config.mcp.connect_wait_ms = 20_000;
        change(&mut config);
        TestHub::with_directory(config).await
    };
    let hub = start(&|_| ()).await;
    fill(&hub).await;
    let before = settings(&hub).await;
    let copy = ["store", "copy", "--to", &url];
    let refused = maru(&data_dir, None, &copy).unwrap_err();
    assert!(refused.contains("already runs"), "{refused}");
    hub.running.stop().await;

    // More rows than are copied together.
    let file = Store::open(&data_dir.join("maru.db")).await.unwrap();
    let row = |at: i64| AuditRow {
        at,
        target: format!("t{at}"),
        ..AuditRow::default()
    };
    file.insert_audit_rows((0..1700).map(row)).await.unwrap();
    drop(file);
    let copied = maru(&data_dir, None, &copy).unwrap();
    assert!(copied.contains("copied to the database"), "{copied}");
    let again = maru(&data_dir, None, &copy).unwrap_err();
    assert!(again.contains("not empty"), "{again}");
    // As an interrupted copy leaves it.
    cluster.run_sql(
        &database,
        "DELETE FROM audit WHERE id > 600; DELETE FROM toolset;
         INSERT INTO hub_setting (name, value) VALUES ('unfinished-copy', '')",
    );
    let resumed = maru(&data_dir, None, &copy).unwrap();
    assert_eq!(resumed, copied);

    let on_postgres = |config: &mut Config| {
        config.store_url = Some(SecretString::from(url.clone()));
        config.seal_key_file = Some(data_dir.join("seal-key"));
    };
    let hub = start(&on_postgres).await;
    wait_until(async || settings(&hub).await == before).await;
    assert_eq!(call(&hub).await, 2);
    let far = json!({"name": "far__test_simple_text", "arguments": {}});
    let called = hub.stateless_request("tools/call", far).send().await;
    let called = called.rpc_response().await;
    assert!(called["error"].is_null(), "{called}");
    // New rows get new numbers.
    let made = hub
        .send_as_admin("PUT", "/api/custom-tools/next_number", tool("n + 5"))
        .await;
    assert_eq!(made.status, 200);
    let before = settings(&hub).await;

    let file = data_dir.join("backup.db");
    let file_name = file.to_str().unwrap();
    maru(&data_dir, Some(&url), &["backup", file_name]).unwrap();
    assert!(maru(&data_dir, Some(&url), &["backup", file_name]).is_err());
    for path in [
        "/api/mcp/servers/far",
        "/api/custom-tools/next_number",
        "/api/tokens/ci",
    ] {
        let removed = hub.send_as_admin("DELETE", path, Value::Null).await;
        assert!(removed.status.is_success(), "{path}");
    }
    let refused = maru(&data_dir, Some(&url), &["restore", file_name]).unwrap_err();
    assert!(refused.contains("--replace"), "{refused}");
    let replace = ["restore", "--replace", file_name];
    maru(&data_dir, Some(&url), &replace).unwrap();
    wait_until(async || settings(&hub).await == before).await;
    assert_eq!(call(&hub).await, 6);
    hub.running.stop().await;

    // The file is a store of its own.
    let other = tempfile::tempdir().unwrap();
    maru(other.path(), None, &["restore", file_name]).unwrap();
    let key = other.path().join("seal-key");
    fs::copy(data_dir.join("seal-key"), key).unwrap();
    let hub = TestHub::with_directory(Config {
        listen: "127.0.0.1:0".parse().unwrap(),
        data_dir: other.path().to_owned(),
        ..Config::default()
    })
    .await;
    wait_until(async || settings(&hub).await == before).await;
    hub.running.stop().await;
}
