//! Several backends of one model: which one answers, and when the next one is asked.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use maru::config::{BackendApi, Config, ModelDefinition};
use maru_runtime::tasks::Tasks;
use serde_json::{Value, json};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::sync::CancellationToken;

use super::{
    chat_client::{chat_body, chat_request, complete, complete_streamed},
    fake_model::{
        FakeModelServer, ReceivedRequest, ScriptStep, delta_step, event_step, json_response,
        stream_head, streamed_by_byte, text_response,
    },
};
use crate::{http_client::TestRequest, model_apis::TestedApi, test_hub::TestHub};

/// Stands in front of a backend and can be killed with all its connections.
struct KillableRelay {
    port: u16,
    killed: CancellationToken,
}

impl KillableRelay {
    async fn start(backend_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let this = Self {
            port: listener.local_addr().unwrap().port(),
            killed: CancellationToken::new(),
        };
        let killed = this.killed.clone();
        Tasks::default().spawn(async move {
            loop {
                let accepted = tokio::select! {
                    accepted = listener.accept() => accepted,
                    () = killed.cancelled() => return,
                };
                let (mut client, _) = accepted.unwrap();
                let killed = killed.clone();
                Tasks::default().spawn(async move {
                    let mut backend = TcpStream::connect(("127.0.0.1", backend_port))
                        .await
                        .unwrap();
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut backend) => (),
                        () = killed.cancelled() => (),
                    }
                });
            }
        });
        this
    }

    fn model(&self) -> ModelDefinition {
        ModelDefinition {
            base_url: Some(format!("http://127.0.0.1:{}/v1", self.port)),
            ..ModelDefinition::default()
        }
    }
}

async fn hub_with(models: Vec<ModelDefinition>) -> TestHub {
    TestHub::with_config(|config: &mut Config| config.models = models).await
}

async fn status(hub: &TestHub) -> Value {
    let request = TestRequest::new(&hub.address, "GET", "/api/models");
    request.send().await.json().await
}

/// Streams slowly enough that many are in progress at any time.
fn answer(seen: &ReceivedRequest, text: &str) -> Vec<ScriptStep> {
    if seen.body["stream"] != true {
        return text_response(text);
    }
    let pause = ScriptStep::Pause(std::time::Duration::from_millis(5));
    vec![
        pause.clone(),
        stream_head(),
        pause.clone(),
        delta_step(json!({"content": text}), None),
        pause,
        delta_step(json!({}), Some("stop")),
        ScriptStep::Send("data: [DONE]\n\n".to_owned()),
    ]
}

