//! Programs that do not want to end, and what they leave behind.

use std::time::Duration;

use serde_json::json;
use tokio::{process::Command, time::Instant};

use super::harness::{FaultHarness, PYTHON, zombies};
use crate::http_client::{TestRequest, wait_until};

const STUBBORN_MODES: [&str; 4] = ["ignore-term", "orphan", "stdin-ignore", "good"];

#[tokio::test(flavor = "multi_thread")]
async fn removed_program_leaves_nothing_behind() {
    let bench = FaultHarness::start().await;
    let one = async |mode: &str| {
        bench.add_program(mode, mode).await;
        if mode != "stdin-ignore" {
            assert!(bench.echo(mode, "x").await.is_ok(), "{mode}");
            assert!(!bench.processes(mode).is_empty(), "{mode}");
        }
        let asked = Instant::now();
        bench.remove(mode).await;
        assert!(asked.elapsed() < Duration::from_secs(6), "{mode}");
    };
    let all = futures_util::future::join_all(STUBBORN_MODES.map(one));
    bench.while_healthy_server_answers(all).await;
    assert_eq!(zombies(), [0; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn program_that_is_being_connected_is_gone_when_it_is_removed() {
    let bench = FaultHarness::start().await;
    let servers = bench.hub.running.servers();
    let connecting = bench.add_program("evil", "stdin-ignore");
    let removing = async {
        wait_until(async || !bench.processes("evil").is_empty()).await;
        servers.remove("evil").await.unwrap();
        bench.wait_until_gone("evil").await;
    };
    // Whoever waits for the connection learns that it will not be.
    let (_, ()) = futures_util::future::join(connecting, removing).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_hub_leaves_nothing_behind() {
    let bench = FaultHarness::start().await;
    futures_util::future::join_all(STUBBORN_MODES.map(|mode| bench.add_program(mode, mode))).await;
    let marks = STUBBORN_MODES.map(|mode| bench.arguments(mode, mode).pop().unwrap());
    let FaultHarness { hub, .. } = bench;
    let asked = Instant::now();
    hub.running.stop().await;
    assert!(asked.elapsed() < Duration::from_secs(7));
    for mark in marks {
        assert_eq!(super::harness::processes_with_mark(&mark), [0; 0], "{mark}");
    }
    assert_eq!(zombies(), [0; 0]);
}

/// A child that leaves the group of its program cannot be ended with it; but it
/// must not hold up the hub.
#[tokio::test(flavor = "multi_thread")]
async fn runaway_child_does_not_block_other_servers() {
    let bench = FaultHarness::start().await;
    bench.add_program("evil", "orphan setsid").await;
    assert!(bench.echo("evil", "x").await.is_ok());
    let servers = bench.hub.running.servers();
    servers.remove("evil").await.unwrap();
    for id in bench.processes("evil") {
        let ended = Command::new("kill").arg("-0").arg(id.to_string()).status();
        assert!(ended.await.unwrap().success());
    }
    let runaways = bench.processes("evil");
    let asked = Instant::now();
    bench.hub.running.stop().await;
    let took = asked.elapsed();
    for id in runaways {
        let ended = Command::new("kill").arg("-9").arg(id.to_string()).status();
        assert!(ended.await.unwrap().success());
    }
    assert!(took < Duration::from_secs(4), "{took:?}");
}

/// Whoever asks for a change and leaves does not leave it half made.
#[tokio::test(flavor = "multi_thread")]
async fn change_is_finished_when_its_client_has_left() {
    let bench = FaultHarness::start().await;
    bench.add_program("evil", "ignore-term").await;
    let token = format!("Bearer {}", bench.hub.running.admin_token.reveal());
    let config = json!({"command": *PYTHON, "args": bench.arguments("evil", "good")});
    let path = "/api/mcp/servers/evil";
    let mut body = TestRequest::new(&bench.hub.address, "PUT", path);
    for (name, value) in [
        ("authorization", token.as_str()),
        ("content-type", "application/json"),
    ] {
        body = body.header(name, value);
    }
    let asking = body.body(&json!({"config": config}).to_string()).send();
    // The old program takes four seconds to end.
    let left = tokio::time::timeout(Duration::from_millis(500), asking).await;
    assert!(left.is_err());
    let view = bench
        .wait_for("evil", |it| {
            it.server.transport.masked_config()["args"][1] == "good"
        })
        .await;
    assert_eq!(view.server.name.as_str(), "evil");
    let view = bench.hub.running.servers().connect("evil").await.unwrap();
    assert_eq!(view.status.state.as_str(), "CONNECTED");
    assert_eq!(bench.echo("evil", "x").await, Ok("x".to_owned()));
}
