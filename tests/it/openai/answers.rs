//! Whatever a backend answers, the client gets the strict form of it.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    chat_client::{self, StreamedAnswer},
    fake_model::{
        FakeModelServer, ScriptStep, completion_response, delta_step, event_step, json_response,
        stream_head, streamed_by_byte, streamed_response, text_response,
    },
};
use crate::{model_apis::TestedApi, test_hub::TestHub};

async fn hub_before(backend: &FakeModelServer) -> TestHub {
    TestHub::with_config(|config| backend.configure(config)).await
}

/// The same model text, whole and letter by letter, gives the same.
async fn check_both_ways(text: &'static str, expected: &str, calls: &[(&str, Value)]) {
    let backend = FakeModelServer::start(move |_, seen| {
        if seen.body["stream"] == true {
            streamed_by_byte(text, "stop")
        } else {
            text_response(text)
        }
    })
    .await;
    let hub = hub_before(&backend).await;
    let (message, finish) = chat_client::complete(&hub, json!({})).await;
    let gathered = chat_client::complete_streamed(&hub, json!({})).await;
    let content = message["content"].as_str().unwrap_or_default();
    assert_eq!(content.trim(), expected);
    assert_eq!(gathered.text.trim(), expected);
    assert_eq!(
        (finish.as_str(), calls.is_empty()),
        (gathered.finish.as_str(), finish == "stop")
    );
    let calls: Vec<(String, Value)> = calls
        .iter()
        .map(|it| (it.0.to_owned(), it.1.clone()))
        .collect();
    assert_eq!(gathered.calls, calls);
    let whole: Vec<(String, Value)> = message["tool_calls"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|it| {
            let text = it["function"]["arguments"].as_str().unwrap();
            (
                it["function"]["name"].as_str().unwrap().to_owned(),
                serde_json::from_str(text).unwrap(),
            )
        })
        .collect();
    assert_eq!(whole, calls);
    assert!(calls.is_empty() || content.is_empty() == message["content"].is_null());
}

#[tokio::test]
async fn text_stays_text_and_calls_in_text_become_calls() {
    check_both_ways(
        "It is sunny. 맑음 \"quoted\" \\ \n",
        "It is sunny. 맑음 \"quoted\" \\",
        &[],
    )
    .await;
    let seoul = ("get_weather", json!({"city": "Seoul"}));
    let call = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Seoul\"}}\n</tool_call>";
    check_both_ways(call, "", std::slice::from_ref(&seoul)).await;
    check_both_ways(
        "One moment.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Seoul\"}}\n</tool_call>",
        "One moment.",
        &[seoul],
    )
    .await;
    let unknown = "<tool_call>\n{\"name\": \"rm_rf\", \"arguments\": {}}\n</tool_call>";
    check_both_ways(unknown, unknown, &[]).await;
}

#[tokio::test]
async fn words_about_tags_and_examples_of_calls_stay_text() {
    const CALL: &str = "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Seoul\"}}";
    for text in [
        "The end tag is </tool_call>",
        "Use </think> to end",
        "Write </think> or `</tool_call>`.\nBoth end something.",
        &*format!("An example:\n~~~json\n{CALL}\n~~~\nThat is all."),
        &*format!("An example:\n\n    {CALL}\n\nThat is all."),
        &*format!("For example `{CALL}` asks for Seoul."),
        &*format!("> {CALL}\n\nThat was a quotation."),
        &*format!("Models write\n```xml\n<tool_call>\n{CALL}\n</tool_call>\n```\nto call."),
    ] {
        check_both_ways(text.to_owned().leak(), text, &[]).await;
    }
}

fn native_deltas(pieces: &[Value]) -> Vec<Value> {
    pieces
        .iter()
        .map(|it| json!({"tool_calls": [it]}))
        .collect()
}