#[tokio::test]
async fn killed_backend_fails_no_request_that_had_not_begun() {
    const REQUESTS: usize = 400;
    let first = FakeModelServer::start(|_, seen| answer(seen, "first")).await;
    let second = FakeModelServer::start(|_, seen| answer(seen, "second")).await;
    let relay = KillableRelay::start(first.port).await;
    let hub = Arc::new(hub_with(vec![relay.model(), second.model()]).await);
    let slots = Arc::new(Semaphore::new(32));
    let ended = Arc::new(AtomicUsize::new(0));
    let mut running = tokio::task::JoinSet::new();
    for number in 0..REQUESTS {
        let slot = Arc::clone(&slots).acquire_owned().await.unwrap();
        if ended.load(Relaxed) > REQUESTS / 4 {
            relay.killed.cancel();
        }
        let (hub, ended) = (Arc::clone(&hub), Arc::clone(&ended));
        running.spawn(async move {
            let api = TestedApi::ALL[number / 2 % TestedApi::ALL.len()];
            let stream = number % 2 == 0;
            let body = api.question("m", "get_weather", &json!({"type": "object"}), stream);
            let reply = api.request(&hub, &body).send().await;
            assert_eq!(reply.status, 200, "{api:?}");
            let text = if stream {
                let read = api.read_stream(reply).await;
                assert!(
                    read.error.is_none() || !read.text.is_empty(),
                    "{api:?} {read:?}"
                );
                read.text
            } else {
                api.read_whole(&reply.json().await).text
            };
            ended.fetch_add(1, Relaxed);
            drop(slot);
            text
        });
    }
    let texts = running.join_all().await;
    assert_eq!(texts.len(), REQUESTS);
    assert!(texts.iter().any(|it| it == "first"));
    assert!(texts.iter().filter(|it| *it == "second").count() > REQUESTS / 4);
    let status = status(&hub).await;
    assert!(
        status[0]["consecutive_failures"].as_u64().unwrap() >= 3,
        "{status}"
    );
    assert!(
        status[0]["cooldown_seconds"].as_f64().unwrap() > 0.0,
        "{status}"
    );
    assert_eq!(status[1]["consecutive_failures"], 0);
    let metrics = TestRequest::new(&hub.address, "GET", "/metrics")
        .send()
        .await;
    let metrics = metrics.text().await;
    let backend = format!("backend=\"127.0.0.1:{}\"", relay.port);
    assert!(metrics.contains(&format!(
        "maru_model_failovers_total{{model=\"*\",{backend}}}"
    )));
    assert!(metrics.contains(&format!(
        "maru_model_backend_available{{model=\"*\",{backend}}} 0"
    )));
    // Every request counts once, whichever backend answered it.
    let outcomes: u64 = metrics
        .lines()
        .filter(|it| it.starts_with("maru_model_requests_total"))
        .map(|it| it.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(outcomes, REQUESTS as u64);
}

#[tokio::test]
async fn backend_that_fails_three_times_is_used_last() {
    let first = FakeModelServer::start_with_steps(json_response(500, "", &json!({}))).await;
    let second = FakeModelServer::start_with_steps(text_response("second")).await;
    let hub = hub_with(vec![first.model(), second.model()]).await;
    for _ in 0..6 {
        assert_eq!(
            complete(&hub, json!({"tools": null})).await.0["content"],
            "second"
        );
    }
    assert_eq!(first.seen().len(), 3);
    assert_eq!(second.seen().len(), 6);
}

#[tokio::test]
async fn backend_is_preferred_again_after_its_cooldown() {
    let first = FakeModelServer::start(|number, _| match number {
        0..3 => json_response(503, "", &json!({})),
        _ => text_response("first"),
    })
    .await;
    let second = FakeModelServer::start_with_steps(text_response("second")).await;
    let short = ModelDefinition {
        cooldown_ms: 100,
        ..first.model()
    };
    let hub = hub_with(vec![short, second.model()]).await;
    for _ in 0..1000 {
        if complete(&hub, json!({"tools": null})).await.0["content"] == "first" {
            assert_eq!(status(&hub).await[0]["consecutive_failures"], 0);
            return;
        }
    }
    panic!("the first backend is not used again");
}

#[tokio::test]
async fn response_that_breaks_before_its_first_event_comes_from_the_next_backend() {
    let beginnings = [
        vec![stream_head()],
        vec![stream_head(), ScriptStep::Send(": comment\n\n".to_owned())],
        vec![
            stream_head(),
            event_step(&json!({"error": {"message": "overloaded"}})),
        ],
        // Nothing of it is the model's.
        vec![
            stream_head(),
            event_step(&json!({"choices": [], "system_fingerprint": "fp_1"})),
            delta_step(json!({"role": "assistant", "content": ""}), None),
            event_step(&json!({"choices": [], "usage": {"prompt_tokens": 3}})),
        ],
        // What Anthropic's API begins with.
        vec![
            stream_head(),
            event_step(
                &json!({"type": "message_start", "message": {"usage": {"input_tokens": 3, "output_tokens": 1}}}),
            ),
            event_step(&json!({"type": "ping"})),
        ],
        vec![ScriptStep::Send(
            "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 0\r\n\r\n".to_owned(),
        )],
    ];
    for beginning in beginnings {
        let first = FakeModelServer::start_with_steps(beginning.clone()).await;
        let second = FakeModelServer::start_with_steps(streamed_by_byte("second", "stop")).await;
        let is_anthropic = format!("{beginning:?}").contains("message_start");
        let first = ModelDefinition {
            backend: if is_anthropic {
                BackendApi::Anthropic
            } else {
                BackendApi::Openai
            },
            ..first.model()
        };
        let hub = hub_with(vec![first, second.model()]).await;
        let read = complete_streamed(&hub, json!({"tools": null})).await;
        assert_eq!(
            (read.text.as_str(), read.error),
            ("second", None),
            "{beginning:?}"
        );
    }
}

#[tokio::test]
async fn response_that_has_begun_is_never_started_again() {
    let broken = vec![stream_head(), delta_step(json!({"content": "half"}), None)];
    let first = FakeModelServer::start_with_steps(broken).await;
    let second = FakeModelServer::start_with_steps(streamed_by_byte("second", "stop")).await;
    let hub = hub_with(vec![first.model(), second.model()]).await;
    let read = complete_streamed(&hub, json!({"tools": null})).await;
    assert_eq!(read.text, "half");
    assert_eq!(read.error.unwrap()["code"], "backend_answer");
    assert!(second.seen().is_empty());
}

#[tokio::test]
async fn invalid_request_is_not_sent_to_the_next_backend() {
    let refusal = json!({"error": {"code": "context_length_exceeded"}});
    let first = FakeModelServer::start_with_steps(json_response(400, "", &refusal)).await;
    let second = FakeModelServer::start_with_steps(text_response("second")).await;
    let hub = hub_with(vec![first.model(), second.model()]).await;
    let reply = chat_request(&hub, &chat_body(json!({"tools": null})))
        .send()
        .await;
    assert_eq!(reply.status, 400);
    assert!(second.seen().is_empty());
    assert_eq!(status(&hub).await[0]["consecutive_failures"], 0);
}

#[tokio::test]
async fn silent_backend_is_given_up_after_its_idle_timeout() {
    let first = FakeModelServer::start_with_steps(vec![ScriptStep::WaitForClose]).await;
    let second = FakeModelServer::start_with_steps(text_response("second")).await;
    let impatient = ModelDefinition {
        idle_timeout_ms: 100,
        ..first.model()
    };
    let hub = hub_with(vec![impatient, second.model()]).await;
    assert_eq!(
        complete(&hub, json!({"tools": null})).await.0["content"],
        "second"
    );
    first.wait_for_disconnects(1).await;
}

#[tokio::test]
async fn full_queue_sends_requests_to_the_next_backend() {
    let busy = vec![
        stream_head(),
        delta_step(json!({"content": "first"}), None),
        ScriptStep::WaitForClose,
    ];
    let first = FakeModelServer::start_with_steps(busy).await;
    let second = FakeModelServer::start_with_steps(text_response("second")).await;
    let narrow = ModelDefinition {
        max_concurrent: Some(1),
        max_waiting: 0,
        ..first.model()
    };
    let hub = hub_with(vec![narrow, second.model()]).await;
    let body = chat_body(json!({"stream": true, "tools": null}));
    let mut running = chat_request(&hub, &body).send().await;
    assert!(running.next_event().await.is_some());
    assert_eq!(
        complete(&hub, json!({"tools": null})).await.0["content"],
        "second"
    );
    assert_eq!(status(&hub).await[0]["consecutive_failures"], 0);
}

#[tokio::test]
async fn only_entries_with_the_same_name_replace_each_other() {
    let first = FakeModelServer::start_with_steps(json_response(403, "", &json!({}))).await;
    let other = FakeModelServer::start_with_steps(text_response("other")).await;
    let second = FakeModelServer::start_with_steps(text_response("second")).await;
    let named = |server: &FakeModelServer, name: &str| ModelDefinition {
        name: name.to_owned(),
        ..server.model()
    };
    let hub = hub_with(vec![
        named(&first, "m"),
        named(&other, "*"),
        named(&second, "m"),
    ])
    .await;
    assert_eq!(
        complete(&hub, json!({"tools": null})).await.0["content"],
        "second"
    );
    assert!(other.seen().is_empty());
    let listed = TestRequest::new(&hub.address, "GET", "/v1/models/m")
        .send()
        .await;
    let listed = listed.json().await;
    assert_eq!(listed["owned_by"], format!("127.0.0.1:{}", first.port));
    assert_eq!(
        listed["fallback_backends"],
        json!([format!("127.0.0.1:{}", second.port)])
    );
}
