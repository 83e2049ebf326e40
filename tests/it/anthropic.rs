//! Anthropic's Messages API, in front of models on the wire.

use maru::config::{Config, ModelDefinition};
use serde_json::{Value, json};

use crate::{
    http_client::{TestRequest, TestResponse},
    openai::fake_model::{
        FakeModelServer, completion_response, delta_step, event_step, stream_head,
        streamed_by_byte, streamed_response, text_response,
    },
    test_hub::TestHub,
};

/// What came out of a stream, put together as the SDKs do.
#[derive(Debug, Default)]
pub(crate) struct StreamedMessage {
    pub(crate) content: Vec<Value>,
    pub(crate) stop_reason: Value,
    pub(crate) stop_sequence: Value,
    pub(crate) usage: Value,
    /// The tokens of the request that the first event names.
    pub(crate) estimated_input: Value,
    pub(crate) error: Option<Value>,
    /// The events in their order, those of one kind behind each other once.
    pub(crate) events: Vec<String>,
}

impl StreamedMessage {
    pub(crate) fn text(&self) -> String {
        let texts = self.content.iter().filter_map(|it| it["text"].as_str());
        texts.collect()
    }

    pub(crate) fn calls(&self) -> Vec<(String, Value)> {
        let calls = self.content.iter().filter(|it| it["type"] == "tool_use");
        calls
            .map(|it| (it["name"].as_str().unwrap().to_owned(), it["input"].clone()))
            .collect()
    }
}

pub(crate) fn message_request(hub: &TestHub, body: &Value) -> TestRequest {
    TestRequest::post(&hub.address, "/v1/messages?beta=true", body)
        .header("anthropic-version", "2023-06-01")
        .header("anthropic-beta", "something-2030-01-01,other")
}

pub(crate) fn message_body(change: Value) -> Value {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]});
    let mut body = json!({"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "Weather in Seoul?"}],
        "tools": [{"name": "get_weather", "description": "Weather of a city", "input_schema": schema}]});
    for (name, value) in change.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

/// Reads a stream to its end; every rule of the output is checked.
pub(crate) async fn read_message_stream(mut reply: TestResponse) -> StreamedMessage {
    assert_eq!(reply.status, 200);
    assert!(reply.is_stream());
    let mut found = StreamedMessage::default();
    let mut open: Option<(usize, String)> = None;
    while let Some(event) = reply.next_event().await {
        if event.data.is_empty() {
            continue;
        }
        let data: Value = serde_json::from_str(&event.data).unwrap();
        let kind = data["type"].as_str().unwrap().to_owned();
        assert_eq!(event.name, kind);
        if found.events.last() != Some(&kind) && kind != "ping" {
            found.events.push(kind.clone());
        }
        let index = data["index"]
            .as_u64()
            .map(|it| usize::try_from(it).unwrap());
        match kind.as_str() {
            "message_start" => {
                assert_eq!(data["message"]["role"], "assistant");
                assert_eq!(data["message"]["content"], json!([]));
                assert_eq!(data["message"]["stop_reason"], Value::Null);
                assert!(data["message"]["usage"]["output_tokens"].is_u64());
                found.estimated_input = data["message"]["usage"]["input_tokens"].clone();
                assert!(
                    found.estimated_input.as_u64() > Some(0),
                    "an estimate, until the backend has counted"
                );
            }
            "content_block_start" => {
                assert!(open.is_none(), "one block after the other");
                assert_eq!(index, Some(found.content.len()));
                let block = data["content_block"].clone();
                if block["type"] == "tool_use" {
                    assert_eq!(block["input"], json!({}), "clients need it");
                }
                found.content.push(block);
                open = Some((found.content.len() - 1, String::new()));
            }
            "content_block_delta" => {
                let (at, json_text) = open.as_mut().expect("a block is open");
                assert_eq!(index, Some(*at));
                let (block, delta) = (&mut found.content[*at], &data["delta"]);
                let append = |member: &mut Value, text: &Value| {
                    *member =
                        format!("{}{}", member.as_str().unwrap(), text.as_str().unwrap()).into();
                };
                match delta["type"].as_str().unwrap() {
                    "text_delta" => append(&mut block["text"], &delta["text"]),
                    "thinking_delta" => append(&mut block["thinking"], &delta["thinking"]),
                    "signature_delta" => block["signature"] = delta["signature"].clone(),
                    "input_json_delta" => {
                        json_text.push_str(delta["partial_json"].as_str().unwrap());
                    }
                    other => panic!("unknown delta {other}"),
                }
            }
            "content_block_stop" => {
                let (at, json_text) = open.take().expect("a block is open");
                if !json_text.is_empty()
                    && let Ok(input) = serde_json::from_str(&json_text)
                {
                    found.content[at]["input"] = input;
                }
                if found.content[at]["type"] == "thinking" {
                    assert_ne!(
                        found.content[at]["signature"], "",
                        "clients drop it otherwise"
                    );
                }
            }
            "message_delta" => {
                assert!(open.is_none());
                found.stop_reason = data["delta"]["stop_reason"].clone();
                found.stop_sequence = data["delta"]["stop_sequence"].clone();
                found.usage = data["usage"].clone();
            }
            "error" => found.error = Some(data["error"].clone()),
            "message_stop" | "ping" => (),
            other => panic!("unknown event {other}"),
        }
    }
    let end = if found.error.is_some() {
        "error"
    } else {
        "message_stop"
    };
    assert_eq!(
        found.events.last().map(String::as_str),
        Some(end),
        "{found:?}"
    );
    let begins = found.events.first().map(String::as_str);
    let failed_at_once = found.events == ["error"];
    assert!(
        begins == Some("message_start") || failed_at_once,
        "{found:?}"
    );
    found
}

