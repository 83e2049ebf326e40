//! Calls that a run cannot make are told to the model, in whatever syntax it wrote them.

use serde_json::json;
use tokio::sync::Barrier;

use super::*;

/// The ways in which models write a call of `name`.
fn written_calls(name: &str) -> Vec<String> {
    let call = json!({"tool": name, "arguments": {"employee_id": "EMP001"}}).to_string();
    vec![
        call.clone(),
        format!("I look it up.\n{call}"),
        format!("```json\n{call}\n```"),
        format!("I look it up:\n```json\n{call}\n```\nOne moment."),
        format!("```tool_code\n{name}(employee_id=\"EMP001\")\n```"),
        format!(
            "<tool_call>\n{}\n</tool_call>",
            json!({"name": name, "arguments": {"employee_id": "EMP001"}})
        ),
    ]
}

#[tokio::test]
async fn calls_with_words_around_them_are_made_in_every_mode() {
    for mode in [ToolMode::Native, ToolMode::Prompt] {
        for text in written_calls("get_employee_info") {
            let written = text.clone();
            let backend = FakeModelServer::start(move |number, _| match number {
                0 => streamed_by_byte(&written, "stop"),
                _ => streamed_by_byte("김민준입니다.", "stop"),
            })
            .await;
            let hub = hub_with_model(&backend, |config| config.models[0].tool_mode = mode).await;
            let answer = generate(&hub, &question_request(json!({}))).await;
            assert_eq!(
                answer["result"]["text"], "김민준입니다.",
                "{mode:?} {text}: {answer}"
            );
            let calls = answer["result"]["tool_calls"].as_array().unwrap();
            assert_eq!(calls.len(), 1, "{mode:?} {text}: {answer}");
            assert_eq!(calls[0]["is_error"], false, "{mode:?} {text}: {answer}");
            if mode == ToolMode::Prompt {
                let turns = conversation_texts(&backend.seen()[1]);
                let turn = format!("assistant: {text}");
                assert!(turns.contains(&turn), "as the model wrote it: {turns:?}");
            }
        }
    }
}

#[tokio::test]
async fn unknown_tools_are_told_to_the_model_and_never_shown_as_an_answer() {
    for mode in [ToolMode::Native, ToolMode::Prompt] {
        for name in ["launch_rocket", "moon.launch_rocket"] {
            for text in written_calls(name) {
                let written = text.clone();
                let backend = FakeModelServer::start(move |number, _| match number % 2 {
                    0 => streamed_by_byte(&written, "stop"),
                    _ => streamed_by_byte("I cannot.", "stop"),
                })
                .await;
                let hub =
                    hub_with_model(&backend, |config| config.models[0].tool_mode = mode).await;
                let answer = generate(&hub, &question_request(json!({}))).await;
                let result = &answer["result"];
                assert_eq!(result["text"], "I cannot.", "{mode:?} {text}: {answer}");
                assert_eq!(result["iterations"], 2, "{text}: {answer}");
                let note = conversation_texts(&backend.seen()[1]).pop().unwrap();
                assert!(
                    note.contains("[Tool Error]") && note.contains("launch_rocket"),
                    "{text}: {note}"
                );
                let body = json!({"model": "agent/small", "stream": true, "messages": [{"role": "user", "content": "?"}]});
                let mut reply = TestRequest::post(&hub.address, "/v1/chat/completions", &body)
                    .send()
                    .await;
                let mut content = String::new();
                while let Some(event) = reply.next_event().await {
                    if let Ok(chunk) = serde_json::from_str::<Value>(&event.data) {
                        let piece = chunk["choices"][0]["delta"]["content"].as_str();
                        content.push_str(piece.unwrap_or_default());
                    }
                }
                assert!(!content.contains("launch_rocket"), "{text}: {content}");
                assert!(content.ends_with("I cannot."), "{text}: {content}");
            }
        }
    }
}

#[tokio::test]
async fn native_call_of_an_unknown_tool_gets_its_result() {
    let backend = model_that_calls("launch_rocket", json!({"to": "moon"}), "I cannot.").await;
    let hub = hub_with_model(&backend, |_| ()).await;
    let answer = generate(&hub, &question_request(json!({}))).await;
    assert_eq!(answer["result"]["text"], "I cannot.", "{answer}");
    let messages = backend.seen()[1].body["messages"].clone();
    let [.., turn, result] = messages.as_array().unwrap().as_slice() else {
        panic!("{messages}");
    };
    let call = &turn["tool_calls"][0];
    assert_eq!(call["function"]["name"], "launch_rocket", "{messages}");
    assert_eq!(call["id"], result["tool_call_id"], "{messages}");
    let text = result["content"].as_str().unwrap();
    assert!(
        text.starts_with("Error: ") && text.contains("launch_rocket"),
        "{text}"
    );
}

