//! `maru connect` with a hub and without one.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::{Value, json};

use super::{assert_refused, utf8};
use crate::test_hub::TestHub;

/// Runs `maru connect` for a person whose home is `home`.
fn connect(home: &Path, data_dir: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_maru"));
    for variable in ["XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR"] {
        command.env_remove(variable);
    }
    command
        .arg("--data-dir")
        .arg(data_dir)
        .arg("connect")
        .args(arguments)
        .current_dir(home)
        .env("HOME", home)
        .output()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn written_settings_keep_what_was_there_and_a_copy() {
    let hub = TestHub::start().await;
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join(".cursor/mcp.json");
    fs::create_dir(home.path().join(".cursor")).unwrap();
    let before =
        "{\n  // mine\n  \"mcpServers\": {\n    \"git\": {\"command\": \"git-mcp\"},\n  },\n}\n";
    fs::write(&file, before).unwrap();
    let run = |arguments: &[&str]| connect(home.path(), hub.directory.path(), arguments);

    let done = run(&["cursor", "--write"]);
    assert!(done.status.success(), "{}", utf8(&done.stderr));
    let after = fs::read_to_string(&file).unwrap();
    assert!(
        after.contains("// mine") && after.contains("git-mcp"),
        "{after}"
    );
    assert!(after.contains(&hub.url()), "{after}");
    let copies = || {
        let files = fs::read_dir(home.path().join(".cursor")).unwrap();
        let names = files.map(|it| it.unwrap().file_name().into_string().unwrap());
        names
            .filter(|it| it.contains("before-maru"))
            .collect::<Vec<_>>()
    };
    let [copy] = &copies()[..] else {
        panic!("{:?}", copies())
    };
    let copy = home.path().join(".cursor").join(copy);
    assert_eq!(fs::read_to_string(copy).unwrap(), before);

    let again = run(&["cursor", "--write"]);
    assert!(utf8(&again.stdout).contains("has maru already"));
    assert_eq!(copies().len(), 1);
    let listed = run(&["--list", "-o", "json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    let cursor = listed.as_array().unwrap().iter();
    let cursor = cursor.clone().find(|it| it["client"] == "cursor").unwrap();
    assert_eq!(
        (&cursor["installed"], &cursor["connected"]),
        (&json!(true), &json!("yes"))
    );

    fs::write(&file, "{ broken").unwrap();
    let refused = run(&["cursor", "--write"]);
    assert_refused(&refused, &["mcp.json is not changed", "not valid JSON"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), "{ broken");
}

#[tokio::test(flavor = "multi_thread")]
async fn token_is_made_on_request_and_works() {
    let hub = TestHub::with_config(|config| config.require_token = true).await;
    let home = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| connect(home.path(), hub.directory.path(), arguments);

    let shown = run(&["vscode"]);
    assert!(utf8(&shown.stdout).contains("Bearer YOUR_TOKEN"));
    assert!(utf8(&shown.stderr).contains("requires a token"));
    // A placeholder in the client's file would look connected and be refused by the hub.
    for arguments in [
        &["cursor", "--write"][..],
        &["codex", "--write", "--models"],
    ] {
        let refused = run(arguments);
        assert_refused(&refused, &["nothing is written", "add --token to make one"]);
    }
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    // What stops the write is found before a token is made for it.
    fs::create_dir(home.path().join(".cursor")).unwrap();
    fs::write(home.path().join(".cursor/mcp.json"), "{ broken").unwrap();
    assert_refused(&run(&["cursor", "--write", "--token"]), &["is not changed"]);
    assert!(!run(&["curl", "--write", "--token"]).status.success());
    let tokens = hub.send_as_admin("GET", "/api/tokens", Value::Null).await;
    let tokens = tokens.text().await;
    assert!(
        !tokens.contains("cursor") && !tokens.contains("curl"),
        "{tokens}"
    );

    let done = run(&["codex", "--write", "--token"]);
    assert!(done.status.success(), "{}", utf8(&done.stderr));
    let text = fs::read_to_string(home.path().join(".codex/config.toml")).unwrap();
    let token = text.split("Bearer ").nth(1).unwrap();
    let token = token.split('"').next().unwrap();
    let tools = Command::new(env!("CARGO_BIN_EXE_maru"))
        .args(["tools", "--hub", hub.url().trim_end_matches("/mcp")])
        .env("MARU_TOKEN", token)
        .output()
        .unwrap();
    assert!(
        utf8(&tools.stdout).contains("search_docs"),
        "{}",
        utf8(&tools.stderr)
    );
    let second = run(&["codex", "--token"]);
    assert!(
        utf8(&second.stderr).contains("codex-2"),
        "{}",
        utf8(&second.stderr)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_client_that_has_a_file_is_written() {
    let hub = TestHub::start().await;
    let home = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| connect(home.path(), hub.directory.path(), arguments);
    let list = || -> Vec<Value> {
        let listed = run(&["--list", "-o", "json"]);
        let listed: Vec<Value> = serde_json::from_slice(&listed.stdout).unwrap();
        let with_file = listed.into_iter().filter(|it| it["file"].is_string());
        with_file.collect()
    };
    let clients = list();
    assert!(clients.len() >= 9, "{clients:?}");
    let directory = hub.directory.path().to_str().unwrap();
    for client in &clients {
        let (id, file) = (
            client["client"].as_str().unwrap(),
            client["file"].as_str().unwrap(),
        );
        assert!(Path::new(file).starts_with(home.path()), "{file}");
        let done = run(&[id, "--write"]);
        assert!(done.status.success(), "{id}: {}", utf8(&done.stderr));
        let text = fs::read_to_string(file).unwrap();
        // A client that starts a program gets this one, for this hub.
        assert!(
            text.contains(&hub.url()) || text.contains(directory),
            "{id}: {text}"
        );
        let again = run(&[id, "--write"]);
        assert!(utf8(&again.stdout).contains("has maru already"), "{id}");
    }
    for client in list() {
        assert_eq!(client["connected"], "yes", "{client}");
    }
    let mut with_models = 0;
    for client in &clients {
        let id = client["client"].as_str().unwrap();
        let done = run(&[
            id, "--write", "--models", "--model", "qwen3:8b", "-o", "json",
        ]);
        if !done.status.success() {
            assert!(
                utf8(&done.stderr).contains("has no file that maru can write"),
                "{id}"
            );
            continue;
        }
        let done: Value = serde_json::from_slice(&done.stdout).unwrap();
        let text = fs::read_to_string(done["file"].as_str().unwrap()).unwrap();
        assert!(text.contains("qwen3:8b"), "{id}: {text}");
        with_models += 1;
    }
    assert!(with_models >= 4, "{with_models}");
    let refused = run(&["codex", "--write", "--models"]);
    assert_refused(&refused, &["nothing is written", "--model NAME"]);
}

#[test]
fn settings_are_shown_without_a_hub() {
    let home = tempfile::tempdir().unwrap();
    let data_dir = home.path().join("data");
    let shown = connect(home.path(), &data_dir, &["claude-desktop"]);
    assert!(shown.status.success());
    let text = utf8(&shown.stdout);
    let directory = data_dir.to_str().unwrap();
    assert!(
        text.contains(directory) && text.contains("\"stdio\""),
        "{text}"
    );
    assert!(utf8(&shown.stderr).contains("no hub runs now"));
    // A client on this machine cannot use the address that means all of them.
    fs::write(
        home.path().join("maru.yaml"),
        "listen: 0.0.0.0:20007\nbehind_tls_proxy: true\n",
    )
    .unwrap();
    let shown = connect(home.path(), &data_dir, &["cursor"]);
    let text = utf8(&shown.stdout);
    assert!(
        text.contains("127.0.0.1:20007/mcp") && !text.contains("0.0.0.0"),
        "{text}{}",
        utf8(&shown.stderr)
    );
    let refused = connect(home.path(), &data_dir, &["cursor", "--token"]);
    assert_refused(&refused, &["a token is made by the running hub"]);
}
