//! Whatever a backend answers, the client gets the strict form of it.

use std::time::Duration;

use serde_json::{Value, json};

use super::{
    backend::{Backend, Step, delta, document, event, letters, stream_head, streamed, text, whole},
    client::{self, Gathered},
};
use crate::hub::TestHub;

async fn behind(backend: &Backend) -> TestHub {
    TestHub::with(|config| backend.behind(config)).await
}

/// The same model text, whole and letter by letter, gives the same.
async fn check(text: &'static str, expected: &str, calls: &[(&str, Value)]) {
    let backend = Backend::start(move |_, seen| match seen.body["stream"] == true {
        true => letters(text, "stop"),
        false => self::text(text),
    })
    .await;
    let hub = behind(&backend).await;
    let (message, finish) = client::whole(&hub, json!({})).await;
    let gathered = client::streamed(&hub, json!({})).await;
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
    check(
        "It is sunny. 맑음 \"quoted\" \\ \n",
        "It is sunny. 맑음 \"quoted\" \\",
        &[],
    )
    .await;
    let seoul = ("get_weather", json!({"city": "Seoul"}));
    let call = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Seoul\"}}\n</tool_call>";
    check(call, "", std::slice::from_ref(&seoul)).await;
    check(
        "One moment.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Seoul\"}}\n</tool_call>",
        "One moment.",
        &[seoul],
    )
    .await;
    let unknown = "<tool_call>\n{\"name\": \"rm_rf\", \"arguments\": {}}\n</tool_call>";
    check(unknown, unknown, &[]).await;
}

fn native(pieces: &[Value]) -> Vec<Value> {
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
            native(&[
                json!({"index": 0, "id": "c1", "type": "function", "function": function("get_weather", "")}),
                json!({"index": 0, "function": {"arguments": "{\"city\":"}}),
                json!({"index": 0, "function": {"arguments": "\"Seoul\"}"}}),
            ]),
            vec![json!({"city": "Seoul"})],
        ),
        // Two, with the name in every piece and no id.
        (
            native(&[
                json!({"index": 0, "function": function("get_weather", "{\"city\":\"a")}),
                json!({"index": 0, "function": function("get_weather", "\"}")}),
                json!({"index": 1, "function": function("get_weather", "{\"city\":\"b\"}")}),
            ]),
            vec![json!({"city": "a"}), json!({"city": "b"})],
        ),
        // The same index and id for both, as some servers do.
        (
            native(&[
                json!({"index": 0, "id": "x", "function": function("get_weather", "{\"city\":\"a\"}")}),
                json!({"index": 0, "id": "y", "function": function("get_weather", "{\"city\":\"b\"}")}),
            ]),
            vec![json!({"city": "a"}), json!({"city": "b"})],
        ),
        // Arguments as an object, and broken ones.
        (
            native(&[
                json!({"index": 0, "function": {"name": "get_weather", "arguments": {"city": "a"}}}),
                json!({"index": 1, "function": function("get_weather", "{'city': 'b', 'days': '3',}")}),
            ]),
            vec![json!({"city": "a"}), json!({"city": "b", "days": 3})],
        ),
    ];
    for (deltas, expected) in cases {
        let backend = Backend::always(streamed(deltas, "tool_calls")).await;
        let hub = behind(&backend).await;
        let gathered = client::streamed(&hub, json!({})).await;
        let found: Vec<Value> = gathered.calls.into_iter().map(|it| it.1).collect();
        assert_eq!(found, expected);
        assert_eq!(gathered.finish, "tool_calls");
    }
}

