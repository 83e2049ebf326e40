//! Servers that send too much: what they send is bounded before it is kept.

use std::time::Duration;

use maru::config::ModelDefinition;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::UnixStream,
    process::{Child, Command},
};

use super::{
    evil_http::EvilHttpServer,
    harness::{
        CALL_TIMES_OUT,
        ExpectedOutcome::{self, Echo, Fails},
        FaultHarness, resident_mib,
    },
};

use crate::http_client::TestRequest;

/// What the hub may grow by in MiB: an answer is taken up to 16 MiB, and some
/// copies of it exist at the same time.
pub(super) const MAX_GROWTH_MIB: usize = 128;

async fn check_memory(bench: &FaultHarness, name: &str, mode: &str, expected: ExpectedOutcome) {
    let before = resident_mib();
    let flood = async {
        bench.check_server(name, mode, expected).await;
        let grown = resident_mib().saturating_sub(before);
        assert!(grown < MAX_GROWTH_MIB, "{mode}: {grown} MiB");
        bench.remove(name).await;
    };
    bench.while_healthy_server_answers(flood).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn program_that_floods_is_bounded() {
    let bench = FaultHarness::start().await;
    for (mode, expected) in [
        ("huge-line:64", Fails("a line of more than 16 MiB")),
        ("huge-result:20", Fails("a line of more than 16 MiB")),
        ("huge-result:9", Echo),
        ("stderr-flood:32", Echo),
        ("notify-flood:20000", Echo),
        ("list-changed-storm:5000", Echo),
        ("escape-ansi", Echo),
    ] {
        let name = mode.split(':').next().unwrap();
        bench.add_program(name, mode).await;
        if mode == "huge-result:9" || mode == "escape-ansi" {
            // Passed on, but not as it was sent.
            continue;
        }
        check_memory(&bench, name, mode, expected).await;
    }
    let cut = bench.echo("huge-result", "x").await.unwrap();
    assert!(cut.len() <= 8 << 20 && cut.ends_with("ask for less]"));
    let text = bench.echo("escape-ansi", "x").await.unwrap();
    assert!(text.starts_with("\u{1b}[2J"));
}

#[tokio::test(flavor = "multi_thread")]
async fn program_that_lists_too_much_is_bounded() {
    let bench = FaultHarness::start().await;
    let before = resident_mib();
    let view = bench
        .while_healthy_server_answers(bench.add_program("evil", "many-tools:10000"))
        .await;
    assert_eq!(view.status.state.as_str(), "CONNECTED");
    assert_eq!(view.status.tools.len(), 2000);
    let grown = resident_mib().saturating_sub(before);
    assert!(grown < MAX_GROWTH_MIB, "{grown} MiB");
    let text = bench
        .call("evil__t0", serde_json::json!({"text": "x"}))
        .await;
    assert!(text.is_ok(), "{text:?}");
    bench.remove("evil").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn http_server_that_floods_is_bounded() {
    let (bench, evil) = (FaultHarness::start().await, EvilHttpServer::start().await);
    for (at, (kind, mode, expected)) in [
        ("HTTP", "hugeevent:64", Fails("more than 16 MiB")),
        ("HTTP", "gzipbomb:32", ExpectedOutcome::Down("compressed")),
        ("HTTP", "bigheaders", ExpectedOutcome::Down("broke")),
        ("HTTP", "endless", CALL_TIMES_OUT),
        ("SSE", "hugeevent:64", Fails("more than 16 MiB")),
        ("SSE", "noeol:64", Fails("more than 16 MiB")),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("evil{at}");
        bench
            .add_server(&name, kind, evil.registration(kind, mode))
            .await;
        check_memory(&bench, &name, mode, expected).await;
    }
}

/// A server at full speed: an HTTP one that serves until it is dropped.
struct FloodServer {
    _child: Child,
    port: String,
}

fn flood_program() -> String {
    let program = crate::fixture_server::fixture_program();
    program.with_file_name("flood-server").display().to_string()
}

impl FloodServer {
    async fn start(mode: &str) -> Self {
        let mut child = Command::new(flood_program())
            .args(["http", mode])
            .stdout(std::process::Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = lines.next_line().await.unwrap().unwrap();
        Self {
            _child: child,
            port,
        }
    }

    fn url(&self, path: &str) -> Value {
        json!({"url": format!("http://127.0.0.1:{}{path}", self.port)})
    }
}

/// The server `name` floods from the call of its tool on. It is disconnected and the
/// cause says why; memory stays bounded and others are served meanwhile.
async fn assert_disconnected(bench: &FaultHarness, name: &str, cause: &str) {
    let before = resident_mib();
    let flooding = async {
        let failed = bench.call(&format!("{name}__flood"), json!({})).await;
        assert!(failed.is_err(), "{name}: {failed:?}");
        bench
            .wait_for(name, |it| it.status.state.as_str() != "CONNECTED")
            .await
    };
    let view = bench.while_healthy_server_answers(flooding).await;
    let why = view.status.cause.unwrap_or_default();
    assert!(why.contains(cause), "{name}: {why}");
    let grown = resident_mib().saturating_sub(before);
    assert!(grown < MAX_GROWTH_MIB, "{name}: {grown} MiB");
    bench.remove(name).await;
}

const MESSAGES_CAUSE: &str = "messages that nobody asked for";
const BYTES_CAUSE: &str = "bytes that nobody asked for";
const UNREAD_CAUSE: &str = "sends requests and does not";

#[tokio::test(flavor = "multi_thread")]
async fn program_that_floods_at_full_speed_is_disconnected() {
    let bench = FaultHarness::start().await;
    for (mode, cause) in [
        ("yes", MESSAGES_CAUSE),
        ("ping", UNREAD_CAUSE),
        ("unknown", UNREAD_CAUSE),
        ("ask", UNREAD_CAUSE),
        ("notify", MESSAGES_CAUSE),
        ("progress", MESSAGES_CAUSE),
        ("changed", MESSAGES_CAUSE),
        ("updated", MESSAGES_CAUSE),
        ("answer", MESSAGES_CAUSE),
        ("large", BYTES_CAUSE),
        ("stderr", MESSAGES_CAUSE),
        ("blank", MESSAGES_CAUSE),
        ("crlf", MESSAGES_CAUSE),
        ("endless", "a line of more than 16 MiB"),
    ] {
        let config = json!({"command": flood_program(), "args": ["stdio", mode, mode]});
        bench.add_server(mode, "STDIO", config).await;
        assert_disconnected(&bench, mode, cause).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn http_server_that_floods_at_full_speed_is_disconnected() {
    let bench = FaultHarness::start().await;
    let modes = [
        ("comment", MESSAGES_CAUSE),
        ("field", MESSAGES_CAUSE),
        ("blank", MESSAGES_CAUSE),
        ("ping", UNREAD_CAUSE),
        ("ask", UNREAD_CAUSE),
        ("notify", MESSAGES_CAUSE),
        ("answer", MESSAGES_CAUSE),
        ("large", BYTES_CAUSE),
    ];
    for (kind, path) in [("SSE", "/sse"), ("HTTP", "/mcp")] {
        for (mode, cause) in modes {
            let flood = FloodServer::start(mode).await;
            let name = format!("{mode}-{}", kind.to_lowercase());
            bench.add_server(&name, kind, flood.url(path)).await;
            assert_disconnected(&bench, &name, cause).await;
        }
    }
    let flood = FloodServer::start("endpoint").await;
    bench.add_server("endpoint", "SSE", flood.url("/sse")).await;
    assert_disconnected(&bench, "endpoint", MESSAGES_CAUSE).await;
}

/// Interim responses belong to a request and carry nothing; they end it.
#[tokio::test(flavor = "multi_thread")]
async fn upstream_that_floods_interim_responses_does_not_block_others() {
    let bench = FaultHarness::start().await;
    let flood = FloodServer::start("continue").await;
    bench
        .add_server("interim", "HTTP", flood.url("/call"))
        .await;
    let flooding = bench.call("interim__flood", json!({}));
    let failed = bench.while_healthy_server_answers(flooding).await;
    assert!(failed.is_err(), "{failed:?}");
}

/// A client that sends one id again and again and reads nothing, as `yes` would.
#[tokio::test(flavor = "multi_thread")]
async fn client_that_repeats_an_id_is_bounded() {
    let bench = FaultHarness::start().await;
    let before = resident_mib();
    let hub = &bench.hub;
    let socket = hub.directory.path().join("hub.sock");
    let mut stream = UnixStream::connect(socket).await.unwrap();
    let block = "{\"jsonrpc\":\"2.0\",\"id\":5,\"method\":\"ping\"}\n".repeat(1000);
    let sending = async {
        for _ in 0..1000 {
            if stream.write_all(block.as_bytes()).await.is_err() {
                break;
            }
        }
    };
    // The hub stops reading, or ends the connection: either way it keeps little.
    let flooding = tokio::time::timeout(Duration::from_secs(5), sending);
    let _stopped = bench.while_healthy_server_answers(flooding).await;
    let grown = resident_mib().saturating_sub(before);
    assert!(grown < MAX_GROWTH_MIB, "{grown} MiB");
}

/// Comments and events without content keep no model's stream alive.
#[tokio::test(flavor = "multi_thread")]
async fn model_that_floods_is_disconnected() {
    let mut floods = Vec::new();
    for mode in ["comment", "blank", "field", r#"{"choices":[]}"#, "done"] {
        floods.push((mode, FloodServer::start(mode).await));
    }
    let bench = FaultHarness::start_with(|config| {
        let models = floods.iter().map(|(mode, flood)| ModelDefinition {
            name: (*mode).to_owned(),
            base_url: Some(format!("http://127.0.0.1:{}/v1", flood.port)),
            ..ModelDefinition::default()
        });
        config.models = models.collect();
    })
    .await;
    for (mode, _) in &floods {
        let body = json!({"model": mode, "stream": true,
            "messages": [{"role": "user", "content": "x"}]});
        let before = resident_mib();
        let asking = async {
            let path = "/v1/chat/completions";
            let reply = TestRequest::post(&bench.hub.address, path, &body)
                .send()
                .await;
            (reply.status.as_u16(), reply.text().await)
        };
        let (status, text) = bench.while_healthy_server_answers(asking).await;
        let grown = resident_mib().saturating_sub(before);
        assert!(grown < MAX_GROWTH_MIB, "{mode}: {grown} MiB");
        if *mode == "done" {
            assert_eq!(status, 200);
            assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
        } else {
            let cause = "more comments and empty events than a stream may have";
            assert!(text.contains(cause), "{mode}: {status} {text}");
        }
    }
}

/// What comes on the stream of a call belongs to it, so requests are answered one
/// after the other and nothing is kept.
#[tokio::test(flavor = "multi_thread")]
async fn call_that_floods_its_own_stream_is_ended() {
    // On a busy machine an unoptimised hub reads less than the usual budget.
    let bench = FaultHarness::start_with(|config| {
        config.limits.server_bytes_per_second = 2 << 20;
        config.limits.server_messages_per_second = 1_000;
    })
    .await;
    for (mode, cause) in [
        ("comment", MESSAGES_CAUSE),
        ("notify", MESSAGES_CAUSE),
        ("answer", MESSAGES_CAUSE),
        ("large", BYTES_CAUSE),
    ] {
        let flood = FloodServer::start(mode).await;
        bench.add_server(mode, "HTTP", flood.url("/call")).await;
        assert_disconnected(&bench, mode, cause).await;
    }
}