pub(crate) async fn whole_message(hub: &TestHub, change: Value) -> Value {
    let reply = message_request(hub, &message_body(change)).send().await;
    let status = reply.status;
    let message = reply.json().await;
    assert_eq!(status, 200, "{message}");
    assert_eq!(message["type"], "message");
    assert_eq!(message["role"], "assistant");
    assert!(message["id"].as_str().unwrap().starts_with("msg_"));
    message
}

async fn streamed_message(hub: &TestHub, change: Value) -> StreamedMessage {
    let mut body = message_body(change);
    body["stream"] = true.into();
    read_message_stream(message_request(hub, &body).send().await).await
}

async fn hub_of(model: &FakeModelServer) -> TestHub {
    TestHub::with_config(|config| model.configure(config)).await
}

const HERMES_CALL: &str = "I look.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Seoul\"}}\n</tool_call>";

#[tokio::test]
async fn call_in_the_text_becomes_a_tool_use_block() {
    let model = FakeModelServer::start(|_, seen| {
        if seen.body["stream"] == true {
            streamed_by_byte(HERMES_CALL, "stop")
        } else {
            text_response(HERMES_CALL)
        }
    })
    .await;
    let hub = hub_of(&model).await;
    let whole = whole_message(&hub, json!({})).await;
    assert_eq!(whole["stop_reason"], "tool_use");
    assert_eq!(whole["usage"]["input_tokens"], 3);
    assert_eq!(whole["usage"]["output_tokens"], 2);
    assert_eq!(
        whole["content"][0]["text"].as_str().unwrap().trim(),
        "I look."
    );
    assert_eq!(whole["content"][1]["input"], json!({"city": "Seoul"}));
    let streamed = streamed_message(&hub, json!({})).await;
    assert_eq!(streamed.stop_reason, "tool_use");
    assert_eq!(streamed.text().trim(), "I look.");
    assert_eq!(
        streamed.calls(),
        [("get_weather".to_owned(), json!({"city": "Seoul"}))]
    );
}

#[tokio::test]
async fn whole_conversation_reaches_the_backend_in_its_form() {
    let model = FakeModelServer::start_with_steps(text_response("ok")).await;
    let hub = hub_of(&model).await;
    let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}});
    let cache = json!({"type": "ephemeral"});
    whole_message(&hub, json!({
        "system": [{"type": "text", "text": "x-anthropic-billing-header: cc_version=1; cch=00000;"},
            {"type": "text", "text": "Be kind.", "cache_control": cache}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Look", "cache_control": cache}, image]},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "sig-of-another-model"},
                {"type": "redacted_thinking", "data": "xx"},
                {"type": "text", "text": "I call."},
                {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"city": "Seoul"}},
                {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": true,
                    "content": [{"type": "text", "text": "no city"}, image]},
                {"type": "text", "text": "Go on."}, {"type": "something_new", "x": 1}]},
            {"role": "system", "content": "Be quick."},
        ],
        "thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}, "context_management": {"edits": []},
        "metadata": {"user_id": "u"}, "service_tier": "auto", "something_new": {"a": 1},
        "stop_sequences": ["END"], "temperature": 0.5, "top_k": 4,
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": true},
    })).await;
    let body = model.only_body();
    let image = json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}});
    let call = json!({"id": "toolu_1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\":\"Seoul\"}"}});
    assert_eq!(
        body["messages"],
        json!([
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": [{"type": "text", "text": "Look"}, image]},
            {"role": "assistant", "content": "I call.", "reasoning_content": "hm", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "toolu_1", "content": "Error: no city"},
            {"role": "user", "content": [image, {"type": "text", "text": "Go on."},
                {"type": "text", "text": "<system-reminder>\nBe quick.\n</system-reminder>"}]},
        ])
    );
    assert_eq!(body["stop"], json!(["END"]));
    assert_eq!(body["parallel_tool_calls"], false);
    assert_eq!(
        (&body["max_tokens"], &body["top_k"]),
        (&json!(100), &json!(4))
    );
    for name in [
        "thinking",
        "output_config",
        "context_management",
        "metadata",
        "service_tier",
        "something_new",
        "system",
    ] {
        assert!(body.get(name).is_none(), "{name} is not for this backend");
    }
}

