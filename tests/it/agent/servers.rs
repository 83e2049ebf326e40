//! Servers and models that a request names and that are not there.

use std::process::{Command, Stdio};

use serde_json::json;

use maru::config::ToolsetDefinition;

use super::*;

/// A hub with the server `dead`, which cannot be connected.
async fn hub_with_dead_server(backend: &FakeModelServer) -> TestHub {
    let hub = hub_with_model(backend, |_| ()).await;
    let config = json!({"url": "http://127.0.0.1:1/mcp"});
    let view = hub.register_server("dead", "HTTP", config).await;
    assert_ne!(view.status.state.as_str(), "CONNECTED");
    hub
}

#[tokio::test]
async fn run_names_the_servers_that_it_does_without() {
    let backend = FakeModelServer::start_with_steps(streamed_by_byte("Hi.", "stop")).await;
    let hub = hub_with_dead_server(&backend).await;
    let question = question_request(json!({"mcp_servers": ["dead", "maru"]}));
    let answer = generate(&hub, &question).await;
    let unavailable = &answer["result"]["unavailable_servers"];
    assert_eq!(unavailable[0]["name"], "dead", "{answer}");
    let status = unavailable[0]["status"].as_str().unwrap();
    assert!(
        ["FAILED", "WAITING", "CONNECTING"].contains(&status),
        "{answer}"
    );
    let reply = TestRequest::post(&hub.address, GENERATE_ROUTE, &question)
        .header("accept", "text/event-stream")
        .send()
        .await;
    let events = collect_events(reply).await;
    assert_eq!(events[0].1["unavailable_servers"][0]["name"], "dead");
    let all = generate(&hub, &question_request(json!({}))).await;
    assert_eq!(all["result"]["unavailable_servers"], json!([]));
}

#[tokio::test]
async fn run_without_any_of_its_servers_is_an_error() {
    let backend = FakeModelServer::start_with_steps(streamed_by_byte("Hi.", "stop")).await;
    let hub = hub_with_dead_server(&backend).await;
    let question = question_request(json!({"mcp_servers": ["dead"]}));
    let answer = generate(&hub, &question).await;
    assert_eq!(answer["error"]["code"], -32000, "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("dead ("), "{answer}");
    assert!(backend.seen().is_empty());
}

#[tokio::test]
async fn unknown_model_is_an_invalid_parameter() {
    let backend = FakeModelServer::start_with_steps(streamed_by_byte("Hi.", "stop")).await;
    let hub = hub_with_model(&backend, |config| {
        config.models[0].name = "small".to_owned();
    })
    .await;
    let answer = generate(&hub, &question_request(json!({"model": "nope"}))).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    assert!(answer.to_string().contains("nope"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn chat_with_a_silent_model_fails() {
    let backend =
        FakeModelServer::start_with_steps(vec![stream_head(), ScriptStep::WaitForClose]).await;
    let hub = hub_with_model(&backend, |config| config.agent.timeout_ms = 500).await;
    let elsewhere = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_maru"));
    command
        .args(["chat", "?", "--listen", &hub.address, "--data-dir"])
        .arg(elsewhere.path())
        .env_remove("MARU_CONFIG")
        .stdin(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap());
    let output = output.await.unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{complaint}");
    assert!(complaint.contains("agent.timeout_ms"), "{complaint}");
}

#[tokio::test(flavor = "multi_thread")]
async fn run_gets_what_the_toolsets_of_agent_and_token_both_contain() {
    let backend = FakeModelServer::start(|_, _| streamed_by_byte("네.", "stop")).await;
    let hub = hub_with_model(&backend, |config| {
        let toolset = |name: &str, include: &[&str]| ToolsetDefinition {
            name: name.to_owned(),
            include: include.iter().map(|&it| it.to_owned()).collect(),
            ..ToolsetDefinition::default()
        };
        config.toolsets = vec![
            toolset("staff", &["get_employee_info", "get_employee_list"]),
            toolset("docs", &["get_employee_info", "search_docs"]),
        ];
        config.agent.toolset = Some("staff".to_owned());
    })
    .await;
    let token = json!({"name": "bot", "role": "agent", "toolset": "docs"});
    let token = hub.create_token(token).await;
    let ask = async |extra: Value| {
        TestRequest::post(&hub.address, GENERATE_ROUTE, &question_request(extra))
            .header("accept", "application/json")
            .header("authorization", &format!("Bearer {token}"))
            .send()
            .await
            .json()
            .await
    };
    let answer = ask(json!({})).await;
    assert_eq!(answer["result"]["text"], "네.", "{answer}");
    let tools = backend.seen()[0].body["tools"].to_string();
    assert!(tools.contains("get_employee_info"), "{tools}");
    assert!(!tools.contains("search_docs"), "{tools}");
    assert!(!tools.contains("get_employee_list"), "{tools}");
    let refused = ask(json!({"toolset": "staff"})).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
}
