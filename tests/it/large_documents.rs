//! Large documents of a peer are parsed on blocking threads: other clients are answered
//! meanwhile.

use std::{num::NonZero, sync::mpsc, thread};

use maru::tools::{EntryResponse, EntryResult};
use maru_runtime::tasks::run_parser;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::{
    http_client::{TestRequest, TestResponse},
    openai::{
        chat_client::{chat_body, chat_request, read_stream},
        fake_model::{FakeModelServer, delta_step, event_step, stream_head, text_response},
    },
    suite_fixture,
    test_hub::{TestHub, call_message},
};

/// More than is parsed on the worker.
const LARGE_BYTES: usize = 100 << 10;
/// Requests of others that are answered while the large document waits.
const OTHER_REQUESTS: usize = 20;

/// Keeps every thread for large documents busy until it is dropped.
struct BusyParsers {
    _release: Vec<mpsc::Sender<()>>,
    _waiting: JoinSet<bool>,
}

impl BusyParsers {
    async fn start() -> Self {
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let (mut release, mut waiting) = (Vec::new(), JoinSet::new());
        let (started, mut starts) = tokio::sync::mpsc::channel(cores);
        for _ in 0..cores {
            let (sender, released) = mpsc::channel::<()>();
            release.push(sender);
            let started = started.clone();
            waiting.spawn(run_parser(usize::MAX, move || {
                started.try_send(()).unwrap();
                released.recv().is_ok()
            }));
        }
        for _ in 0..cores {
            starts.recv().await.unwrap();
        }
        Self {
            _release: release,
            _waiting: waiting,
        }
    }
}

/// Sends a request that makes the hub parse a large document, and checks that others are
/// answered before it.
async fn check_others_first(hub: &TestHub, request: TestRequest) -> TestResponse {
    let busy = BusyParsers::start().await;
    let mut response = Box::pin(request.send());
    let others = async {
        for _ in 0..OTHER_REQUESTS {
            let call = call_message(1, "list_sources", json!({}));
            let answer = TestRequest::post(&hub.address, "/sse", &call).send().await;
            assert_eq!(answer.status, 200);
        }
    };
    tokio::select! {
        biased;
        _response = &mut response => panic!("the large document was parsed on the worker"),
        () = others => (),
    }
    drop(busy);
    response.await
}

async fn hub_with_model(model: &FakeModelServer) -> TestHub {
    TestHub::with_config(|config| model.configure(config)).await
}

fn large_text() -> String {
    "x".repeat(LARGE_BYTES)
}

#[tokio::test]
async fn whole_model_response_is_parsed_apart() {
    let model = FakeModelServer::start_with_steps(text_response(&large_text())).await;
    let hub = hub_with_model(&model).await;
    let response = check_others_first(&hub, chat_request(&hub, &chat_body(json!({})))).await;
    let answer = response.json().await;
    assert_eq!(answer["choices"][0]["message"]["content"], large_text());
}

#[tokio::test]
async fn large_event_of_a_model_is_parsed_apart() {
    let steps = vec![
        stream_head(),
        delta_step(json!({"content": large_text()}), Some("stop")),
    ];
    let model = FakeModelServer::start_with_steps(steps).await;
    let hub = hub_with_model(&model).await;
    // The head of the response is sent before the event; only its body waits.
    let busy = BusyParsers::start().await;
    let request = chat_request(&hub, &chat_body(json!({"stream": true})));
    let mut stream = Box::pin(async { read_stream(request.send().await).await });
    let others = async {
        for _ in 0..OTHER_REQUESTS {
            let health = TestRequest::new(&hub.address, "GET", "/healthz");
            assert_eq!(health.send().await.status, 200);
        }
    };
    tokio::select! {
        biased;
        _answer = &mut stream => panic!("the large event was parsed on the worker"),
        () = others => (),
    }
    drop(busy);
    let answer = stream.await;
    assert_eq!(
        (answer.text, answer.finish.as_str()),
        (large_text(), "stop")
    );
}

