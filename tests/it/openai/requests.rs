//! What reaches a backend, and what never does.

use maru::config::{BackendApi as Kind, ModelDefinition, SecretString};
use serde_json::{Value, json};

use super::{
    chat_client::{chat_body, chat_request, complete, complete_streamed},
    fake_model::{FakeModelServer, json_response, text_response},
};
use crate::{http_client::TestRequest, test_hub::TestHub};

#[tokio::test]
async fn unknown_members_are_passed_on_and_names_are_mapped() {
    let backend = FakeModelServer::start_with_steps(text_response("hi")).await;
    let hub = TestHub::with_config(|config| {
        config.models = vec![
            ModelDefinition {
                name: "void/*".to_owned(),
                model: Some("*".to_owned()),
                ..backend.model()
            },
            ModelDefinition {
                name: "small".to_owned(),
                aliases: vec!["gpt-4o".to_owned()],
                model: Some("qwen3:8b".to_owned()),
                api_key: Some(SecretString::from("sk-canary".to_owned())),
                ..backend.model()
            },
        ];
    })
    .await;
    for (asked, expected) in [
        ("void/gemma3", "gemma3"),
        ("small", "qwen3:8b"),
        ("gpt-4o", "qwen3:8b"),
    ] {
        let body = chat_body(
            json!({"model": asked, "min_p": 0.25, "chat_template_kwargs": {"enable_thinking": false}, "max_tokens": 9}),
        );
        let reply = chat_request(&hub, &body).send().await;
        assert_eq!(reply.status, 200);
        assert_eq!(
            reply.json().await["model"],
            asked,
            "the client's own name comes back"
        );
        let seen = backend.seen().pop().unwrap();
        assert_eq!(seen.path, "/v1/chat/completions");
        assert_eq!(seen.body["model"], expected);
        assert_eq!(seen.body["min_p"], 0.25);
        assert_eq!(seen.body["max_tokens"], 9);
        assert_eq!(seen.body["chat_template_kwargs"]["enable_thinking"], false);
        assert_eq!(seen.body["tools"], body["tools"]);
        let keyed = seen
            .head
            .to_lowercase()
            .contains("authorization: bearer sk-canary");
        assert_eq!(keyed, asked != "void/gemma3");
    }
    let reply = chat_request(&hub, &chat_body(json!({"model": "other"})))
        .send()
        .await;
    assert_eq!(reply.status, 404);
    assert_eq!(reply.json().await["error"]["code"], "model_not_found");
}

#[tokio::test]
async fn history_is_cleaned() {
    let backend = FakeModelServer::start_with_steps(text_response("hi")).await;
    let hub = TestHub::with_config(|config| backend.configure(config)).await;
    let call = |id: &str, arguments: &str| {
        json!({"role": "assistant", "content": null, "tool_calls": [
        {"id": id, "type": "function", "function": {"name": "get_weather", "arguments": arguments}}]})
    };
    let messages = json!([
        {"role": "developer", "content": "Be kind."},
        call("call_abcdefghijklmnopqrstuvwx", "{'city': 'Seoul'}"),
        {"role": "tool", "tool_call_id": "call_abcdefghijklmnopqrstuvwx", "content": [{"type": "text", "text": "sunny"}]},
        call("short", ""),
        {"role": "tool", "tool_call_id": "short", "content": "rain"},
        {"role": "assistant", "content": null, "tool_calls": []},
        {"role": "user", "content": "And?"},
    ]);
    complete(&hub, json!({"messages": messages})).await;
    let sent = backend.seen()[0].body["messages"].clone();
    assert_eq!(sent[0]["role"], "system");
    let arguments = sent[1]["tool_calls"][0]["function"]["arguments"]
        .as_str()
        .unwrap();
    assert_eq!(
        serde_json::from_str::<Value>(arguments).unwrap(),
        json!({"city": "Seoul"})
    );
    assert_eq!(sent[2]["content"], "sunny");
    assert_eq!(sent[3]["tool_calls"][0]["function"]["arguments"], "{}");
    assert_eq!(sent[5], json!({"role": "assistant", "content": ""}));
    let reply = chat_request(
        &hub,
        &chat_body(json!({"model": "mistral-small", "messages": messages})),
    )
    .send()
    .await;
    assert_eq!(reply.status, 200);
    let sent = backend.seen()[1].body["messages"].clone();
    let id = sent[1]["tool_calls"][0]["id"].as_str().unwrap();
    assert_eq!((id.len(), &sent[2]["tool_call_id"]), (9, &json!(id)));
}