#[tokio::test]
async fn native_calls_are_gathered_and_repaired() {
    let function = |name: &str, arguments: &str| json!({"name": name, "arguments": arguments});
    let cases: [(Vec<Value>, Vec<Value>); 4] = [
        // Usual.
        (
            native_deltas(&[
                json!({"index": 0, "id": "c1", "type": "function", "function": function("get_weather", "")}),
                json!({"index": 0, "function": {"arguments": "{\"city\":"}}),
                json!({"index": 0, "function": {"arguments": "\"Seoul\"}"}}),
            ]),
            vec![json!({"city": "Seoul"})],
        ),
        // Two, with the name in every piece and no id.
        (
            native_deltas(&[
                json!({"index": 0, "function": function("get_weather", "{\"city\":\"a")}),
                json!({"index": 0, "function": function("get_weather", "\"}")}),
                json!({"index": 1, "function": function("get_weather", "{\"city\":\"b\"}")}),
            ]),
            vec![json!({"city": "a"}), json!({"city": "b"})],
        ),
        // The same index and id for both, as some servers do.
        (
            native_deltas(&[
                json!({"index": 0, "id": "x", "function": function("get_weather", "{\"city\":\"a\"}")}),
                json!({"index": 0, "id": "y", "function": function("get_weather", "{\"city\":\"b\"}")}),
            ]),
            vec![json!({"city": "a"}), json!({"city": "b"})],
        ),
        // Arguments as an object, and broken ones.
        (
            native_deltas(&[
                json!({"index": 0, "function": {"name": "get_weather", "arguments": {"city": "a"}}}),
                json!({"index": 1, "function": function("get_weather", "{'city': 'b', 'days': '3',}")}),
            ]),
            vec![json!({"city": "a"}), json!({"city": "b", "days": 3})],
        ),
    ];
    for (deltas, expected) in cases {
        let backend =
            FakeModelServer::start_with_steps(streamed_response(deltas, "tool_calls")).await;
        let hub = hub_before(&backend).await;
        let gathered = chat_client::complete_streamed(&hub, json!({})).await;
        let found: Vec<Value> = gathered.calls.into_iter().map(|it| it.1).collect();
        assert_eq!(found, expected);
        assert_eq!(gathered.finish, "tool_calls");
    }
}

