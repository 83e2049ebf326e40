//! A backend that misbehaves on purpose: `tests/security/faults/evil_llm.py`.

use std::net::TcpListener;

use maru::config::{BackendApi, ModelDefinition};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::{
    http_client::{TestRequest, wait_for, wait_until},
    model_apis::{AnyAnswer, TestedApi},
    test_hub::TestHub,
};

struct EvilModelServer {
    _child: Child,
    place: String,
    hub: TestHub,
}

impl EvilModelServer {
    async fn start() -> Self {
        Self::start_with(BackendApi::Openai).await
    }

    async fn start_with(backend: BackendApi) -> Self {
        let port = TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let script = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/security/faults/evil_llm.py"
        );
        let child = Command::new("python3")
            .args([script, &port.to_string()])
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let place = format!("127.0.0.1:{port}");
        wait_until(async || tokio::net::TcpStream::connect(&place).await.is_ok()).await;
        let base_url = Some(format!("http://{place}/v1"));
        let hub = TestHub::with_config(|config| {
            config.models = vec![ModelDefinition {
                backend,
                base_url,
                timeout_ms: 6000,
                ..ModelDefinition::default()
            }];
        })
        .await;
        Self {
            _child: child,
            place,
            hub,
        }
    }

    /// Status and answer to a whole question.
    async fn whole(&self, api: TestedApi, model: &str) -> (u16, Value) {
        let reply = self.ask(api, model, false).send().await;
        (reply.status.as_u16(), reply.json().await)
    }

    async fn stream(&self, api: TestedApi, model: &str) -> AnyAnswer {
        let reply = self.ask(api, model, true).send().await;
        assert_eq!(reply.status, 200, "{api:?} {model}");
        api.read_stream(reply).await
    }

    fn ask(&self, api: TestedApi, model: &str, stream: bool) -> TestRequest {
        let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
        api.request(&self.hub, &api.question(model, "fx_echo", &schema, stream))
    }

    async fn stats(&self) -> Value {
        TestRequest::new(&self.place, "GET", "/stats")
            .send()
            .await
            .json()
            .await
    }
}

/// Faults in place of a response, and the status that tells of them.
const RESPONSE_FAULTS: [(&str, u16); 12] = [
    ("h500", 502),
    ("h503", 502),
    ("h429", 429),
    ("html", 502),
    ("nochoices", 502),
    ("emptychoices", 502),
    ("cut", 502),
    ("nodone", 502),
    ("badchunk", 502),
    ("hugechunk:8", 502),
    ("endless", 504),
    ("hang", 504),
];

async fn check_faults(evil: &EvilModelServer) {
    let questions = TestedApi::ALL
        .into_iter()
        .flat_map(|api| RESPONSE_FAULTS.map(|fault| (api, fault)));
    let checks = questions.map(|(api, (model, status))| {
        async move {
            let (found, answer) = evil.whole(api, model).await;
            assert_eq!(found, status, "{api:?} {model}: {answer}");
            api.error_of(&answer);
            assert!(!answer.to_string().contains("SECRET"), "{api:?} {model}");
            // A stream says it with the status, or at its end.
            let reply = evil.ask(api, model, true).send().await;
            if reply.status == 200 {
                let answer = api.read_stream(reply).await;
                assert!(answer.error.is_some(), "{api:?} {model}: {answer:?}");
                assert!(!format!("{answer:?}").contains("SECRET"), "{api:?} {model}");
            } else {
                assert_eq!(reply.status.as_u16(), status, "{api:?} {model}");
                let answer = reply.json().await;
                api.error_of(&answer);
                assert!(!answer.to_string().contains("SECRET"), "{api:?} {model}");
            }
        }
    });
    futures_util::future::join_all(checks).await;
}

#[tokio::test]
async fn faults_of_a_backend_with_anthropics_api_become_the_same_errors() {
    let evil = EvilModelServer::start_with(BackendApi::Anthropic).await;
    check_faults(&evil).await;
    for api in TestedApi::ALL {
        for model in ["cut", "nodone", "badchunk", "hugechunk:8"] {
            let found = evil.stream(api, model).await;
            assert!(
                found.text.starts_with("tok0 tok1 "),
                "{api:?} {model}: {found:?}"
            );
            assert!(found.error.is_some(), "{api:?} {model}");
        }
        assert_eq!(evil.whole(api, "ok").await.0, 200, "{api:?}");
        let split = evil.stream(api, "toolsplit").await;
        let call = [("fx_echo".to_owned(), json!({"text": "hi 가"}))];
        assert_eq!(split.calls, call, "{api:?}");
    }
}

#[tokio::test]
async fn backend_faults_become_errors_that_quote_nothing() {
    check_faults(&EvilModelServer::start().await).await;
}

#[tokio::test]
async fn busy_backend_is_asked_again_whatever_the_client_speaks() {
    let checks = TestedApi::ALL.map(|api| async move {
        for backend in [BackendApi::Openai, BackendApi::Anthropic] {
            // Each counts how often it was asked.
            let (evil, evil_streaming) = (
                EvilModelServer::start_with(backend).await,
                EvilModelServer::start_with(backend).await,
            );
            for model in ["h429:1", "h500:2", "slow:500", "ok"] {
                let (found, answer) = evil.whole(api, model).await;
                assert_eq!(found, 200, "{api:?} {model}: {answer}");
                assert_eq!(api.read_whole(&answer).text, "hello");
                let streamed = evil_streaming.stream(api, model).await;
                assert_eq!(
                    streamed.text, "tok0 tok1 tok2 tok3 tok4 ",
                    "{api:?} {model}"
                );
                assert!(streamed.error.is_none(), "{api:?} {model}: {streamed:?}");
            }
        }
    });
    futures_util::future::join_all(checks).await;
}

