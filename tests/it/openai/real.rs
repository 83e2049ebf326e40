//! A real model of 135 million parameters, on llama.cpp's own server: held to
//! the form of a call, even it calls a tool.

use std::process::Stdio;

use maru::config::{ModelDefinition, ToolMode};
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::{Duration, timeout},
};

use super::client::{streamed, whole};
use crate::{clients::tools, hub::TestHub};

const PATIENCE: Duration = Duration::from_secs(120);

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

#[tokio::test]
async fn a_very_small_model_calls_a_tool() {
    let (_child, address) = small_model().await;
    let model = |name: &str, tool_mode| ModelDefinition {
        name: name.to_owned(),
        base_url: Some(format!("{address}/v1")),
        tool_mode,
        timeout_ms: 120_000,
        ..ModelDefinition::default()
    };
    let models = vec![
        model("m", ToolMode::Constrained),
        model("free", ToolMode::Prompt),
    ];
    let hub = TestHub::with(|config| config.models = models).await;
    let must = json!({"tool_choice": "required", "temperature": 0, "max_tokens": 60});
    let (message, finish) = whole(&hub, must.clone()).await;
    let call = &message["tool_calls"][0]["function"];
    assert_eq!(
        (call["name"].as_str(), finish.as_str()),
        (Some("get_weather"), "tool_calls"),
        "{message}"
    );
    assert!(
        call["arguments"].as_str().unwrap().contains("city"),
        "{message}"
    );
    let gathered = streamed(&hub, must).await;
    assert_eq!(gathered.calls.len(), 1, "{gathered:?}");
    // Without tools it just speaks.
    let spoken = streamed(&hub, json!({"tools": [], "max_tokens": 8})).await;
    assert!(!spoken.text.is_empty());
    assert_eq!(spoken.finish, "length");
}