#[tokio::test]
async fn every_end_has_its_stop_reason() {
    let model = FakeModelServer::start(|_, seen| {
        let said = json!({"role": "assistant", "content": "text"});
        match seen.body["messages"][0]["content"].as_str().unwrap() {
            "length" => completion_response(said, "length"),
            "filter" => completion_response(said, "content_filter"),
            "sequence" => crate::openai::fake_model::json_response(200, "", &json!({
                "choices": [{"index": 0, "message": said, "finish_reason": "stop", "stop_reason": "END"}]})),
            "refusal" => completion_response(json!({"role": "assistant", "content": null, "refusal": "no"}), "stop"),
            _ => completion_response(said, "stop"),
        }
    })
    .await;
    let hub = hub_of(&model).await;
    for (said, reason, sequence) in [
        ("x", "end_turn", Value::Null),
        ("length", "max_tokens", Value::Null),
        ("filter", "refusal", Value::Null),
        ("sequence", "stop_sequence", "END".into()),
        ("refusal", "refusal", Value::Null),
    ] {
        let change = json!({"messages": [{"role": "user", "content": said}]});
        let whole = whole_message(&hub, change.clone()).await;
        assert_eq!(
            (&whole["stop_reason"], &whole["stop_sequence"]),
            (&json!(reason), &sequence),
            "{said}"
        );
        // The backend answers whole; the client gets a stream all the same.
        let streamed = streamed_message(&hub, change).await;
        assert_eq!(
            (&streamed.stop_reason, &streamed.stop_sequence),
            (&json!(reason), &sequence),
            "{said}"
        );
    }
}

#[tokio::test]
async fn tokens_that_no_backend_counts_are_estimated() {
    // It counts nothing, and answers in a stream whoever asks.
    let model = FakeModelServer::start_with_steps(streamed_by_byte("text", "stop")).await;
    let hub = hub_of(&model).await;
    let whole = whole_message(&hub, json!({})).await;
    let streamed = streamed_message(&hub, json!({})).await;
    assert!(streamed.usage["input_tokens"].as_u64() > Some(0));
    assert_eq!(streamed.usage["input_tokens"], streamed.estimated_input);
    assert_eq!(whole["usage"]["input_tokens"], streamed.estimated_input);
}

#[tokio::test]
async fn thinking_is_signed_and_comes_back_to_the_model() {
    let model = FakeModelServer::start(|_, seen| {
        let message =
            json!({"role": "assistant", "reasoning_content": "I think.", "content": "Yes."});
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
            completion_response(message, "stop")
        }
    })
    .await;
    let hub = hub_of(&model).await;
    let thinking = json!({"thinking": {"type": "enabled", "budget_tokens": 1024}});
    let streamed = streamed_message(&hub, thinking.clone()).await;
    assert_eq!(streamed.content[0]["thinking"], "I think.");
    assert_eq!(streamed.content[1], json!({"type": "text", "text": "Yes."}));
    let whole = whole_message(&hub, thinking).await;
    let block = &whole["content"][0];
    assert_eq!(block["thinking"], "I think.");
    assert!(block["signature"].as_str().unwrap().len() > 20);
    // Who did not ask for thinking finds the answer in the first block.
    let plain = whole_message(&hub, json!({})).await;
    assert_eq!(plain["content"], json!([{"type": "text", "text": "Yes."}]));
    whole_message(&hub, json!({"messages": [
        {"role": "user", "content": "?"}, {"role": "assistant", "content": whole["content"]}, {"role": "user", "content": "!"}]}))
    .await;
    let sent = model.seen().pop().unwrap().body;
    assert_eq!(sent["messages"][1]["reasoning_content"], "I think.");
    assert!(sent["messages"][1].get("reasoning_blocks").is_none());
}

