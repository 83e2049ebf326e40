//! Real clients read what the endpoint writes.

use std::time::Duration;

use maru::config::ModelDefinition;
use serde_json::{Value, json};
use tokio::process::Command;

use super::fake_model::{
    FakeModelServer, ScriptStep, delta_step, event_step, json_response, stream_head,
    streamed_by_byte, streamed_response, text_response,
};
use crate::{
    clients::{client_tools_dir, node_program, run_successfully},
    test_hub::TestHub,
};

const TOOL_CALL_TEXT: &str =
    "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Seoul\"}}\n</tool_call>";
const THOUGHT: &str = "Hm, \"the\" world.";
const ANSWER_TEXT: &str = "안녕, \"world\".";

/// Models named after what they do; the dialect is one that no client knows.
async fn sdk_hub() -> (FakeModelServer, TestHub) {
    let backend = FakeModelServer::start(|_, seen| {
        if seen.path.ends_with("/v1/completions") {
            return continued_text(seen.body["stream"] == true);
        }
        let said = match seen.body["model"].as_str() {
            Some("text") => ANSWER_TEXT,
            Some("call") => TOOL_CALL_TEXT,
            Some("file") => return streamed_file(),
            Some("thinking") if seen.body["stream"] == true => {
                let deltas = vec![json!({"reasoning_content": THOUGHT}), json!({"content": ANSWER_TEXT})];
                return streamed_response(deltas, "stop");
            }
            Some("broken") => {
                return vec![stream_head(), delta_step(json!({"content": "half"}), None), ScriptStep::Send("data: {".to_owned())];
            }
            _ => return json_response(404, "", &json!({"error": {"message": "no"}})),
        };
        if seen.body["stream"] == true {
                let mut steps = streamed_by_byte(said, "stop");
                if !seen.body["stream_options"].is_null() {
                    let ScriptStep::Send(whole) = &mut steps[0] else { unreachable!() };
                    let usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2,\"total_tokens\":3}}\n\ndata: [DONE]";
                    *whole = whole.replace("data: [DONE]", usage);
                    let (head, body) = whole.split_once("\r\n\r\n").unwrap();
                    let length = head.split("content-length: ").nth(1).unwrap().to_owned();
                    let head = head.replace(&length, &body.len().to_string());
                    *whole = format!("{head}\r\n\r\n{body}");
                }
                steps
            } else {
text_response(said)
}
    })
    .await;
    let models =
        ["text", "call", "file", "broken", "missing", "thinking"].map(|name| ModelDefinition {
            name: name.to_owned(),
            ..backend.model()
        });
    let hub = TestHub::with_config(|config| config.models = models.to_vec()).await;
    (backend, hub)
}

/// The continuation of a text, in one piece for each character if it is streamed.
fn continued_text(stream: bool) -> Vec<ScriptStep> {
    let choice = |text: &str, finish: Value| json!({"choices": [{"index": 0, "text": text, "finish_reason": finish}]});
    if !stream {
        return json_response(200, "", &choice(ANSWER_TEXT, "stop".into()));
    }
    let pieces = ANSWER_TEXT
        .chars()
        .map(|it| event_step(&choice(&it.to_string(), Value::Null)));
    let mut steps: Vec<ScriptStep> = std::iter::once(stream_head()).chain(pieces).collect();
    steps.push(event_step(&choice("", "stop".into())));
    steps.push(ScriptStep::Send("data: [DONE]\n\n".to_owned()));
    steps
}

/// A native call whose arguments come in three pieces, with pauses.
fn streamed_file() -> Vec<ScriptStep> {
    let call = |piece: Value| delta_step(json!({"tool_calls": [piece]}), None);
    let arguments = |text: &str| call(json!({"index": 0, "function": {"arguments": text}}));
    let pause = || ScriptStep::Pause(Duration::from_millis(200));
    vec![
        stream_head(),
        call(
            json!({"index": 0, "id": "c1", "type": "function", "function": {"name": "write_file", "arguments": ""}}),
        ),
        arguments("{\"path\": \"/a\", \"content\": \"fn main"),
        pause(),
        arguments("() {}\\n// \\\"더"),
        pause(),
        arguments(" more\\\"\"}"),
        delta_step(json!({}), Some("tool_calls")),
        ScriptStep::Send("data: [DONE]\n\n".to_owned()),
    ]
}

fn check_client(client: &str, seen: &Value) {
    let file = json!([["write_file", {"path": "/a", "content": "fn main() {}\n// \"더 more\""}]]);
    assert_eq!(seen["file"], file, "{client}");
    let pieces = seen["file_pieces"].as_u64().unwrap();
    assert!(pieces >= 3, "{client} saw {pieces} pieces");
    let call = json!([["get_weather", {"city": "Seoul"}]]);
    assert_eq!(seen["text"], ANSWER_TEXT, "{client}");
    assert_eq!(seen["streamed_text"], ANSWER_TEXT, "{client}");
    assert_eq!(seen["call"], call, "{client}");
    assert_eq!(seen["streamed_call"], call, "{client}");
}

