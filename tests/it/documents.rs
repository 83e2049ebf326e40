//! The commands of the documents, as they are written there, on a hub with `local_admin`.
//!
//! They name addresses of a private network, so they run in a network namespace of their
//! own that has a loopback interface and nothing else.

use std::{fs, path::Path};

use serde_json::{Value, json};
use tokio::process::Command;

use crate::{
    fixture_server::FixtureServer,
    http_client::within_test_timeout,
    network_namespace::{is_in_namespace, run_in_namespace},
    openai::fake_model::{FakeModelServer, streamed_by_byte},
    test_hub::TestHub,
};

const DOCUMENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/documents");
/// The commands of a document, each with its lines.
fn document_commands(document: &str) -> Vec<String> {
    let text = fs::read_to_string(format!("{DOCUMENTS}/{document}")).unwrap();
    let mut commands = vec![String::new()];
    for line in text.lines() {
        let last = commands.last_mut().unwrap();
        if last.is_empty() && (line.is_empty() || line.starts_with('#')) {
            continue;
        }
        last.push_str(line);
        last.push('\n');
        let is_quoted = last.matches('\'').count() % 2 == 1;
        if !is_quoted && !line.ends_with('\\') {
            commands.push(String::new());
        }
    }
    commands.retain(|it| !it.is_empty());
    commands
}

/// Runs a command as a shell would; its status and the JSON that it prints.
async fn run_command(directory: &Path, command: &str) -> (u16, Value) {
    let settings = "silent\nshow-error\nwrite-out = \"\\n%{http_code}\"\n";
    fs::write(directory.join(".curlrc"), settings).unwrap();
    let output = Command::new("bash")
        .args(["-c", command])
        .env("CURL_HOME", directory)
        .kill_on_drop(true)
        .output();
    let output = within_test_timeout(output).await.unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}{errors}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let (body, status) = printed.rsplit_once('\n').unwrap();
    let body = match body.trim() {
        "" => Value::Null,
        text => serde_json::from_str(text).unwrap_or_else(|_| panic!("{command}{text}")),
    };
    (status.parse().unwrap(), body)
}

/// Whether `answer` has every member of `shown`, with the same values where those are not
/// left open by `null`.
fn check_answer(command: &str, answer: &Value, shown: Value) {
    for (name, value) in shown.as_object().unwrap() {
        let found = &answer[name];
        let is_same = if value.is_null() {
            !found.is_null()
        } else {
            found == value
        };
        assert!(is_same, "{command}{name} in {answer}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_the_registry_document_answer_as_it_shows() {
    if !is_in_namespace() {
        run_in_namespace("documents::commands_of_the_registry_document_answer_as_it_shows").await;
        return;
    }
    let (_tts, url) = FixtureServer::start_at("sse", "192.168.0.18:23016").await;
    assert_eq!(url, "http://192.168.0.18:23016/sse");
    let call = "```json\n{\"tool\": \"tts.test_simple_text\", \"arguments\": {}}\n```";
    let model = FakeModelServer::start(move |number, _| match number {
        0 => streamed_by_byte(call, "stop"),
        _ => streamed_by_byte("음성 생성이 완료되었습니다!", "stop"),
    })
    .await;
    let hub = TestHub::with_config(|config| {
        config.listen = "127.0.0.1:20006".parse().unwrap();
        config.local_admin = true;
        config.models = vec![model.model()];
        config.agent.model = Some("small".to_owned());
    })
    .await;
    let commands = document_commands("registry.sh");
    assert_eq!(commands.len(), 3);
    let mut answers = Vec::new();
    for command in &commands {
        let (status, answer) = run_command(hub.directory.path(), command).await;
        assert_eq!(status, 200, "{command}{answer}");
        answers.push(answer);
    }
    let registered = json!({"name": "tts", "url": url, "message": "registered"});
    check_answer(&commands[0], &answers[0], registered);
    assert_eq!(answers[0]["status"], "CONNECTED");
    assert_eq!(
        answers[1],
        json!({"servers": [{"name": "tts", "url": url}]})
    );
    check_answer(
        &commands[2],
        &answers[2],
        json!({"jsonrpc": "2.0", "id": 1}),
    );
    let text = answers[2]["result"].to_string();
    assert!(text.contains("음성 생성이 완료되었습니다!"), "{text}");
    let seen = model.seen();
    assert_eq!(seen.len(), 2);
    let observed = seen[1].body["messages"].to_string();
    assert!(observed.contains("simple text response"), "{observed}");
    let file = fs::read_to_string(hub.directory.path().join("mcp.json")).unwrap();
    let file: Value = serde_json::from_str(&file).unwrap();
    assert_eq!(file, json!([{"name": "tts", "url": url}]));

    // Without the header that the document has, as `curl -d` sends it.
    let plain = commands[0].replace("-H \"Content-Type: application/json\" \\\n", "");
    assert!(plain.len() < commands[0].len());
    let (status, answer) = run_command(hub.directory.path(), &plain).await;
    assert_eq!((status, &answer["name"]), (200, &json!("tts")));
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_of_the_servers_document_answer_as_it_shows() {
    if !is_in_namespace() {
        run_in_namespace("documents::commands_of_the_servers_document_answer_as_it_shows").await;
        return;
    }
    let (_agent, _) = FixtureServer::start_at("sse", "127.0.0.1:8081").await;
    let hub = TestHub::with_config(|config| {
        config.listen = "127.0.0.1:8080".parse().unwrap();
        config.local_admin = true;
    })
    .await;
    let shown = json!({"id": null, "name": "swagger-agent", "transportType": "SSE",
        "autoConnect": true, "createdAt": null, "updatedAt": null});
    let mut connected = shown.clone();
    connected["status"] = "CONNECTED".into();
    connected["toolCount"] = Value::Null;
    let mut detail = connected.clone();
    detail.as_object_mut().unwrap().remove("toolCount");
    detail["config"] = json!({"url": "http://localhost:8081/sse", "headers": {}});
    detail["tools"] = Value::Null;
    let mut closed = shown.clone();
    closed["status"] = "DISCONNECTED".into();
    let expected = [
        (201, json!({"name": "filesystem", "status": "PENDING"})),
        (200, json!({})),
        (200, json!({"name": "filesystem", "status": "DISCONNECTED"})),
        (201, connected.clone()),
        (200, json!({})),
        (200, detail),
        (200, connected),
        (200, closed),
        (204, json!({})),
    ];
    let commands = document_commands("servers.sh");
    assert_eq!(commands.len(), expected.len());
    for (command, (status, shown)) in commands.iter().zip(expected) {
        let (found, answer) = run_command(hub.directory.path(), command).await;
        assert_eq!(found, status, "{command}{answer}");
        check_answer(command, &answer, shown);
        if let Value::Array(servers) = &answer {
            assert!(!servers.is_empty(), "{command}");
        }
    }
    let left = hub.running.servers().list();
    assert_eq!(left.len(), 1);
}
