//! A real model of 135 million parameters, on llama.cpp's own server: held to
//! the form of a call, even it calls a tool.

use std::{process::Stdio, sync::Arc};

use maru_http::{AddressPolicy, ClientTls};

use maru::{
    config::{ModelDefinition, ToolMode},
    llm::{ChatMessage, ChatRequest, ChatRole, ChatTool, FinishReason, Gateway, ToolChoice},
};
use serde_json::{Map, Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    process::{Child, Command},
    sync::Barrier,
    time::{Duration, timeout},
};

use crate::{
    clients::{client_tools_dir, run_within},
    model_apis::TestedApi,
    suite_fixture,
    test_hub::TestHub,
};

/// It computes on a machine that does other things, too.
const MODEL_TIMEOUT: Duration = Duration::from_secs(300);

async fn start_small_model() -> (Child, String) {
    let mut child = Command::new(client_tools_dir().join("small/bin/python"))
        .arg(client_tools_dir().join("small_model.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = timeout(MODEL_TIMEOUT, lines.next_line())
        .await
        .expect("in time");
    (child, line.unwrap().expect("the server says its address"))
}

fn chat_request_with(choice: ToolChoice, tokens: u32) -> ChatRequest {
    let city =
        json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    let mut other = Map::new();
    other.insert("temperature".to_owned(), json!(0));
    other.insert("max_tokens".to_owned(), json!(tokens));
    ChatRequest {
        model: "small".to_owned(),
        messages: vec![ChatMessage::text(ChatRole::User, "Weather in Seoul?")],
        tools: vec![ChatTool {
            name: "get_weather".to_owned(),
            prompt_name: None,
            description: "Weather of a city".to_owned(),
            parameters: city,
            other: Map::new(),
        }],
        tool_choice: choice,
        other,
        ..ChatRequest::default()
    }
}

#[tokio::test]
async fn a_very_small_model_calls_a_tool() {
    let (_child, address) = start_small_model().await;
    let models = [ModelDefinition {
        base_url: Some(format!("{address}/v1")),
        tool_mode: ToolMode::Constrained,
        timeout_ms: 300_000,
        ..ModelDefinition::default()
    }];
    let gateway = Gateway::open(
        &models,
        "",
        &AddressPolicy::default(),
        &ClientTls::default(),
    )
    .unwrap();
    let answer = gateway
        .complete_chat(chat_request_with(ToolChoice::Required, 48), MODEL_TIMEOUT)
        .await
        .unwrap();
    assert_eq!(answer.finish_reason, FinishReason::ToolCalls, "{answer:?}");
    assert_eq!(answer.calls[0].name, "get_weather");
    assert!(answer.calls[0].arguments.contains("\"city\""), "{answer:?}");
    let usage = answer.usage.expect("llama.cpp counts");
    assert!(usage.count("prompt_tokens") > 0);
    // The same in a stream, and cut off too early.
    let stream = gateway
        .stream_chat(chat_request_with(ToolChoice::Required, 48), MODEL_TIMEOUT)
        .await
        .unwrap();
    assert_eq!(stream.collect_response().await.unwrap().calls.len(), 1);
    let cut = gateway
        .complete_chat(chat_request_with(ToolChoice::Required, 4), MODEL_TIMEOUT)
        .await
        .unwrap();
    assert_eq!(
        (cut.finish_reason, cut.calls.len()),
        (FinishReason::Length, 0),
        "{cut:?}"
    );
    let mut plain = chat_request_with(ToolChoice::Auto, 8);
    plain.tools.clear();
    let spoken = gateway.complete_chat(plain, MODEL_TIMEOUT).await.unwrap();
    assert!(
        !spoken.text.is_empty() && spoken.calls.is_empty(),
        "{spoken:?}"
    );
}

/// Waits longer for the answer than other tests do.
async fn post_patiently(address: &str, path: &str, body: &Value) -> Value {
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(format!("{head}{body}").as_bytes())
        .await
        .unwrap();
    let mut answer = String::new();
    let read = stream.read_to_string(&mut answer);
    timeout(MODEL_TIMEOUT, read)
        .await
        .expect("in time")
        .unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap()
}

#[tokio::test]
async fn very_small_model_calls_a_tool_before_it_answers() {
    let (_child, address) = start_small_model().await;
    let hub = TestHub::with_config(|config| {
        config.models = vec![ModelDefinition {
            base_url: Some(format!("{address}/v1")),
            tool_mode: ToolMode::Constrained,
            timeout_ms: 300_000,
            ..ModelDefinition::default()
        }];
        config.agent.timeout_ms = 300_000;
        config.agent.own_tools = true;
        config.agent.instructions = "Call the tool.".to_owned();
    })
    .await;
    hub.publish(&[suite_fixture::barrier_tool(
        "get_weather",
        &Arc::new(Barrier::new(1)),
    )]);
    let params = json!({
        "model": "small", "temperature": 0, "max_output_tokens": 48, "max_iterations": 2,
        "messages": [{"role": "user", "content": "What is the weather? Call get_weather."}],
    });
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "generate_content", "params": params});
    let answer = post_patiently(&hub.address, "/generate_with_mcp", &body).await;
    let calls = answer["result"]["tool_calls"].as_array().unwrap();
    assert_eq!(calls[0]["name"], "maru.get_weather", "{answer}");
    assert_eq!(calls[0]["result"], "Met", "{answer}");
    assert_eq!(answer["result"]["iterations"], 2, "{answer}");
}

