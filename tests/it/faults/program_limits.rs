//! Bounds of programs: memory, processes, processor time, and that nothing is left
//! of a program that turns on its warden.

use std::{fs, process::Stdio};

use maru::{config::Config, upstream::ServerView};
use serde_json::{Value, json};

use super::harness::{FaultHarness, PYTHON, processes_with_mark};
use crate::{
    faults::free_port,
    http_client::{TestRequest, wait_for, wait_until},
    signals::maru_command,
    test_hub::call_message,
};

const MARU_PROGRAM: &str = env!("CARGO_BIN_EXE_maru");
const GREEDY_SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/faults/greedy.py");
/// What such a server needs besides what it takes.
const BASE_MEMORY_MB: u64 = 128;

/// A server that does what it is asked, which is too much.
async fn harness_with_greedy_server(
    warden: bool,
    change: impl FnOnce(&mut Config),
) -> FaultHarness {
    let bench = FaultHarness::start_with(|config| {
        config.warden = Some(MARU_PROGRAM.into()).filter(|_| warden);
        change(config);
    })
    .await;
    let mark = bench.arguments("greedy", "-").pop().unwrap();
    let config = json!({"command": *PYTHON, "args": [GREEDY_SCRIPT, "serve", mark]});
    let view = bench.add_server("greedy", "STDIO", config).await;
    assert_eq!(view.status.state.as_str(), "CONNECTED", "{view:?}");
    bench
}

