//! A client that is as strict as the strictest real one.

use serde_json::{Value, json};

use crate::{
    http_client::{TestRequest, TestResponse},
    test_hub::TestHub,
};

/// What came out of a stream.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct StreamedAnswer {
    pub(crate) text: String,
    pub(crate) reasoning: String,
    /// Name and arguments.
    pub(crate) calls: Vec<(String, Value)>,
    pub(crate) finish: String,
    pub(crate) usage: Option<Value>,
    /// What an error event says.
    pub(crate) error: Option<Value>,
    /// Chunks that were read.
    pub(crate) chunks: usize,
}

pub(crate) fn weather_tools() -> Value {
    json!([{"type": "function", "function": {"name": "get_weather", "description": "Weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}}])
}

/// A question, with tools.
pub(crate) fn chat_body(change: Value) -> Value {
    let mut body = json!({"model": "m", "messages": [{"role": "user", "content": "Weather in Seoul?"}], "tools": weather_tools()});
    for (name, value) in change.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
}

pub(crate) fn chat_request(hub: &TestHub, body: &Value) -> TestRequest {
    TestRequest::post(&hub.address, "/v1/chat/completions", body)
}

/// The message of a whole answer, checked, and its reason.
pub(crate) async fn complete(hub: &TestHub, change: Value) -> (Value, String) {
    let reply = chat_request(hub, &chat_body(change)).send().await;
    let status = reply.status;
    let answer = reply.json().await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["object"], "chat.completion");
    assert!(answer["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert!(answer["created"].is_u64() && answer["model"] == "m");
    let choice = &answer["choices"][0];
    assert_eq!(choice["message"]["role"], "assistant");
    for call in choice["message"]["tool_calls"]
        .as_array()
        .into_iter()
        .flatten()
    {
        check_id(&call["id"]);
        assert_eq!(call["type"], "function");
        parse_arguments(call["function"]["arguments"].as_str().unwrap());
    }
    let finish = choice["finish_reason"].as_str().unwrap().to_owned();
    (choice["message"].clone(), finish)
}

pub(crate) async fn complete_streamed(hub: &TestHub, change: Value) -> StreamedAnswer {
    let mut body = chat_body(change);
    body["stream"] = true.into();
    let reply = chat_request(hub, &body).send().await;
    assert_eq!(reply.status, 200);
    assert!(reply.is_stream());
    read_stream(reply).await
}

/// Reads a stream to its end; every rule of the output is checked.
pub(crate) async fn read_stream(mut reply: TestResponse) -> StreamedAnswer {
    let mut found = StreamedAnswer::default();
    let mut open: Vec<(String, String)> = Vec::new();
    let mut id = Value::Null;
    let mut done = false;
    while let Some(event) = reply.next_event().await {
        if event.data.is_empty() {
            continue;
        }
        assert!(!done, "nothing follows [DONE]: {}", event.data);
        if event.data == "[DONE]" {
            done = true;
            continue;
        }
        let chunk: Value = serde_json::from_str(&event.data).unwrap();
        if !chunk["error"].is_null() {
            found.error = Some(chunk["error"].clone());
            continue;
        }
        found.chunks += 1;
        assert_eq!(chunk["object"], "chat.completion.chunk");
        assert!(chunk["created"].is_u64() && chunk["model"].is_string());
        assert!(id.is_null() || id == chunk["id"], "one id for all");
        id = chunk["id"].clone();
        let Some(choice) = chunk["choices"].get(0) else {
            assert!(!found.finish.is_empty(), "usage comes last");
            found.usage = Some(chunk["usage"].clone());
            continue;
        };
        assert!(found.finish.is_empty(), "nothing follows the reason");
        add_choice(choice, found.chunks == 1, &mut found, &mut open);
    }
    assert_eq!(done, found.error.is_none(), "{found:?}");
    // Only a response that was cut off may end inside a call.
    if found.finish == "length" || found.error.is_some() {
        open.retain(|(_, text)| serde_json::from_str::<Value>(text).is_ok());
    }
    found.calls = open
        .into_iter()
        .map(|(name, text)| (name, parse_arguments(&text)))
        .collect();
    assert_eq!(
        found.finish == "tool_calls",
        !found.calls.is_empty() && found.finish != "length"
    );
    found
}

fn add_choice(
    choice: &Value,
    first: bool,
    found: &mut StreamedAnswer,
    open: &mut Vec<(String, String)>,
) {
    assert_eq!(choice["index"], 0);
    let delta = choice["delta"].as_object().unwrap();
    assert_eq!(
        delta.get("role").is_some(),
        first,
        "the role stands in the first chunk only"
    );
    if let Some(text) = delta.get("content").and_then(Value::as_str) {
        assert!(open.is_empty(), "no text after a call");
        found.text.push_str(text);
    }
    if let Some(text) = delta.get("reasoning_content") {
        found.reasoning.push_str(text.as_str().unwrap());
    }
    for piece in delta
        .get("tool_calls")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let index = usize::try_from(piece["index"].as_u64().unwrap()).unwrap();
        let text = piece["function"]["arguments"].as_str().unwrap();
        if index == open.len() {
            check_id(&piece["id"]);
            assert_eq!(piece["type"], "function");
            assert_eq!(text, "");
            open.push((
                piece["function"]["name"].as_str().unwrap().to_owned(),
                String::new(),
            ));
        } else {
            assert_eq!(index + 1, open.len(), "one call after the other");
            assert!(piece.get("id").is_none() && piece.get("type").is_none());
            assert!(piece["function"].get("name").is_none());
            open[index].1.push_str(text);
        }
    }
    if let Some(finish) = choice["finish_reason"].as_str() {
        finish.clone_into(&mut found.finish);
    }
}

fn check_id(id: &Value) {
    let rest = id.as_str().unwrap().strip_prefix("call_").expect("call_…");
    assert!(
        rest.len() >= 16 && rest.bytes().all(|it| it.is_ascii_alphanumeric()),
        "{id}"
    );
}

fn parse_arguments(text: &str) -> Value {
    let value: Value = serde_json::from_str(text).unwrap();
    assert!(value.is_object(), "{text}");
    value
}
