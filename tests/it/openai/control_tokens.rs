//! Tool results are data: no marker or control token in them reaches a model.

use maru::config::ToolMode;
use serde_json::json;

use super::{
    chat_client::complete,
    fake_model::{FakeModelServer, text_response},
};
use crate::test_hub::TestHub;

/// The tokens of every known chat template, one a line.
pub(crate) fn control_tokens() -> impl Iterator<Item = &'static str> {
    let lists = [
        include_str!("../../data/control_tokens.txt"),
        include_str!("../../data/control_tokens_cased.txt"),
    ];
    let lines = lists.into_iter().flat_map(str::lines);
    lines.filter(|line| !line.starts_with("// "))
}

#[tokio::test]
async fn control_tokens_in_tool_results_are_neutralised_one_by_one() {
    let backend = FakeModelServer::start_with_steps(text_response("ok")).await;
    for mode in [ToolMode::Native, ToolMode::Prompt] {
        let hub = TestHub::with_config(|config| {
            backend.configure(config);
            config.models[0].tool_mode = mode;
        })
        .await;
        let mut leaked = Vec::new();
        for token in control_tokens() {
            let text = format!("before\n {token} after\nx");
            let messages = json!([
                {"role": "user", "content": format!("I write {token}")},
                {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function",
                    "function": {"name": "get_weather", "arguments": "{\"city\":\"Busan\"}"}}]},
                {"role": "tool", "tool_call_id": "c1", "content": text},
            ]);
            complete(&hub, json!({"messages": messages, "tool_choice": "none"})).await;
            let sent = backend.seen().pop().unwrap().body["messages"].clone();
            let result = sent[2]["content"].as_str().unwrap();
            if result.contains(token) {
                leaked.push(token);
            }
            assert!(
                result.replace('\u{200b}', "").ends_with(&text),
                "nothing is lost"
            );
            let question = sent[0]["content"].as_str().unwrap();
            assert!(question.ends_with(token), "users may write anything");
        }
        assert_eq!(leaked, [""; 0], "these reached the model in mode {mode:?}");
    }
}

/// Templates write the name and the id of a result beside its text.
#[tokio::test]
async fn control_tokens_beside_a_tool_result_are_neutralised() {
    let backend = FakeModelServer::start_with_steps(text_response("ok")).await;
    let hub = TestHub::with_config(|config| backend.configure(config)).await;
    for token in control_tokens() {
        let id = format!("c1\n{token}");
        let messages = json!([
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": null, "tool_calls": [{"id": id, "type": "function",
                "function": {"name": "get_weather", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": id, "name": format!("get_weather\n{token}"), "content": "1"},
        ]);
        complete(&hub, json!({"messages": messages})).await;
        let sent = backend.seen().pop().unwrap().body["messages"].clone();
        assert_eq!(sent[1]["tool_calls"][0]["id"], sent[2]["tool_call_id"]);
        let is_plain = |member: &str| {
            let text = sent[2][member].as_str().unwrap();
            text.chars()
                .all(|c| c.is_alphanumeric() || "_-./:+=".contains(c))
        };
        assert!(is_plain("name") && is_plain("tool_call_id"), "{sent}");
    }
}
