//! Every endpoint in every version it speaks, with the same assertions.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::Command,
};

use crate::{
    http_client::{TestRequest, within_test_timeout},
    mcp_client::{LEGACY_VERSIONS, McpClient},
    test_hub::{TestHub, initialize_message, request_message, stateless_message},
};

/// What must hold through every endpoint.
async fn check_transport(mut client: McpClient) {
    let list = client.request(1, "tools/list", json!({})).await;
    let tools = list["result"]["tools"].as_array().unwrap();
    let names: Vec<&str> = tools
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "calculate_vacation_days",
            "describe_table",
            "get_all_employees",
            "get_employee_info",
            "get_sim_search",
            "get_text_embedding",
            "list_tables",
            "query_bga_database",
            "search_docs",
            "serialize_for_cell"
        ]
    );

    let called = client
        .request(
            2,
            "tools/call",
            json!({"name": "search_docs", "arguments": {"query": "연차"}}),
        )
        .await;
    let result = &called["result"];
    assert_eq!(result["isError"], false);
    let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(text["success"], true);
    assert_eq!(text["result"][0]["title"], "연차 휴가 규정");
    // Versions before 2025-06-18 have no structured content.
    if let Some(structure) = result.get("structuredContent") {
        assert_eq!(&text, structure);
    }

    let wrong = client
        .request(
            3,
            "tools/call",
            json!({"name": "search_docs", "arguments": {"query": 5}}),
        )
        .await;
    assert_eq!(wrong["result"]["isError"], true);
    let text = wrong["result"]["content"][0]["text"].as_str().unwrap();
    let failure: Value = serde_json::from_str(text).unwrap();
    let message = failure["error"].as_str().unwrap();
    assert!(
        message.contains("expected search_docs(query: string)"),
        "{message}"
    );

    let unknown = client
        .request(
            4,
            "tools/call",
            json!({"name": "serch_docs", "arguments": {}}),
        )
        .await;
    assert_eq!(unknown["error"]["code"], -32602);
    assert!(
        unknown["error"]["message"]
            .as_str()
            .unwrap()
            .contains("did you mean search_docs?")
    );

    let nothing = client.request(5, "no/such", json!({})).await;
    assert_eq!(nothing["error"]["code"], -32601);
}

#[tokio::test]
async fn streamable_http_behaves_alike_in_every_version() {
    let hub = TestHub::start().await;
    for version in &LEGACY_VERSIONS[1..] {
        for path in ["/mcp", "/sse", "/mcp/s/maru"] {
            check_transport(McpClient::streamable_http(&hub, path, version).await).await;
        }
    }
    check_transport(McpClient::Stateless {
        hub: hub.address.clone(),
    })
    .await;
}

#[tokio::test]
async fn http_sse_behaves_alike_in_every_version() {
    let hub = TestHub::start().await;
    for version in LEGACY_VERSIONS {
        check_transport(McpClient::sse(&hub, version).await).await;
    }
}

#[tokio::test]
async fn stdio_behaves_alike_in_every_version() {
    let hub = TestHub::start().await;
    for version in LEGACY_VERSIONS.into_iter().chain(["2026-07-28"]) {
        check_transport(McpClient::stdio(hub.directory.path(), version).await).await;
        check_transport(McpClient::stdio_joining(&hub, version).await).await;
    }
}

#[tokio::test]
async fn stdio_beside_a_hub_shows_what_the_hub_shows() {
    let hub = TestHub::with_suite_and_slow_tool().await;
    let mut client = McpClient::stdio_joining(&hub, "2025-11-25").await;
    let listed = client.request(1, "tools/list", json!({})).await;
    let names = listed["result"]["tools"].to_string();
    assert!(names.contains("test_simple_text"), "{names}");
    hub.running.stop().await;
    // The process ends with the hub, so that its client notices.
    let McpClient::Stdio { mut output, .. } = client else {
        unreachable!("it is one of stdio");
    };
    while within_test_timeout(output.next_line())
        .await
        .unwrap()
        .is_some()
    {}
}

