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
    let refused = connect(home.path(), &data_dir, &["cursor", "--token"]);
    assert_refused(&refused, &["a token is made by the running hub"]);
}