async fn assert_ended_with(bench: &FaultHarness, tool: &str, cause: &str) {
    // It may answer before it is noticed.
    let _ = bench.call(&format!("greedy__{tool}"), json!({})).await;
    let is_down = |view: &ServerView| view.status.state.as_str() == "FAILED";
    let view = bench
        .while_healthy_server_answers(bench.wait_for("greedy", is_down))
        .await;
    let said = view.status.cause.unwrap_or_default();
    assert!(said.contains(cause), "{tool}: {said}");
    bench.wait_until_gone("greedy").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn program_over_its_memory_limit_is_killed_with_the_cause() {
    for warden in [true, false] {
        let bench = harness_with_greedy_server(warden, |config| {
            config.mcp.programs.memory_mb = BASE_MEMORY_MB;
        })
        .await;
        assert_ended_with(&bench, "eat", "mcp.programs.memory-mb allows 128 MiB").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn program_that_starts_too_many_processes_is_ended_with_the_cause() {
    let bench = harness_with_greedy_server(true, |config| config.mcp.programs.processes = 20).await;
    assert_ended_with(&bench, "fork", "mcp.programs.processes allows 20").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_that_processes_share_counts_once() {
    let bench = harness_with_greedy_server(true, |config| {
        config.mcp.programs.memory_mb = BASE_MEMORY_MB;
    })
    .await;
    assert!(bench.call("greedy__share", json!({})).await.is_ok());
    let view = bench
        .wait_for("greedy", |view| {
            let usage = view.program.and_then(|it| it.usage);
            usage.is_some_and(|it| it.processes > 5)
        })
        .await;
    let usage = view.program.unwrap().usage.unwrap();
    assert!(usage.memory_bytes < BASE_MEMORY_MB << 20, "{usage:?}");
    assert_eq!(bench.echo("greedy", "x").await.as_deref(), Ok("echo done"));
}

#[tokio::test(flavor = "multi_thread")]
async fn program_over_its_cpu_limit_is_throttled() {
    let bench =
        harness_with_greedy_server(true, |config| config.mcp.programs.cpu_percent = 20).await;
    assert!(bench.call("greedy__spin", json!({})).await.is_ok());
    wait_until(async || {
        let stats = bench.processes("greedy").into_iter();
        let mut stats = stats.filter_map(|it| fs::read_to_string(format!("/proc/{it}/stat")).ok());
        stats.any(|it| it.contains(") T "))
    })
    .await;
    assert_eq!(bench.echo("greedy", "x").await.as_deref(), Ok("echo done"));
    // It ends although it may be resting.
    bench.remove("greedy").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bounds_and_use_of_a_program_are_shown() {
    let bench = harness_with_greedy_server(true, |config| {
        config.mcp.programs.memory_mb = BASE_MEMORY_MB;
        config.mcp.programs.cpu_percent = 150;
        config.mcp.programs.processes = 30;
    })
    .await;
    let is_known = |view: &ServerView| view.program.is_some_and(|it| it.usage.is_some());
    bench.wait_for("greedy", is_known).await;
    let path = "/api/mcp/servers/greedy";
    let shown = bench.hub.send_as_admin("GET", path, Value::Null).await;
    let shown = shown.json().await["program"].clone();
    assert!(shown["memoryBytes"].as_u64().unwrap() > 1 << 20, "{shown}");
    assert_eq!(shown["processes"], 1, "{shown}");
    assert!(shown["cpuPercent"].is_u64(), "{shown}");
    let limits = &shown["limits"];
    assert_eq!(limits["memoryBytes"], BASE_MEMORY_MB << 20, "{shown}");
    assert_eq!(limits["cpuPercent"], 150, "{shown}");
    assert_eq!(limits["processes"], 30, "{shown}");
    bench.remove("greedy").await;
}

/// Node.js reserves far more addresses than it uses.
#[tokio::test(flavor = "multi_thread")]
async fn node_runs_within_its_bounds() {
    const NODE_SERVER_SOURCE: &str = r#"
require('readline').createInterface({input: process.stdin}).on('line', line => {
  const {id, method} = JSON.parse(line);
  if (id === undefined) return;
  const result = {
    initialize: {protocolVersion: '2025-06-18', capabilities: {tools: {}}, serverInfo: {name: 'n', version: '1'}},
    'tools/list': {tools: [{name: 'echo', inputSchema: {type: 'object'}}]},
    'tools/call': {content: [{type: 'text', text: 'node runs'}]},
  }[method];
  const answer = result ? {result} : {error: {code: -32601, message: 'unknown method'}};
  console.log(JSON.stringify({jsonrpc: '2.0', id, ...answer}));
});
"#;
    let bench = FaultHarness::start_with(|config| {
        config.warden = Some(MARU_PROGRAM.into());
        config.mcp.programs.memory_mb = BASE_MEMORY_MB;
    })
    .await;
    let mark = bench.arguments("node", "-").pop().unwrap();
    let script = format!("{mark}.js");
    fs::write(&script, NODE_SERVER_SOURCE).unwrap();
    let config = json!({"command": "node", "args": [script, mark]});
    let view = bench.add_server("node", "STDIO", config).await;
    assert_eq!(view.status.state.as_str(), "CONNECTED", "{view:?}");
    let said = bench.echo("node", "x").await;
    assert_eq!(said.as_deref(), Ok("node runs"));
    // The kernel holds a bound, too, should the program be faster than the hub.
    let most = ((2 * BASE_MEMORY_MB + 512) << 20).to_string();
    let is_bounded = |id: u32| {
        let limits = fs::read_to_string(format!("/proc/{id}/limits")).unwrap();
        let data = limits.lines().find(|it| it.starts_with("Max data size"));
        let words: Vec<&str> = data.unwrap().split_whitespace().collect();
        words[3..5] == [&most, &most]
    };
    let processes = bench.processes("node").into_iter();
    // The warden is not.
    assert_eq!(processes.filter(|it| is_bounded(*it)).count(), 1);
}

/// Programs run as the same user as their wardens, so they can kill and stop them.
#[tokio::test(flavor = "multi_thread")]
async fn program_that_kills_its_warden_leaves_nothing_behind() {
    for (tool, cause) in [("kill", "signal: 9"), ("stop", "its warden was stopped")] {
        let directory = tempfile::tempdir().unwrap();
        let mark = directory.path().join("greedy").display().to_string();
        let python = &*PYTHON;
        let yaml = format!(
            "mcp:\n  reconnection: {{enabled: false}}\n  servers:\n    - {{name: greedy, transport: stdio, command: {python}, args: ['{GREEDY_SCRIPT}', serve, '{mark}']}}\n"
        );
        fs::write(directory.path().join("maru.yaml"), yaml).unwrap();
        let listen = format!("127.0.0.1:{}", free_port());
        let mut hub = maru_command(directory.path(), &["serve", "--listen", &listen])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let token = directory.path().join("data/admin-token");
        let show = async || {
            let token = fs::read_to_string(&token).unwrap_or_default();
            let path = "/api/mcp/servers/greedy";
            let ask = TestRequest::new(&listen, "GET", path);
            let ask = ask.header("authorization", &format!("Bearer {}", token.trim()));
            ask.send().await.json().await
        };
        wait_until(async || processes_with_mark(&mark).len() >= 2).await;
        wait_for_status(&show, "CONNECTED").await;
        let asked = call_message(1, &format!("greedy__{tool}"), json!({}));
        let _ = TestRequest::post(&listen, "/sse", &asked).send().await;
        let shown = wait_for_status(&show, "FAILED").await;
        let said = shown["cause"].as_str().unwrap_or_default();
        assert!(said.contains(cause), "{tool}: {shown}");
        wait_until(async || processes_with_mark(&mark).is_empty()).await;
        let children = format!("/proc/{0}/task/{0}/children", hub.id());
        wait_until(async || fs::read_to_string(&children).is_ok_and(|it| it.trim().is_empty()))
            .await;
        hub.kill().unwrap();
        hub.wait().unwrap();
    }
}

async fn wait_for_status(show: &impl AsyncFn() -> Value, status: &str) -> Value {
    wait_for(show, |it| it["status"] == status).await
}
