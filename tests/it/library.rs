//! maru inside another program: `maru::Hub` and the example that shows it.

#[path = "../../examples/embed.rs"]
#[expect(
    dead_code,
    reason = "the example's `main` is not called here, its `run` is"
)]
mod embed;

use std::{fs, process};

use maru::{
    Hub, HubOptions, ServerRegistration,
    hub::{Error, ServerState},
};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::{
    fixture_server::fixture_program,
    http_client::{wait_for, wait_until},
};

const SIMPLE_TOOL: &str = "fixture__test_simple_text";
const SIMPLE_TEXT: &str = "This is a simple text response for testing.";

/// The fixture server. A variable tells its process from those of other tests.
fn fixture_registration(mark: &str) -> ServerRegistration {
    let program = fixture_program().display().to_string();
    ServerRegistration::stdio("fixture", program)
        .args(["stdio"])
        .env("LIBRARY_TEST", mark)
}

fn unique_mark(test: &str) -> String {
    format!("{test}-{}", process::id())
}

/// Processes that were started with this mark and still run.
fn marked_processes(mark: &str) -> Vec<String> {
    let wanted = format!("LIBRARY_TEST={mark}");
    let has_mark = |id: &String| {
        let variables = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        variables
            .split(|it| *it == 0)
            .any(|it| it == wanted.as_bytes())
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let names = entries.filter_map(|it| it.file_name().into_string().ok());
    names.filter(has_mark).collect()
}

/// A server may take a moment to end after it was told to.
async fn wait_until_ended(mark: &str) {
    wait_for(async || marked_processes(mark), Vec::is_empty).await;
}

async fn assert_answers(hub: &Hub) {
    let output = hub.call(SIMPLE_TOOL, json!({})).await.unwrap();
    assert_eq!(output.text(), SIMPLE_TEXT);
    assert!(!output.is_error());
    assert_eq!(output.content()[0]["type"], "text");
}

#[tokio::test(flavor = "multi_thread")]
async fn registered_server_is_connected_called_and_ended() {
    let mark = unique_mark("journey");
    let hub = Hub::open(HubOptions::in_memory()).await.unwrap();
    assert_eq!(hub.servers(), []);
    let registered = hub.register(&fixture_registration(&mark)).await.unwrap();
    assert_eq!(registered.state, ServerState::Pending);
    assert!(hub.tools_of("fixture").unwrap().is_empty());
    let refused = hub.ensure_connected("fixture").await;
    assert!(matches!(refused, Err(Error::NotConnected { .. })));

    let connected = hub.connect("fixture").await.unwrap();
    assert!(connected.is_connected() && connected.tool_count > 0);
    assert_eq!(connected.transport, "STDIO");
    let tools = hub.tools_of("fixture").unwrap();
    let simple = tools.iter().find(|it| it.name == SIMPLE_TOOL).unwrap();
    assert_eq!(simple.server_tool_name, "test_simple_text");
    assert_eq!(simple.input_schema["type"], "object");
    assert!(hub.tools().len() > tools.len());
    assert_answers(&hub).await;

    let disconnected = hub.disconnect("fixture").await.unwrap();
    assert_eq!(disconnected.state, ServerState::Disconnected);
    assert!(hub.tools_of("fixture").unwrap().is_empty());
    wait_until_ended(&mark).await;
    assert!(
        hub.ensure_connected("fixture")
            .await
            .unwrap()
            .is_connected()
    );
    assert_answers(&hub).await;

    hub.unregister("fixture").await.unwrap();
    assert!(matches!(hub.server("fixture"), Err(Error::Registration(_))));
    assert!(marked_processes(&mark).is_empty());
    hub.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_server_is_connected_again_and_close_leaves_no_child() {
    let mark = unique_mark("lost");
    let hub = Hub::open(HubOptions::in_memory()).await.unwrap();
    hub.register(&fixture_registration(&mark).auto_connect())
        .await
        .unwrap();
    assert_answers(&hub).await;
    let before = marked_processes(&mark);
    assert_eq!(before.len(), 1);
    let killed = Command::new("kill").args(["-KILL", &before[0]]).status();
    assert!(killed.await.unwrap().success());
    wait_until(async || !hub.server("fixture").unwrap().is_connected()).await;
    let again = hub.ensure_connected("fixture").await.unwrap();
    assert!(again.is_connected());
    assert_answers(&hub).await;
    assert_ne!(marked_processes(&mark), before);
    hub.close().await;
    assert!(marked_processes(&mark).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn dropped_hub_ends_its_servers() {
    let mark = unique_mark("dropped");
    let hub = Hub::open(HubOptions::in_memory()).await.unwrap();
    let registration = fixture_registration(&mark).auto_connect();
    hub.register(&registration).await.unwrap();
    assert_eq!(marked_processes(&mark).len(), 1);
    drop(hub);
    wait_until_ended(&mark).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hub_in_a_directory_keeps_its_servers() {
    let mark = unique_mark("kept");
    let directory = tempfile::tempdir().unwrap();
    let options = HubOptions::in_directory(directory.path().join("data"));
    let hub = Hub::open(options.clone()).await.unwrap();
    let registration = fixture_registration(&mark).auto_connect();
    hub.register(&registration).await.unwrap();
    let Err(Error::Open(why)) = Hub::open(options.clone()).await else {
        panic!("two hubs use one directory");
    };
    assert!(why.to_string().contains("embedded in process"), "{why}");
    hub.close().await;

    let hub = Hub::open(options).await.unwrap();
    assert!(hub.server("fixture").unwrap().is_connected());
    assert_answers(&hub).await;
    hub.close().await;
    assert!(marked_processes(&mark).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_name_the_cause() {
    let hub = Hub::open(HubOptions::in_memory()).await.unwrap();
    let missing = ServerRegistration::stdio("missing", "/nonexistent/program");
    hub.register(&missing).await.unwrap();
    let failed = hub.connect("missing").await.unwrap_err();
    assert!(matches!(failed, Error::NotConnected { .. }), "{failed}");
    assert_eq!(hub.server("missing").unwrap().state, ServerState::Failed);
    let twice = hub.register(&missing).await.unwrap_err();
    assert!(twice.to_string().contains("registered already"), "{twice}");
    let unknown = hub.call("missing__tool", json!({})).await.unwrap_err();
    assert!(matches!(unknown, Error::CallRefused { .. }), "{unknown}");
    let list = hub.call("list_tables", json!([1])).await.unwrap_err();
    assert!(matches!(list, Error::InvalidArguments { .. }), "{list}");
    let secret = ServerRegistration::http("remote", "http://127.0.0.1:1/mcp")
        .header("Authorization", "Bearer canary");
    assert!(!format!("{secret:?}").contains("canary"));
    hub.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tool_that_fails_is_an_output() {
    let hub = Hub::open(HubOptions::in_memory()).await.unwrap();
    let registration = fixture_registration(&unique_mark("fails")).auto_connect();
    hub.register(&registration).await.unwrap();
    let failed = hub.call("fixture__test_error_handling", Value::Null).await;
    assert!(failed.unwrap().is_error());
    hub.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn example_lists_and_calls() {
    let program = fixture_program().display().to_string();
    let mut out = Vec::new();
    embed::run(&[program, "stdio".to_owned()], &mut out)
        .await
        .unwrap();
    let out = String::from_utf8(out).unwrap();
    assert!(out.starts_with("example is connected and has "), "{out}");
    assert!(out.contains("  example__test_simple_text\n"), "{out}");
    assert!(out.contains(" answers: "), "{out}");
    assert!(embed::run(&[], &mut Vec::new()).await.is_err());
}
