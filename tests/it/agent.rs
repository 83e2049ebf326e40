//! The agent loop, with models on the wire that say what a test wants.

mod limits;
mod refusals;
mod rejected_calls;
mod servers;
mod shutdown;

use std::{sync::Arc, time::Duration};

use maru::config::{Config, ToolMode};
use serde_json::{Value, json};

use crate::{
    clients::{client_tools_dir, node_program},
    http_client::{TestRequest, TestResponse, wait_for},
    openai::fake_model::{
        FakeModelServer, ReceivedRequest, ScriptStep, json_response, stream_head, streamed_by_byte,
        streamed_response,
    },
    suite_fixture,
    test_hub::TestHub,
};

const GENERATE_ROUTE: &str = "/generate_with_mcp";

fn generate_request(params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "generate_content", "params": params})
}

fn question_request(extra: Value) -> Value {
    let mut params = json!({"messages": [{"role": "user", "content": "EMP001은 누구인가요?"}]});
    for (name, value) in extra.as_object().unwrap() {
        params[name] = value.clone();
    }
    generate_request(params)
}

async fn hub_with_model(backend: &FakeModelServer, change: impl FnOnce(&mut Config)) -> TestHub {
    TestHub::with_config(|config| {
        config.models = vec![backend.model()];
        config.agent.model = Some("small".to_owned());
        config.agent.own_tools = true;
        change(config);
    })
    .await
}

async fn generate(hub: &TestHub, body: &Value) -> Value {
    let reply = TestRequest::post(&hub.address, GENERATE_ROUTE, body)
        .header("accept", "application/json")
        .send()
        .await;
    reply.json().await
}

/// A call as a backend with tools writes it.
pub(crate) fn native_tool_calls(calls: &[(&str, Value)]) -> Vec<ScriptStep> {
    let calls = calls.iter().enumerate().map(|(at, (name, arguments))| {
        json!({"index": at, "id": format!("call_{at}"), "type": "function",
            "function": {"name": name, "arguments": arguments.to_string()}})
    });
    let delta = json!({"role": "assistant", "tool_calls": calls.collect::<Vec<_>>()});
    streamed_response(vec![delta], "tool_calls")
}

/// A model that calls a tool and answers when it has the result.
pub(crate) async fn model_that_calls(
    name: &'static str,
    arguments: Value,
    answer: &'static str,
) -> FakeModelServer {
    FakeModelServer::start(move |number, _| match number {
        0 => native_tool_calls(&[(name, arguments.clone())]),
        _ => streamed_by_byte(answer, "stop"),
    })
    .await
}

/// The texts of the conversation that the model saw.
fn conversation_texts(seen: &ReceivedRequest) -> Vec<String> {
    let messages = seen.body["messages"].as_array().unwrap();
    let texts = messages.iter().map(|it| {
        format!(
            "{}: {}",
            it["role"].as_str().unwrap(),
            it["content"].as_str().unwrap_or_default()
        )
    });
    texts.collect()
}

#[tokio::test]
async fn model_may_answer_without_calling_a_tool() {
    let backend = FakeModelServer::start_with_steps(streamed_by_byte("안녕하세요!", "stop")).await;
    let hub = hub_with_model(&backend, |_| ()).await;
    let answer = generate(
        &hub,
        &question_request(json!({"temperature": 0.5, "max_output_tokens": 99})),
    )
    .await;
    assert_eq!(answer["id"], 1);
    let result = &answer["result"];
    assert_eq!(result["text"], "안녕하세요!", "{answer}");
    assert_eq!(
        (&result["iterations"], &result["cut"]),
        (&json!(1), &json!(false))
    );
    assert_eq!(result["finish_reason"], "stop");
    let body = &backend.seen()[0].body;
    assert_eq!(
        (&body["temperature"], &body["max_tokens"]),
        (&json!(0.5), &json!(99))
    );
    assert!(body["tools"].as_array().unwrap().len() >= 10);
    assert!(result["usage"]["tool_tokens"].as_u64().unwrap() > 100);
}

