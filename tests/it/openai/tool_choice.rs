//! Whether and how often a model may call, whatever the backend makes of it.

use maru::config::ToolMode;
use serde_json::{Value, json};

use super::{
    chat_client::{chat_body, chat_request, complete, complete_streamed, weather_tools},
    fake_model::{
        FakeModelServer, completion_response, delta_step, event_step, stream_head,
        streamed_by_byte, streamed_response, text_response,
    },
};
use crate::test_hub::TestHub;

fn native_call(index: usize, name: &str, city: &str) -> Value {
    let arguments = json!({"city": city}).to_string();
    json!({"index": index, "id": format!("c{index}"), "type": "function",
        "function": {"name": name, "arguments": arguments}})
}

/// A model that answers with these native calls, streamed or whole.
async fn calling_hub(calls: Vec<Value>) -> (FakeModelServer, TestHub) {
    let backend = FakeModelServer::start(move |_, seen| {
        let calls = json!({"role": "assistant", "tool_calls": calls});
        if seen.body["stream"] == true {
            streamed_response(vec![calls], "tool_calls")
        } else {
            completion_response(calls, "tool_calls")
        }
    })
    .await;
    let hub = TestHub::with_config(|config| backend.configure(config)).await;
    (backend, hub)
}

/// A model that answers with this text, streamed or whole.
async fn writing_hub(text: &'static str, mode: ToolMode) -> (FakeModelServer, TestHub) {
    let backend = FakeModelServer::start(move |_, seen| {
        if seen.body["stream"] == true {
            streamed_by_byte(text, "stop")
        } else {
            text_response(text)
        }
    })
    .await;
    let hub = TestHub::with_config(|config| {
        backend.configure(config);
        config.models[0].tool_mode = mode;
    })
    .await;
    (backend, hub)
}

const TWO_CALLS: &str = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"a\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"b\"}}\n</tool_call>";