#[tokio::test]
async fn a_call_that_cannot_be_made_is_text() {
    let cut = json!({"tool_calls": [{"index": 0, "function": {"name": "get_weather", "arguments": "{\"city\": \"Se"}}]});
    for finish in ["tool_calls", "length"] {
        let backend = Backend::always(streamed(vec![cut.clone()], finish)).await;
        let gathered = client::streamed(&behind(&backend).await, json!({})).await;
        assert!(gathered.calls.is_empty());
        assert!(
            gathered.text.contains("{\"city\": \"Se"),
            "{}",
            gathered.text
        );
        assert_eq!(
            gathered.finish,
            if finish == "length" { "length" } else { "stop" }
        );
    }
    let unknown = json!({"role": "assistant", "content": null, "tool_calls": [{"id": "c", "type": "function", "function": {"name": "rm_rf", "arguments": "{}"}}]});
    let backend = Backend::always(whole(unknown, "tool_calls")).await;
    let (message, finish) = client::whole(&behind(&backend).await, json!({})).await;
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
        delta(
            json!({"role": "assistant", "reasoning_content": "hm"}),
            None,
        ),
        delta(json!({"reasoning": "m"}), None),
        delta(json!({"content": "hi"}), None),
        delta(json!({}), Some("stop")),
        event(
            &json!({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}}),
        ),
        Step::Send("data: [DONE]\n\n".to_owned()),
    ];
    let backend = Backend::always(steps.clone()).await;
    let hub = behind(&backend).await;
    let gathered = client::streamed(&hub, json!({"stream_options": {"include_usage": true}})).await;
    assert_eq!(gathered.reasoning, "hmm");
    assert_eq!(gathered.usage.unwrap()["total_tokens"], 3);
    assert_eq!(client::streamed(&hub, json!({})).await.usage, None);
    // A stream for somebody who wants it whole, and the other way round.
    let (message, _) = client::whole(&hub, json!({})).await;
    assert_eq!(message["content"], "hi");
    assert_eq!(message["reasoning_content"], "hmm");
    steps.pop();
    let backend = Backend::always(steps).await;
    assert_eq!(
        client::streamed(&behind(&backend).await, json!({}))
            .await
            .text,
        "hi"
    );
    let refusal = whole(
        json!({"role": "assistant", "content": null, "refusal": "no"}),
        "stop",
    );
    let (message, finish) =
        client::whole(&behind(&Backend::always(refusal).await).await, json!({})).await;
    assert_eq!(
        (message["refusal"].as_str(), finish.as_str()),
        (Some("no"), "stop")
    );
    let gathered = client::streamed(
        &behind(&Backend::always(text("whole")).await).await,
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
            delta(json!({"content": "half an <ans"}), None),
        ]
    };
    let broken: [Vec<Step>; 4] = [
        vec![],
        vec![Step::Send("data: {nope\n\n".to_owned())],
        vec![event(&json!({"error": {"message": "sk-live-SECRET"}}))],
        vec![Step::Send(format!("data: {}", "a".repeat(5 << 20)))],
    ];
    for rest in broken {
        let backend = Backend::always([begun(), rest].concat()).await;
        let Gathered { text, error, .. } =
            client::streamed(&behind(&backend).await, json!({})).await;
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
async fn busy_backends_are_asked_again_before_the_stream_begins() {
    for status in [429, 500, 503] {
        let backend = Backend::start(move |number, _| match number {
            0 => document(
                status,
                "retry-after: 0\r\n",
                &json!({"error": {"message": "sk-live-SECRET"}}),
            ),
            _ => text("at last"),
        })
        .await;
        let (message, _) = client::whole(&behind(&backend).await, json!({})).await;
        assert_eq!(message["content"], "at last");
        assert_eq!(backend.seen().len(), 2);
    }
}

#[tokio::test]
async fn what_a_backend_refuses_is_told_without_its_words() {
    let cases = [
        (400, 400, "backend_refused"),
        (401, 502, "backend_refused_key"),
        (404, 404, "model_not_found"),
        (501, 502, "backend_error"),
    ];
    for (status, expected, code) in cases {
        let words =
            json!({"error": {"message": "key sk-live-SECRET", "code": "context_length_exceeded"}});
        let backend = Backend::always(document(status, "", &words)).await;
        let hub = behind(&backend).await;
        let reply = client::ask(&hub, &client::question(json!({}))).send().await;
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
async fn a_slow_backend_is_given_up_and_so_is_one_that_is_not_there() {
    let backend = Backend::always(vec![Step::Pause(Duration::from_secs(30))]).await;
    let hub = TestHub::with(|config| {
        backend.behind(config);
        config.models[0].timeout_ms = 300;
    })
    .await;
    let reply = client::ask(&hub, &client::question(json!({}))).send().await;
    assert_eq!(reply.status, 504);
    assert_eq!(reply.json().await["error"]["code"], "timeout");
    backend.left(1).await;
    let silent = Backend::always(vec![
        stream_head(),
        delta(json!({"content": "a"}), None),
        Step::Hang,
    ])
    .await;
    let hub = TestHub::with(|config| {
        silent.behind(config);
        config.models[0].timeout_ms = 300;
    })
    .await;
    let gathered = client::streamed(&hub, json!({})).await;
    assert_eq!(gathered.error.unwrap()["code"], "timeout");
    silent.left(1).await;
}
