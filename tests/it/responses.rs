//! OpenAI's Responses API, in front of models on the wire.

use serde_json::{Value, json};

use crate::{
    http_client::{TestRequest, TestResponse},
    openai::fake_model::{
        FakeModelServer, ScriptStep, completion_response, delta_step, event_step, json_response,
        stream_head, streamed_by_byte, streamed_response, text_response,
    },
    test_hub::TestHub,
};

pub(crate) fn response_request(hub: &TestHub, body: &Value) -> TestRequest {
    TestRequest::post(&hub.address, "/v1/responses", body)
}

pub(crate) fn response_body(change: Value) -> Value {
    let schema =
        json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let mut body = json!({"model": "m", "input": "Weather in Seoul?",
        "tools": [{"type": "function", "name": "get_weather", "description": "Weather of a city", "parameters": schema, "strict": false}]});
    for (name, value) in change.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

/// What came out of a stream.
#[derive(Debug, Default)]
pub(crate) struct StreamedResponse {
    /// The response of the last event.
    pub(crate) response: Value,
    /// The events in their order, those of one kind behind each other once.
    pub(crate) events: Vec<String>,
    /// What the deltas of each item amount to.
    pub(crate) deltas: Vec<String>,
}

impl StreamedResponse {
    pub(crate) fn text(&self) -> String {
        let parts = self
            .items()
            .filter_map(|it| it["content"][0]["text"].as_str());
        parts.collect()
    }

    pub(crate) fn calls(&self) -> Vec<(String, Value)> {
        // One that was cut off is no call.
        let calls = self
            .items()
            .filter(|it| it["type"] == "function_call" && it["status"] == "completed");
        calls
            .map(|it| {
                let arguments = serde_json::from_str(it["arguments"].as_str().unwrap()).unwrap();
                (it["name"].as_str().unwrap().to_owned(), arguments)
            })
            .collect()
    }

    fn items(&self) -> impl Iterator<Item = &Value> {
        self.response["output"].as_array().unwrap().iter()
    }
}

/// Reads a stream to its end; every rule of the output is checked.
pub(crate) async fn read_response_stream(mut reply: TestResponse) -> StreamedResponse {
    assert_eq!(reply.status, 200);
    assert!(reply.is_stream());
    let mut found = StreamedResponse::default();
    let mut done: Vec<Value> = Vec::new();
    let mut open: Option<Value> = None;
    let mut number = 0;
    while let Some(event) = reply.next_event().await {
        if event.data.is_empty() {
            continue;
        }
        let data: Value = serde_json::from_str(&event.data).unwrap();
        let kind = data["type"].as_str().unwrap().to_owned();
        assert_eq!(event.name, kind);
        assert_eq!(data["sequence_number"], number, "{kind}");
        number += 1;
        if found.events.last() != Some(&kind) {
            found.events.push(kind.clone());
        }
        if !data["response"].is_null() {
            assert_eq!(data["response"]["object"], "response");
            assert!(found.response.is_null() || found.response["id"] == data["response"]["id"]);
            found.response = data["response"].clone();
        }
        if let Some(item) = &open
            && !data["item_id"].is_null()
        {
            assert_eq!(data["item_id"], item["id"], "{kind}");
            assert_eq!(data["output_index"], done.len());
        }
        match kind.rsplit('.').next().unwrap() {
            "added" if kind == "response.output_item.added" => {
                assert!(open.is_none(), "one item after the other");
                assert_eq!(data["output_index"], done.len());
                open = Some(data["item"].clone());
                found.deltas.push(String::new());
            }
            "delta" => {
                let text = data["delta"].as_str().unwrap();
                found.deltas.last_mut().unwrap().push_str(text);
            }
            "done" if kind == "response.output_item.done" => {
                let item = open.take().unwrap();
                assert_eq!(
                    (&item["id"], &item["type"]),
                    (&data["item"]["id"], &data["item"]["type"])
                );
                done.push(data["item"].clone());
            }
            "done" => {
                let whole =
                    ["text", "refusal", "arguments", "input"].map(|name| data[name].as_str());
                if let Some(whole) = whole.into_iter().flatten().next() {
                    assert_eq!(found.deltas.last().unwrap(), whole, "{kind}");
                }
            }
            _ => (),
        }
    }
    let last = found.events.last().unwrap();
    assert_eq!(
        last,
        &format!("response.{}", found.response["status"].as_str().unwrap())
    );
    assert_eq!(
        found.events[..2],
        ["response.created", "response.in_progress"]
    );
    if found.response["status"] != "failed" {
        assert!(open.is_none());
        assert_eq!(found.response["output"], Value::from(done));
    }
    found
}

pub(crate) async fn whole_response(hub: &TestHub, change: Value) -> Value {
    let reply = response_request(hub, &response_body(change)).send().await;
    let status = reply.status;
    let response = reply.json().await;
    assert_eq!(status, 200, "{response}");
    assert_eq!(response["object"], "response");
    response
}

async fn streamed_response_of(hub: &TestHub, change: Value) -> StreamedResponse {
    let mut body = response_body(change);
    body["stream"] = true.into();
    read_response_stream(response_request(hub, &body).send().await).await
}

async fn hub_of(model: &FakeModelServer) -> TestHub {
    TestHub::with_config(|config| model.configure(config)).await
}

/// A model that answers everything with `text`, streamed where it is asked to.
async fn model_that_says(text: &'static str) -> FakeModelServer {
    FakeModelServer::start(move |_, seen| {
        if seen.body["stream"] == true {
            streamed_by_byte(text, "stop")
        } else {
            text_response(text)
        }
    })
    .await
}

#[tokio::test]
async fn text_and_call_become_items_with_all_their_events() {
    let model = model_that_says("I look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Seoul\"}}\n</tool_call>").await;
    let hub = hub_of(&model).await;
    let streamed = streamed_response_of(&hub, json!({})).await;
    assert_eq!(
        streamed.events,
        [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
            "response.completed",
        ]
    );
    let whole = whole_response(&hub, json!({"store": true})).await;
    for response in [&streamed.response, &whole] {
        let output = &response["output"];
        assert_eq!(output[0]["role"], "assistant");
        assert_eq!(
            output[0]["content"][0]["text"].as_str().unwrap().trim(),
            "I look."
        );
        assert_eq!(output[1]["type"], "function_call");
        assert_eq!(output[1]["name"], "get_weather");
        assert_eq!(output[1]["arguments"], "{\"city\":\"Seoul\"}");
        assert_eq!(response["status"], "completed");
    }
    assert_eq!(
        whole["usage"],
        json!({"input_tokens": 3, "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 2, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 5})
    );
}

#[tokio::test]
async fn every_item_of_the_input_reaches_the_backend() {
    let model = model_that_says("ok").await;
    // The answer has no call, which this test is not about.
    let hub = TestHub::with_config(|config| {
        model.configure(config);
        config.models[0].tool_mode = maru::config::ToolMode::Native;
    })
    .await;
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": false});
    whole_response(&hub, json!({
        "instructions": "Be kind.",
        "input": [
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be quick."}]},
            {"role": "user", "content": [{"type": "input_text", "text": "Look"}, {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I call.", "annotations": []}]},
            {"type": "function_call", "call_id": "c1", "name": "get_weather", "arguments": "{\"city\":\"Seoul\"}"},
            {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "*** Begin"},
            {"type": "function_call", "call_id": "c3", "name": "read", "namespace": "mcp__fs", "arguments": "{}"},
            {"type": "web_search_call", "id": "w"},
            {"type": "function_call_output", "call_id": "c1", "output": "sunny"},
            {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "done"}]},
            {"type": "function_call_output", "call_id": "c3", "output": {"a": 1}},
        ],
        "tools": [
            {"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": true},
            {"type": "custom", "name": "apply_patch", "description": "Patches", "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"x\""}},
            {"type": "namespace", "name": "mcp__fs", "description": "Files", "tools": [{"type": "function", "name": "read", "parameters": {"type": "object"}}]},
            {"type": "web_search"}, {"type": "tool_of_2030", "x": 1},
        ],
        "tool_choice": {"type": "custom", "name": "apply_patch"},
        "text": {"format": {"type": "json_schema", "name": "out", "schema": schema, "strict": true}, "verbosity": "low"},
        "max_output_tokens": 77, "parallel_tool_calls": false, "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["reasoning.encrypted_content"], "prompt_cache_key": "k", "client_metadata": {"a": "b"}, "store": false,
    })).await;
    let body = model.only_body();
    let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    assert_eq!(
        body["messages"],
        json!([
            {"role": "system", "content": "Be kind.\n\nBe quick."},
            {"role": "user", "content": [{"type": "text", "text": "Look"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]},
            {"role": "assistant", "content": "I call.", "reasoning_content": "hm", "tool_calls": [
                call("c1", "get_weather", "{\"city\":\"Seoul\"}"),
                call("c2", "apply_patch", "{\"input\":\"*** Begin\"}"),
                call("c3", "mcp__fs__read", "{}")]},
            {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
            {"role": "tool", "tool_call_id": "c2", "content": "done"},
            {"role": "tool", "tool_call_id": "c3", "content": "{\"a\":1}"},
        ])
    );
    // The choice leaves one tool, and its grammar is told.
    assert_eq!(body["tools"][0]["function"]["name"], "apply_patch");
    let description = body["tools"][0]["function"]["description"]
        .as_str()
        .unwrap();
    assert!(
        description.contains("lark grammar:\nstart: \"x\""),
        "{description}"
    );
    assert_eq!(
        body["response_format"],
        json!({"type": "json_schema", "json_schema": {"name": "out", "schema": schema, "strict": true}})
    );
    assert_eq!(
        (&body["max_tokens"], &body["reasoning_effort"]),
        (&json!(77), &json!("low"))
    );
    assert_eq!(body["parallel_tool_calls"], false);
    for name in [
        "prompt_cache_key",
        "client_metadata",
        "include",
        "store",
        "instructions",
        "input",
        "text",
    ] {
        assert!(body.get(name).is_none(), "{name} is not for this backend");
    }
}

#[tokio::test]
async fn calls_of_custom_and_grouped_tools_get_their_form_back() {
    let calls = json!({"tool_calls": [
        {"index": 0, "id": "a", "type": "function", "function": {"name": "apply_patch", "arguments": "{\"input\": \"*** Begin \\\"x\\\"\\n\"}"}},
        {"index": 1, "id": "b", "type": "function", "function": {"name": "mcp__fs__read", "arguments": "{\"path\": \"/a\"}"}}]});
    let model = FakeModelServer::start(move |_, seen| {
        if seen.body["stream"] == true {
            streamed_response(vec![calls.clone()], "tool_calls")
        } else {
            completion_response(calls.clone(), "tool_calls")
        }
    })
    .await;
    let hub = hub_of(&model).await;
    let change = json!({"tools": [
        {"type": "custom", "name": "apply_patch", "description": "Patches"},
        {"type": "namespace", "name": "mcp__fs", "tools": [{"type": "function", "name": "read", "parameters": {"type": "object", "properties": {"path": {"type": "string"}}}}]}]});
    let streamed = streamed_response_of(&hub, change.clone()).await;
    assert!(
        streamed
            .events
            .contains(&"response.custom_tool_call_input.delta".to_owned())
    );
    let whole = whole_response(&hub, change).await;
    for output in [&streamed.response["output"], &whole["output"]] {
        assert_eq!(output[0]["type"], "custom_tool_call");
        assert_eq!(output[0]["name"], "apply_patch");
        assert_eq!(output[0]["input"], "*** Begin \"x\"\n");
        assert_eq!(output[1]["type"], "function_call");
        assert_eq!(
            (&output[1]["name"], &output[1]["namespace"]),
            (&json!("read"), &json!("mcp__fs"))
        );
        assert_eq!(
            output[1]["arguments"].as_str().unwrap().replace(' ', ""),
            "{\"path\":\"/a\"}"
        );
    }
}

#[tokio::test]
async fn reasoning_comes_as_an_item_and_goes_back() {
    let model = FakeModelServer::start(|_, seen| {
        if seen.body["stream"] == true {
            streamed_response(
                vec![
                    json!({"reasoning_content": "I "}),
                    json!({"reasoning_content": "think."}),
                    json!({"content": "Yes."}),
                ],
                "stop",
            )
        } else {
            completion_response(
                json!({"role": "assistant", "reasoning_content": "I think.", "content": "Yes."}),
                "stop",
            )
        }
    })
    .await;
    let hub = hub_of(&model).await;
    let plain = whole_response(&hub, json!({})).await;
    assert!(plain["output"][0].get("encrypted_content").is_none());
    let include = json!({"include": ["reasoning.encrypted_content"]});
    let streamed = streamed_response_of(&hub, include).await;
    assert_eq!(
        streamed.events[2..8],
        [
            "response.output_item.added",
            "response.reasoning_summary_part.added",
            "response.reasoning_summary_text.delta",
            "response.reasoning_summary_text.done",
            "response.reasoning_summary_part.done",
            "response.output_item.done",
        ]
    );
    let mut item = streamed.response["output"][0].clone();
    assert_eq!(item["summary"][0]["text"], "I think.");
    // Clients may drop the summary and send only what they cannot read.
    item["summary"] = json!([]);
    whole_response(&hub, json!({"input": [{"role": "user", "content": "?"}, item, streamed.response["output"][1], {"role": "user", "content": "!"}]})).await;
    let sent = model.seen().pop().unwrap().body;
    assert_eq!(
        sent["messages"][1],
        json!({"role": "assistant", "content": "Yes.", "reasoning_content": "I think."})
    );
}

#[tokio::test]
async fn cut_response_is_incomplete_and_says_why() {
    for (finish, reason) in [
        ("length", "max_output_tokens"),
        ("content_filter", "content_filter"),
    ] {
        let model = FakeModelServer::start(move |_, seen| {
            if seen.body["stream"] == true {
                streamed_response(vec![json!({"content": "half"})], finish)
            } else {
                completion_response(json!({"role": "assistant", "content": "half"}), finish)
            }
        })
        .await;
        let hub = hub_of(&model).await;
        let whole = whole_response(&hub, json!({})).await;
        let streamed = streamed_response_of(&hub, json!({})).await;
        for response in [&whole, &streamed.response] {
            assert_eq!(response["status"], "incomplete");
            assert_eq!(response["incomplete_details"]["reason"], reason);
            assert_eq!(response["output"][0]["status"], "incomplete");
        }
    }
}

#[tokio::test]
async fn usage_has_cached_and_reasoning_tokens() {
    let usage = json!({"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107,
        "prompt_tokens_details": {"cached_tokens": 60}, "completion_tokens_details": {"reasoning_tokens": 5}});
    let model = FakeModelServer::start_with_steps(vec![
        stream_head(),
        delta_step(json!({"content": "a"}), Some("stop")),
        event_step(&json!({"choices": [], "usage": usage})),
        ScriptStep::Send("data: [DONE]\n\n".to_owned()),
    ])
    .await;
    let hub = hub_of(&model).await;
    let streamed = streamed_response_of(&hub, json!({})).await;
    assert_eq!(
        streamed.response["usage"],
        json!({"input_tokens": 100, "input_tokens_details": {"cached_tokens": 60},
        "output_tokens": 7, "output_tokens_details": {"reasoning_tokens": 5}, "total_tokens": 107})
    );
}

#[tokio::test]
async fn refusal_is_a_part_of_its_own() {
    let model = FakeModelServer::start(|_, _| json_response(200, "", &json!({
        "choices": [{"index": 0, "message": {"role": "assistant", "content": null, "refusal": "I will not."}, "finish_reason": "stop"}]}))).await;
    let hub = hub_of(&model).await;
    let whole = whole_response(&hub, json!({})).await;
    let streamed = streamed_response_of(&hub, json!({})).await;
    for response in [&whole, &streamed.response] {
        assert_eq!(
            response["output"][0]["content"],
            json!([{"type": "refusal", "refusal": "I will not."}])
        );
    }
}
