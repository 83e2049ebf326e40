//! What the command line says of a hub: its state, its calls, and what is wrong.

use std::{
    fs,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use super::{run_maru, utf8};
use crate::{
    openai::fake_model::{FakeModelServer, streamed_by_byte},
    test_hub::TestHub,
};

/// Runs `maru` on the hub; returns exit code, stdout and stderr.
fn run(hub: &TestHub, arguments: &[&str]) -> (i32, String, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_maru"))
        .args(arguments)
        .arg("--data-dir")
        .arg(hub.directory.path())
        .current_dir(hub.directory.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let code = output.status.code().unwrap();
    (code, utf8(&output.stdout), utf8(&output.stderr))
}

fn finding<'a>(findings: &'a Value, check: &str) -> &'a Value {
    let mut all = findings.as_array().unwrap().iter();
    all.find(|it| it["check"] == check)
        .unwrap_or_else(|| panic!("{check}: {findings}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn status_and_doctor_tell_the_state_of_the_hub() {
    let hub = TestHub::start().await;
    let (code, shown, why) = run(&hub, &["status", "-o", "json"]);
    assert_eq!(code, 0, "{why}");
    let status: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(
        (&status["running"], &status["servers"]["total"]),
        (&json!(true), &json!(0))
    );
    let doctor = || -> (i32, Value) {
        let (code, shown, _) = run(&hub, &["doctor", "-o", "json"]);
        (code, serde_json::from_str(&shown).unwrap())
    };
    let (code, healthy) = doctor();
    assert_eq!(code, 0, "{healthy}");
    for check in ["data directory", "hub", "clock", "servers", "sources"] {
        assert_eq!(finding(&healthy, check)["state"], "ok", "{healthy}");
    }
    // A file that is gone when the hub starts again, and a program that does not exist.
    let files = tempfile::tempdir().unwrap();
    let database = files.path().join("shop.db");
    rusqlite::Connection::open(&database)
        .unwrap()
        .execute_batch("CREATE TABLE item (name TEXT)")
        .unwrap();
    let source = json!({"name": "shop", "url": database});
    let server = json!({"name": "files", "transportType": "STDIO", "autoConnect": true, "config": {"command": "no-such-program"}});
    for (path, body) in [("/api/sources", source), ("/api/mcp/servers", server)] {
        assert_eq!(hub.send_as_admin("POST", path, body).await.status, 201);
    }
    fs::remove_file(&database).unwrap();
    let hub = hub.restart().await;
    crate::http_client::wait_for(
        async || run(&hub, &["doctor", "-o", "json"]),
        |(_, shown, _)| shown.contains("files: "),
    )
    .await;
    let (code, shown, _) = run(&hub, &["doctor", "-o", "json"]);
    let sick: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(code, 1, "{sick}");
    let source = finding(&sick, "source");
    assert!(
        source["state"] == "failed" && source["detail"].as_str().unwrap().starts_with("shop: "),
        "{sick}"
    );
    let advice = finding(&sick, "server")["advice"].as_str().unwrap();
    assert!(advice.contains("maru servers logs files"), "{sick}");
}

#[tokio::test(flavor = "multi_thread")]
async fn audit_prints_why_calls_and_changes_failed() {
    let hub = TestHub::start().await;
    let call = |name: &str, arguments: &str| run(&hub, &["call", name, arguments]).0;
    assert_eq!(call("get_employee_info", r#"{"employee_id":"EMP001"}"#), 0);
    assert_eq!(call("get_employee_info", r#"{"employee_id":"EMP999"}"#), 1);
    let refused = hub.send_as_admin("DELETE", "/api/mcp/servers/none", Value::Null);
    assert_eq!(refused.await.status, 404);
    let audit = |arguments: &[&str]| run(&hub, &[&["audit"], arguments].concat());
    let (code, shown, why) = audit(&["--since", "24h", "--failed"]);
    assert_eq!(code, 0, "{why}");
    assert_eq!(shown.lines().count(), 3, "{shown}");
    assert!(
        shown.contains("no employee EMP999") && shown.contains("DELETE /api/mcp/servers/"),
        "{shown}"
    );
    // Each filter counts, with a time and without.
    let (_, shown, _) = audit(&["--since", "24h", "--failed", "--action", "tools/call"]);
    assert_eq!(shown.lines().count(), 2, "{shown}");
    let (_, records, _) = audit(&["--failed", "-o", "json"]);
    let records: Value = serde_json::from_str(&records).unwrap();
    let request = records[0]["request"].as_str().unwrap();
    let (_, shown, _) = audit(&["--since", "1h", "--request", request]);
    assert_eq!(shown.lines().count(), 2, "{shown}");
    let (_, shown, _) = audit(&["--until", "1h"]);
    assert_eq!(shown.lines().count(), 1, "{shown}");
    let (code, _, why) = audit(&["--since", "yesterday"]);
    assert_eq!(code, 2);
    assert!(why.contains("24h"), "{why}");
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_and_messages_of_a_call_are_shown_on_a_terminal() {
    let hub = TestHub::with_suite_tools().await;
    let maru = env!("CARGO_BIN_EXE_maru");
    let directory = hub.directory.path().to_str().unwrap();
    let on_terminal = |tool: &str| {
        let line = format!("{maru} call {tool} --data-dir {directory}");
        let script = Command::new("script")
            .args(["-qec", &line, "/dev/null"])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert!(script.status.success(), "{}", utf8(&script.stdout));
        utf8(&script.stdout)
    };
    let shown = on_terminal("test_tool_with_progress");
    assert!(shown.contains("50 of 100 (50 %)"), "{shown}");
    let shown = on_terminal("test_tool_with_logging");
    assert!(shown.contains("Tool processing data"), "{shown}");
    // Elsewhere only the result is printed.
    let (code, shown, _) = run(&hub, &["call", "test_tool_with_progress"]);
    assert_eq!(code, 0);
    assert!(!shown.contains('%'), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn runs_of_the_agent_are_listed_and_shown() {
    let backend = FakeModelServer::start_with_steps(streamed_by_byte("안녕하세요!", "stop")).await;
    let hub = TestHub::with_config(|config| {
        backend.configure(config);
        config.agent.model = Some("small".to_owned());
    })
    .await;
    let (_, none, _) = run(&hub, &["runs"]);
    assert!(none.contains("no run is recorded"), "{none}");
    let (code, _, why) = run(&hub, &["chat", "누구세요?"]);
    assert_eq!(code, 0, "{why}");
    let (_, listed, _) = run(&hub, &["runs", "-o", "json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let id = listed[0]["id"].as_str().unwrap();
    let (code, shown, _) = run(&hub, &["runs", "show", id]);
    assert_eq!(code, 0);
    assert!(
        shown.contains("question: 누구세요?") && shown.contains("안녕하세요!"),
        "{shown}"
    );
    let (code, _, why) = run(&hub, &["runs", "show", &id[..id.len() - 1]]);
    assert_eq!(code, 2);
    assert!(why.contains(id), "{why}");
}

#[test]
fn command_says_what_it_does_without_a_hub() {
    let directory = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        let output = run_maru(directory.path(), arguments);
        (output.status.code().unwrap(), utf8(&output.stderr))
    };
    let note = "so this command started the servers for itself";
    for arguments in [
        &["tools"][..],
        &["call", "get_all_employees"],
        &["tools", "show", "search_docs"],
        &["tools", "search", "documents"],
        &["models"],
    ] {
        let (code, said) = run(arguments);
        assert_eq!(code, 0, "{arguments:?} {said}");
        assert_eq!(said.matches(note).count(), 1, "{arguments:?} {said}");
    }
    let (code, said) = run(&["call", "serch_docs"]);
    assert_eq!((code, said.matches(note).count()), (2, 1), "{said}");
    for arguments in [
        &["servers", "list"][..],
        &["token", "list"],
        &["limits"],
        &["runs"],
        &["calls"],
        &["audit"],
        &["usage"],
        &["toolsets"],
        &["export"],
    ] {
        let (code, said) = run(arguments);
        assert_eq!(code, 2, "{arguments:?} {said}");
        assert!(
            said.contains("start one with: maru"),
            "{arguments:?} {said}"
        );
    }
    let output = run_maru(directory.path(), &["status"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(utf8(&output.stdout).contains("start one with: maru"));
}

#[test]
fn completion_and_man_pages_are_written() {
    let directory = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = run_maru(directory.path(), &["completion", shell]);
        assert!(script.status.success(), "{shell}");
        let script = utf8(&script.stdout);
        assert!(
            script.contains("servers") && script.contains("doctor"),
            "{shell}"
        );
    }
    let page = utf8(&run_maru(directory.path(), &["man"]).stdout);
    assert!(page.contains(".TH maru 1"), "{page}");
    let pages = directory.path().join("man");
    let written = run_maru(
        directory.path(),
        &["man", "--directory", pages.to_str().unwrap()],
    );
    assert!(written.status.success(), "{}", utf8(&written.stderr));
    let names: Vec<String> = fs::read_dir(&pages)
        .unwrap()
        .map(|it| it.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(names.iter().any(|it| it == "maru-servers.1"), "{names:?}");
}
