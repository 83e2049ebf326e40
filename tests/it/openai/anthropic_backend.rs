//! A backend that speaks Anthropic's Messages API, asked through `/v1/chat/completions`.

use maru::config::{BackendApi, ModelDefinition};
use serde_json::{Value, json};

use super::{
    chat_client::{chat_body, chat_request, complete, complete_streamed, read_stream},
    fake_model::{FakeModelServer, ReceivedRequest, ScriptStep, json_response},
};
use crate::{
    anthropic::{message_body, message_request, read_message_stream, whole_message},
    responses::{read_response_stream, response_body, response_request, whole_response},
    test_hub::TestHub,
};

/// A whole message.
fn message(content: Value, stop_reason: &str) -> Vec<ScriptStep> {
    let usage = json!({"input_tokens": 10, "cache_read_input_tokens": 70,
        "cache_creation_input_tokens": 20, "output_tokens": 7});
    let body = json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "x",
        "content": content, "stop_reason": stop_reason, "usage": usage});
    json_response(200, "", &body)
}

fn event(value: &Value) -> String {
    format!(
        "event: {}\ndata: {value}\n\n",
        value["type"].as_str().unwrap()
    )
}

/// A message in events: each block with its deltas.
fn events(blocks: &[(Value, Vec<Value>)], stop_reason: &str) -> Vec<ScriptStep> {
    let start = json!({"type": "message_start", "message": {"id": "msg_1", "content": [],
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 70, "cache_creation_input_tokens": 20, "output_tokens": 1}}});
    let mut body = event(&start) + &event(&json!({"type": "ping"}));
    for (index, (block, deltas)) in blocks.iter().enumerate() {
        body +=
            &event(&json!({"type": "content_block_start", "index": index, "content_block": block}));
        for delta in deltas {
            body += &event(&json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        body += &event(&json!({"type": "content_block_stop", "index": index}));
    }
    let delta = json!({"stop_reason": stop_reason, "stop_sequence": null});
    body +=
        &event(&json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7}}));
    body += &event(&json!({"type": "message_stop"}));
    vec![ScriptStep::Send(format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ))]
}

async fn anthropic(
    script: impl Fn(usize, &ReceivedRequest) -> Vec<ScriptStep> + Send + Sync + 'static,
) -> (FakeModelServer, TestHub) {
    let backend = FakeModelServer::start(script).await;
    let hub = TestHub::with_config(|config| {
        config.models = vec![ModelDefinition {
            backend: BackendApi::Anthropic,
            api_key: Some("sk-ant-1".to_owned().into()),
            ..backend.model()
        }];
    })
    .await;
    (backend, hub)
}

fn thinking_and_call() -> Vec<(Value, Vec<Value>)> {
    let thinking = |text: &str| json!({"type": "thinking_delta", "thinking": text});
    let json = |text: &str| json!({"type": "input_json_delta", "partial_json": text});
    vec![
        (
            json!({"type": "thinking", "thinking": "", "signature": ""}),
            vec![
                thinking("Seoul "),
                thinking("it is."),
                json!({"type": "signature_delta", "signature": "c2lnbmVk"}),
            ],
        ),
        (
            json!({"type": "redacted_thinking", "data": "b3BhcXVl"}),
            vec![],
        ),
        (
            json!({"type": "text", "text": ""}),
            vec![json!({"type": "text_delta", "text": "I look."})],
        ),
        (
            json!({"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {}}),
            vec![json(""), json("{\"city\": \"Se"), json("oul\"}")],
        ),
        // A tool of the backend itself.
        (
            json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}),
            vec![json("{\"query\": \"x\"}")],
        ),
    ]
}

#[tokio::test]
async fn text_and_usage_come_whole_and_streamed() {
    let (backend, hub) = anthropic(|_, seen| {
        if seen.body["stream"] == true {
            let text = |text: &str| json!({"type": "text_delta", "text": text});
            let block = (
                json!({"type": "text", "text": ""}),
                vec![text("안녕"), text(", world")],
            );
            events(&[block], "max_tokens")
        } else {
            message(
                json!([{"type": "text", "text": "안녕, world"}]),
                "stop_sequence",
            )
        }
    })
    .await;
    let reply = chat_request(&hub, &chat_body(json!({"max_tokens": 5})))
        .send()
        .await;
    let whole = reply.json().await;
    assert_eq!(whole["choices"][0]["message"]["content"], "안녕, world");
    assert_eq!(whole["choices"][0]["finish_reason"], "stop");
    let usage = &whole["usage"];
    let counts = ["prompt_tokens", "completion_tokens", "total_tokens"].map(|it| &usage[it]);
    assert_eq!(json!(counts), json!([100, 7, 107]));
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 70);
    let streamed =
        complete_streamed(&hub, json!({"stream_options": {"include_usage": true}})).await;
    assert_eq!(
        (streamed.text.as_str(), streamed.finish.as_str()),
        ("안녕, world", "length")
    );
    assert_eq!(&streamed.usage.unwrap(), usage);
    let seen = backend.seen();
    assert_eq!(seen[0].path, "/v1/messages");
    let head = seen[0].head.to_lowercase();
    assert!(head.contains("\r\nx-api-key: sk-ant-1\r\n"), "{head}");
    assert!(
        head.contains("\r\nanthropic-version: 2023-06-01\r\n"),
        "{head}"
    );
    assert_eq!(seen[0].body["max_tokens"], 5);
    assert_eq!(
        seen[0].body["tools"][0]["input_schema"]["required"],
        json!(["city"])
    );
    assert_eq!(seen[1].body["max_tokens"], 8192);
}