#[tokio::test]
async fn large_body_of_a_client_is_parsed_apart() {
    let hub = TestHub::start().await;
    let arguments = json!({"data": large_text()});
    let call = call_message(1, "serialize_for_cell", arguments);
    let request = TestRequest::post(&hub.address, "/sse", &call);
    let answer = check_others_first(&hub, request).await.json().await;
    assert_ne!(answer["result"]["isError"], true, "{answer}");
    let sql = json!({"sql": large_text()});
    let request = TestRequest::post(&hub.address, "/v1/chat/completions", &sql);
    let response = check_others_first(&hub, request).await;
    assert_eq!(response.status, 400);
}

#[tokio::test]
async fn large_result_of_a_server_is_parsed_apart() {
    let server = TestHub::start().await;
    let result = json!({"content": [{"type": "text", "text": large_text()}]}).to_string();
    server.publish(&[suite_fixture::tool("large", json!({}), move |_| {
        let result = EntryResult::parse(result.clone());
        async move { Ok(EntryResponse::Complete(result)) }
    })]);
    let hub = TestHub::start().await;
    let url = |path: &str| format!("http://{}{path}", server.address);
    for (kind, url) in [("HTTP", url("/mcp")), ("SSE", url("/sse"))] {
        let view = hub.register_server("s", kind, json!({"url": url})).await;
        assert_eq!(view.status.state.as_str(), "CONNECTED", "{:?}", view.status);
        let call = call_message(1, "s__large", json!({}));
        let request = TestRequest::post(&hub.address, "/sse", &call);
        let answer = check_others_first(&hub, request).await.json().await;
        assert_eq!(answer["result"]["content"][0]["text"], large_text());
        hub.running.servers().remove("s").await.unwrap();
    }
}

/// One event of a stream may take 1 MiB; a longer one ends the stream with an error.
#[tokio::test]
async fn event_of_a_model_is_bounded() {
    let event = |bytes: usize| {
        let delta = |text: &str| json!({"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": "stop"}]});
        let padding = bytes - delta("").to_string().len();
        event_step(&delta(&"x".repeat(padding)))
    };
    let model =
        FakeModelServer::start(move |number, _| vec![stream_head(), event((1 << 20) + number)])
            .await;
    let hub = hub_with_model(&model).await;
    let mut answers = Vec::new();
    for _ in 0..2 {
        let request = chat_request(&hub, &chat_body(json!({"stream": true})));
        answers.push(read_stream(request.send().await).await);
    }
    assert_eq!(answers[0].error, None);
    assert!(answers[0].text.len() > (1 << 20) - 200);
    let error = answers[1].error.as_ref().map(Value::to_string);
    assert!(error.unwrap().contains("an event that is too long"));
    assert_eq!(answers[1].text, "");
}

/// Broken calls in one event reach the client once, as text, and not more than were sent.
#[tokio::test]
async fn broken_calls_in_one_event_are_bounded() {
    const CALL_BYTES: usize = 4096;
    let broken_calls = |count: usize| -> Value {
        let arguments = format!("{{\"city\": \"{}", "y".repeat(CALL_BYTES));
        let call = |index: usize| json!({"index": index, "id": format!("c{index}"), "type": "function", "function": {"name": "get_weather", "arguments": arguments}});
        (0..count).map(call).collect()
    };
    let model = FakeModelServer::start(move |number, _| {
        let count = if number == 0 { 128 } else { 129 };
        let delta = json!({"tool_calls": broken_calls(count)});
        vec![stream_head(), delta_step(delta, Some("tool_calls"))]
    })
    .await;
    let hub = hub_with_model(&model).await;
    for expects_error in [false, true] {
        let request = chat_request(&hub, &chat_body(json!({"stream": true})));
        let body = request.send().await.text().await;
        assert!(body.len() < 3 * 128 * CALL_BYTES, "{}", body.len());
        assert_eq!(
            body.contains("more than one response may hold"),
            expects_error
        );
    }
}