#[tokio::test]
async fn agent_calls_a_tool_and_sends_its_result_to_the_model() {
    let backend = model_that_calls(
        "get_employee_info",
        json!({"employee_id": "EMP001"}),
        "김민준입니다.",
    )
    .await;
    let hub = hub_with_model(&backend, |_| ()).await;
    let answer = generate(&hub, &question_request(json!({}))).await;
    let result = &answer["result"];
    assert_eq!(result["text"], "김민준입니다.", "{answer}");
    let call = &result["tool_calls"][0];
    assert_eq!(call["name"], "maru.get_employee_info");
    assert!(
        call["result"].as_str().unwrap().contains("김민준"),
        "{call}"
    );
    let messages = backend.seen()[1].body["messages"].clone();
    let [.., asked, given] = messages.as_array().unwrap().as_slice() else {
        panic!("{messages}");
    };
    assert_eq!(
        (&asked["role"], &given["role"]),
        (&json!("assistant"), &json!("tool"))
    );
    assert_eq!(
        asked["tool_calls"][0]["id"], given["tool_call_id"],
        "{messages}"
    );

    let id = result["run_id"].as_str().unwrap();
    let run = finished_run(&hub, id).await;
    assert_eq!(run["state"], "done", "{run}");
    assert_eq!(run["rounds"].as_array().unwrap().len(), 2);
    assert_eq!(run["rounds"][0]["calls"][0]["dialect"], "native");
    let listed = TestRequest::new(&hub.address, "GET", "/api/runs")
        .send()
        .await
        .json()
        .await;
    assert_eq!(listed[0]["id"], id);
    assert_eq!(listed[0]["rounds"], 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_of_a_real_server_are_used() {
    let backend = FakeModelServer::start(|number, _| match number {
        0 => native_tool_calls(&[
            ("everything__echo", json!({"message": "안녕"})),
            ("everything__get-sum", json!({"a": 2, "b": 3})),
        ]),
        1 => native_tool_calls(&[("everything__get-tiny-image", json!({}))]),
        _ => streamed_by_byte("5입니다.", "stop"),
    })
    .await;
    let hub = hub_with_model(&backend, |_| ()).await;
    let program = "node_modules/@modelcontextprotocol/server-everything/dist/index.js";
    let config =
        json!({"command": node_program(), "args": [client_tools_dir().join(program), "stdio"]});
    let view = hub.register_server("everything", "STDIO", config).await;
    assert_eq!(view.status.state.as_str(), "CONNECTED", "{:?}", view.status);

    let answer = generate(
        &hub,
        &question_request(json!({"mcp_servers": ["everything"]})),
    )
    .await;
    let result = &answer["result"];
    assert_eq!(result["text"], "5입니다.", "{answer}");
    let calls = result["tool_calls"].as_array().unwrap();
    let made = |at: usize| (calls[at]["name"].as_str(), calls[at]["result"].as_str());
    assert_eq!(made(0), (Some("everything.echo"), Some("Echo: 안녕")));
    let sum = made(1).1.unwrap();
    assert!(sum.contains("The sum of 2 and 3 is 5"), "{sum}");
    let image = made(2).1.unwrap();
    assert!(image.contains("[Image: image/png]"), "{image}");
    let offered = backend.seen()[0].body["tools"].clone();
    let names: Vec<&str> = offered
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|it| it["function"]["name"].as_str())
        .collect();
    assert!(
        names.len() > 5 && names.iter().all(|it| it.starts_with("everything__")),
        "{names:?}"
    );
    hub.running.stop().await;
}

/// The record of a run that has ended.
async fn finished_run(hub: &TestHub, id: &str) -> Value {
    let path = format!("/api/runs/{id}");
    let run = async || {
        let run = TestRequest::new(&hub.address, "GET", &path).send().await;
        run.json().await
    };
    wait_for(run, |it| !it["ended_at"].is_null()).await
}

#[tokio::test]
async fn model_without_tool_support_gets_tools_in_the_prompt() {
    let backend = FakeModelServer::start(|number, _| match number {
        // As small models write it.
        0 => streamed_by_byte("```json\n{'tool': 'maru.get_employee_info', 'arguments': {'employee_id': 'EMP001',}}\n```", "stop"),
        _ => streamed_by_byte("김민준입니다.", "stop"),
    })
    .await;
    let hub = hub_with_model(&backend, |config| {
        config.models[0].tool_mode = ToolMode::Prompt;
    })
    .await;
    let answer = generate(&hub, &question_request(json!({"mcp_servers": ["maru"]}))).await;
    let result = &answer["result"];
    assert_eq!(result["text"], "김민준입니다.", "{answer}");
    assert_ne!(result["tool_calls"][0]["repairs"], json!([]), "{answer}");
    let seen = backend.seen();
    assert!(seen[0].body.get("tools").is_none());
    assert!(conversation_texts(&seen[0])[0].contains("maru.get_employee_info"));
    let last = conversation_texts(&seen[1]).pop().unwrap();
    assert!(
        last.starts_with("user: [Tool Result: maru.get_employee_info]\n"),
        "{last}"
    );
    assert!(last.contains("김민준"), "{last}");
}

#[tokio::test]
async fn calls_of_one_round_run_together() {
    let backend = FakeModelServer::start(|number, _| match number {
        0 => native_tool_calls(&[
            ("slow", json!({})),
            ("slow", json!({"n": 1})),
            ("slow", json!({"n": 2})),
        ]),
        _ => streamed_by_byte("Done.", "stop"),
    })
    .await;
    let hub = hub_with_model(&backend, |_| ()).await;
    let barrier = Arc::new(tokio::sync::Barrier::new(3));
    hub.publish(&[suite_fixture::barrier_tool("slow", &barrier)]);
    let answer = generate(&hub, &question_request(json!({"tool_timeout": 5}))).await;
    let calls = answer["result"]["tool_calls"].as_array().unwrap();
    assert_eq!(calls.len(), 3, "{answer}");
    assert!(calls.iter().all(|it| it["is_error"] == false), "{answer}");
}

#[tokio::test]
async fn malformed_calls_unknown_tools_and_invalid_arguments_are_reported_to_the_model() {
    let backend = FakeModelServer::start(|number, _| match number {
        0 => streamed_by_byte(
            "<tool_call>\n{\"name\": \"no_such_tool\", \"arguments\": {}}\n</tool_call>",
            "stop",
        ),
        1 => native_tool_calls(&[("get_employee_info", json!({"employee": 5}))]),
        2 => native_tool_calls(&[("get_employee_info", json!({"employee_id": "EMP999"}))]),
        _ => streamed_by_byte("I do not know.", "stop"),
    })
    .await;
    let hub = hub_with_model(&backend, |_| ()).await;
    let answer = generate(&hub, &question_request(json!({}))).await;
    assert_eq!(answer["result"]["text"], "I do not know.", "{answer}");
    assert_eq!(answer["result"]["iterations"], 4);
    let seen = backend.seen();
    let told = conversation_texts(&seen[1]).pop().unwrap();
    assert!(
        told.contains("[Tool Error]") && told.contains("no_such_tool"),
        "{told}"
    );
    let told = conversation_texts(&seen[2]).pop().unwrap();
    assert!(
        told.contains("expected get_employee_info(employee_id: string)"),
        "{told}"
    );
    let calls = answer["result"]["tool_calls"].as_array().unwrap();
    assert!(calls.iter().all(|it| it["is_error"] == true), "{answer}");
}

#[tokio::test]
async fn tool_timeout_is_reported_to_the_model() {
    let backend = model_that_calls("never", json!({}), "It did not answer.").await;
    let hub = hub_with_model(&backend, |_| ()).await;
    let nobody = Arc::new(tokio::sync::Barrier::new(2));
    hub.publish(&[suite_fixture::barrier_tool("never", &nobody)]);
    let answer = generate(&hub, &question_request(json!({"tool_timeout": 0.2}))).await;
    let call = &answer["result"]["tool_calls"][0];
    assert!(
        call["result"]
            .as_str()
            .unwrap()
            .contains("did not answer within 200ms"),
        "{answer}"
    );
    assert_eq!(answer["result"]["text"], "It did not answer.");
}

#[tokio::test]
async fn repeated_calls_and_too_many_rounds_end_the_run() {
    let same = |_: usize, _: &ReceivedRequest| {
        native_tool_calls(&[("get_employee_info", json!({"employee_id": "EMP001"}))])
    };
    let backend = FakeModelServer::start(same).await;
    let hub_of_same = hub_with_model(&backend, |_| ()).await;
    let answer = generate(
        &hub_of_same,
        &question_request(json!({"max_iterations": 20})),
    )
    .await;
    assert_eq!(
        answer["result"]["finish_reason"], "repeated_call",
        "{answer}"
    );
    assert_eq!(
        (&answer["result"]["iterations"], &answer["result"]["cut"]),
        (&json!(3), &json!(true))
    );

    let other = |number: usize, _: &ReceivedRequest| {
        native_tool_calls(&[(
            "get_employee_info",
            json!({"employee_id": format!("EMP00{number}")}),
        )])
    };
    let backend = FakeModelServer::start(other).await;
    let hub = hub_with_model(&backend, |_| ()).await;
    let answer = generate(&hub, &question_request(json!({"max_iterations": 2}))).await;
    assert_eq!(
        answer["result"]["finish_reason"], "max_iterations",
        "{answer}"
    );
    assert_eq!(backend.seen().len(), 2);
    assert_eq!(answer["result"]["tool_calls"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn failing_backend_is_reported_as_an_error() {
    let busy = || {
        json_response(
            429,
            "retry-after: 30\r\n",
            &json!({"error": {"message": "secret words"}}),
        )
    };
    let backend = FakeModelServer::start(move |_, _| busy()).await;
    let hub_of_busy = hub_with_model(&backend, |config| config.agent.timeout_ms = 3000).await;
    let answer = generate(&hub_of_busy, &question_request(json!({}))).await;
    assert_eq!(answer["error"]["code"], -32000, "{answer}");
    assert!(!answer.to_string().contains("secret words"));

    let backend = FakeModelServer::start(move |_, _| vec![stream_head()]).await;
    let hub = hub_with_model(&backend, |_| ()).await;
    let answer = generate(&hub, &question_request(json!({}))).await;
    assert_eq!(answer["error"]["code"], -32000, "{answer}");
    let reply = TestRequest::post(&hub.address, GENERATE_ROUTE, &question_request(json!({})))
        .header("accept", "text/event-stream")
        .send()
        .await;
    let events = collect_events(reply).await;
    let names: Vec<&str> = events.iter().map(|it| it.0.as_str()).collect();
    assert_eq!(names, ["run", "round", "error"]);
    let listed = TestRequest::new(&hub.address, "GET", "/api/runs")
        .send()
        .await
        .json()
        .await;
    assert!(
        listed
            .as_array()
            .unwrap()
            .iter()
            .any(|it| it["state"] == "failed"),
        "{listed}"
    );
}

#[tokio::test]
async fn run_that_times_out_returns_its_partial_result() {
    let backend = FakeModelServer::start(|number, _| match number {
        0 => {
            let mut steps =
                native_tool_calls(&[("get_employee_info", json!({"employee_id": "EMP001"}))]);
            steps.insert(0, ScriptStep::Pause(Duration::from_millis(10)));
            steps
        }
        _ => vec![stream_head(), ScriptStep::WaitForClose],
    })
    .await;
    let hub = hub_with_model(&backend, |config| config.agent.timeout_ms = 1000).await;
    let answer = generate(&hub, &question_request(json!({}))).await;
    assert_eq!(answer["result"]["finish_reason"], "timeout", "{answer}");
    assert_eq!(answer["result"]["tool_calls"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn agent_without_tools_is_plain_generation() {
    let backend = FakeModelServer::start_with_steps(streamed_by_byte("Hi.", "stop")).await;
    let hub = hub_with_model(&backend, |_| ()).await;
    generate(&hub, &question_request(json!({"mcp_servers": []}))).await;
    TestRequest::post(&hub.address, "/generate", &question_request(json!({})))
        .send()
        .await
        .json()
        .await;
    for seen in backend.seen() {
        assert!(seen.body.get("tools").is_none());
        assert_eq!(conversation_texts(&seen), ["user: EMP001은 누구인가요?"]);
    }
    let unknown = generate(&hub, &question_request(json!({"mcp_servers": ["nope"]}))).await;
    assert_eq!(unknown["error"]["code"], -32602);
    assert!(
        unknown["error"]["message"]
            .as_str()
            .unwrap()
            .contains("known are maru"),
        "{unknown}"
    );
    assert_eq!(backend.seen().len(), 2);
}

#[tokio::test]
async fn invalid_requests_get_the_right_error_codes() {
    let backend = FakeModelServer::start_with_steps(streamed_by_byte("Hi.", "stop")).await;
    let hub = hub_with_model(&backend, |_| ()).await;
    let method = json!({"jsonrpc": "2.0", "id": 1, "method": "other", "params": {}});
    let cases = [
        (method, -32601),
        (
            json!({"id": 1, "method": "generate_content", "params": {}}),
            -32600,
        ),
        (generate_request(json!([])), -32602),
        (generate_request(json!({"messages": "hi"})), -32602),
        (generate_request(json!({"messages": []})), -32602),
        (question_request(json!({"max_iterations": 0})), -32602),
        (question_request(json!({"max_iterations": 21})), -32602),
        (question_request(json!({"max_iterations": "5"})), -32602),
        (question_request(json!({"temperature": 99})), -32602),
        (
            question_request(json!({"max_output_tokens": 1_000_000_000_000_u64})),
            -32602,
        ),
        (question_request(json!({"base_url": "http://evil"})), -32602),
        (question_request(json!({"approval": "x"})), -32602),
        (question_request(json!({"mcp_servers": 5})), -32602),
    ];
    for (body, code) in cases {
        let reply = TestRequest::post(&hub.address, GENERATE_ROUTE, &body)
            .send()
            .await;
        let status = if code == -32602 { 200 } else { 400 };
        assert_eq!(reply.status, status, "{body}");
        let answer = reply.json().await;
        assert_eq!(answer["error"]["code"], code, "{body} {answer}");
        assert_eq!(answer["id"], 1, "{body} {answer}");
        assert_eq!(answer["jsonrpc"], "2.0", "{body} {answer}");
    }
    let body = question_request(json!({"mcp_servers": 5}));
    let plain = TestRequest::post(&hub.address, "/generate", &body)
        .send()
        .await;
    assert_eq!(plain.json().await["error"]["code"], -32602);
    let garbage = TestRequest::new(&hub.address, "POST", GENERATE_ROUTE)
        .header("content-type", "application/json")
        .body("{")
        .send()
        .await;
    assert_eq!(garbage.status, 400);
    assert_eq!(garbage.json().await["error"]["code"], -32700);
    assert!(backend.seen().is_empty());
}

async fn collect_events(mut reply: TestResponse) -> Vec<(String, Value)> {
    let mut events = Vec::new();
    while let Some(event) = reply.next_event().await {
        let data = serde_json::from_str(&event.data).unwrap();
        events.push((event.name, data));
    }
    events
}

#[tokio::test]
async fn rounds_are_streamed_as_they_happen() {
    let backend =
        model_that_calls("get_employee_info", json!({"employee_id": "EMP001"}), "Min").await;
    let hub = hub_with_model(&backend, |_| ()).await;
    let reply = TestRequest::post(&hub.address, GENERATE_ROUTE, &question_request(json!({})))
        .header("accept", "text/event-stream")
        .send()
        .await;
    let events = collect_events(reply).await;
    let names: Vec<&str> = events.iter().map(|it| it.0.as_str()).collect();
    assert_eq!(
        names,
        [
            "run",
            "round",
            "call",
            "observation",
            "round",
            "thought",
            "thought",
            "thought",
            "answer"
        ]
    );
    assert_eq!(events.last().unwrap().1["text"], "Min");
}

#[tokio::test]
async fn client_that_leaves_ends_the_model_and_the_run() {
    let backend =
        FakeModelServer::start(|_, _| vec![stream_head(), ScriptStep::WaitForClose]).await;
    let hub = hub_with_model(&backend, |config| {
        config.models[0].tool_mode = ToolMode::Native;
    })
    .await;
    let mut reply = TestRequest::post(&hub.address, GENERATE_ROUTE, &question_request(json!({})))
        .header("accept", "text/event-stream")
        .send()
        .await;
    let began: Value = serde_json::from_str(&reply.next_event().await.unwrap().data).unwrap();
    drop(reply);
    backend.wait_for_disconnects(1).await;
    let run = finished_run(&hub, began["run_id"].as_str().unwrap()).await;
    assert_eq!(run["state"], "stopped");
}

#[tokio::test]
async fn any_chat_client_becomes_an_agent() {
    let backend = FakeModelServer::start(|number, _| match number % 2 {
        0 => native_tool_calls(&[("get_employee_info", json!({"employee_id": "EMP001"}))]),
        _ => streamed_by_byte("김민준", "stop"),
    })
    .await;
    let hub = hub_with_model(&backend, |_| ()).await;
    let body = |stream: bool| json!({"model": "agent/small", "stream": stream, "messages": [{"role": "user", "content": "?"}]});
    let answer = TestRequest::post(&hub.address, "/v1/chat/completions", &body(false))
        .send()
        .await;
    let answer = answer.json().await;
    assert_eq!(
        answer["choices"][0]["message"]["content"], "김민준",
        "{answer}"
    );
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert_eq!(answer["model"], "agent/small");
    let text = TestRequest::post(&hub.address, "/v1/chat/completions", &body(true))
        .send()
        .await
        .text()
        .await;
    assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    assert!(
        text.contains("maru.get_employee_info") && text.contains("reasoning_content"),
        "{text}"
    );
    assert!(!text.contains("tool_calls"), "{text}");
    let listed = TestRequest::new(&hub.address, "GET", "/v1/models")
        .send()
        .await
        .text()
        .await;
    assert!(!listed.is_empty());
}

#[tokio::test]
async fn agent_model_answers_the_same_whole_and_streamed() {
    let call = "I look it up.\n<tool_call>\n{\"name\": \"get_employee_info\", \"arguments\": {\"employee_id\": \"EMP001\"}}\n</tool_call>";
    let backend = FakeModelServer::start(move |number, _| match number % 2 {
        0 => streamed_by_byte(call, "stop"),
        _ => streamed_by_byte("김민준", "stop"),
    })
    .await;
    let hub = hub_with_model(&backend, |_| ()).await;
    let send = async |stream: bool| {
        let body = json!({"model": "agent/small", "stream": stream, "messages": [{"role": "user", "content": "?"}]});
        TestRequest::post(&hub.address, "/v1/chat/completions", &body)
            .send()
            .await
    };
    let whole = send(false).await.json().await;
    let text = send(true).await.text().await;
    let mut streamed = json!({"content": "", "reasoning_content": ""});
    for line in text.lines().filter_map(|it| it.strip_prefix("data: {")) {
        let chunk: Value = serde_json::from_str(&format!("{{{line}")).unwrap();
        for member in ["content", "reasoning_content"] {
            let piece = chunk["choices"][0]["delta"][member].as_str();
            let all = format!(
                "{}{}",
                streamed[member].as_str().unwrap(),
                piece.unwrap_or_default()
            );
            streamed[member] = all.into();
        }
    }
    let message = &whole["choices"][0]["message"];
    for member in ["content", "reasoning_content"] {
        assert_eq!(message[member], streamed[member], "{member}: {whole}");
    }
    let content = message["content"].as_str().unwrap();
    assert!(content.starts_with("I look it up."), "{whole}");
    assert!(content.ends_with("\n\n김민준"), "{whole}");
    let calls = message["reasoning_content"].as_str().unwrap();
    assert!(calls.contains("[maru.get_employee_info "), "{whole}");
}

#[tokio::test]
async fn destructive_call_waits_for_approval_or_is_refused() {
    check_approvals("ask", &["maru.get_employee_info"]).await;
}

/// With `each`, a call that destroys nothing waits, too.
#[tokio::test]
async fn every_call_waits_for_approval_if_asked_for() {
    check_approvals("each", &[]).await;
}

async fn check_approvals(policy: &str, destructive: &[&str]) {
    let backend = FakeModelServer::start(|number, _| match number % 2 {
        0 => native_tool_calls(&[("get_employee_info", json!({"employee_id": "EMP001"}))]),
        _ => streamed_by_byte("Done.", "stop"),
    })
    .await;
    let hub = hub_with_model(&backend, |config| {
        config.agent.destructive_tools = destructive.iter().map(ToString::to_string).collect();
    })
    .await;
    let answer = generate(&hub, &question_request(json!({}))).await;
    let unattended = answer["result"]["tool_calls"][0]["result"]
        .as_str()
        .unwrap();
    let is_refused = unattended.contains("needs approval");
    assert_eq!(is_refused, !destructive.is_empty(), "{answer}");

    for (decision, expected, outcome) in [
        ("approve", "김민준", "ok"),
        ("refuse", "a person refused", "refused"),
    ] {
        let mut reply = TestRequest::post(
            &hub.address,
            GENERATE_ROUTE,
            &question_request(json!({ "approval": policy })),
        )
        .header("accept", "text/event-stream")
        .send()
        .await;
        let mut run = String::new();
        let mut waits = 0;
        loop {
            let event = reply.next_event().await.unwrap();
            let data: Value = serde_json::from_str(&event.data).unwrap();
            match event.name.as_str() {
                "run" => run = data["run_id"].as_str().unwrap().to_owned(),
                "approval" => {
                    waits += 1;
                    let call = data["id"].as_str().unwrap();
                    let path = format!("/api/runs/{run}/calls/{call}/{decision}");
                    let decided = TestRequest::new(&hub.address, "POST", &path).send();
                    assert_eq!(decided.await.status, 204);
                }
                "observation" => {
                    assert!(
                        data["result"].as_str().unwrap().contains(expected)
                            && data["outcome"] == outcome,
                        "{data}"
                    );
                }
                "answer" => break,
                _ => (),
            }
        }
        assert_eq!(waits, 1);
    }
}

#[tokio::test]
async fn run_waiting_for_approval_sends_keep_alives() {
    let call = native_tool_calls(&[("get_employee_info", json!({"employee_id": "EMP001"}))]);
    let backend = FakeModelServer::start_with_steps(call).await;
    let hub = hub_with_model(&backend, |config| {
        config.agent.destructive_tools = vec!["maru.get_employee_info".to_owned()];
        config.limits.keep_alive_ms = 200;
    })
    .await;
    let question = question_request(json!({"approval": "ask"}));
    let mut reply = TestRequest::post(&hub.address, GENERATE_ROUTE, &question)
        .header("accept", "text/event-stream")
        .send()
        .await;
    while !reply
        .next_chunk()
        .await
        .unwrap()
        .starts_with("event: approval\n")
    {}
    assert_eq!(reply.next_chunk().await.unwrap(), ": keep-alive\n\n");
}

#[tokio::test]
async fn many_tools_are_ranked_and_the_rest_is_searchable() {
    let backend = FakeModelServer::start(|number, _| match number {
        0 => native_tool_calls(&[(
            "find_tools",
            json!({"query": "remaining vacation days of an employee"}),
        )]),
        1 => native_tool_calls(&[(
            "calculate_vacation_days",
            json!({"employee_id": "EMP001", "year": 2026}),
        )]),
        _ => streamed_by_byte("11", "stop"),
    })
    .await;
    let hub = hub_with_model(&backend, |config| config.agent.max_tools_per_request = 2).await;
    let ask_about = generate_request(
        json!({"messages": [{"role": "user", "content": "embed this text as a vector"}]}),
    );
    let answer = generate(&hub, &ask_about).await;
    let calls = answer["result"]["tool_calls"].as_array().unwrap();
    assert_eq!(calls[1]["is_error"], false, "{answer}");
    assert!(
        calls[1]["result"].as_str().unwrap().contains("11"),
        "{answer}"
    );
    let offered = |at: usize| -> Vec<String> {
        let tools = backend.seen()[at].body["tools"].as_array().unwrap().clone();
        tools
            .iter()
            .map(|it| it["function"]["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert!(
        offered(0).contains(&"get_text_embedding".to_owned()),
        "{:?}",
        offered(0)
    );
    assert!(!offered(0).contains(&"calculate_vacation_days".to_owned()));
    assert_eq!(offered(0).len(), 3);
    assert!(offered(1).contains(&"calculate_vacation_days".to_owned()));
    // Backends cache the prompt up to the first difference.
    assert_eq!(offered(1)[..3], offered(0));
    assert_eq!(offered(2), offered(1));
}