#[tokio::test]
async fn calls_and_signed_thinking_survive_the_next_turn() {
    let (backend, hub) = anthropic(|number, seen| match number {
        0 => events(&thinking_and_call(), "tool_use"),
        1 => {
            assert_eq!(seen.body["stream"], Value::Null);
            message(
                json!([
                    {"type": "thinking", "thinking": "Seoul it is.", "signature": "c2lnbmVk"},
                    {"type": "tool_use", "id": "toolu_2", "name": "get_weather", "input": {"city": "Seoul"}},
                    {"type": "tool_use", "id": "toolu_3", "name": "get_weather", "input": {"city": "Busan"}},
                ]),
                "tool_use",
            )
        }
        _ => message(json!([{"type": "text", "text": "Rain."}]), "end_turn"),
    })
    .await;
    let streamed = complete_streamed(&hub, json!({"reasoning_effort": "low"})).await;
    assert_eq!(streamed.reasoning, "Seoul it is.");
    assert_eq!(streamed.text, "I look.");
    assert_eq!(
        streamed.calls,
        [("get_weather".to_owned(), json!({"city": "Seoul"}))]
    );
    assert_eq!(streamed.finish, "tool_calls");
    let (assistant, finish) = complete(&hub, json!({"reasoning_effort": "low"})).await;
    assert_eq!(
        (
            finish.as_str(),
            assistant["tool_calls"].as_array().unwrap().len()
        ),
        ("tool_calls", 2)
    );
    assert_eq!(assistant["reasoning_content"], "Seoul it is.");
    let result = |at: usize, text: &str| json!({"role": "tool", "tool_call_id": assistant["tool_calls"][at]["id"], "content": text});
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
    let messages = json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Here?"}, image]},
        assistant,
        result(0, "rain"),
        result(1, "sun"),
    ]);
    let change =
        json!({"messages": messages, "reasoning_effort": "low", "parallel_tool_calls": false});
    let (answer, finish) = complete(&hub, change).await;
    assert_eq!(
        (&answer["content"], finish.as_str()),
        (&json!("Rain."), "stop")
    );
    let body = &backend.seen()[2].body;
    assert_eq!(body["system"], "Be brief.");
    assert_eq!(body["thinking"]["type"], "enabled");
    assert_eq!(
        body["tool_choice"],
        json!({"type": "auto", "disable_parallel_tool_use": true})
    );
    let turns = &body["messages"];
    let source = json!({"type": "base64", "media_type": "image/png", "data": "AAAA"});
    assert_eq!(
        turns[0]["content"][1],
        json!({"type": "image", "source": source})
    );
    let kinds: Vec<&Value> = turns[1]["content"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["type"])
        .collect();
    assert_eq!(json!(kinds), json!(["thinking", "tool_use", "tool_use"]));
    assert_eq!(turns[1]["content"][0]["signature"], "c2lnbmVk");
    for (at, text) in ["rain", "sun"].into_iter().enumerate() {
        let result = &turns[2]["content"][at];
        assert_eq!(result["tool_use_id"], turns[1]["content"][at + 1]["id"]);
        assert_eq!(result["content"], text);
    }
}

#[tokio::test]
async fn overload_is_retried_and_errors_have_only_their_name() {
    let (backend, hub) = anthropic(|number, seen| {
        let error = |name: &str| json!({"type": "error", "error": {"type": name, "message": "secret sk-ant-1"}});
        match (seen.body["messages"][0]["content"][0]["text"].as_str(), number) {
            (Some("busy"), 0) => json_response(529, "retry-after: 0\r\n", &error("overloaded_error")),
            (Some("busy"), _) => message(json!([{"type": "text", "text": "now"}]), "end_turn"),
            (Some("refused"), _) => message(json!([]), "refusal"),
            (Some("late"), _) => {
                let mut steps = events(&[(json!({"type": "text", "text": ""}), vec![json!({"type": "text_delta", "text": "half"})])], "end_turn");
                let ScriptStep::Send(text) = &mut steps[0] else { unreachable!() };
                let at = text.find("event: content_block_stop").unwrap();
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
                let events = text[..at].split_once("\r\n\r\n").unwrap().1;
                *text = format!("{head}{events}{}", event(&error("overloaded_error")));
                steps
            }
            _ => json_response(400, "", &error("invalid_request_error")),
        }
    })
    .await;
    let ask = |text: &str| json!({"messages": [{"role": "user", "content": text}]});
    assert_eq!(complete(&hub, ask("busy")).await.0["content"], "now");
    assert_eq!(backend.seen().len(), 2);
    assert_eq!(complete(&hub, ask("refused")).await.1, "content_filter");
    let reply = chat_request(&hub, &chat_body(ask("bad"))).send().await;
    assert_eq!(reply.status, 400);
    let error = reply.json().await.to_string();
    assert!(
        error.contains("(invalid_request_error)") && !error.contains("secret"),
        "{error}"
    );
    let mut body = chat_body(ask("late"));
    body["stream"] = true.into();
    let late = read_stream(chat_request(&hub, &body).send().await).await;
    assert_eq!(late.text, "half");
    assert!(
        late.error
            .is_some_and(|it| !it.to_string().contains("secret"))
    );
}

