//! Tool results are data: no marker or control token in them reaches a model.

use maru::config::ToolMode;
use serde_json::{Value, json};

use super::{
    chat_client::complete,
    fake_model::{FakeModelServer, text_response},
};
use crate::{model_apis::TestedApi, test_hub::TestHub};

/// The tokens of every known chat template, one a line.
pub(crate) fn control_tokens() -> impl Iterator<Item = &'static str> {
    let lists = [
        include_str!("../../data/control_tokens.txt"),
        include_str!("../../data/control_tokens_cased.txt"),
    ];
    let lines = lists.into_iter().flat_map(str::lines);
    lines.filter(|line| !line.starts_with("// "))
}

/// A conversation in which every token came back from a call of its own.
fn conversation(result: impl Fn(usize, &str) -> Value) -> Value {
    let id = |at: usize, result: &Value| {
        result["tool_call_id"]
            .as_str()
            .map_or(format!("c{at}"), str::to_owned)
    };
    let mut messages = vec![json!({"role": "user", "content": "I write <|im_end|>"})];
    for (at, token) in control_tokens().enumerate() {
        let result = result(at, token);
        messages.push(json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": id(at, &result), "type": "function",
            "function": {"name": "get_weather", "arguments": "{\"city\":\"Busan\"}"}}]}));
        messages.push(result);
    }
    messages.into()
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
        let text = |token: &str| format!("before\n {token} after\nx");
        let messages = conversation(
            |at, token| json!({"role": "tool", "tool_call_id": format!("c{at}"), "content": text(token)}),
        );
        complete(&hub, json!({"messages": messages, "tool_choice": "none"})).await;
        let sent = backend.seen().pop().unwrap().body["messages"].clone();
        let content = |at: usize| sent[at]["content"].as_str().unwrap();
        assert_eq!(content(0), "I write <|im_end|>", "users may write anything");
        let mut leaked = Vec::new();
        for (at, token) in control_tokens().enumerate() {
            let result = content(2 + 2 * at);
            if result.contains(token) {
                leaked.push(token);
            }
            let kept = result.replace('\u{200b}', "");
            assert!(kept.ends_with(&text(token)), "{kept} is not whole");
        }
        assert_eq!(leaked, [""; 0], "these reached the model in mode {mode:?}");
    }
}

/// Each API has results of its own.
#[tokio::test]
async fn control_tokens_in_results_are_neutralised_on_every_api() {
    let backend = FakeModelServer::start_with_steps(text_response("ok")).await;
    let hub = TestHub::with_config(|config| backend.configure(config)).await;
    let text = |token: &str| format!("before\n {token} after\nx");
    for api in TestedApi::ALL {
        let mut items = vec![json!({"role": "user", "content": "go"})];
        for (at, token) in control_tokens().enumerate() {
            let id = format!("c{at}");
            let input = json!({"city": "Busan"});
            let function =
                |arguments: Value| json!({"name": "get_weather", "arguments": arguments});
            items.extend(match api {
                TestedApi::Chat => [
                    json!({"role": "assistant", "content": null, "tool_calls": [
                        {"id": id, "type": "function", "function": function(input.to_string().into())}]}),
                    json!({"role": "tool", "tool_call_id": id, "content": text(token)}),
                ],
                TestedApi::Messages => [
                    json!({"role": "assistant", "content": [
                        {"type": "tool_use", "id": id, "name": "get_weather", "input": input}]}),
                    json!({"role": "user", "content": [
                        {"type": "tool_result", "tool_use_id": id, "is_error": at % 2 == 0,
                            "content": [{"type": "text", "text": text(token)}]}]}),
                ],
                TestedApi::Responses => [
                    json!({"type": "function_call", "call_id": id, "name": "get_weather",
                        "arguments": input.to_string()}),
                    json!({"type": "function_call_output", "call_id": id, "output": text(token)}),
                ],
                TestedApi::Ollama => [
                    json!({"role": "assistant", "content": "", "tool_calls": [{"function": function(input)}]}),
                    json!({"role": "tool", "tool_name": "get_weather", "content": text(token)}),
                ],
            });
        }
        let mut body = api.question("m", "get_weather", &json!({"type": "object"}), false);
        let member = if api == TestedApi::Responses {
            "input"
        } else {
            "messages"
        };
        body[member] = items.into();
        assert_eq!(api.request(&hub, &body).send().await.status, 200, "{api:?}");
        let sent = backend.seen().pop().unwrap().body["messages"].clone();
        let results = sent
            .as_array()
            .unwrap()
            .iter()
            .filter(|it| it["role"] == "tool");
        let results: Vec<&str> = results.map(|it| it["content"].as_str().unwrap()).collect();
        assert_eq!(results.len(), control_tokens().count(), "{api:?}");
        for (result, token) in results.iter().zip(control_tokens()) {
            assert!(
                !result.contains(token),
                "{api:?}: {token} reached the model"
            );
            let kept = result.replace('\u{200b}', "");
            assert!(kept.ends_with(&text(token)), "{api:?}: {kept} is not whole");
        }
    }
}

/// Templates write the name and the id of a result beside its text.
#[tokio::test]
async fn control_tokens_beside_a_tool_result_are_neutralised() {
    let backend = FakeModelServer::start_with_steps(text_response("ok")).await;
    let hub = TestHub::with_config(|config| backend.configure(config)).await;
    let messages = conversation(|_, token| {
        json!({"role": "tool", "tool_call_id": format!("c\n{token}"),
        "name": format!("get_weather\n{token}"), "content": "1"})
    });
    complete(&hub, json!({"messages": messages})).await;
    let sent = backend.seen().pop().unwrap().body["messages"].clone();
    for (at, token) in control_tokens().enumerate() {
        let (call, result) = (&sent[1 + 2 * at]["tool_calls"][0], &sent[2 + 2 * at]);
        assert_eq!(call["id"], result["tool_call_id"], "{token}");
        let is_plain = |member: &str| {
            let text = result[member].as_str().unwrap();
            text.chars()
                .all(|c| c.is_alphanumeric() || "_-./:+=".contains(c))
        };
        assert!(is_plain("name") && is_plain("tool_call_id"), "{result}");
    }
}
