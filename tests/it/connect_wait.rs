//! A server that takes its time to connect holds up nobody for long.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use tokio::{net::TcpListener, process::Command};

use crate::{
    fixture_server::fixture_program,
    http_client::{TestRequest, wait_for, within_test_timeout},
    openai::fake_model::{FakeModelServer, streamed_by_byte},
    test_hub::TestHub,
};

/// A program that is an MCP server only once the file `ready` is beside it.
struct SlowProgram {
    directory: tempfile::TempDir,
}

impl SlowProgram {
    fn create() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("slow");
        let text = format!(
            "#!/bin/sh\nwhile [ ! -e {}/ready ]; do sleep 0.05; done\nexec {} stdio\n",
            directory.path().display(),
            fixture_program().display()
        );
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Self { directory }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("slow")
    }

    fn make_ready(&self) {
        fs::write(self.directory.path().join("ready"), "").unwrap();
    }
}

async fn hub_with_short_wait() -> TestHub {
    TestHub::with_config(|config| config.mcp.connect_wait_ms = 50).await
}

async fn show(hub: &TestHub, name: &str) -> Value {
    let path = format!("/api/mcp/servers/{name}");
    hub.send_as_admin("GET", &path, Value::Null)
        .await
        .json()
        .await
}

async fn wait_until_connected(hub: &TestHub, name: &str) {
    wait_for(
        async || show(hub, name).await,
        |it| it["status"] == "CONNECTED",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn registration_is_answered_while_the_server_is_still_being_connected() {
    let hub = hub_with_short_wait().await;
    let program = SlowProgram::create();
    let body = json!({"name": "slow", "transportType": "STDIO", "autoConnect": true,
        "config": {"command": program.path()}});
    let made = hub.send_as_admin("POST", "/api/mcp/servers", body).await;
    assert_eq!(made.status, 201);
    assert_eq!(made.json().await["status"], "CONNECTING");
    for action in ["connect", "disconnect", "disable", "enable", "connect"] {
        let path = format!("/api/mcp/servers/slow/{action}");
        let reply = hub.send_as_admin("POST", &path, Value::Null).await;
        assert_eq!(reply.status, 200, "{action}");
    }
    assert_eq!(show(&hub, "slow").await["status"], "CONNECTING");
    program.make_ready();
    wait_until_connected(&hub, "slow").await;
    assert!(hub.tool_names().await.contains("slow__test_simple_text "));
}

#[tokio::test(flavor = "multi_thread")]
async fn address_that_never_answers_is_added_with_its_state() {
    let hub = hub_with_short_wait().await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/sse", silent.local_addr().unwrap());
    let body = json!({"name": "silent", "url": url});
    let added = hub.send_as_admin("POST", "/mcp/add", body).await;
    assert_eq!(added.status, 200);
    let expected =
        json!({"name": "silent", "url": url, "message": "registered", "status": "CONNECTING"});
    assert_eq!(added.json().await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn run_that_names_a_slow_server_goes_on_without_it() {
    let backend = FakeModelServer::start_with_steps(streamed_by_byte("안녕하세요!", "stop")).await;
    let hub = TestHub::with_config(|config| {
        config.models = vec![backend.model()];
        config.agent.model = Some("small".to_owned());
        config.mcp.connect_wait_ms = 50;
    })
    .await;
    let program = SlowProgram::create();
    let body = json!({"name": "slow", "transportType": "STDIO",
        "config": {"command": program.path()}});
    hub.send_as_admin("POST", "/api/mcp/servers", body).await;
    let params =
        json!({"messages": [{"role": "user", "content": "안녕"}], "mcp_servers": ["slow"]});
    let request =
        json!({"jsonrpc": "2.0", "id": 1, "method": "generate_content", "params": params});
    let reply = TestRequest::post(&hub.address, "/generate_with_mcp", &request)
        .header("accept", "application/json")
        .send()
        .await;
    let answer = reply.json().await;
    assert!(answer.to_string().contains("안녕하세요!"), "{answer}");
    assert_eq!(show(&hub, "slow").await["status"], "CONNECTING");
    program.make_ready();
    wait_until_connected(&hub, "slow").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn command_line_waits_until_the_server_is_connected() {
    let hub = hub_with_short_wait().await;
    let program = SlowProgram::create();
    let adding = add_by_command_line(hub.directory.path(), &program);
    let readying = async {
        wait_for(
            async || show(&hub, "slow").await,
            |it| it["status"] == "CONNECTING",
        )
        .await;
        program.make_ready();
    };
    let (printed, ()) = tokio::join!(adding, readying);
    assert!(printed.starts_with("slow is CONNECTED, "), "{printed}");
}

async fn add_by_command_line(data_dir: &Path, program: &SlowProgram) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_maru"))
        .arg("--data-dir")
        .arg(data_dir)
        .args(["servers", "add", "slow", "--"])
        .arg(program.path())
        .current_dir(data_dir)
        .output();
    let output = within_test_timeout(output).await.unwrap();
    String::from_utf8(output.stdout).unwrap()
}