#[tokio::test]
async fn chat_clients_need_a_token_and_cannot_choose_a_backend() {
    let backend = FakeModelServer::start_with_steps(text_response("hi")).await;
    let hub = TestHub::with_config(|config| {
        backend.configure(config);
        config.require_token = true;
    })
    .await;
    let reply = chat_request(&hub, &chat_body(json!({}))).send().await;
    assert_eq!(reply.status, 401);
    assert!(reply.headers.contains_key("www-authenticate"));
    assert_eq!(reply.json().await["error"]["code"], "invalid_api_key");
    let reply = chat_request(&hub, &chat_body(json!({})))
        .header("authorization", "Bearer local")
        .send()
        .await;
    assert_eq!(
        reply.status, 401,
        "it stands for no token, where one is needed"
    );
    let token = format!("Bearer {}", hub.running.admin_token.reveal());
    for name in ["api_base", "base_url", "api_key"] {
        let body = chat_body(json!({name: "http://169.254.169.254/"}));
        let reply = chat_request(&hub, &body)
            .header("authorization", &token)
            .send()
            .await;
        assert_eq!(reply.status, 400, "{name}");
        assert_eq!(reply.json().await["error"]["param"], name);
    }
    let reply = chat_request(&hub, &chat_body(json!({})))
        .body("{")
        .header("authorization", &token)
        .send()
        .await;
    assert_eq!(reply.status, 400);
    assert_eq!(reply.json().await["error"]["type"], "invalid_request_error");
    let reply = TestRequest::post(&hub.address, "/v1/rerank", &json!({}))
        .header("authorization", &token)
        .send()
        .await;
    assert_eq!(reply.status, 404);
    assert_eq!(reply.json().await["error"]["code"], "unknown_url");
    assert!(backend.seen().is_empty());
}