#[tokio::test]
async fn stdio_finishes_running_requests_at_end_of_input() {
    let hub = TestHub::start().await;
    let mut child = Command::new(env!("CARGO_BIN_EXE_maru"))
        .args(["stdio", "--data-dir"])
        .arg(hub.directory.path().join("stdio"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut text = String::new();
    for id in 0..500 {
        text.push_str(
            &request_message(id, "tools/call", json!({"name": "get_all_employees"})).to_string(),
        );
        text.push('\n');
    }
    text.push_str("not JSON\n");
    let ((), output) = tokio::join!(
        async move {
            input.write_all(text.as_bytes()).await.unwrap();
            drop(input);
        },
        within_test_timeout(child.wait_with_output())
    );
    let output = output.unwrap();
    assert!(output.status.success());
    let lines: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|it| serde_json::from_str(it).unwrap())
        .collect();
    assert_eq!(
        lines
            .iter()
            .filter(|it| it["result"]["isError"] == false)
            .count(),
        500
    );
    assert_eq!(
        lines
            .iter()
            .filter(|it| it["error"]["code"] == -32700)
            .count(),
        1
    );
}

#[tokio::test]
async fn stdio_ends_with_its_input_however_much_is_going_on() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_maru"))
        .args(["stdio", "--data-dir"])
        .arg(directory.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut text = String::new();
    let mut future = stateless_message("subscriptions/listen", json!({"notifications": {}}));
    future["id"] = 100.into();
    text.push_str(&format!(
        "{}\n",
        future.to_string().replace("2026-07-28", "2099-01-01")
    ));
    for id in 0..70 {
        let mut listen = stateless_message("subscriptions/listen", json!({"notifications": {}}));
        listen["id"] = id.into();
        text.push_str(&format!("{listen}\n"));
    }
    text.push_str(&format!(
        "{}\n",
        request_message(99, "tools/list", json!({}))
    ));
    input.write_all(text.as_bytes()).await.unwrap();
    // All requests have started when the last of them are refused.
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut lines: Vec<Value> = Vec::new();
    let is_busy = |it: &&Value| it["error"]["code"] == -32000;
    let has = |lines: &[Value], id: i64| lines.iter().any(|it| it["id"] == id);
    while lines.iter().filter(is_busy).count() < 6 || !has(&lines, 99) || !has(&lines, 100) {
        let line = within_test_timeout(output.next_line()).await.unwrap();
        lines.push(serde_json::from_str(&line.unwrap()).unwrap());
    }
    drop(input);
    while let Some(line) = within_test_timeout(output.next_line()).await.unwrap() {
        lines.push(serde_json::from_str(&line).unwrap());
    }
    assert!(child.wait().await.unwrap().success());
    let listed = lines.iter().find(|it| it["id"] == 99).unwrap();
    assert!(listed["result"]["tools"].is_array());
    let unknown = lines.iter().find(|it| it["id"] == 100).unwrap();
    assert_eq!(unknown["error"]["code"], -32022);
    // Listening has its own limit; the first may still count when it is reached.
    assert!((6..=7).contains(&lines.iter().filter(is_busy).count()));
}

#[tokio::test]
async fn protocol_version_is_read_from_meta_only() {
    let hub = TestHub::start().await;
    let session = hub.initialize_session("2025-11-25", json!({})).await;
    let query = "io.modelcontextprotocol/protocolVersion";
    let body = request_message(
        1,
        "tools/call",
        json!({"name": "search_docs", "arguments": {"query": query}}),
    );
    let legacy = hub
        .session_request(&session, &body)
        .send()
        .await
        .rpc_response()
        .await;
    assert_eq!(legacy["result"]["isError"], false);
    let escaped = stateless_message("tools/list", json!({}))
        .to_string()
        .replace('/', "\\/");
    let modern = TestRequest::new(&hub.address, "POST", "/mcp")
        .header("content-type", "application/json")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/list")
        .body(&escaped);
    let modern = modern.send().await.rpc_response().await;
    assert_eq!(modern["result"]["resultType"], "complete");
}

#[tokio::test]
async fn long_invalid_arguments_are_truncated_in_errors() {
    let hub = TestHub::start().await;
    let body = json!({"name": "search_docs", "arguments": {"query": ["x".repeat(1 << 20)], "more": "y".repeat(1 << 20)}});
    let text = hub
        .stateless_request("tools/call", body)
        .send()
        .await
        .text()
        .await;
    assert!(text.contains("expected search_docs(query: string)"));
    assert!(text.len() < 4000, "{} bytes", text.len());
}

#[tokio::test]
async fn post_to_sse_works_without_initialize() {
    let hub = TestHub::start().await;
    let body = request_message(1, "tools/list", json!({}));
    let direct = TestRequest::post(&hub.address, "/sse", &body)
        .send()
        .await
        .rpc_response()
        .await;
    assert_eq!(direct["result"]["tools"].as_array().unwrap().len(), 10);
    let refused = TestRequest::post(&hub.address, "/mcp", &body).send().await;
    assert_eq!(refused.status, 400);
}

#[tokio::test]
async fn unknown_server_and_foreign_session_are_not_found() {
    let hub = TestHub::start().await;
    let unknown = TestRequest::post(
        &hub.address,
        "/mcp/s/nobody",
        &initialize_message("2025-11-25", &json!({})),
    )
    .send()
    .await;
    assert_eq!(unknown.status, 404);
    let session = hub.initialize_session("2025-11-25", json!({})).await;
    // A session of one scope is not one of another.
    let body = request_message(1, "tools/list", json!({}));
    let elsewhere = TestRequest::post(&hub.address, "/mcp/s/maru", &body)
        .header("mcp-session-id", &session)
        .send()
        .await;
    assert_eq!(elsewhere.status, 404);
}

#[tokio::test]
async fn resources_prompts_and_completion_are_offered() {
    let hub = TestHub::start().await;
    let mut client = McpClient::Stateless {
        hub: hub.address.clone(),
    };
    let templates = client
        .request(1, "resources/templates/list", json!({}))
        .await;
    assert_eq!(
        templates["result"]["resourceTemplates"][0]["uriTemplate"],
        "maru://documents/{id}"
    );
    let complete = json!({"ref": {"type": "ref/prompt", "name": "vacation_report"}, "argument": {"name": "employee_id", "value": "EMP00"}});
    let completed = client.request(2, "completion/complete", complete).await;
    assert_eq!(completed["result"]["completion"]["values"][0], "EMP001");

    let session = hub.initialize_session("2025-11-25", json!({})).await;
    let read = |uri: &str| request_message(3, "resources/read", json!({"uri": uri}));
    let found = hub
        .session_request(&session, &read("maru://documents/1"))
        .send()
        .await
        .rpc_response()
        .await;
    assert!(
        found["result"]["contents"][0]["text"]
            .as_str()
            .unwrap()
            .contains("연차 휴가 규정")
    );
    let missing = hub
        .session_request(&session, &read("maru://documents/999"))
        .send()
        .await
        .rpc_response()
        .await;
    assert_eq!(missing["error"]["code"], -32002);
    assert_eq!(missing["error"]["data"]["uri"], "maru://documents/999");
    let prompt = request_message(
        4,
        "prompts/get",
        json!({"name": "vacation_report", "arguments": {"employee_id": "EMP002"}}),
    );
    let prompt = hub
        .session_request(&session, &prompt)
        .send()
        .await
        .rpc_response()
        .await;
    assert!(
        prompt["result"]["messages"][0]["content"]["text"]
            .as_str()
            .unwrap()
            .contains("EMP002")
    );
}
