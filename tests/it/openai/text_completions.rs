//! `/v1/completions`: a text that a model continues, as editors ask for it.

use maru::config::{BackendApi, Config, ModelDefinition};
use serde_json::{Value, json};

use super::fake_model::{
    FakeModelServer, ReceivedRequest, ScriptStep, event_step, json_response, stream_head,
};
use crate::{
    http_client::{TestRequest, TestResponse, wait_until},
    test_hub::TestHub,
};

/// Nothing of it is a call or reasoning here.
const CODE: &str =
    "    return <think>\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n";

/// Continues every text with [`CODE`]; whole, or in pieces of a few bytes.
fn continuation(seen: &ReceivedRequest) -> Vec<ScriptStep> {
    let choice = |text: &str, finish: Value| {
        json!({"id": "x", "object": "text_completion", "system_fingerprint": "fp",
            "choices": [{"index": 0, "text": text, "logprobs": null, "finish_reason": finish}]})
    };
    let usage = json!({"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11});
    if seen.body["stream"] != true {
        let mut body = choice(CODE, "length".into());
        body["usage"] = usage;
        return json_response(200, "", &body);
    }
    let pieces = CODE.as_bytes().chunks(3);
    let pieces = pieces.map(|it| event_step(&choice(str::from_utf8(it).unwrap(), Value::Null)));
    let mut steps: Vec<ScriptStep> = std::iter::once(stream_head()).chain(pieces).collect();
    steps.push(event_step(&choice("", "length".into())));
    steps.push(event_step(&json!({"choices": [], "usage": usage})));
    steps.push(ScriptStep::Send("data: [DONE]\n\n".to_owned()));
    steps
}

fn completion_request(hub: &TestHub, change: Value) -> TestRequest {
    let mut body =
        json!({"model": "m", "prompt": "def f():\n", "suffix": "\n\nf()", "max_tokens": 9});
    for (name, value) in change.as_object().unwrap() {
        body[name] = value.clone();
    }
    TestRequest::post(&hub.address, "/v1/completions", &body)
}

/// The text of a stream, its finish reason, and its usage or error.
async fn read_completion_stream(mut reply: TestResponse) -> (String, String, Value) {
    assert_eq!(reply.status, 200);
    let (mut text, mut finish, mut end) = (String::new(), String::new(), Value::Null);
    let mut id = Value::Null;
    while let Some(event) = reply.next_event().await {
        if event.data == "[DONE]" {
            assert!(reply.next_event().await.is_none());
            break;
        }
        let chunk: Value = serde_json::from_str(&event.data).unwrap();
        if !chunk["error"].is_null() {
            end = chunk["error"].clone();
            continue;
        }
        assert_eq!(
            (&chunk["object"], &chunk["model"]),
            (&json!("text_completion"), &json!("m"))
        );
        assert!(id.is_null() || id == chunk["id"]);
        id = chunk["id"].clone();
        match &chunk["choices"][0] {
            Value::Null => end = chunk["usage"].clone(),
            choice => {
                assert_eq!(choice["index"], 0);
                text.push_str(choice["text"].as_str().unwrap());
                finish.push_str(choice["finish_reason"].as_str().unwrap_or_default());
            }
        }
    }
    (text, finish, end)
}

async fn named_hub(models: Vec<ModelDefinition>) -> TestHub {
    TestHub::with_config(|config: &mut Config| config.models = models).await
}

#[tokio::test]
async fn text_is_continued_as_it_stands_and_counted() {
    let model = FakeModelServer::start(|_, seen| continuation(seen)).await;
    let named = ModelDefinition {
        name: "m".to_owned(),
        model: Some("coder".to_owned()),
        ..model.model()
    };
    let hub = named_hub(vec![named]).await;
    let change = json!({"logprobs": 2, "min_p": 0.1, "stop": ["\n\n"]});
    let whole = completion_request(&hub, change).send().await.json().await;
    assert_eq!(whole["object"], "text_completion");
    assert!(whole["id"].as_str().unwrap().starts_with("cmpl-"));
    assert_eq!(
        whole["choices"],
        json!([{"index": 0, "text": CODE, "logprobs": null, "finish_reason": "length"}])
    );
    assert_eq!(whole["usage"]["total_tokens"], 11);
    let sent = &model.seen()[0];
    assert_eq!(sent.path, "/v1/completions");
    assert_eq!(
        sent.body,
        json!({"model": "coder", "prompt": "def f():\n", "suffix": "\n\nf()", "max_tokens": 9,
            "logprobs": 2, "min_p": 0.1, "stop": ["\n\n"]})
    );
    let stream = json!({"stream": true, "stream_options": {"include_usage": true}, "suffix": null, "prompt": [[1, 2]]});
    let (text, finish, usage) =
        read_completion_stream(completion_request(&hub, stream).send().await).await;
    assert_eq!((text.as_str(), finish.as_str()), (CODE, "length"));
    assert_eq!(usage["total_tokens"], 11);
    let sent = &model.seen()[1].body;
    assert_eq!(
        (&sent["prompt"], sent.get("suffix")),
        (&json!([1, 2]), None)
    );
    let totals = async || {
        let request = TestRequest::new(&hub.address, "GET", "/api/usage?model=m&group=");
        request.send().await.json().await["totals"].clone()
    };
    wait_until(async || totals().await["requests"] == 2).await;
    let totals = totals().await;
    assert_eq!(
        (&totals["input_tokens"], &totals["output_tokens"]),
        (&json!(14), &json!(8))
    );
}

#[tokio::test]
async fn only_backends_that_continue_texts_are_asked() {
    let chat = FakeModelServer::start_with_steps(json_response(200, "", &json!({}))).await;
    let text = FakeModelServer::start(|_, seen| continuation(seen)).await;
    let chat_only = |name: &str, backend| ModelDefinition {
        name: name.to_owned(),
        backend,
        ..chat.model()
    };
    let hub = named_hub(vec![
        chat_only("m", BackendApi::Anthropic),
        ModelDefinition {
            name: "m".to_owned(),
            ..text.model()
        },
        chat_only("claude", BackendApi::Anthropic),
        chat_only("gemini", BackendApi::Gemini),
    ])
    .await;
    let whole = completion_request(&hub, json!({}))
        .send()
        .await
        .json()
        .await;
    assert_eq!(whole["choices"][0]["text"], CODE);
    for name in ["claude", "gemini"] {
        for stream in [false, true] {
            let reply = completion_request(&hub, json!({"model": name, "stream": stream}))
                .send()
                .await;
            assert_eq!(reply.status, 400);
            assert_eq!(reply.json().await["error"]["code"], "chat_only");
        }
    }
    assert!(chat.seen().is_empty());
}

#[tokio::test]
async fn faults_and_hostile_requests_have_the_form_of_openai() {
    let model = FakeModelServer::start(|_, seen| match seen.body["prompt"].as_str() {
        Some("cut") => vec![
            stream_head(),
            event_step(&json!({"choices": [{"index": 0, "text": "half"}]})),
        ],
        Some("error") => json_response(
            400,
            "",
            &json!({"error": {"message": "SECRET", "code": "context_length_exceeded"}}),
        ),
        _ => json_response(200, "", &json!({"choices": []})),
    })
    .await;
    let hub = TestHub::with_config(|config| model.configure(config)).await;
    for change in [
        json!({"prompt": null}),
        json!({"prompt": 5}),
        json!({"prompt": ["a", "b"]}),
        json!({"prompt": []}),
        json!({"prompt": [{"a": 1}]}),
        json!({"suffix": 5}),
        json!({"model": null}),
        json!({"stream": "yes"}),
        json!({"max_tokens": -1}),
        json!({"n": 2}),
        json!({"api_base": "http://169.254.169.254/"}),
        json!({"model": "agent/m"}),
        json!({"model": "agent/m", "suffix": null, "prompt": [1]}),
    ] {
        let reply = completion_request(&hub, change.clone()).send().await;
        assert_eq!(reply.status, 400, "{change}");
        let error = reply.json().await["error"].clone();
        assert_eq!(error["type"], "invalid_request_error", "{change}");
        assert!(error["param"].is_string(), "{change}");
    }
    assert!(model.seen().is_empty());
    let refused = completion_request(&hub, json!({"prompt": "error"}))
        .send()
        .await;
    assert_eq!(refused.status, 400);
    let refused = refused.text().await;
    assert!(refused.contains("context_length_exceeded") && !refused.contains("SECRET"));
    assert_eq!(completion_request(&hub, json!({})).send().await.status, 502);
    let cut = completion_request(&hub, json!({"prompt": "cut", "stream": true}))
        .send()
        .await;
    let (text, finish, error) = read_completion_stream(cut).await;
    assert_eq!((text.as_str(), finish.as_str()), ("half", ""));
    assert_eq!(error["code"], "backend_answer");
}

#[tokio::test]
async fn agent_answers_a_text() {
    let model =
        FakeModelServer::start_with_steps(super::fake_model::text_response("Forty-two.")).await;
    let hub = TestHub::with_config(|config| model.configure(config)).await;
    let body = json!({"model": "agent/m", "prompt": "What is it?", "max_tokens": 9});
    let reply = TestRequest::post(&hub.address, "/v1/completions", &body)
        .send()
        .await;
    assert_eq!(reply.json().await["choices"][0]["text"], "Forty-two.");
    let messages = model.seen().pop().unwrap().body["messages"].clone();
    assert!(messages.to_string().contains("What is it?"));
}

/// Editors that know only Ollama's API.
#[tokio::test]
async fn ollama_clients_complete_code_with_suffix_and_raw() {
    let model = FakeModelServer::start(|_, seen| continuation(seen)).await;
    let hub = TestHub::with_config(|config| model.configure(config)).await;
    let generate = async |change: Value| {
        let mut body = json!({"model": "m", "prompt": "def f():\n", "stream": false, "options": {"num_predict": 9}});
        for (name, value) in change.as_object().unwrap() {
            body[name] = value.clone();
        }
        TestRequest::post(&hub.address, "/api/generate", &body)
            .send()
            .await
    };
    let filled = generate(json!({"suffix": "\n\nf()"})).await.json().await;
    assert_eq!(
        (&filled["response"], &filled["done_reason"]),
        (&json!(CODE), &json!("length"))
    );
    assert_eq!(filled["eval_count"], 4);
    let raw = generate(json!({"raw": true, "stream": true}))
        .await
        .text()
        .await;
    let lines = raw
        .lines()
        .map(|it| serde_json::from_str::<Value>(it).unwrap());
    let text: String = lines
        .map(|it| it["response"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(text, CODE);
    let seen = model.seen();
    assert!(seen.iter().all(|it| it.path == "/v1/completions"));
    assert_eq!(
        (&seen[0].body["suffix"], &seen[0].body["max_tokens"]),
        (&json!("\n\nf()"), &json!(9))
    );
    assert_eq!(seen[1].body.get("suffix"), None);
    assert_eq!(generate(json!({"suffix": 5})).await.status, 400);
}
