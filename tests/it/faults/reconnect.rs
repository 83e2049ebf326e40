//! Servers that go away and come back.

use std::{
    net::SocketAddr,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::future::join_all;
use maru::{config::Config, tools::CatalogScope, upstream::ServerState};
use maru_runtime::tasks::Tasks;
use serde_json::json;
use tokio::{
    net::{TcpListener, TcpStream},
    process::{Child, Command},
    time::sleep,
};

use super::{
    evil_http::{EvilHttpServer, free_port},
    harness::FaultHarness,
};
use crate::{
    clients::{client_tools_dir, node_program},
    http_client::{assert_stays, wait_until},
};

/// Waits of about `first` milliseconds, and this many attempts.
fn reconnect_policy(first: u64, attempts: u32) -> impl FnOnce(&mut Config) {
    move |config| {
        config.mcp.reconnection.initial_delay_ms = first;
        config.mcp.reconnection.multiplier = 1.5;
        config.mcp.reconnection.max_attempts = attempts;
    }
}

async fn kill(id: u32) {
    let id = id.to_string();
    let killed = Command::new("kill").args(["-9", &id]).status().await;
    assert!(killed.unwrap().success());
}

fn has_tool(bench: &FaultHarness, tool: &str) -> bool {
    let snapshot = bench.hub.running.catalog().snapshot();
    let view = snapshot.view(&CatalogScope::All).unwrap();
    view.tools.keys().any(|key| key == tool)
}

#[tokio::test(flavor = "multi_thread")]
async fn program_that_died_is_started_again_and_its_tools_stay_listed() {
    let bench = FaultHarness::start_with(reconnect_policy(300, 5)).await;
    let [first] = bench.processes("fx")[..] else {
        panic!("one process")
    };
    kill(first).await;
    let lost = bench
        .wait_for("fx", |it| it.status.state != ServerState::Connected)
        .await;
    assert_eq!(lost.status.state, ServerState::Waiting { attempt: 1 });
    assert!(lost.status.cause.unwrap().contains("SIGKILL"));
    assert!(has_tool(&bench, "fx__echo"));
    let back = bench
        .wait_for("fx", |it| it.status.state == ServerState::Connected)
        .await;
    assert_eq!(back.status.cause, None);
    let [second] = bench.processes("fx")[..] else {
        panic!("one process")
    };
    assert_ne!(first, second);
    assert_eq!(bench.echo("fx", "x").await, Ok("x".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn call_starts_a_program_that_is_down_once_for_everyone() {
    let bench = FaultHarness::start().await;
    for id in bench.processes("fx") {
        kill(id).await;
    }
    bench
        .wait_for("fx", |it| it.status.state != ServerState::Connected)
        .await;
    let most = max_processes_during(&bench, "fx", async {
        let calls = join_all((0..20).map(|_| bench.echo("fx", "x"))).await;
        assert!(
            calls.iter().all(|it| *it == Ok("x".to_owned())),
            "{calls:?}"
        );
    })
    .await;
    assert_eq!(most, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn call_right_after_a_crash_is_not_lost() {
    let bench = FaultHarness::start().await;
    for round in 0..5 {
        for id in bench.processes("fx") {
            kill(id).await;
        }
        bench
            .wait_for("fx", |it| it.status.state != ServerState::Connected)
            .await;
        let text = format!("round {round}");
        assert_eq!(bench.echo("fx", &text).await, Ok(text));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn call_reconnects_to_an_http_server_that_is_back() {
    for kind in ["HTTP", "SSE"] {
        let (bench, mut evil) = (FaultHarness::start().await, EvilHttpServer::start().await);
        bench
            .add_server("evil", kind, evil.registration(kind, "good"))
            .await;
        assert_eq!(bench.echo("evil", "x").await, Ok("x".to_owned()), "{kind}");

        evil.kill().await;
        for _ in 0..2 {
            let down = bench.echo("evil", "x").await;
            assert!(down.is_err(), "{kind}: {down:?}");
        }
        let lost = bench
            .wait_for("evil", |it| it.status.state.as_str() == "FAILED")
            .await;
        let cause = lost.status.cause.unwrap();
        assert!(cause.contains("cannot connect"), "{kind}: {cause}");
        assert!(has_tool(&bench, "evil__echo"));

        evil.restart().await;
        assert_eq!(bench.echo("evil", "y").await, Ok("y".to_owned()), "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn restart_of_an_idle_http_server_is_invisible_to_calls() {
    let (bench, mut evil) = (FaultHarness::start().await, EvilHttpServer::start().await);
    bench
        .add_server("evil", "HTTP", evil.registration("HTTP", "good"))
        .await;
    for round in 0..3 {
        let text = format!("round {round}");
        assert_eq!(bench.echo("evil", &text).await, Ok(text));
        evil.kill().await;
        evil.restart().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_upstream_session_is_reopened() {
    let (bench, evil) = (FaultHarness::start().await, EvilHttpServer::start().await);
    for status in [404, 400, 410] {
        let name = format!("evil-{status}");
        let config = evil.registration("HTTP", &format!("forget:{status}"));
        bench.add_server(&name, "HTTP", config).await;
        for round in 0..20 {
            let text = format!("{status} round {round}");
            assert_eq!(bench.echo(&name, &text).await, Ok(text));
        }
    }
}

/// The reference server answers 400 to a session that it does not know.
#[tokio::test(flavor = "multi_thread")]
async fn reference_server_that_was_restarted_is_used_on() {
    let bench = FaultHarness::start().await;
    let port = free_port();
    let mut server = start_reference_server(port).await;
    let url = format!("http://127.0.0.1:{port}/mcp");
    bench.add_server("every", "HTTP", json!({"url": url})).await;
    for round in 0..3 {
        let text = format!("round {round}");
        let said = bench.call("every__echo", json!({"message": text})).await;
        assert_eq!(said, Ok(format!("Echo: {text}")));
        server.kill().await.unwrap();
        server = start_reference_server(port).await;
    }
}

/// The reference server on Streamable HTTP.
async fn start_reference_server(port: u16) -> Child {
    let script = client_tools_dir()
        .join("node_modules/@modelcontextprotocol/server-everything/dist/index.js");
    let child = Command::new(node_program())
        .arg(script)
        .arg("streamableHttp")
        .env("PORT", port.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    wait_until(async || TcpStream::connect(("127.0.0.1", port)).await.is_ok()).await;
    child
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_response_does_not_affect_other_calls() {
    let (bench, evil) = (FaultHarness::start().await, EvilHttpServer::start().await);
    for mode in ["reset", "cut"] {
        bench
            .add_server(mode, "HTTP", evil.registration("HTTP", mode))
            .await;
        assert!(bench.echo(mode, "x").await.is_err());
        // A report would have been heard before this answer.
        let view = bench.hub.running.servers().connect(mode).await.unwrap();
        assert_eq!(view.status.state, ServerState::Connected, "{mode}");
    }
    let received = evil.received().await;
    let is_handshake = |it: &&serde_json::Value| {
        it["b"]
            .as_str()
            .is_some_and(|it| it.contains("\"initialize\""))
    };
    assert_eq!(received.iter().filter(is_handshake).count(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn reconnection_attempts_end_and_can_be_started_by_hand() {
    let (bench, server) = (
        FaultHarness::start_with(reconnect_policy(50, 3)).await,
        HangUpListener::open().await,
    );
    bench.add_server("evil", "SSE", server.config()).await;
    bench
        .wait_for("evil", |it| it.status.state == ServerState::Failed)
        .await;
    assert_eq!(server.connection_count(), 4);
    let count = async || server.connection_count();
    assert_stays(Duration::from_millis(500), count).await;
    let log = bench
        .hub
        .send_as_admin("GET", "/api/mcp/servers/evil/log", serde_json::Value::Null);
    let log = log.await.text().await;
    assert!(
        log.contains("gave up after 3 attempts to connect it again"),
        "{log}"
    );
    bench.hub.running.servers().connect("evil").await.unwrap();
    bench
        .wait_for("evil", |it| it.status.state == ServerState::Failed)
        .await;
    assert_eq!(server.connection_count(), 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn removed_server_is_not_tried_again() {
    let (bench, server) = (
        FaultHarness::start_with(reconnect_policy(100, 50)).await,
        HangUpListener::open().await,
    );
    bench.add_server("evil", "SSE", server.config()).await;
    bench.remove("evil").await;
    let count = async || server.connection_count();
    assert_stays(Duration::from_millis(600), count).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_that_is_switched_off_is_never_connected() {
    let (bench, server) = (
        FaultHarness::start_with(reconnect_policy(50, 50)).await,
        HangUpListener::open().await,
    );
    bench.add_server("evil", "SSE", server.config()).await;
    let servers = bench.hub.running.servers();
    let off = servers.set_enabled("evil", false).await.unwrap();
    assert_eq!(off.status.state, ServerState::Disabled);
    let attempts = server.connection_count();
    let still = servers.connect("evil").await.unwrap();
    assert_eq!(still.status.state, ServerState::Disabled);
    let count = async || server.connection_count();
    assert_stays(Duration::from_millis(400), count).await;
    servers.set_enabled("evil", true).await.unwrap();
    assert!(server.connection_count() > attempts);

    servers.set_enabled("fx", false).await.unwrap();
    assert!(!has_tool(&bench, "fx__echo"));
    assert!(bench.echo("fx", "x").await.is_err());
    bench.wait_until_gone("fx").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_credentials_are_not_retried() {
    let (bench, evil) = (
        FaultHarness::start_with(reconnect_policy(50, 50)).await,
        EvilHttpServer::start().await,
    );
    let view = bench
        .add_server("evil", "HTTP", evil.registration("HTTP", "h401"))
        .await;
    assert_eq!(view.status.state, ServerState::Failed);
    let count = async || evil.received().await.len();
    assert_stays(Duration::from_millis(400), count).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_shutdown_of_an_attempt_is_awaited() {
    let bench = FaultHarness::start_with(|config| {
        reconnect_policy(50, 50)(config);
        config.mcp.connect_timeout_ms = 300;
    })
    .await;
    let most = max_processes_during(&bench, "evil", async {
        bench.add_program("evil", "stdin-ignore").await;
        bench.wait_for("evil", |it| it.status.attempts >= 2).await;
    })
    .await;
    assert_eq!(most, 1);
}

/// The most processes that a server has at once while `work` is done.
async fn max_processes_during(
    bench: &FaultHarness,
    name: &str,
    work: impl Future<Output = ()>,
) -> usize {
    let most = AtomicUsize::new(0);
    let looking = async {
        loop {
            most.fetch_max(bench.processes(name).len(), Relaxed);
            sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::select! {
        () = work => (),
        () = looking => (),
    }
    most.into_inner()
}

/// An address that hangs up on everyone, and counts them.
struct HangUpListener {
    address: SocketAddr,
    attempts: Arc<AtomicUsize>,
}

impl HangUpListener {
    async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let attempts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&attempts);
        Tasks::default().spawn(async move {
            // It ends with its test.
            while listener.accept().await.is_ok() {
                counted.fetch_add(1, Relaxed);
            }
        });
        Self { address, attempts }
    }

    fn config(&self) -> serde_json::Value {
        json!({"url": format!("http://{}/sse", self.address)})
    }

    fn connection_count(&self) -> usize {
        self.attempts.load(Relaxed)
    }
}
