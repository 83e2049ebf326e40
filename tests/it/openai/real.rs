//! A real model of 135 million parameters, on llama.cpp's own server: held to
//! the form of a call, even it calls a tool.

use std::process::Stdio;

use maru::{
    config::{ModelDefinition, ToolMode},
    llm::{ChatRequest, Choice, Finish, Gateway, Message, Role, Tool},
    outbound::{Policy, Tls},
};
use serde_json::{Map, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::{Duration, timeout},
};

use crate::clients::tools;

/// It computes on a machine that does other things, too.
const PATIENCE: Duration = Duration::from_secs(300);

async fn small_model() -> (Child, String) {
    let mut child = Command::new(tools().join("small/bin/python"))
        .arg(tools().join("small_model.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = timeout(PATIENCE, lines.next_line()).await.expect("in time");
    (child, line.unwrap().expect("the server says its address"))
}

fn question(choice: Choice, tokens: u32) -> ChatRequest {
    let city =
        json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let mut other = Map::new();
    other.insert("temperature".to_owned(), json!(0));
    other.insert("max_tokens".to_owned(), json!(tokens));
    ChatRequest {
        model: "small".to_owned(),
        messages: vec![Message::text(Role::User, "Weather in Seoul?")],
        tools: vec![Tool {
            name: "get_weather".to_owned(),
            shown: None,
            description: "Weather of a city".to_owned(),
            parameters: city,
            other: Map::new(),
        }],
        choice,
        other,
        ..ChatRequest::default()
    }
}

#[tokio::test]
async fn a_very_small_model_calls_a_tool() {
    let (_child, address) = small_model().await;
    let models = [ModelDefinition {
        base_url: Some(format!("{address}/v1")),
        tool_mode: ToolMode::Constrained,
        timeout_ms: 300_000,
        ..ModelDefinition::default()
    }];
    let gateway = Gateway::open(&models, "", &Policy::default(), &Tls::default()).unwrap();
    let answer = gateway
        .whole(question(Choice::Required, 48), PATIENCE)
        .await
        .unwrap();
    assert_eq!(answer.finish, Finish::ToolCalls, "{answer:?}");
    assert_eq!(answer.calls[0].name, "get_weather");
    assert!(answer.calls[0].arguments.contains("\"city\""), "{answer:?}");
    let usage = answer.usage.expect("llama.cpp counts");
    assert!(usage.count("prompt_tokens") > 0);
    // The same in a stream, and cut off too early.
    let stream = gateway
        .chat(question(Choice::Required, 48), PATIENCE)
        .await
        .unwrap();
    assert_eq!(stream.whole().await.unwrap().calls.len(), 1);
    let cut = gateway
        .whole(question(Choice::Required, 4), PATIENCE)
        .await
        .unwrap();
    assert_eq!(
        (cut.finish, cut.calls.len()),
        (Finish::Length, 0),
        "{cut:?}"
    );
    let mut plain = question(Choice::Auto, 8);
    plain.tools.clear();
    let spoken = gateway.whole(plain, PATIENCE).await.unwrap();
    assert!(
        !spoken.text.is_empty() && spoken.calls.is_empty(),
        "{spoken:?}"
    );
}