#[tokio::test]
async fn openai_python_and_langchain() {
    let (_backend, hub) = sdk_hub().await;
    let base = format!("http://{}/v1", hub.address);
    let seen = run_successfully(
        Command::new(client_tools_dir().join("openai/bin/python"))
            .arg(client_tools_dir().join("openai_client.py"))
            .arg(&base),
    )
    .await;
    let seen: Value = serde_json::from_str(&seen).unwrap();
    check_client("openai-python", &seen["openai"]);
    for api in ["langchain", "langchain_responses"] {
        check_client(api, &seen[api]);
        assert_eq!(seen[api]["invalid"], 0, "{api}");
    }
    let openai = &seen["openai"];
    assert_eq!(
        openai["finish"],
        json!(["stop", "tool_calls", "tool_calls"])
    );
    assert_eq!(openai["usage"], 3);
    assert_eq!(
        openai["continued"],
        json!([ANSWER_TEXT, ANSWER_TEXT, "stop"])
    );
    assert_eq!(openai["broken"], "APIError");
    assert_eq!(openai["missing"], "NotFoundError");
    assert_eq!(
        openai["models"],
        json!([
            "agent/broken",
            "agent/call",
            "agent/file",
            "agent/missing",
            "agent/text",
            "agent/thinking",
            "broken",
            "call",
            "file",
            "missing",
            "text",
            "thinking"
        ])
    );
    assert_eq!(openai["vectors"], 2);
}

#[tokio::test]
async fn openai_node_and_the_vercel_ai_sdk() {
    let (_backend, hub) = sdk_hub().await;
    let base = format!("http://{}/v1", hub.address);
    let seen = run_successfully(
        Command::new(node_program())
            .arg(client_tools_dir().join("openai_client.mjs"))
            .arg(&base),
    )
    .await;
    let seen: Value = serde_json::from_str(&seen).unwrap();
    for client in ["openai", "compatible", "vercel"] {
        check_client(client, &seen[client]);
    }
    assert_eq!(
        seen["openai"]["finish"],
        json!(["stop", "tool_calls", "tool_calls"])
    );
    assert_eq!(seen["openai"]["broken"], "APIError");
    for client in ["openai", "vercel"] {
        let continued = json!([ANSWER_TEXT, ANSWER_TEXT, "stop"]);
        assert_eq!(seen[client]["continued"], continued, "{client}");
    }
    assert_eq!(
        seen["compatible"]["finish"],
        json!(["stop", "tool-calls", "tool-calls"])
    );
}

/// What both APIs have in common, as each client shows it.
fn check_model_sdk(client: &str, seen: &Value) {
    check_client(client, seen);
    assert_eq!(
        seen["thinking"],
        json!([THOUGHT, true, ANSWER_TEXT]),
        "{client}"
    );
}

#[tokio::test]
async fn messages_and_responses_of_the_python_sdks() {
    let (_backend, hub) = sdk_hub().await;
    let seen = run_successfully(
        Command::new(client_tools_dir().join("openai/bin/python"))
            .arg(client_tools_dir().join("model_sdks.py"))
            .arg(format!("http://{}", hub.address)),
    )
    .await;
    let seen: Value = serde_json::from_str(&seen).unwrap();
    let (messages, responses) = (&seen["messages"], &seen["responses"]);
    check_model_sdk("anthropic-python", messages);
    check_model_sdk("openai-python responses", responses);
    assert_eq!(
        messages["finish"],
        json!(["end_turn", "tool_use", "tool_use"])
    );
    assert_eq!(
        responses["finish"],
        json!(["completed", "completed", "completed"])
    );
    assert_eq!(
        (&messages["usage"], &responses["usage"]),
        (&json!(3), &json!(3))
    );
    assert_eq!(messages["broken"], "APIStatusError");
    assert_eq!(responses["broken"], "response.failed");
    for api in [messages, responses] {
        assert_eq!(api["missing"], "NotFoundError");
        assert_eq!(api["invalid"], "BadRequestError");
    }
    assert!(messages["tokens"].as_u64().unwrap() > 3);
    assert_eq!(messages["models"].as_array().unwrap().len(), 12);
}

#[tokio::test]
async fn messages_and_responses_of_the_node_sdks() {
    let (_backend, hub) = sdk_hub().await;
    let seen = run_successfully(
        Command::new(node_program())
            .arg(client_tools_dir().join("model_sdks.mjs"))
            .arg(format!("http://{}", hub.address)),
    )
    .await;
    let seen: Value = serde_json::from_str(&seen).unwrap();
    for client in [
        "messages",
        "responses",
        "vercel_messages",
        "vercel_responses",
    ] {
        check_model_sdk(client, &seen[client]);
    }
    assert_eq!(
        seen["messages"]["finish"],
        json!(["end_turn", "tool_use", "tool_use"])
    );
    assert_eq!(seen["responses"]["broken"], "response.failed");
    for client in ["messages", "responses"] {
        assert_eq!(seen[client]["missing"], "NotFoundError");
    }
    for client in ["vercel_messages", "vercel_responses"] {
        assert_eq!(
            seen[client]["finish"],
            json!(["stop", "tool-calls", "tool-calls"]),
            "{client}"
        );
    }
}
