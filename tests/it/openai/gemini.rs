//! What Gemini's own API needs: ids, thought signatures, schemas.

use maru::config::{BackendApi, ModelDefinition};
use serde_json::{Value, json};

use super::{
    chat_client::{chat_body, complete, complete_streamed},
    fake_model::{FakeModelServer, ScriptStep, json_response},
};
use crate::{http_client::TestRequest, test_hub::TestHub};

fn response(parts: Value, finish: &str) -> Value {
    json!({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": finish}]})
}

/// Answers whole or as one event.
fn answer(seen_path: &str, body: &Value) -> Vec<ScriptStep> {
    if !seen_path.contains("streamGenerateContent") {
        return json_response(200, "", body);
    }
    let body = format!("data: {body}\r\n\r\n");
    vec![ScriptStep::Send(format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    ))]
}

async fn gemini(body: Value) -> (FakeModelServer, TestHub) {
    let backend = FakeModelServer::start(move |_, seen| answer(&seen.path, &body)).await;
    let hub = TestHub::with_config(|config| {
        config.models = vec![ModelDefinition {
            backend: BackendApi::Gemini,
            base_url: Some(backend.url()),
            ..ModelDefinition::default()
        }];
    })
    .await;
    (backend, hub)
}

#[tokio::test]
async fn results_belong_to_their_calls_by_id() {
    let (backend, hub) = gemini(response(json!([{"text": "ok"}]), "STOP")).await;
    let call = |id: &str, city: &str| json!({"id": id, "type": "function", "function": {"name": "get_weather", "arguments": json!({"city": city}).to_string()}});
    let result =
        |id: &str, text: &str| json!({"role": "tool", "tool_call_id": id, "content": text});
    let messages = json!([
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": null, "tool_calls": [call("a", "Seoul"), call("b", "Busan")]},
        result("b", "rain in Busan"),
        result("a", "sun in Seoul"),
        // A client that counts its calls anew in each turn.
        {"role": "assistant", "content": null, "tool_calls": [call("a", "Jeju")]},
        result("a", "wind in Jeju"),
    ]);
    complete(&hub, json!({"messages": messages})).await;
    let contents = backend.only_body()["contents"].clone();
    let calls: Vec<&Value> = (0..2)
        .map(|at| &contents[1]["parts"][at]["functionCall"])
        .collect();
    let results: Vec<&Value> = (0..2)
        .map(|at| &contents[2]["parts"][at]["functionResponse"])
        .collect();
    for (call, result) in calls.iter().zip(&results) {
        assert_eq!(call["id"], result["id"], "{contents}");
        let city = call["args"]["city"].as_str().unwrap();
        let text = result["response"]["result"].as_str().unwrap();
        assert!(text.contains(city), "{contents}");
    }
    let last = &contents[4]["parts"][0]["functionResponse"];
    assert_eq!(last["response"]["result"], "wind in Jeju");
}

#[tokio::test]
async fn thought_signatures_are_handed_out_and_taken_back() {
    let parts = json!([{"functionCall": {"name": "get_weather", "args": {"city": "Seoul"}}, "thoughtSignature": "c2lnbmVk"}]);
    let (backend, hub) = gemini(response(parts, "STOP")).await;
    let (message, _) = complete(&hub, json!({})).await;
    let call = &message["tool_calls"][0];
    let signature = &call["extra_content"]["google"]["thought_signature"];
    assert_eq!(signature, "c2lnbmVk", "{message}");
    let mut body = chat_body(json!({"stream": true}));
    let streamed = super::chat_client::chat_request(&hub, &body)
        .send()
        .await
        .text()
        .await;
    assert!(
        streamed.contains("\"thought_signature\":\"c2lnbmVk\""),
        "{streamed}"
    );
    body["stream"] = false.into();
    body["messages"] = json!([
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": null, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call["id"], "content": "sun"},
    ]);
    super::chat_client::chat_request(&hub, &body).send().await;
    let sent = backend.seen().pop().unwrap().body;
    assert_eq!(
        sent["contents"][1]["parts"][0]["thoughtSignature"], "c2lnbmVk",
        "{sent}"
    );
}

#[tokio::test]
async fn agent_takes_thought_signatures_back() {
    let backend = FakeModelServer::start(|number, seen| {
        let parts = match number {
            0 => json!([{"functionCall": {"name": "get_employee_info", "args": {"employee_id": "EMP001"}}, "thoughtSignature": "c2lnbmVk"}]),
            _ => json!([{"text": "Done."}]),
        };
        answer(&seen.path, &response(parts, "STOP"))
    })
    .await;
    let hub = TestHub::with_config(|config| {
        config.models = vec![ModelDefinition {
            backend: BackendApi::Gemini,
            base_url: Some(backend.url()),
            ..ModelDefinition::default()
        }];
    })
    .await;
    let params = json!({"model": "gemini-3-pro", "mcp_servers": ["maru"], "messages": [{"role": "user", "content": "?"}]});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "generate_content", "params": params});
    let answer = TestRequest::post(&hub.address, "/generate_with_mcp", &body)
        .send()
        .await
        .json()
        .await;
    assert_eq!(answer["result"]["text"], "Done.", "{answer}");
    let sent = backend.seen()[1].body["contents"].clone();
    assert_eq!(
        sent[1]["parts"][0]["thoughtSignature"], "c2lnbmVk",
        "{sent}"
    );
}

#[tokio::test]
async fn malformed_call_is_not_an_empty_answer() {
    let malformed = json!({"candidates": [{"content": {}, "finishReason": "MALFORMED_FUNCTION_CALL",
        "finishMessage": "Malformed function call: print(get_weather(city=Seoul))"}]});
    let (_backend, hub) = gemini(malformed).await;
    let (message, finish) = complete(&hub, json!({})).await;
    assert_eq!(finish, "stop");
    let text = message["content"].as_str().unwrap();
    assert!(text.contains("get_weather(city=Seoul)"), "{message}");
    let streamed = complete_streamed(&hub, json!({})).await;
    assert_eq!(streamed.text, text);
}

#[tokio::test]
async fn enum_keeps_its_values_beside_null() {
    let (backend, hub) = gemini(response(json!([{"text": "ok"}]), "STOP")).await;
    let unit = json!({"type": ["string", "null"], "enum": ["C", "F", null]});
    let tools = json!([{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"unit": unit}}}}]);
    complete(&hub, json!({"tools": tools})).await;
    let sent = backend.only_body();
    let unit = &sent["tools"][0]["functionDeclarations"][0]["parameters"]["properties"]["unit"];
    assert_eq!(
        *unit,
        json!({"type": "string", "nullable": true, "enum": ["C", "F"]})
    );
}