#[tokio::test]
async fn every_end_reaches_clients_of_the_same_api_under_its_name() {
    let ends = [
        ("end_turn", "stop"),
        ("max_tokens", "length"),
        ("stop_sequence", "stop"),
        ("refusal", "content_filter"),
        ("model_context_window_exceeded", "length"),
        ("pause_turn", "stop"),
    ];
    for (reason, finish) in ends {
        let (_backend, hub) = anthropic(move |_, seen| {
            if seen.body["stream"] == true {
                let text = json!({"type": "text_delta", "text": "x"});
                events(&[(json!({"type": "text", "text": ""}), vec![text])], reason)
            } else {
                message(json!([{"type": "text", "text": "x"}]), reason)
            }
        })
        .await;
        // Without the sequence itself it is nothing but the end.
        let expected = if reason == "stop_sequence" {
            "end_turn"
        } else {
            reason
        };
        assert_eq!(
            whole_message(&hub, json!({})).await["stop_reason"],
            expected
        );
        let body = message_body(json!({"stream": true}));
        let streamed = read_message_stream(message_request(&hub, &body).send().await).await;
        assert_eq!(streamed.stop_reason, expected);
        assert_eq!(complete(&hub, json!({})).await.1, finish);
        assert_eq!(complete_streamed(&hub, json!({})).await.finish, finish);
    }
}

#[tokio::test]
async fn signatures_pass_through_the_messages_and_responses_apis() {
    let (backend, hub) = anthropic(|_, seen| {
        if seen.body["stream"] == true {
            events(&thinking_and_call(), "tool_use")
        } else {
            let mut ended = message(json!([{"type": "text", "text": "Rain."}]), "stop_sequence");
            if let ScriptStep::Send(text) = &mut ended[0] {
                *text = text.replace(
                    "\"stop_reason\":",
                    "\"stop_sequence\":\"N\",\"stop_reason\":",
                );
                let (head, body) = text.split_once("\r\n\r\n").unwrap();
                let length = head.split("content-length: ").nth(1).unwrap();
                *text = format!(
                    "{}\r\n\r\n{body}",
                    head.replace(length, &body.len().to_string())
                );
            }
            ended
        }
    })
    .await;
    let signed = json!([
        {"type": "thinking", "thinking": "Seoul it is.", "signature": "c2lnbmVk"},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
    ]);
    let sent_blocks = || {
        let turns = backend.seen().pop().unwrap().body["messages"].clone();
        let content = turns[1]["content"].as_array().unwrap();
        Value::from(content[..2].to_vec())
    };
    let question = json!({"role": "user", "content": "Weather in Seoul?"});
    let thinking = json!({"type": "enabled", "budget_tokens": 2048});

    let asked = message_body(json!({"stream": true, "thinking": thinking, "max_tokens": 4096}));
    let first = read_message_stream(message_request(&hub, &asked).send().await).await;
    assert_eq!(Value::from(first.content[..2].to_vec()), signed);
    assert_eq!(backend.seen()[0].body["thinking"], thinking);
    let result =
        json!({"type": "tool_result", "tool_use_id": first.content[3]["id"], "content": "rain"});
    let next = json!({"messages": [question, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}],
        "thinking": thinking, "max_tokens": 4096});
    let last = whole_message(&hub, next).await;
    assert_eq!(sent_blocks(), signed);
    assert_eq!(
        (&last["stop_reason"], &last["stop_sequence"]),
        (&json!("stop_sequence"), &json!("N"))
    );

    let include = json!(["reasoning.encrypted_content"]);
    let asked =
        response_body(json!({"stream": true, "include": include, "reasoning": {"effort": "low"}}));
    let first = read_response_stream(response_request(&hub, &asked).send().await).await;
    let mut input = vec![question];
    input.extend(first.response["output"].as_array().unwrap().clone());
    let call = input.last().unwrap()["call_id"].clone();
    input.push(json!({"type": "function_call_output", "call_id": call, "output": "rain"}));
    whole_response(
        &hub,
        json!({"input": input, "reasoning": {"effort": "low"}}),
    )
    .await;
    assert_eq!(sent_blocks(), signed);
}
