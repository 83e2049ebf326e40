//! A backend that drops the tools of a request without a word is found out.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    chat_client::{complete, complete_streamed},
    fake_model::{
        FakeModelServer, ReceivedRequest, ScriptStep, delta_step, is_probe, json_response,
        stream_head, streamed_by_byte, text_response,
    },
};
use crate::test_hub::TestHub;

/// The answer to a probe: the prompt has `tokens` tokens.
fn probe_answer(text: &str, tokens: u64) -> Vec<ScriptStep> {
    let choice = json!({"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"});
    json_response(
        200,
        "",
        &json!({"choices": [choice], "usage": {"prompt_tokens": tokens, "completion_tokens": 1, "total_tokens": tokens + 1}}),
    )
}

fn has_tools(seen: &ReceivedRequest) -> bool {
    seen.body.get("tools").is_some()
}

#[tokio::test]
async fn tools_that_never_reach_the_model_are_put_into_the_text() {
    for constrains in [true, false] {
        let backend = FakeModelServer::start_with_probes(move |_, seen| {
            if is_probe(seen) {
                let obeys = constrains && seen.body.get("response_format").is_some();
                return probe_answer(if obeys { "{\"maru\":\"ok\"}" } else { "yes" }, 17);
            }
            assert!(!has_tools(seen), "the backend drops them");
            if seen.body.get("response_format").is_some() {
                text_response(r#"{"name":"get_weather","arguments":{"city":"Seoul"}}"#)
            } else {
                text_response("Of course.\n```json\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Seoul\"}}\n```")
            }
        })
        .await;
        let hub = TestHub::with_config(|config| backend.configure(config)).await;
        for _ in 0..2 {
            let (message, finish) = complete(&hub, json!({})).await;
            assert_eq!(finish, "tool_calls", "{message}");
            assert_eq!(message["tool_calls"][0]["function"]["name"], "get_weather");
        }
        let probes = backend.seen().iter().filter(|it| is_probe(it)).count();
        assert_eq!(probes, 3, "once a model");
        let formed = backend
            .seen()
            .iter()
            .filter(|it| !is_probe(it))
            .all(|it| it.body.get("response_format").is_some() == constrains);
        assert!(formed);
    }
}

#[tokio::test]
async fn tools_that_reach_the_model_stay_native() {
    let backend = FakeModelServer::start_with_probes(|_, seen| {
        if is_probe(seen) {
            return probe_answer("yes", if has_tools(seen) { 90 } else { 17 });
        }
        assert!(has_tools(seen));
        text_response("hi")
    })
    .await;
    let hub = TestHub::with_config(|config| backend.configure(config)).await;
    complete(&hub, json!({})).await;
    complete(&hub, json!({})).await;
    assert_eq!(backend.seen().len(), 4);
    // Without tools there is nothing to find out.
    let backend = FakeModelServer::start_with_probes(|_, _| text_response("hi")).await;
    let hub = TestHub::with_config(|config| backend.configure(config)).await;
    complete(&hub, json!({"tools": []})).await;
    assert_eq!(backend.seen().len(), 1);
}

#[tokio::test]
async fn probe_that_tells_nothing_is_not_repeated_by_each_request() {
    // It knows no `max_tokens`; one that is only busy is asked again.
    for (status, expected) in [(400, 1), (503, 3)] {
        let backend = FakeModelServer::start_with_probes(move |_, seen| {
            if is_probe(seen) {
                return json_response(
                    status,
                    "",
                    &json!({"error": {"code": "unsupported_parameter"}}),
                );
            }
            assert!(has_tools(seen), "nothing says that they do not arrive");
            text_response("hi")
        })
        .await;
        let hub = TestHub::with_config(|config| backend.configure(config)).await;
        for _ in 0..3 {
            complete(&hub, json!({})).await;
        }
        let probes = backend.seen().iter().filter(|it| is_probe(it)).count();
        assert_eq!(probes, expected, "{status}");
        assert_eq!(backend.seen().len(), expected + 3);
    }
}

#[tokio::test]
async fn constrained_answer_is_streamed_while_it_is_written() {
    let backend = FakeModelServer::start(|number, _| match number {
        0 => vec![
            stream_head(),
            delta_step(json!({"content": "{\"ans"}), None),
            delta_step(json!({"content": "wer\": \"It is \\\"sun"}), None),
            ScriptStep::WaitForClose,
        ],
        _ => streamed_by_byte("{\"answer\": \"It is \\\"sunny\\\".\"}", "stop"),
    })
    .await;
    let hub = TestHub::with_config(|config| {
        backend.configure(config);
        config.models[0].tool_mode = maru::config::ToolMode::Constrained;
    })
    .await;
    let body = super::chat_client::chat_body(json!({"stream": true}));
    let mut reply = super::chat_client::chat_request(&hub, &body).send().await;
    let mut text = String::new();
    while text != "It is \"sun" {
        let event = tokio::time::timeout(Duration::from_secs(10), reply.next_event());
        let event = event.await.expect("the answer is not held back").unwrap();
        let chunk: Value = serde_json::from_str(&event.data).unwrap();
        let piece = chunk["choices"][0]["delta"]["content"].as_str();
        text.push_str(piece.unwrap_or_default());
    }
    drop(reply);
    let whole = complete_streamed(&hub, json!({})).await;
    assert_eq!(whole.text, "It is \"sunny\".");
}