#[tokio::test]
async fn tool_that_is_not_offered_is_named_with_find_tools() {
    for text in written_calls("calculate_vacation_days") {
        let written = text.clone();
        let backend = FakeModelServer::start(move |number, _| match number {
            0 => streamed_by_byte(&written, "stop"),
            _ => streamed_by_byte("I see.", "stop"),
        })
        .await;
        let hub = hub_with_model(&backend, |config| config.agent.max_tools_per_request = 2).await;
        let request = generate_request(
            json!({"messages": [{"role": "user", "content": "embed this text as a vector"}]}),
        );
        let answer = generate(&hub, &request).await;
        assert_eq!(answer["result"]["text"], "I see.", "{text}: {answer}");
        let note = conversation_texts(&backend.seen()[1]).pop().unwrap();
        assert!(
            note.contains("maru.calculate_vacation_days") && note.contains("find_tools"),
            "{text}: {note}"
        );
    }
}

/// What a client of `agent/small` reads as the answer.
async fn streamed_content(hub: &TestHub, question: &str) -> String {
    let messages = json!([{"role": "user", "content": question}]);
    let body = json!({"model": "agent/small", "messages": messages});
    let body = crate::openai::chat_client::chat_body(body);
    let mut streamed = body.clone();
    streamed["stream"] = true.into();
    let reply = TestRequest::post(&hub.address, "/v1/chat/completions", &streamed);
    crate::openai::chat_client::read_stream(reply.send().await)
        .await
        .text
}

#[tokio::test]
async fn streams_of_agents_show_no_call_of_a_tool_that_is_not_offered() {
    for text in written_calls("calculate_vacation_days") {
        let written = text.clone();
        let backend = FakeModelServer::start(move |number, _| match number {
            0 => streamed_by_byte(&written, "stop"),
            _ => streamed_by_byte("I see.", "stop"),
        })
        .await;
        let hub = hub_with_model(&backend, |config| config.agent.max_tools_per_request = 2).await;
        let content = streamed_content(&hub, "embed this text as a vector").await;
        assert!(
            !content.contains("calculate_vacation_days"),
            "{text}: {content}"
        );
        assert!(content.ends_with("I see."), "{text}: {content}");
        let note = conversation_texts(&backend.seen()[1]).pop().unwrap();
        assert!(note.contains("find_tools"), "{text}: {note}");
    }
}

#[tokio::test]
async fn ambiguous_names_are_told_to_the_model() {
    for text in written_calls("look_up") {
        let written = text.clone();
        let backend = FakeModelServer::start(move |number, _| match number % 2 {
            0 => streamed_by_byte(&written, "stop"),
            _ => streamed_by_byte("I cannot choose.", "stop"),
        })
        .await;
        let hub = hub_with_model(&backend, |_| ()).await;
        let met = Arc::new(Barrier::new(1));
        hub.publish(&["look-up", "Look_Up"].map(|name| suite_fixture::barrier_tool(name, &met)));
        let answer = generate(&hub, &question_request(json!({}))).await;
        let result = &answer["result"];
        assert_eq!(result["text"], "I cannot choose.", "{text}: {answer}");
        assert_eq!(result["tool_calls"], json!([]), "{text}: {answer}");
        let note = conversation_texts(&backend.seen()[1]).pop().unwrap();
        assert!(
            note.contains("[Tool Error]") && note.contains("look_up"),
            "{text}: {note}"
        );
        let content = streamed_content(&hub, "?").await;
        assert!(content.ends_with("I cannot choose."), "{text}: {content}");
        assert!(!content.contains("EMP001"), "{text}: {content}");
    }
}

#[tokio::test]
async fn rejected_call_is_an_event_of_its_own() {
    let backend = FakeModelServer::start(|number, _| match number {
        0 => streamed_by_byte("{\"tool\": \"launch_rocket\", \"arguments\": {}}", "stop"),
        _ => streamed_by_byte("I cannot.", "stop"),
    })
    .await;
    let hub = hub_with_model(&backend, |_| ()).await;
    let reply = TestRequest::post(&hub.address, GENERATE_ROUTE, &question_request(json!({})))
        .header("accept", "text/event-stream")
        .send()
        .await;
    let events = collect_events(reply).await;
    let rejected = events.iter().find(|it| it.0 == "rejected").unwrap();
    let reason = rejected.1["reason"].as_str().unwrap();
    assert!(reason.contains("launch_rocket"), "{reason}");
    let thoughts: String = events
        .iter()
        .filter(|it| it.0 == "thought")
        .map(|it| it.1["text"].as_str().unwrap())
        .collect();
    assert_eq!(thoughts, "I cannot.");
}