#[tokio::test]
async fn local_ollama_is_used_when_no_model_is_configured() {
    let hub = TestHub::with_config(|config| config.ollama = "http://127.0.0.1:1".to_owned()).await;
    let reply = chat_request(&hub, &chat_body(json!({"model": "qwen3"})))
        .send()
        .await;
    assert_eq!(reply.status, 404);
    let message = reply.json().await["error"]["message"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(
        message.contains("maru.yaml") && message.contains("Ollama"),
        "{message}"
    );
    let backend = FakeModelServer::start(|_, seen| match seen.path.as_str() {
        "/v1/models" => json_response(
            200,
            "",
            &json!({"object": "list", "data": [{"id": "qwen3:8b"}]}),
        ),
        _ => text_response("hi"),
    })
    .await;
    let place = backend.url().replace("/v1", "");
    let hub = TestHub::with_config(|config| config.ollama = place).await;
    let reply = chat_request(&hub, &chat_body(json!({"model": "qwen3:8b"})))
        .send()
        .await;
    assert_eq!(reply.status, 200);
    let listed = TestRequest::new(&hub.address, "GET", "/v1/models")
        .send()
        .await
        .json()
        .await;
    assert_eq!(listed["data"][0]["id"], "qwen3:8b");
    assert_eq!(listed["data"][0]["object"], "model");
    let one = TestRequest::new(&hub.address, "GET", "/v1/models/qwen3:8b")
        .send()
        .await
        .json()
        .await;
    assert_eq!(one["id"], "qwen3:8b");
    let none = TestRequest::new(&hub.address, "GET", "/v1/models/other")
        .send()
        .await;
    assert_eq!(none.status, 404);
}

#[tokio::test]
async fn embeddings_come_from_the_configured_embedder() {
    let hub = TestHub::start().await;
    let embed = |body: Value| TestRequest::post(&hub.address, "/v1/embeddings", &body).send();
    let floats = embed(json!({"model": "any", "input": ["휴가", "vacation"]}))
        .await
        .json()
        .await;
    assert_eq!(floats["data"].as_array().unwrap().len(), 2);
    let length = floats["data"][1]["embedding"].as_array().unwrap().len();
    assert!(length > 0 && floats["usage"]["total_tokens"].is_u64());
    let packed = embed(json!({"model": "any", "input": "휴가", "encoding_format": "base64"}))
        .await
        .json()
        .await;
    let packed = packed["data"][0]["embedding"].as_str().unwrap().to_owned();
    assert!(packed.len() >= length * 4);
    for bad in [
        json!({"input": []}),
        json!({"input": [[1, 2]]}),
        json!({"input": "a", "dimensions": 3}),
        json!({}),
    ] {
        let reply = embed(bad.clone()).await;
        assert_eq!(reply.status, 400, "{bad}");
        assert!(reply.json().await["error"]["param"].is_string());
    }
}

fn gemini_model(backend: &FakeModelServer, name: &str) -> ModelDefinition {
    ModelDefinition {
        name: name.to_owned(),
        backend: Kind::Gemini,
        base_url: Some(backend.url().replace("/v1", "/v1beta")),
        api_key: Some(SecretString::from("g-canary".to_owned())),
        ..ModelDefinition::default()
    }
}

#[tokio::test]
async fn gemini_backend_uses_its_native_api() {
    let backend = FakeModelServer::start(|_, seen| {
        let reply = |parts: Value, finish: Option<&str>| json!({"candidates": [{"content": {"role": "model", "parts": parts}, "finishReason": finish}],
            "usageMetadata": {"promptTokenCount": 4, "candidatesTokenCount": 2, "totalTokenCount": 6}});
        let call = json!([{"functionCall": {"name": "get_weather", "args": {"city": "Seoul"}}}]);
        if !seen.path.contains("stream") {
            return json_response(200, "", &reply(call, Some("STOP")));
        }
        let body = format!(
            "data: {}\r\n\r\ndata: {}\r\n\r\ndata: {}\r\n\r\n",
            reply(json!([{"text": "hm", "thought": true}]), None),
            reply(json!([{"text": "Look: "}]), None),
            reply(call, Some("STOP")),
        );
        vec![super::fake_model::ScriptStep::Send(format!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        ))]
    })
    .await;
    let hub =
        TestHub::with_config(|config| config.models = vec![gemini_model(&backend, "*")]).await;
    let history = json!([
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": [{"type": "text", "text": "See"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]},
        {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\":\"Busan\"}"}}]},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
    ]);
    let (message, finish) = complete(&hub, json!({"messages": history, "temperature": 0.5, "max_tokens": 7, "stop": "x", "tool_choice": "required"})).await;
    assert_eq!(
        message["tool_calls"][0]["function"]["arguments"],
        r#"{"city":"Seoul"}"#
    );
    assert_eq!(finish, "tool_calls");
    let seen = backend.seen().remove(0);
    assert_eq!(seen.path, "/v1beta/models/m:generateContent");
    assert!(
        seen.head
            .to_lowercase()
            .contains("x-goog-api-key: g-canary")
    );
    let body = &seen.body;
    assert_eq!(body["systemInstruction"]["parts"][0]["text"], "Be kind.");
    assert_eq!(
        body["contents"][0]["parts"][1]["inlineData"]["mimeType"],
        "image/png"
    );
    assert_eq!(
        body["contents"][1]["parts"][0]["functionCall"]["args"]["city"],
        "Busan"
    );
    assert_eq!(
        body["contents"][2]["parts"][0]["functionResponse"],
        json!({"id": "c1", "name": "get_weather", "response": {"result": "rain"}})
    );
    assert_eq!(
        body["tools"][0]["functionDeclarations"][0]["name"],
        "get_weather"
    );
    assert_eq!(body["toolConfig"]["functionCallingConfig"]["mode"], "ANY");
    assert_eq!(
        body["generationConfig"],
        json!({"temperature": 0.5, "maxOutputTokens": 7, "stopSequences": ["x"]})
    );
    let gathered =
        complete_streamed(&hub, json!({"stream_options": {"include_usage": true}})).await;
    assert_eq!(
        (gathered.text.trim_end(), gathered.reasoning.as_str()),
        ("Look:", "hm")
    );
    assert_eq!(
        gathered.calls,
        [("get_weather".to_owned(), json!({"city": "Seoul"}))]
    );
    assert_eq!(gathered.usage.unwrap()["total_tokens"], 6);
    assert_eq!(
        backend.seen()[1].path,
        "/v1beta/models/m:streamGenerateContent?alt=sse"
    );
}

#[tokio::test]
async fn gemma_gets_instructions_and_tools_in_its_first_turn() {
    let backend = FakeModelServer::start_with_steps(json_response(200, "", &json!({"candidates": [{"content": {"parts": [
        {"text": "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Seoul\"}}\n</tool_call>"}]}, "finishReason": "STOP"}]}))).await;
    let hub =
        TestHub::with_config(|config| config.models = vec![gemini_model(&backend, "gemma*")]).await;
    let messages =
        json!([{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Weather?"}]);
    let body = chat_body(json!({"model": "gemma-3-27b-it", "messages": messages}));
    let answer = chat_request(&hub, &body).send().await.json().await;
    assert_eq!(
        answer["choices"][0]["message"]["tool_calls"][0]["function"]["name"],
        "get_weather"
    );
    let sent = backend.only_body();
    assert!(
        sent.get("systemInstruction").is_none() && sent.get("tools").is_none(),
        "{sent}"
    );
    let first = sent["contents"][0]["parts"][0]["text"].as_str().unwrap();
    assert!(
        first.starts_with("Be kind.") && first.ends_with("Weather?"),
        "{first}"
    );
    assert!(first.contains("get_weather"));
}
