//! `maru export` and `maru import`: from one hub to another.

use std::{fs, path::Path, process::Command};

use serde_json::{Value, json};

use super::utf8;
use crate::test_hub::TestHub;

/// Runs `maru` on the hub of `data_dir`; returns exit code, stdout and stderr.
fn run(data_dir: &Path, variables: &[(&str, &str)], arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_maru"))
        .arg("--data-dir")
        .arg(data_dir)
        .args(arguments)
        .current_dir(data_dir)
        .envs(variables.iter().copied())
        .output()
        .unwrap();
    let code = output.status.code().unwrap();
    (code, utf8(&output.stdout), utf8(&output.stderr))
}

async fn fill(hub: &TestHub) {
    let server = json!({
        "name": "files", "transportType": "STDIO", "autoConnect": true, "description": "파일",
        "config": {"command": "files-mcp", "args": ["--api-key=s3cret-arg", "${x}", "/srv"], "env": {"KEY": "s3cret-env"}},
    });
    let tool = json!({
        "name": "twice", "description_agent": "Doubles a number.", "tool_type": "PYTHON", "definition": "n * 2",
        "params": [{"param_name": "n", "param_type": "NUMBER", "description": "The number"}],
    });
    let mut draft = tool.clone();
    draft["definition"] = "n + n".into();
    for (method, path, body) in [
        ("POST", "/api/mcp/servers", server),
        ("POST", "/api/custom-tools", tool),
        ("PUT", "/api/custom-tools/twice/draft", draft),
        (
            "PUT",
            "/api/limits/TOOL/twice",
            json!({"max_count": 7, "max_per_minute": 2}),
        ),
        ("PUT", "/api/tools/search_docs", json!({"enabled": false})),
        (
            "POST",
            "/api/tokens",
            json!({"name": "bot", "role": "agent", "servers": ["files"]}),
        ),
    ] {
        let done = hub.send_as_admin(method, path, body).await;
        assert!(done.status.is_success(), "{path}: {}", done.text().await);
    }
}

