//! Models whose text begins inside reasoning: their chat template has opened it.

use std::time::Duration;

use maru::config::{ModelDefinition, StartsInReasoning};
use serde_json::{Value, json};

use super::{
    chat_client::{chat_body, chat_request, complete, complete_streamed},
    fake_model::{
        FakeModelServer, ScriptStep, delta_step, stream_head, streamed_by_byte, text_response,
    },
};
use crate::{model_apis::TestedApi, test_hub::TestHub};

const THOUGHT: &str = "The user greets me.\nI greet back.";

fn thought_and_answer() -> String {
    format!("{THOUGHT}\n</think>\n\nHello.")
}

async fn model_that_writes(text: String) -> FakeModelServer {
    FakeModelServer::start(move |_, seen| {
        if seen.body["stream"] == true {
            streamed_by_byte(&text, "stop")
        } else {
            text_response(&text)
        }
    })
    .await
}

async fn hub_before(model: &FakeModelServer, setting: StartsInReasoning) -> TestHub {
    TestHub::with_config(|config| {
        config.models = vec![ModelDefinition {
            starts_in_reasoning: setting,
            ..model.model()
        }];
    })
    .await
}

/// The whole answer and the stream have the same reasoning and the same text.
async fn check_equal_on_every_api(hub: &TestHub, name: &str) {
    for api in TestedApi::ALL {
        let body = |stream| api.question(name, "get_weather", &json!({"type": "object"}), stream);
        let streamed = api
            .read_stream(api.request(hub, &body(true)).send().await)
            .await;
        let whole = api.request(hub, &body(false)).send().await.json().await;
        assert_eq!(streamed.text, "Hello.", "{api:?}");
        assert_eq!(api.read_whole(&whole).text, "Hello.", "{api:?}");
    }
}

#[tokio::test]
async fn stream_and_whole_answer_are_equal_once_one_answer_was_seen() {
    let model = model_that_writes(thought_and_answer()).await;
    let hub = hub_before(&model, StartsInReasoning::Auto).await;
    // Nobody knows before the first answer; there it is a paragraph of its own.
    let first = complete_streamed(&hub, json!({})).await;
    assert_eq!(first.text, format!("{THOUGHT}\n\nHello."));
    let streamed = complete_streamed(&hub, json!({})).await;
    let (whole, _) = complete(&hub, json!({})).await;
    assert_eq!(
        (streamed.reasoning.as_str(), streamed.text.as_str()),
        (THOUGHT, "Hello.")
    );
    assert_eq!(whole["reasoning_content"], THOUGHT);
    assert_eq!(whole["content"], "Hello.");
    check_equal_on_every_api(&hub, "m").await;
}

#[tokio::test]
async fn name_of_a_reasoning_model_is_enough_for_the_first_stream() {
    let model = model_that_writes(thought_and_answer()).await;
    for name in ["deepseek-r1:8b", "Qwen/QwQ-32B", "Qwen3-4B-Thinking-2507"] {
        let hub = hub_before(&model, StartsInReasoning::Auto).await;
        check_equal_on_every_api(&hub, name).await;
    }
}

/// The first text of a stream that is not at its end.
async fn first_piece(hub: &TestHub, name: &str, member: &str) -> String {
    let body = chat_body(json!({"model": name, "stream": true}));
    let mut reply = chat_request(hub, &body).send().await;
    loop {
        let event = tokio::time::timeout(Duration::from_secs(10), reply.next_event());
        let event = event.await.expect("it is not held back").unwrap();
        let chunk: Value = serde_json::from_str(&event.data).unwrap();
        if let Some(text) = chunk["choices"][0]["delta"][member].as_str()
            && !text.is_empty()
        {
            return text.to_owned();
        }
    }
}

#[tokio::test]
async fn answer_is_streamed_where_it_is_no_reasoning() {
    // The backend sends the reasoning apart, or there is none any more.
    let apart = [
        delta_step(json!({"reasoning_content": "Hm."}), None),
        delta_step(json!({"content": "Hello. "}), None),
    ];
    let model = FakeModelServer::start(move |number, _| match number {
        1 => streamed_by_byte("Hello. And bye.", "stop"),
        0 => [&[stream_head()], &apart[..], &[ScriptStep::WaitForClose]].concat(),
        _ => vec![stream_head(), apart[1].clone(), ScriptStep::WaitForClose],
    })
    .await;
    let hub = hub_before(&model, StartsInReasoning::Auto).await;
    assert_eq!(first_piece(&hub, "qwq", "content").await, "Hello.");
    let change = json!({"model": "qwq"});
    assert_eq!(
        complete_streamed(&hub, change).await.text,
        "Hello. And bye."
    );
    assert_eq!(first_piece(&hub, "qwq", "content").await, "Hello.");
}

#[tokio::test]
async fn setting_says_how_every_answer_begins() {
    let model = FakeModelServer::start(|_, _| {
        let written = delta_step(json!({"content": "Let me see "}), None);
        vec![stream_head(), written, ScriptStep::WaitForClose]
    })
    .await;
    let hub = hub_before(&model, StartsInReasoning::Always).await;
    let piece = first_piece(&hub, "m", "reasoning_content").await;
    assert_eq!(piece, "Let me see", "while the model writes it");
    let hub = hub_before(&model, StartsInReasoning::Never).await;
    let piece = first_piece(&hub, "deepseek-r1", "content").await;
    assert_eq!(piece, "Let me see");

    let model = model_that_writes(thought_and_answer()).await;
    let hub = hub_before(&model, StartsInReasoning::Always).await;
    check_equal_on_every_api(&hub, "m").await;
    let streamed = complete_streamed(&hub, json!({})).await;
    assert_eq!(streamed.reasoning, THOUGHT);
}