#[tokio::test]
async fn failed_call_is_returned_as_text() {
    let cut = json!({"tool_calls": [{"index": 0, "function": {"name": "get_weather", "arguments": "{\"city\": \"Se"}}]});
    for finish in ["tool_calls", "length"] {
        let cut = cut.clone();
        let backend = FakeModelServer::start(move |_, seen| {
            if seen.body["stream"] == true {
                streamed_response(vec![cut.clone()], finish)
            } else {
                let mut message = cut.clone();
                message["role"] = "assistant".into();
                completion_response(message, finish)
            }
        })
        .await;
        let hub = hub_before(&backend).await;
        let (message, ended) = chat_client::complete(&hub, json!({})).await;
        let text = message["content"].as_str().unwrap();
        assert!(text.contains("{\"city\": \"Se"), "{message}");
        assert_eq!(ended, if finish == "length" { "length" } else { "stop" });
        // In a stream the beginning of the call is out already.
        let gathered = chat_client::complete_streamed(&hub, json!({})).await;
        assert_eq!((gathered.calls.len(), gathered.text.as_str()), (0, ""));
        assert_eq!(gathered.finish, "length");
    }
    let unknown = json!({"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "rm_rf", "arguments": "{}"}}]});
    let backend =
        FakeModelServer::start_with_steps(completion_response(unknown, "tool_calls")).await;
    let (message, finish) = chat_client::complete(&hub_before(&backend).await, json!({})).await;
    assert_eq!(
        (message["content"].as_str(), finish.as_str()),
        (Some("rm_rf({})"), "stop")
    );
    assert!(message.get("tool_calls").is_none());
}

#[tokio::test]
async fn reasoning_usage_and_refusals_pass() {
    let mut steps = vec![
        stream_head(),
        delta_step(
            json!({"role": "assistant", "reasoning_content": "hm"}),
            None,
        ),
        delta_step(json!({"reasoning": "m"}), None),
        delta_step(json!({"content": "hi"}), None),
        delta_step(json!({}), Some("stop")),
        event_step(
            &json!({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}}),
        ),
        ScriptStep::Send("data: [DONE]\n\n".to_owned()),
    ];
    let backend = FakeModelServer::start_with_steps(steps.clone()).await;
    let hub = hub_before(&backend).await;
    let gathered =
        chat_client::complete_streamed(&hub, json!({"stream_options": {"include_usage": true}}))
            .await;
    assert_eq!(gathered.reasoning, "hmm");
    assert_eq!(gathered.usage.unwrap()["total_tokens"], 3);
    assert_eq!(
        chat_client::complete_streamed(&hub, json!({})).await.usage,
        None
    );
    // A stream for somebody who wants it whole, and the other way round.
    let (message, _) = chat_client::complete(&hub, json!({})).await;
    assert_eq!(message["content"], "hi");
    assert_eq!(message["reasoning_content"], "hmm");
    steps.pop();
    let backend = FakeModelServer::start_with_steps(steps).await;
    assert_eq!(
        chat_client::complete_streamed(&hub_before(&backend).await, json!({}))
            .await
            .text,
        "hi"
    );
    let refusal = completion_response(
        json!({"role": "assistant", "content": null, "refusal": "no"}),
        "stop",
    );
    let (message, finish) = chat_client::complete(
        &hub_before(&FakeModelServer::start_with_steps(refusal).await).await,
        json!({}),
    )
    .await;
    assert_eq!(
        (message["refusal"].as_str(), finish.as_str()),
        (Some("no"), "stop")
    );
    let gathered = chat_client::complete_streamed(
        &hub_before(&FakeModelServer::start_with_steps(text_response("whole")).await).await,
        json!({}),
    )
    .await;
    assert_eq!(gathered.text, "whole");
}

#[tokio::test]
async fn a_stream_that_breaks_ends_in_an_error() {
    let begun = || {
        vec![
            stream_head(),
            delta_step(json!({"content": "half an <ans"}), None),
        ]
    };
    let broken: [Vec<ScriptStep>; 4] = [
        vec![],
        vec![ScriptStep::Send("data: {nope\n\n".to_owned())],
        vec![event_step(&json!({"error": {"message": "sk-live-SECRET"}}))],
        vec![ScriptStep::Send(format!("data: {}", "a".repeat(5 << 20)))],
    ];
    for rest in broken {
        let backend = FakeModelServer::start_with_steps([begun(), rest].concat()).await;
        let StreamedAnswer { text, error, .. } =
            chat_client::complete_streamed(&hub_before(&backend).await, json!({})).await;
        assert_eq!(text, "half an <ans", "what was held back is not lost");
        let error = error.expect("an error event");
        assert!(
            error["code"].is_string() && error["type"].is_string(),
            "{error}"
        );
        assert!(!error.to_string().contains("SECRET"));
    }
}

#[tokio::test]
async fn busy_backend_is_retried_before_the_stream_starts() {
    for status in [429, 500, 503] {
        let backend = FakeModelServer::start(move |number, _| match number {
            0 => json_response(
                status,
                "retry-after: 0\r\n",
                &json!({"error": {"message": "sk-live-SECRET"}}),
            ),
            _ => text_response("at last"),
        })
        .await;
        let (message, _) = chat_client::complete(&hub_before(&backend).await, json!({})).await;
        assert_eq!(message["content"], "at last");
        assert_eq!(backend.seen().len(), 2);
    }
}

#[tokio::test]
async fn backend_refusal_is_reported_without_quoting_it() {
    let cases = [
        (400, 400, "backend_refused"),
        (401, 502, "backend_refused_key"),
        (404, 404, "model_not_found"),
        (501, 502, "backend_error"),
    ];
    for (status, expected, code) in cases {
        let words =
            json!({"error": {"message": "key sk-live-SECRET", "code": "context_length_exceeded"}});
        let backend = FakeModelServer::start_with_steps(json_response(status, "", &words)).await;
        let hub = hub_before(&backend).await;
        let reply = chat_client::chat_request(&hub, &chat_client::chat_body(json!({})))
            .send()
            .await;
        assert_eq!(reply.status, expected);
        let error = reply.json().await;
        assert_eq!(error["error"]["code"], code);
        assert!(
            error["error"]["message"]
                .as_str()
                .unwrap()
                .contains("context_length_exceeded")
        );
        assert!(!error.to_string().contains("SECRET"));
        assert_eq!(backend.seen().len(), 1, "asking again does not help");
    }
}

#[tokio::test]
async fn slow_and_unreachable_backends_time_out() {
    let backend =
        FakeModelServer::start_with_steps(vec![ScriptStep::Pause(Duration::from_secs(30))]).await;
    let hub = TestHub::with_config(|config| {
        backend.configure(config);
        config.models[0].timeout_ms = 300;
    })
    .await;
    let reply = chat_client::chat_request(&hub, &chat_client::chat_body(json!({})))
        .send()
        .await;
    assert_eq!(reply.status, 504);
    assert_eq!(reply.json().await["error"]["code"], "timeout");
    backend.wait_for_disconnects(1).await;
    let silent = FakeModelServer::start_with_steps(vec![
        stream_head(),
        delta_step(json!({"content": "a"}), None),
        ScriptStep::WaitForClose,
    ])
    .await;
    let hub = TestHub::with_config(|config| {
        silent.configure(config);
        config.models[0].timeout_ms = 300;
    })
    .await;
    let gathered = chat_client::complete_streamed(&hub, json!({})).await;
    assert_eq!(gathered.error.unwrap()["code"], "timeout");
    silent.wait_for_disconnects(1).await;
}

#[tokio::test]
async fn error_names_the_limit_that_ended_a_silent_stream() {
    let silent = FakeModelServer::start_with_steps(vec![
        stream_head(),
        delta_step(json!({"content": "a"}), None),
        ScriptStep::WaitForClose,
    ])
    .await;
    let message = async |change: fn(&mut maru::config::ModelDefinition)| {
        let hub = TestHub::with_config(|config| {
            silent.configure(config);
            change(&mut config.models[0]);
        })
        .await;
        let gathered = chat_client::complete_streamed(&hub, json!({})).await;
        assert_eq!(gathered.text, "a");
        let error = gathered.error.unwrap();
        assert_eq!(error["code"], "timeout");
        error["message"].as_str().unwrap().to_owned()
    };
    let idle = message(|it| it.idle_timeout_ms = 200).await;
    assert!(
        idle.contains("200ms") && idle.contains("idle_timeout_ms"),
        "{idle}"
    );
    let total = message(|it| it.timeout_ms = 300).await;
    assert!(
        total.contains("300ms") && !total.contains("idle_timeout_ms"),
        "{total}"
    );
}

/// The pauses are real: a hub serves connections on several runtimes, whose clocks no
/// test can pause. A stream begins before the model answers after two seconds and one
/// interval, and sends its first comment one interval later.
#[tokio::test]
async fn stream_of_a_silent_model_sends_keep_alives() {
    let thinking = |pause: u64| ScriptStep::Pause(Duration::from_millis(pause));
    let answer = || {
        [
            delta_step(json!({"content": "Hi"}), Some("stop")),
            ScriptStep::Send("data: [DONE]\n\n".to_owned()),
        ]
    };
    // One is silent after the head of its answer, one says nothing at all.
    let after_head = [vec![stream_head(), thinking(1500)], answer().to_vec()].concat();
    let before_head = [vec![thinking(4000), stream_head()], answer().to_vec()].concat();
    let first_chunk = async |steps| {
        let backend = FakeModelServer::start_with_steps(steps).await;
        let hub = TestHub::with_config(|config| {
            backend.configure(config);
            config.limits.keep_alive_ms = 300;
        })
        .await;
        let body = chat_client::chat_body(json!({"stream": true}));
        let mut reply = chat_client::chat_request(&hub, &body).send().await;
        assert!(reply.status.is_success() && reply.is_stream());
        assert_eq!(reply.headers["x-accel-buffering"], "no");
        let first = reply.next_chunk().await.unwrap();
        let whole = first.clone() + &reply.text().await;
        assert!(whole.contains("\"Hi\""), "{whole}");
        assert!(whole.ends_with("data: [DONE]\n\n"), "{whole}");
        first
    };
    let (after, before) = tokio::join!(first_chunk(after_head), first_chunk(before_head));
    assert_eq!(after, ": keep-alive\n\n");
    assert_eq!(before, ": keep-alive\n\n");
}

/// Each format has something else that its clients skip.
#[tokio::test]
async fn stream_of_a_silent_model_stays_alive_on_every_api() {
    let backend = FakeModelServer::start_with_steps(vec![
        stream_head(),
        delta_step(json!({"role": "assistant", "content": ""}), None),
        ScriptStep::Pause(Duration::from_millis(700)),
        delta_step(json!({"content": "Hi"}), Some("stop")),
        ScriptStep::Send("data: [DONE]\n\n".to_owned()),
    ])
    .await;
    let hub = TestHub::with_config(|config| {
        backend.configure(config);
        config.limits.keep_alive_ms = 100;
    })
    .await;
    for api in TestedApi::ALL {
        let body = api.question("m", "get_weather", &json!({"type": "object"}), true);
        let sign = match api {
            TestedApi::Chat | TestedApi::Responses => ": keep-alive\n\n",
            TestedApi::Messages => "event: ping\ndata: {\"type\":\"ping\"}\n\n",
            TestedApi::Ollama => {
                "\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":false}\n"
            }
        };
        let text = api.request(&hub, &body).send().await.text().await;
        let silence = text.split("Hi").next().unwrap();
        assert!(silence.matches(sign).count() >= 3, "{api:?}: {text}");
        let answer = api.read_stream(api.request(&hub, &body).send().await).await;
        assert_eq!(
            (answer.text.as_str(), answer.error),
            ("Hi", None),
            "{api:?}"
        );
    }
}