#[tokio::test]
async fn a_very_small_model_answers_on_every_api() {
    let (_child, address) = start_small_model().await;
    let hub = TestHub::with_config(|config| {
        config.models = vec![ModelDefinition {
            base_url: Some(format!("{address}/v1")),
            tool_mode: ToolMode::Constrained,
            timeout_ms: 300_000,
            ..ModelDefinition::default()
        }];
    })
    .await;
    let schema =
        json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]});
    for (api, limit) in [
        (
            TestedApi::Chat,
            json!({"max_tokens": 48, "tool_choice": "required"}),
        ),
        (
            TestedApi::Messages,
            json!({"max_tokens": 48, "tool_choice": {"type": "any"}}),
        ),
        (
            TestedApi::Responses,
            json!({"max_output_tokens": 48, "tool_choice": "required"}),
        ),
        (TestedApi::Ollama, json!({"options": {"num_predict": 48}})),
    ] {
        let mut body = api.question("small", "get_weather", &schema, false);
        for (name, value) in limit.as_object().unwrap() {
            body[name] = value.clone();
        }
        let answer = post_patiently(&hub.address, api.path(), &body).await;
        let found = api.read_whole(&answer);
        // Ollama's API cannot demand a call.
        assert!(
            !found.calls.is_empty() || api == TestedApi::Ollama,
            "{answer}"
        );
        assert!(
            !found.calls.is_empty() || !found.text.is_empty(),
            "{answer}"
        );
        for (name, arguments) in found.calls {
            assert_eq!(name, "get_weather", "{answer}");
            assert!(arguments["city"].is_string(), "{answer}");
        }
    }
    let text = json!({"model": "small", "prompt": "def add(a, b):\n", "max_tokens": 8});
    let answer = post_patiently(&hub.address, "/v1/completions", &text).await;
    assert_ne!(answer["choices"][0]["text"], "", "{answer}");
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert!(
        answer["usage"]["prompt_tokens"].as_u64() > Some(0),
        "{answer}"
    );
}

/// Why tests of llama.cpp do not hold for maru, or cannot be run.
const LLAMA_TEST_EXCEPTIONS: [(&str, &str); 8] = [
    (
        "test_anthropic_tool_result_with_image",
        "expects the backend's words that it takes no images",
    ),
    (
        "test_anthropic_vision_format_accepted",
        "expects the backend's words that it takes no images",
    ),
    (
        "test_anthropic_vision_base64_with_multimodal_model",
        "downloads a picture and a model",
    ),
    (
        "test_anthropic_empty_messages",
        "expects an answer to no message, which Anthropic's API refuses",
    ),
    (
        "test_anthropic_thinking_history_in_template",
        "asks for the chat template of llama.cpp",
    ),
    (
        "test_anthropic_thinking_with_reasoning_model[False]",
        "downloads a model",
    ),
    (
        "test_anthropic_thinking_with_reasoning_model[True]",
        "downloads a model",
    ),
    (
        "test_responses_stream_with_llama_telemetry",
        "expects members that only llama.cpp has, at a path without /v1",
    ),
];

#[tokio::test]
async fn llama_cpps_own_tests_of_two_apis_pass() {
    let tools = client_tools_dir();
    let mut command = Command::new(tools.join("llama/bin/python"));
    command
        .arg(tools.join("llama_tests.py"))
        .arg(env!("CARGO_BIN_EXE_maru"))
        .arg(&tools);
    let (printed, complaints, is_ok) = run_within(2 * MODEL_TIMEOUT, &mut command).await;
    assert!(is_ok, "{complaints}");
    let outcomes: Map<String, Value> = serde_json::from_str(&printed).unwrap();
    let exceptions = LLAMA_TEST_EXCEPTIONS.map(|it| it.0);
    for (name, outcome) in &outcomes {
        let is_exception = exceptions.contains(&name.as_str());
        assert_eq!(*outcome == "passed", !is_exception, "{name}: {outcome}");
    }
    assert_eq!(outcomes.len(), 33, "{outcomes:?}");
}

/// The model's chat template has no place for tools, which llama.cpp does not tell.
#[tokio::test]
async fn a_very_small_model_runs_in_every_tool_mode() {
    let (_child, address) = start_small_model().await;
    for mode in [ToolMode::Auto, ToolMode::Native, ToolMode::Prompt] {
        let hub = TestHub::with_config(|config| {
            config.models = vec![ModelDefinition {
                base_url: Some(format!("{address}/v1")),
                tool_mode: mode,
                timeout_ms: 300_000,
                ..ModelDefinition::default()
            }];
            config.agent.timeout_ms = 300_000;
            config.agent.own_tools = true;
            config.agent.instructions = "Call the tool.".to_owned();
        })
        .await;
        hub.publish(&[suite_fixture::barrier_tool(
            "get_weather",
            &Arc::new(Barrier::new(1)),
        )]);
        let params = json!({
            "model": "small", "temperature": 0, "max_output_tokens": 32, "max_iterations": 1,
            "messages": [{"role": "user", "content": "What is the weather? Call get_weather."}],
        });
        let body =
            json!({"jsonrpc": "2.0", "id": 1, "method": "generate_content", "params": params});
        let answer = post_patiently(&hub.address, "/generate_with_mcp", &body).await;
        let result = &answer["result"];
        assert_eq!(result["iterations"], 1, "{mode:?}: {answer}");
        let has_call = result["pending_calls"] != json!([]);
        assert!(has_call || result["text"] != "", "{mode:?}: {answer}");
        let tokens = result["usage"]["prompt_tokens"].as_u64().unwrap();
        assert!(
            tokens > 20,
            "llama.cpp counts when it is asked to: {answer}"
        );
        if mode == ToolMode::Auto {
            let call = &result["pending_calls"][0];
            assert_eq!(call["name"], "maru.get_weather", "{answer}");
            assert_eq!(call["dialect"], "constrained", "{answer}");
        }
    }
}