#[tokio::test]
async fn faults_of_a_stream_end_it_with_an_error_event() {
    let evil = EvilModelServer::start().await;
    for api in TestedApi::ALL {
        for model in ["cut", "nodone", "badchunk", "hugechunk:8"] {
            let found = evil.stream(api, model).await;
            assert!(
                found.text.starts_with("tok0 tok1 tok2 "),
                "{api:?} {model}: {found:?}"
            );
            assert!(found.error.is_some(), "{api:?} {model}");
        }
        let fine = evil.stream(api, "ok").await;
        assert_eq!(fine.text, "tok0 tok1 tok2 tok3 tok4 ", "{api:?}");
        let split = evil.stream(api, "toolsplit").await;
        let call = [("fx_echo".to_owned(), json!({"text": "hi 가"}))];
        assert_eq!(split.calls, call, "{api:?}");
    }
}

#[tokio::test]
async fn endless_stream_is_closed_when_its_client_disconnects() {
    let evil = EvilModelServer::start().await;
    for (nth, api) in TestedApi::ALL.into_iter().enumerate() {
        let mut reply = evil.ask(api, "endless", true).send().await;
        for _ in 0..10 {
            assert!(reply.next_chunk().await.is_some());
        }
        drop(reply);
        wait_for(async || evil.stats().await, |it| it["cuts"] == nth + 1).await;
    }
}

#[tokio::test]
async fn every_tool_call_syntax_becomes_strict_calls() {
    for backend in [BackendApi::Openai, BackendApi::Anthropic] {
        let evil = EvilModelServer::start_with(backend).await;
        for api in TestedApi::ALL {
            let text = |(name, input): (String, Value)| {
                assert_eq!(name, "fx_echo", "{api:?}");
                input["text"].as_str().map(str::to_owned)
            };
            let calls = async |model: &str| {
                let (status, answer) = evil.whole(api, model).await;
                assert_eq!(status, 200, "{api:?} {model}: {answer}");
                let whole = api.read_whole(&answer).calls;
                let whole: Option<Vec<_>> = whole.into_iter().map(text).collect();
                let streamed = evil.stream(api, model).await;
                assert!(streamed.error.is_none(), "{api:?} {model}: {streamed:?}");
                // To the clients of some APIs a refusal is an end by a content filter.
                let may_be_cut = model == "refusal";
                assert!(
                    may_be_cut || !streamed.is_cut,
                    "{api:?} {model}: {streamed:?}"
                );
                let streamed: Option<Vec<_>> = streamed.calls.into_iter().map(text).collect();
                assert_eq!(streamed, whole, "{backend:?} {api:?} {model}");
                whole.unwrap()
            };
            assert_eq!(calls("toolloop").await, ["again"]);
            assert_eq!(calls("tooldouble").await, ["a", "b"]);
            assert_eq!(calls("toolinject").await.len(), 1);
            assert_eq!(calls("jsonblock").await, ["hi"]);
            assert_eq!(calls("barejson").await, ["hi"]);
            assert!(calls("toolunknown").await.is_empty());
            assert!(calls("refusal").await.is_empty());
            // Whatever is made of it, it is strict.
            calls("singlequote").await;
            // Cut inside a string: a client that has the beginning learns that it is no call.
            // In a whole answer of Anthropic's API arguments are an object, never broken text.
            if backend == BackendApi::Openai {
                let (status, answer) = evil.whole(api, "toolbad").await;
                assert_eq!(status, 200, "{api:?}: {answer}");
                assert!(api.read_whole(&answer).calls.is_empty(), "{api:?}");
            }
            assert!(evil.stream(api, "toolbad").await.is_cut, "{api:?}");
        }
    }
    assert!(!std::path::Path::new("/tmp/maru_pwn").exists());
}

#[tokio::test]
async fn agent_loop_survives_every_fault() {
    const FAULTS: [&str; 24] = [
        "ok",
        "h429:1",
        "h500:1",
        "h503",
        "hang",
        "slow:300",
        "cut",
        "nodone",
        "endless",
        "badchunk",
        "hugechunk:8",
        "html",
        "emptychoices",
        "nochoices",
        "refusal",
        "toolloop",
        "toolbad",
        "toolinject",
        "tooldouble",
        "toolunknown",
        "toolsplit",
        "jsonblock",
        "barejson",
        "singlequote",
    ];
    let evil = EvilModelServer::start().await;
    let runs = FAULTS.map(|model| {
        let params = json!({"model": model, "mcp_servers": ["maru"], "max_iterations": 3, "messages": [{"role": "user", "content": "?"}]});
        let body =
            json!({"jsonrpc": "2.0", "id": model, "method": "generate_content", "params": params});
        let request = TestRequest::post(&evil.hub.address, "/generate_with_mcp", &body);
        async move { (model, request.send().await.json().await) }
    });
    for (model, answer) in futures_util::future::join_all(runs).await {
        assert_eq!(
            (&answer["jsonrpc"], &answer["id"]),
            (&json!("2.0"), &json!(model))
        );
        assert!(
            answer["result"].is_object() != answer["error"].is_object(),
            "{answer}"
        );
        assert!(!answer.to_string().contains("SECRET"), "{answer}");
        let text = answer["result"]["text"].as_str().unwrap_or_default();
        assert!(!text.contains("fx.echo"), "{model} shows a call: {answer}");
    }
    assert!(!std::path::Path::new("/tmp/maru_pwn").exists());
}
