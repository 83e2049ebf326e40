//! The arguments of a call reach the client while the model writes them.

use maru::config::ToolMode;
use serde_json::{Value, json};
use tokio::time::{Duration, timeout};

use super::{
    chat_client::{chat_body, chat_request, complete_streamed, read_stream},
    fake_model::{
        FakeModelServer, ScriptStep, delta_step, stream_head, streamed_by_byte, streamed_response,
    },
};
use crate::{http_client::TestResponse, test_hub::TestHub};

fn file_tool() -> Value {
    let properties = json!({"path": {"type": "string"}, "lines": {"type": "integer"}, "content": {"type": "string"}});
    json!([{"type": "function", "function": {"name": "write_file", "description": "Writes a file",
        "parameters": {"type": "object", "properties": properties, "required": ["path", "content"]}}}])
}

fn file_body() -> Value {
    chat_body(json!({"tools": file_tool(), "stream": true}))
}

/// Reads until the arguments so far contain `text`.
async fn read_arguments_until(reply: &mut TestResponse, text: &str) -> String {
    let mut arguments = String::new();
    while !arguments.contains(text) {
        let event = timeout(Duration::from_secs(10), reply.next_event()).await;
        let event = event
            .unwrap_or_else(|_| panic!("{text} does not come after {arguments}"))
            .expect("the stream goes on");
        let chunk: Value = serde_json::from_str(&event.data).unwrap();
        let piece = &chunk["choices"][0]["delta"]["tool_calls"][0];
        arguments.push_str(piece["function"]["arguments"].as_str().unwrap_or_default());
    }
    arguments
}

async fn hub_before(backend: &FakeModelServer, mode: ToolMode) -> TestHub {
    TestHub::with_config(|config| {
        backend.configure(config);
        config.models[0].tool_mode = mode;
    })
    .await
}

#[tokio::test]
async fn arguments_arrive_before_the_call_is_complete() {
    let native = |arguments: &str| {
        delta_step(
            json!({"tool_calls": [{"index": 0, "function": {"arguments": arguments}}]}),
            None,
        )
    };
    let text = |text: &str| delta_step(json!({"content": text}), None);
    let beginnings = [
        (
            ToolMode::Native,
            vec![
                delta_step(
                    json!({"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": {"name": "write_file", "arguments": ""}}]}),
                    None,
                ),
                native("{\"path\": \"/a\", \"content\": \"fn main"),
                native("() {}\\n// more"),
            ],
        ),
        (
            ToolMode::Native,
            vec![
                text(
                    "I write it.\n<tool_call>\n{\"name\": \"write_file\", \"arguments\": {\"path\": \"/a\", ",
                ),
                text("\"content\": \"fn main() {}\\n// more"),
            ],
        ),
        (
            ToolMode::Constrained,
            vec![
                text("{\"name\": \"write_file\", \"arguments\": {\"path\": \"/a\", "),
                text("\"content\": \"fn main() {}\\n// more"),
            ],
        ),
    ];
    for (mode, beginning) in beginnings {
        let steps = [
            vec![stream_head()],
            beginning,
            vec![ScriptStep::WaitForClose],
        ]
        .concat();
        let backend = FakeModelServer::start_with_steps(steps).await;
        let hub = hub_before(&backend, mode).await;
        let mut reply = chat_request(&hub, &file_body()).send().await;
        let arguments = read_arguments_until(&mut reply, "// mo").await;
        assert!(
            arguments.starts_with("{\"path\":\"/a\",\"content\":\"fn main() {}\\n"),
            "{arguments}"
        );
    }
}

#[tokio::test]
async fn streamed_pieces_are_the_same_arguments_however_they_were_cut() {
    let arguments = [
        r#"{"path": "/a", "lines": "3", "content": "fn main() {\n  \"\u0041\\\"\n}</tool_call> 가😀"}"#,
        r#"{"content": "", "path": ""}"#,
        r#"{"lines": 3.0, "path": "x", "content": "y", "unknown": {"a": [1, 2]}}"#,
        r#"{'path': 'x', 'content': 'y',}"#,
        r#"{"arguments": {"path": "x", "content": "y"}}"#,
        "{\"path\": \"x\", \"content\": \"a\nb\"}",
    ];
    for arguments in arguments {
        let one_by_one = |index: usize| {
            let first = json!({"tool_calls": [{"index": index, "id": "c", "type": "function", "function": {"name": "write_file", "arguments": ""}}]});
            let rest = arguments.chars().map(move |it| json!({"tool_calls": [{"index": index, "function": {"arguments": it.to_string()}}]}));
            std::iter::once(first).chain(rest).collect::<Vec<_>>()
        };
        let backend = FakeModelServer::start(move |number, _| match number {
            0 => streamed_response(one_by_one(0), "tool_calls"),
            1 => {
                let call = json!({"index": 0, "id": "c", "type": "function", "function": {"name": "write_file", "arguments": arguments}});
                streamed_response(vec![json!({"tool_calls": [call]})], "tool_calls")
            }
            _ => {
                let two = [one_by_one(0), one_by_one(1)].concat();
                streamed_response(two, "tool_calls")
            }
        })
        .await;
        let hub = hub_before(&backend, ToolMode::Native).await;
        let tools = json!({"tools": file_tool()});
        let pieces = complete_streamed(&hub, tools.clone()).await;
        let whole = complete_streamed(&hub, tools.clone()).await;
        assert_eq!(pieces.calls, whole.calls, "{arguments}");
        assert_eq!(pieces.calls.len(), 1, "{arguments}");
        let two = complete_streamed(&hub, tools).await;
        assert_eq!(two.calls.len(), 2, "{arguments}");
        assert_eq!(two.calls[1], whole.calls[0], "{arguments}");
    }
}

#[tokio::test]
async fn stream_that_ends_inside_a_call_ends_with_length() {
    let start = json!({"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {"name": "write_file", "arguments": "{\"path\": \"/a\", \"content\": \"fn ma"}}]});
    for finish in ["stop", "tool_calls", "length"] {
        let backend =
            FakeModelServer::start_with_steps(streamed_response(vec![start.clone()], finish)).await;
        let hub = hub_before(&backend, ToolMode::Native).await;
        let reply = chat_request(&hub, &file_body()).send().await.text().await;
        assert!(reply.contains("\"finish_reason\":\"length\""), "{reply}");
        assert!(
            !reply.contains("\"finish_reason\":\"tool_calls\""),
            "{reply}"
        );
        assert!(reply.ends_with("data: [DONE]\n\n"), "{reply}");
    }
}

#[tokio::test]
async fn text_after_a_streamed_call_is_not_content() {
    let text = "One moment.\n<tool_call>\n{\"name\": \"write_file\", \"arguments\": {\"path\": \"/a\", \"content\": \"b\"}}\n</tool_call>\nI have written it.";
    let backend = FakeModelServer::start_with_steps(streamed_by_byte(text, "stop")).await;
    let hub = hub_before(&backend, ToolMode::Native).await;
    let reply = chat_request(&hub, &file_body()).send().await;
    // The reader checks that no content follows a call.
    let answer = read_stream(reply).await;
    assert_eq!(answer.calls.len(), 1);
    assert_eq!(answer.text.trim(), "One moment.");
}
