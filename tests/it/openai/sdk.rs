//! Real clients read what the door writes.

use maru::config::ModelDefinition;
use serde_json::{Value, json};
use tokio::process::Command;

use super::backend::{Backend, Step, delta, document, letters, stream_head, text};
use crate::{
    clients::{node, run, tools},
    hub::TestHub,
};

const CALL: &str =
    "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Seoul\"}}\n</tool_call>";
const TEXT: &str = "안녕, \"world\".";

/// Models named after what they do; the dialect is one that no client knows.
async fn hub() -> (Backend, TestHub) {
    let backend = Backend::start(|_, seen| {
        let said = match seen.body["model"].as_str() {
            Some("text") => TEXT,
            Some("call") => CALL,
            Some("broken") => {
                return vec![stream_head(), delta(json!({"content": "half"}), None), Step::Send("data: {".to_owned())];
            }
            _ => return document(404, "", &json!({"error": {"message": "no"}})),
        };
        match seen.body["stream"] == true {
            false => text(said),
            true => {
                let mut steps = letters(said, "stop");
                if !seen.body["stream_options"].is_null() {
                    let Step::Send(whole) = &mut steps[0] else { unreachable!() };
                    let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2,\"total_tokens\":3}}\n\ndata: [DONE]";
                    *whole = whole.replace("data: [DONE]", usage);
                    let (head, body) = whole.split_once("\r\n\r\n").unwrap();
                    let length = head.split("content-length: ").nth(1).unwrap().to_owned();
                    let head = head.replace(&length, &body.len().to_string());
                    *whole = format!("{head}\r\n\r\n{body}");
                }
                steps
            }
        }
    })
    .await;
    let models = ["text", "call", "broken", "missing"].map(|name| ModelDefinition {
        name: name.to_owned(),
        ..backend.model()
    });
    let hub = TestHub::with(|config| config.models = models.to_vec()).await;
    (backend, hub)
}

fn check(client: &str, seen: &Value) {
    let call = json!([["get_weather", {"city": "Seoul"}]]);
    assert_eq!(seen["text"], TEXT, "{client}");
    assert_eq!(seen["streamed_text"], TEXT, "{client}");
    assert_eq!(seen["call"], call, "{client}");
    assert_eq!(seen["streamed_call"], call, "{client}");
}

#[tokio::test]
async fn openai_python_and_langchain() {
    let (_backend, hub) = hub().await;
    let base = format!("http://{}/v1", hub.address);
    let seen = run(Command::new(tools().join("openai/bin/python"))
        .arg(tools().join("openai_client.py"))
        .arg(&base))
    .await;
    let seen: Value = serde_json::from_str(&seen).unwrap();
    check("openai-python", &seen["openai"]);
    check("LangChain", &seen["langchain"]);
    let openai = &seen["openai"];
    assert_eq!(
        openai["finish"],
        json!(["stop", "tool_calls", "tool_calls"])
    );
    assert_eq!(openai["usage"], 3);
    assert_eq!(openai["broken"], "APIError");
    assert_eq!(openai["missing"], "NotFoundError");
    assert_eq!(
        openai["models"],
        json!(["broken", "call", "missing", "text"])
    );
    assert_eq!(openai["vectors"], 2);
    assert_eq!(seen["langchain"]["invalid"], 0);
}

#[tokio::test]
async fn openai_node_and_the_vercel_ai_sdk() {
    let (_backend, hub) = hub().await;
    let base = format!("http://{}/v1", hub.address);
    let seen = run(Command::new(node())
        .arg(tools().join("openai_client.mjs"))
        .arg(&base))
    .await;
    let seen: Value = serde_json::from_str(&seen).unwrap();
    for client in ["openai", "compatible", "vercel"] {
        check(client, &seen[client]);
    }
    assert_eq!(
        seen["openai"]["finish"],
        json!(["stop", "tool_calls", "tool_calls"])
    );
    assert_eq!(seen["openai"]["broken"], "APIError");
    assert_eq!(
        seen["compatible"]["finish"],
        json!(["stop", "tool-calls", "tool-calls"])
    );
}