/// What a file can have besides.
async fn fill_more(hub: &TestHub) {
    // The database is away; its password goes into no file.
    let source = json!({"name": "sales", "url": "postgres://reader:s3cret-word@127.0.0.1:9/sales"});
    let query = json!({
        "name": "cities", "description_agent": "Lists cities.", "tool_type": "SQL", "source": "sales",
        "definition": "SELECT city FROM shop",
    });
    let model =
        json!({"name": "far", "base_url": "http://203.0.113.9:9/v1", "api_key": "s3cret-key"});
    let words = json!({"description": "Our documents.", "tags": ["docs"]});
    for (method, path, body) in [
        ("PUT", "/api/tools/search_docs/override", words),
        ("PUT", "/api/allowed-hosts/203.0.113.9", Value::Null),
        ("POST", "/api/models", model),
        ("POST", "/api/sources", source),
        ("POST", "/api/custom-tools", query),
        (
            "PUT",
            "/api/toolsets/docs",
            json!({"include": ["tag:docs"], "tools": "search"}),
        ),
        (
            "PUT",
            "/api/budgets/month",
            json!({"period": "month", "tokens": 5000}),
        ),
    ] {
        let done = hub.send_as_admin(method, path, body).await;
        assert!(done.status.is_success(), "{path}: {}", done.text().await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn exported_hub_is_imported_whole_and_without_secrets() {
    let (first, second) = (TestHub::start().await, TestHub::start().await);
    fill(&first).await;
    fill_more(&first).await;
    let (from, to) = (first.directory.path(), second.directory.path());
    let (code, _, why) = run(from, &[], &["export", "all.yaml"]);
    assert_eq!(code, 0, "{why}");
    let file = from.join("all.yaml");
    let text = fs::read_to_string(&file).unwrap();
    assert!(!text.contains("s3cret"), "{text}");
    assert!(
        text.contains("${FILES_KEY}") && text.contains("${FILES_ARGS_1}"),
        "{text}"
    );
    let file = file.to_str().unwrap();

    // On the same hub, nothing changes, and the secrets are kept.
    let (code, shown, why) = run(from, &[], &["import", file]);
    assert_eq!(code, 0, "{why}");
    let unchanged = shown.lines().all(|it| it.ends_with(": unchanged"));
    assert!(unchanged, "{shown}");

    let (code, _, why) = run(to, &[], &["import", file]);
    assert_eq!(code, 2);
    assert!(why.contains("FILES_ARGS_1, FILES_KEY"), "{why}");
    let (code, shown, _) = run(to, &[], &["import", file, "--dry-run"]);
    assert_eq!(code, 0, "what has no secret yet is no failure: {shown}");
    assert!(
        shown.contains("to fill in first: FAR_API_KEY, FILES_ARGS_1, FILES_KEY, SALES_PASSWORD")
            && shown.contains("tool cities: would be created (it is checked once"),
        "{shown}"
    );
    let values = [
        ("FILES_KEY", "s3cret-env"),
        ("FILES_ARGS_1", "s3cret-arg"),
        ("FAR_API_KEY", "s3cret-key"),
        ("SALES_PASSWORD", "s3cret-word"),
    ];
    let (code, shown, _) = run(to, &values, &["import", file, "--dry-run"]);
    assert_eq!(code, 0, "{shown}");
    for part in [
        "server files: would be created",
        "source sales: would be created\n",
        "tool cities: would be created\n",
        "allowed host 203.0.113.9: would be created\n",
        "toolset docs: would be created\n",
        "tool override maru.search_docs: would be created\n",
        "budget month: would be created\n",
    ] {
        assert!(shown.contains(part), "{part:?}: {shown}");
    }
    let servers = second.send_as_admin("GET", "/api/mcp/servers", Value::Null);
    assert_eq!(servers.await.json().await, json!([]));

    let (code, shown, why) = run(to, &values, &["import", file]);
    assert_eq!(code, 0, "{shown}{why}");
    assert!(
        shown.contains("maru token create bot --role agent --server files"),
        "{shown}"
    );
    let (_, exported, _) = run(to, &[], &["export", "-o", "json"]);
    let (_, original, _) = run(from, &[], &["export", "-o", "json"]);
    let without_tokens = |text: &str| {
        let mut document: Value = serde_json::from_str(text).unwrap();
        document["tokens"].take();
        document
    };
    assert_eq!(without_tokens(&exported), without_tokens(&original));
    let kept = second.running.servers().get("files").unwrap();
    let kept = kept.server.transport.config_with_secrets();
    let arguments = json!(["--api-key=s3cret-arg", "${x}", "/srv"]);
    assert_eq!(
        (&kept["args"], &kept["env"]["KEY"]),
        (&arguments, &json!("s3cret-env"))
    );
    for (path, part) in [
        ("/api/toolsets/docs", "tag:docs"),
        ("/api/tool-overrides", "Our documents."),
        ("/api/budgets", "5000"),
        ("/api/allowed-hosts", "203.0.113.9"),
    ] {
        let shown = second.send_as_admin("GET", path, Value::Null).await;
        let shown = shown.text().await;
        assert!(shown.contains(part), "{path}: {shown}");
    }

    // A change is shown with its place; a secret of the file is not.
    let changed = text
        .replace("/srv", "/data")
        .replace("${FILES_KEY}", "other-s3cret");
    fs::write(to.join("changed.yaml"), changed).unwrap();
    let (code, shown, why) = run(to, &[], &["import", "changed.yaml", "--dry-run"]);
    assert_eq!(code, 0, "{why}");
    for part in [
        "server files: would be changed",
        "config.args",
        "config.env.KEY",
        "+ ***",
    ] {
        assert!(shown.contains(part), "{shown}");
    }
    assert!(!shown.contains("s3cret"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn placeholder_is_never_stored_as_a_value() {
    let hub = TestHub::start().await;
    let directory = hub.directory.path();
    let masked = json!({"mcpServers": {"files": {"command": "x", "env": {"KEY": "***"}}}});
    let named = json!({"mcpServers": {"files": {"command": "x", "env": {"KEY": "${env:MY_KEY}"}}}});
    fs::write(directory.join("masked.json"), masked.to_string()).unwrap();
    fs::write(directory.join("named.json"), format!("// mine\n{named}")).unwrap();
    let (code, _, why) = run(directory, &[], &["import", "masked.json"]);
    assert_eq!(code, 2);
    assert!(why.contains("env/KEY"), "{why}");
    let (code, shown, _) = run(directory, &[], &["servers", "import", "masked.json"]);
    assert_eq!(code, 1);
    assert!(
        shown.contains("files is not imported: config.env.KEY: holds ***"),
        "{shown}"
    );
    let (code, _, why) = run(directory, &[], &["import", "named.json"]);
    assert_eq!(code, 2);
    assert!(why.contains("MY_KEY"), "{why}");
    let servers = hub.send_as_admin("GET", "/api/mcp/servers", Value::Null);
    assert_eq!(servers.await.json().await, json!([]));
    let (code, shown, why) = run(
        directory,
        &[("MY_KEY", "s3cret")],
        &["import", "named.json"],
    );
    assert!(
        shown.contains("server files: created"),
        "{code} {shown}{why}"
    );
    let kept = hub.running.servers().get("files").unwrap();
    let kept = kept.server.transport.config_with_secrets();
    assert_eq!(kept["env"]["KEY"], "s3cret");
}

#[tokio::test(flavor = "multi_thread")]
async fn older_exports_are_still_read() {
    let hub = TestHub::start().await;
    fill(&hub).await;
    let directory = hub.directory.path();
    let (_, tools, _) = run(directory, &[], &["tools", "export"]);
    fs::write(directory.join("tools.yaml"), &tools).unwrap();
    // The console wrote a list of tools with what the hub sets.
    let list = hub.send_as_admin("GET", "/api/custom-tools", Value::Null);
    fs::write(directory.join("tools.json"), list.await.text().await).unwrap();
    for file in ["tools.yaml", "tools.json"] {
        let removed = hub.send_as_admin("DELETE", "/api/custom-tools/twice", Value::Null);
        assert_eq!(removed.await.status, 204);
        let (code, shown, why) = run(directory, &[], &["import", file]);
        assert_eq!(code, 0, "{why}");
        assert_eq!(shown, "tool twice: created\n");
    }
    fs::write(directory.join("new.yaml"), "maru: 2\n").unwrap();
    let (code, _, why) = run(directory, &[], &["import", "new.yaml"]);
    assert_eq!(code, 2);
    assert!(why.contains("the file has version 2"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn dry_run_checks_the_file_as_a_whole() {
    let hub = TestHub::start().await;
    let directory = hub.directory.path();
    let files = tempfile::tempdir().unwrap();
    let database = files.path().join("shop.db");
    let made = rusqlite::Connection::open(&database).unwrap();
    made.execute_batch("CREATE TABLE item (name TEXT)").unwrap();
    let tool = |name: &str, source: &str, definition: &str| {
        json!({
            "name": name, "description_agent": "Lists items.", "tool_type": "SQL", "source": source,
            "definition": definition, "params": [], "is_active": true,
        })
    };
    let file = json!({
        "maru": 1,
        "sources": [
            {"name": "shop", "url": database},
            {"name": "gone", "url": files.path().join("gone.db")},
        ],
        "tools": [
            tool("items", "shop", "SELECT name FROM item"),
            tool("prices", "shop", "SELECT price FROM item"),
            tool("others", "other", "SELECT 1"),
        ],
    });
    fs::write(directory.join("shop.json"), file.to_string()).unwrap();
    let import = |arguments: &[&str]| {
        run(
            directory,
            &[],
            &[&["import", "shop.json"], arguments].concat(),
        )
    };
    let (code, planned, why) = import(&["--dry-run"]);
    assert_eq!(code, 1, "{planned}{why}");
    let lines: Vec<&str> = planned.lines().collect();
    assert_eq!(
        (lines[0], lines[2]),
        (
            "source shop: would be created",
            "tool items: would be created"
        )
    );
    for (line, part) in [
        (lines[1], "source gone: not imported: there is no such file"),
        (
            lines[3],
            "tool prices: not imported: the database says: no such column",
        ),
        (
            lines[4],
            "tool others: not imported: there is no source \"other\"",
        ),
    ] {
        assert!(line.starts_with(part), "{planned}");
    }
    let sources = hub.send_as_admin("GET", "/api/sources/shop", Value::Null);
    assert_eq!(sources.await.status, 404, "a dry run saves nothing");
    // The import does what the dry run said.
    let (code, done, _) = import(&[]);
    assert_eq!(code, 1);
    assert_eq!(done, planned.replace("would be created", "created"));
}