#[tokio::test]
async fn deferred_tools_are_offered_once_they_are_loaded() {
    let model = FakeModelServer::start_with_steps(text_response("ok")).await;
    let hub = hub_of(&model).await;
    let tool = |name: &str, deferred: bool| json!({"name": name, "description": "d", "input_schema": {"type": "object"}, "defer_loading": deferred});
    let names = || -> Vec<String> {
        let body = model.seen().pop().unwrap().body;
        let tools = body["tools"].as_array().unwrap().clone();
        tools
            .iter()
            .map(|it| it["function"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let server_tools = json!({"type": "web_search_20250305", "name": "web_search"});
    let tools = json!([
        tool("ToolSearch", false),
        tool("a", true),
        tool("b", true),
        tool("c", true),
        server_tools
    ]);
    whole_message(&hub, json!({"tools": tools})).await;
    assert_eq!(names(), ["ToolSearch"]);
    let messages = json!([
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "ToolSearch", "input": {}},
            {"type": "tool_use", "id": "t2", "name": "c", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "tool_reference", "tool_name": "b"}]},
            {"type": "tool_result", "tool_use_id": "t2", "content": "x"}]},
    ]);
    whole_message(&hub, json!({"tools": tools, "messages": messages})).await;
    assert_eq!(names(), ["ToolSearch", "b", "c"]);
    let sent = model.seen().pop().unwrap().body;
    assert_eq!(
        sent["messages"][2]["content"],
        "The tool b is available now."
    );
    // Where no tool of the client searches, nothing would load them.
    let search =
        json!({"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"});
    whole_message(&hub, json!({"tools": [search, tool("a", true)]})).await;
    assert_eq!(names(), ["a"]);
}

#[tokio::test]
async fn usage_counts_cached_tokens_apart() {
    let usage = json!({"prompt_tokens": 100, "completion_tokens": 7, "total_tokens": 107, "prompt_tokens_details": {"cached_tokens": 60}});
    let model = FakeModelServer::start_with_steps(vec![
        stream_head(),
        delta_step(json!({"content": "a"}), Some("stop")),
        event_step(&json!({"choices": [], "usage": usage})),
        crate::openai::fake_model::ScriptStep::Send("data: [DONE]\n\n".to_owned()),
    ])
    .await;
    let hub = hub_of(&model).await;
    let streamed = streamed_message(&hub, json!({})).await;
    assert_eq!(
        streamed.usage,
        json!({"input_tokens": 40, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 60, "output_tokens": 7})
    );
}

#[tokio::test]
async fn models_and_tokens_are_listed_for_clients_of_this_api() {
    let model = FakeModelServer::start_with_steps(text_response("ok")).await;
    let hub = TestHub::with_config(|config: &mut Config| {
        config.models = vec![ModelDefinition {
            name: "m".to_owned(),
            ..model.model()
        }];
    })
    .await;
    let get = |path: &str| {
        TestRequest::new(&hub.address, "GET", path).header("anthropic-version", "2023-06-01")
    };
    let list = get("/v1/models?limit=10").send().await.json().await;
    let names: Vec<&str> = list["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["id"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["m", "agent/m"]);
    assert_eq!(
        (&list["has_more"], &list["first_id"]),
        (&json!(false), &json!("m"))
    );
    assert_eq!(
        get("/v1/models/agent/m").send().await.json().await["type"],
        "model"
    );
    let missing = get("/v1/models/other").send().await;
    assert_eq!(missing.status, 404);
    assert_eq!(missing.json().await["error"]["type"], "not_found_error");
    let count = TestRequest::post(
        &hub.address,
        "/v1/messages/count_tokens",
        &message_body(json!({"system": "x".repeat(4000)})),
    );
    let count = count.send().await.json().await;
    let tokens = count["input_tokens"].as_u64().unwrap();
    assert!((500..4000).contains(&tokens), "{tokens}");
}

#[tokio::test]
async fn token_is_accepted_as_x_api_key() {
    let model = FakeModelServer::start_with_steps(text_response("ok")).await;
    let hub = TestHub::with_config(|config| {
        model.configure(config);
        config.require_token = true;
    })
    .await;
    let token = hub
        .create_token(json!({"name": "coder", "role": "agent"}))
        .await;
    let body = message_body(json!({}));
    let status = async |name: &str, value: &str| {
        let reply = message_request(&hub, &body)
            .header(name, value)
            .send()
            .await;
        (
            reply.status.as_u16(),
            reply.json().await["error"]["type"].clone(),
        )
    };
    assert_eq!(status("x-api-key", &token).await, (200, Value::Null));
    assert_eq!(
        status("authorization", &format!("Bearer {token}")).await.0,
        200
    );
    for wrong in ["maru_wrong", "local", ""] {
        assert_eq!(
            status("x-api-key", wrong).await,
            (401, json!("authentication_error")),
            "{wrong}"
        );
    }
    let reader = hub
        .create_token(json!({"name": "onlooker", "role": "reader"}))
        .await;
    assert_eq!(
        status("x-api-key", &reader).await,
        (403, json!("permission_error"))
    );
    // Other routes know no such header.
    let other = TestRequest::new(&hub.address, "GET", "/api/tools")
        .header("x-api-key", &token)
        .send()
        .await;
    assert_eq!(other.status, 401);
}