/// The cities of the calls, streamed and whole.
async fn called_cities(hub: &TestHub, change: Value) -> [Vec<String>; 2] {
    let (message, finish) = complete(hub, change.clone()).await;
    let calls = message["tool_calls"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    assert_eq!(finish == "tool_calls", !calls.is_empty());
    let city = |arguments: &Value| arguments["city"].as_str().unwrap().to_owned();
    let whole = calls.iter().map(|it| {
        let arguments = it["function"]["arguments"].as_str().unwrap();
        city(&serde_json::from_str(arguments).unwrap())
    });
    let streamed = complete_streamed(hub, change).await.calls;
    [
        whole.collect(),
        streamed.iter().map(|it| city(&it.1)).collect(),
    ]
}

#[tokio::test]
async fn choice_none_yields_no_call() {
    let none = json!({"tool_choice": "none"});
    let (_backend, hub) = calling_hub(vec![native_call(0, "get_weather", "a")]).await;
    assert_eq!(called_cities(&hub, none.clone()).await, [[""; 0], [""; 0]]);
    for mode in [ToolMode::Native, ToolMode::Prompt, ToolMode::Constrained] {
        let (_backend, hub) = writing_hub(TWO_CALLS, mode).await;
        assert_eq!(called_cities(&hub, none.clone()).await, [[""; 0], [""; 0]]);
    }
}

#[tokio::test]
async fn native_calls_that_are_shown_as_text_are_lines() {
    let calls = vec![
        native_call(0, "get_weather", "a"),
        native_call(1, "get_weather", "b"),
    ];
    let (_backend, hub) = calling_hub(calls).await;
    let none = json!({"tool_choice": "none"});
    let shown = "get_weather({\"city\":\"a\"})\nget_weather({\"city\":\"b\"})";
    let (whole, _) = complete(&hub, none.clone()).await;
    assert_eq!(whole["content"], shown, "{whole}");
    assert_eq!(complete_streamed(&hub, none).await.text, shown);
}

#[tokio::test]
async fn parallel_tool_calls_of_another_type_is_refused() {
    let (backend, hub) = calling_hub(Vec::new()).await;
    let body = chat_body(json!({"parallel_tool_calls": "x"}));
    let reply = chat_request(&hub, &body).send().await;
    assert_eq!(reply.status, 400);
    let refused = reply.json().await;
    assert_eq!(
        refused["error"]["param"], "parallel_tool_calls",
        "{refused}"
    );
    assert!(backend.seen().is_empty());
}

#[tokio::test]
async fn without_parallel_calls_there_is_one() {
    let single = json!({"parallel_tool_calls": false});
    let calls = vec![
        native_call(0, "get_weather", "a"),
        native_call(1, "get_weather", "b"),
    ];
    let (backend, hub) = calling_hub(calls).await;
    assert_eq!(called_cities(&hub, single.clone()).await, [["a"], ["a"]]);
    assert_eq!(backend.seen()[0].body["parallel_tool_calls"], false);
    let all = called_cities(&hub, json!({})).await;
    assert_eq!(all, [["a", "b"], ["a", "b"]]);
    let (backend, hub) = writing_hub(TWO_CALLS, ToolMode::Prompt).await;
    assert_eq!(called_cities(&hub, single).await, [["a"], ["a"]]);
    let prompt = backend.seen()[0].body["messages"][0]["content"].to_string();
    assert!(prompt.contains("one such block at most"), "{prompt}");
}

#[tokio::test]
async fn only_the_forced_tool_is_called() {
    let mut tools = weather_tools();
    let mut other = tools[0].clone();
    other["function"]["name"] = "get_tides".into();
    tools.as_array_mut().unwrap().push(other);
    let forced = json!({"tools": tools, "tool_choice": {"type": "function", "function": {"name": "get_tides"}}});
    let calls = vec![
        native_call(0, "get_weather", "a"),
        native_call(1, "get_tides", "b"),
    ];
    let (backend, hub) = calling_hub(calls).await;
    assert_eq!(called_cities(&hub, forced.clone()).await, [["b"], ["b"]]);
    let sent = backend.seen()[0].body.clone();
    assert_eq!(sent["tool_choice"]["function"]["name"], "get_tides");
    assert_eq!(sent["tools"].as_array().unwrap().len(), 1, "{sent}");
    for mode in [ToolMode::Native, ToolMode::Prompt] {
        let (_backend, hub) = writing_hub(TWO_CALLS, mode).await;
        let cities = called_cities(&hub, forced.clone()).await;
        assert_eq!(cities, [[""; 0], [""; 0]], "another tool was called");
    }
}

#[tokio::test]
async fn model_that_ignores_the_choice_is_held_to_a_call() {
    let backend = FakeModelServer::start(|_, seen| {
        let text = match seen.body.get("response_format") {
            Some(_) => "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"a\"}}",
            None => "The weather? I like it.",
        };
        if seen.body["stream"] == true {
            streamed_by_byte(text, "stop")
        } else {
            text_response(text)
        }
    })
    .await;
    let named = json!({"type": "function", "function": {"name": "get_weather"}});
    for choice in [json!("required"), named] {
        let hub = TestHub::with_config(|config| backend.configure(config)).await;
        let before = backend.seen().len();
        let forced = json!({"tool_choice": choice});
        // The first stream has no trace of the answer either.
        let streamed = complete_streamed(&hub, forced.clone()).await;
        assert_eq!((streamed.text.as_str(), streamed.calls.len()), ("", 1));
        assert_eq!(called_cities(&hub, forced).await, [["a"], ["a"]]);
        let asked = backend.seen().len() - before;
        assert_eq!(asked, 4, "only the first request is sent twice");
        let (answer, _) = complete(&hub, json!({})).await;
        assert_eq!(answer["content"], "The weather? I like it.");
    }
}

#[tokio::test]
async fn legacy_function_calls_are_calls() {
    let backend = FakeModelServer::start(|_, seen| {
        let function = |name: Option<&str>, arguments: &str| match name {
            Some(name) => json!({"function_call": {"name": name, "arguments": arguments}}),
            None => json!({"function_call": {"arguments": arguments}}),
        };
        if seen.body["stream"] == true {
            let pieces = vec![
                function(Some("get_weather"), ""),
                function(None, "{\"city\":"),
                function(None, "\"Seoul\"}"),
            ];
            streamed_response(pieces, "function_call")
        } else {
            let mut message = function(Some("get_weather"), "{\"city\":\"Seoul\"}");
            message["role"] = "assistant".into();
            message["content"] = Value::Null;
            completion_response(message, "function_call")
        }
    })
    .await;
    let hub = TestHub::with_config(|config| backend.configure(config)).await;
    assert_eq!(called_cities(&hub, json!({})).await, [["Seoul"], ["Seoul"]]);
}

#[tokio::test]
async fn log_probabilities_and_the_fingerprint_pass() {
    let logprobs = |token: &str| json!({"content": [{"token": token, "logprob": -0.5, "bytes": null, "top_logprobs": []}], "refusal": null});
    let chunk = move |token: &str| {
        json!({"id": "x", "object": "chat.completion.chunk", "system_fingerprint": "fp_1", "choices": [
            {"index": 0, "delta": {"content": token}, "logprobs": logprobs(token), "finish_reason": null}]})
    };
    let backend = FakeModelServer::start(move |_, seen| {
        if seen.body["stream"] == true {
            vec![
                stream_head(),
                event_step(&chunk("He")),
                event_step(&chunk("llo")),
                delta_step(json!({}), Some("stop")),
                super::fake_model::ScriptStep::Send("data: [DONE]\n\n".to_owned()),
            ]
        } else {
            let choice = json!({"index": 0, "message": {"role": "assistant", "content": "Hello"}, "logprobs": logprobs("Hello"), "finish_reason": "stop"});
            super::fake_model::json_response(
                200,
                "",
                &json!({"id": "x", "object": "chat.completion", "system_fingerprint": "fp_1", "choices": [choice]}),
            )
        }
    })
    .await;
    let hub = TestHub::with_config(|config| backend.configure(config)).await;
    let body = chat_body(json!({"logprobs": true}));
    let whole = chat_request(&hub, &body).send().await.json().await;
    assert_eq!(whole["system_fingerprint"], "fp_1");
    let first = &whole["choices"][0]["logprobs"]["content"][0];
    assert_eq!(first["token"], "Hello", "{whole}");
    let body = chat_body(json!({"logprobs": true, "stream": true}));
    let mut reply = chat_request(&hub, &body).send().await;
    let (mut tokens, mut text) = (String::new(), String::new());
    while let Some(event) = reply.next_event().await {
        let Ok(chunk) = serde_json::from_str::<Value>(&event.data) else {
            continue;
        };
        assert_eq!(chunk["system_fingerprint"], "fp_1", "{chunk}");
        let choice = &chunk["choices"][0];
        text.push_str(choice["delta"]["content"].as_str().unwrap_or_default());
        let listed = choice["logprobs"]["content"].as_array();
        for it in listed.into_iter().flatten() {
            tokens.push_str(it["token"].as_str().unwrap());
        }
    }
    assert_eq!((text.as_str(), tokens.as_str()), ("Hello", "Hello"));
}
