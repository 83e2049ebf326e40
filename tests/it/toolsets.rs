//! What a client sees: tool search, toolsets and overrides, on the wire.

use maru::config::{ToolListing, ToolsetDefinition};
use serde_json::{Value, json};

use crate::{
    fixture_server::fixture_program,
    http_client::{TestRequest, wait_for},
    mcp_client::{LEGACY_VERSIONS, McpClient},
    test_hub::{TestHub, call_message, stateless_message},
};

const SEARCH_TOOLS: [&str; 3] = ["call_read_only_tool", "call_tool", "find_tools"];

/// Starts a hub with the fixture server `fx` and the sample tools.
async fn hub_with_fixture() -> TestHub {
    hub_with(|_| ()).await
}

async fn hub_with(change: impl FnOnce(&mut maru::config::Config)) -> TestHub {
    let hub = TestHub::with_config(change).await;
    let config = json!({"command": fixture_program(), "args": ["stdio"]});
    let body =
        json!({"name": "fx", "autoConnect": true, "transportType": "STDIO", "config": config});
    let made = hub.send_as_admin("POST", "/api/mcp/servers", body).await;
    assert_eq!(made.status, 201);
    hub
}

async fn save(hub: &TestHub, path: &str, body: Value) -> Value {
    let saved = hub.send_as_admin("PUT", path, body).await;
    let status = saved.status;
    let shown = saved.json().await;
    assert_eq!(status, 200, "{shown}");
    shown
}

/// Sends a stateless request to `path`.
pub(crate) async fn ask(
    hub: &TestHub,
    path: &str,
    token: Option<&str>,
    method: &str,
    params: Value,
) -> Value {
    let body = stateless_message(method, params);
    let mut request = TestRequest::post(&hub.address, path, &body)
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", method);
    let params = &body["params"];
    if let Some(name) = params["name"].as_str().or(params["uri"].as_str()) {
        request = request.header("mcp-name", name);
    }
    if let Some(token) = token {
        request = request.header("authorization", &format!("Bearer {token}"));
    }
    request.send().await.rpc_response().await
}

async fn list(hub: &TestHub, path: &str, token: Option<&str>) -> Vec<String> {
    let listed = ask(hub, path, token, "tools/list", json!({})).await;
    names(&listed["result"])
}

pub(crate) async fn call(
    hub: &TestHub,
    path: &str,
    token: Option<&str>,
    tool: &str,
    with: Value,
) -> Value {
    let params = json!({"name": tool, "arguments": with});
    ask(hub, path, token, "tools/call", params).await
}

fn names(result: &Value) -> Vec<String> {
    let tools = result["tools"].as_array().expect("a list of tools");
    tools
        .iter()
        .map(|it| it["name"].as_str().unwrap().to_owned())
        .collect()
}

fn text(response: &Value) -> &str {
    response["result"]["content"][0]["text"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_searches_finds_and_calls_tools_as_themselves() {
    let hub = hub_with_fixture().await;
    let path = "/mcp?tools=search";
    assert_eq!(list(&hub, path, None).await, SEARCH_TOOLS);
    let found = call(
        &hub,
        path,
        None,
        "find_tools",
        json!({"query": "Who works here?"}),
    )
    .await;
    let found = &found["result"]["structuredContent"];
    let best = &found["tools"][0];
    assert_eq!(best["name"], "get_all_employees", "{found}");
    assert_eq!(best["inputSchema"]["type"], "object");
    assert!(best["description"].is_string());
    assert!(found["tools"].as_array().unwrap().len() <= 5);
    let one = json!({"query": "원격 근무 규정 알려줘", "limit": 1});
    let found = call(&hub, path, None, "find_tools", one).await;
    assert_eq!(
        names(&found["result"]["structuredContent"]),
        ["search_docs"]
    );

    // The arguments reach the tool as they were written.
    let inner = json!({"name": "get_employee_info", "arguments": {"employee_id": "EMP001"}});
    let called = call(&hub, path, None, "call_tool", inner).await;
    let direct = json!({"employee_id": "EMP001"});
    let direct = call(&hub, "/mcp", None, "get_employee_info", direct).await;
    assert_eq!(called["result"], direct["result"], "{called}");
    // They are checked as the tool's own.
    let inner = json!({"name": "search_docs", "arguments": {"query": 5}});
    let wrong = call(&hub, path, None, "call_tool", inner).await;
    assert_eq!(wrong["result"]["isError"], true);
    assert!(text(&wrong).contains("expected search_docs(query: string)"));
    let unknown = json!({"name": "serch_docs"});
    let unknown = call(&hub, path, None, "call_tool", unknown).await;
    let message = unknown["error"]["message"].as_str().unwrap();
    assert!(message.contains("did you mean search_docs?"), "{message}");
    // None of the search tools calls another.
    for name in SEARCH_TOOLS {
        let nested = json!({"name": name, "arguments": {"query": "x"}});
        let refused = call(&hub, path, None, "call_tool", nested).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
    }
    let missing = call(&hub, path, None, "call_tool", json!({"arguments": {}})).await;
    assert_eq!(missing["result"]["isError"], true);

    // The journal has them under the real name.
    let calls = hub.send_as_admin("GET", "/api/calls", Value::Null).await;
    let calls = calls.json().await;
    let calls = calls
        .as_array()
        .or(calls["calls"].as_array())
        .unwrap()
        .clone();
    let recorded: Vec<&str> = calls.iter().filter_map(|it| it["tool"].as_str()).collect();
    assert_eq!(
        recorded
            .iter()
            .filter(|it| **it == "get_employee_info")
            .count(),
        2,
        "{recorded:?}"
    );
    assert!(recorded.contains(&"find_tools"), "{recorded:?}");
    // So has the audit log.
    let audited = async || {
        let path = "/api/audit?target=get_employee_info";
        let records = hub.send_as_admin("GET", path, Value::Null).await;
        records.json().await.as_array().unwrap().len()
    };
    wait_for(audited, |it| *it == 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_calls_change_nothing_and_limits_are_those_of_the_real_tool() {
    let hub = hub_with_fixture().await;
    let path = "/mcp?tools=search";
    let tools = ask(&hub, path, None, "tools/list", json!({})).await;
    let hint = |name: &str| {
        let all = tools["result"]["tools"].as_array().unwrap();
        let tool = all.iter().find(|it| it["name"] == name).unwrap();
        tool["annotations"]["readOnlyHint"].clone()
    };
    assert_eq!(hint("call_read_only_tool"), true);
    assert_eq!(hint("call_tool"), false);
    let inner = |name: &str| json!({"name": name, "arguments": {}});
    let tool = "fx__test_simple_text";
    let refused = call(&hub, path, None, "call_read_only_tool", inner(tool)).await;
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    assert!(text(&refused).contains("call it with call_tool"));
    let change = json!({"annotations": {"readOnlyHint": true}});
    save(&hub, &format!("/api/tools/{tool}/override"), change).await;
    let called = call(&hub, path, None, "call_read_only_tool", inner(tool)).await;
    assert_eq!(called["result"]["isError"], false, "{called}");

    save(
        &hub,
        &format!("/api/limits/TOOL/{tool}"),
        json!({"max_count": 1}),
    )
    .await;
    call(&hub, path, None, "call_tool", inner(tool)).await;
    let exceeded = call(&hub, path, None, "call_tool", inner(tool)).await;
    assert_eq!(exceeded["result"]["isError"], true);
    assert!(text(&exceeded).contains("calls of today"), "{exceeded}");
}

#[tokio::test(flavor = "multi_thread")]
async fn read_only_call_of_a_server_that_connects_for_it_changes_nothing() {
    let hub = hub_with_fixture().await;
    let disconnect = "/api/mcp/servers/fx/disconnect";
    hub.send_as_admin("POST", disconnect, Value::Null).await;
    let inner = json!({"name": "fx__test_simple_text", "arguments": {}});
    let path = "/mcp?tools=search";
    let refused = call(&hub, path, None, "call_read_only_tool", inner.clone()).await;
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    assert!(text(&refused).contains("call it with call_tool"));
    hub.send_as_admin("POST", disconnect, Value::Null).await;
    let called = call(&hub, path, None, "call_tool", inner).await;
    assert_eq!(called["result"]["isError"], false, "{called}");
}

#[tokio::test(flavor = "multi_thread")]
async fn renamed_tool_connects_its_server() {
    let hub = hub_with_fixture().await;
    let change = json!({"name": "say_something"});
    save(&hub, "/api/tools/fx__test_simple_text/override", change).await;
    save(&hub, "/api/toolsets/t", json!({"include": ["say_*"]})).await;
    save(&hub, "/api/toolsets/u", json!({"include": ["get_*"]})).await;
    for path in ["/mcp", "/mcp/t/t"] {
        let disconnect = "/api/mcp/servers/fx/disconnect";
        hub.send_as_admin("POST", disconnect, Value::Null).await;
        let refused = call(&hub, "/mcp/t/u", None, "say_something", json!({})).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        assert!(
            !hub.tool_names().await.contains("say_something"),
            "not connected"
        );
        let called = call(&hub, path, None, "say_something", json!({})).await;
        assert_eq!(called["result"]["isError"], false, "{path}: {called}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_transport_and_version_searches() {
    let hub = hub_with(|config| {
        config.tool_search.tools = ToolListing::Search;
        config.tool_search.favorites = vec!["search_docs".to_owned(), "gone".to_owned()];
    })
    .await;
    let mut clients = Vec::new();
    for version in &LEGACY_VERSIONS[1..] {
        clients.push(McpClient::streamable_http(&hub, "/mcp", version).await);
    }
    clients.push(McpClient::sse(&hub, "2024-11-05").await);
    clients.push(McpClient::Stateless {
        hub: hub.address.clone(),
    });
    for version in ["2025-11-25", "2026-07-28"] {
        clients.push(McpClient::stdio_joining(&hub, version).await);
    }
    for mut client in clients {
        let listed = client.request(1, "tools/list", json!({})).await;
        assert_eq!(
            names(&listed["result"]),
            [
                "call_read_only_tool",
                "call_tool",
                "find_tools",
                "search_docs"
            ]
        );
        let found = json!({"name": "find_tools", "arguments": {"query": "remote work rules"}});
        let found = client.request(2, "tools/call", found).await;
        let found: Value = serde_json::from_str(text(&found)).unwrap();
        assert!(names(&found).contains(&"search_docs".to_owned()), "{found}");
        let inner = json!({"name": "search_docs", "arguments": {"query": "연차"}});
        let called = json!({"name": "call_tool", "arguments": inner});
        let called = client.request(3, "tools/call", called).await;
        assert!(text(&called).contains("연차 휴가 규정"), "{called}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_of_a_tool_reach_the_caller_of_call_tool() {
    let hub = hub_with_fixture().await;
    let mut client = McpClient::streamable_http(&hub, "/mcp?tools=search", "2025-11-25").await;
    let inner = json!({"name": "fx__test_elicitation", "arguments": {"message": "who?"}});
    let params = json!({"name": "call_tool", "arguments": inner});
    let answered = client
        .request_answering_inputs(1, "tools/call", params)
        .await;
    let direct = json!({"name": "fx__test_elicitation", "arguments": {"message": "who?"}});
    let direct = client
        .request_answering_inputs(2, "tools/call", direct)
        .await;
    assert!(direct["result"]["content"].is_array(), "{direct}");
    assert_eq!(answered["result"], direct["result"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn auto_lists_while_schemas_are_small_and_the_list_never_changes_by_itself() {
    let hub = hub_with(|config| config.tool_search.tools = ToolListing::Auto).await;
    let tools = hub.send_as_admin("GET", "/api/toolsets", Value::Null).await;
    assert_eq!(tools.json().await, json!([]));
    let all = list(&hub, "/mcp?tools=list", None).await;
    let auto = list(&hub, "/mcp", None).await;
    let tokens = {
        let snapshot = hub.running.catalog().snapshot();
        let view = snapshot.view(&maru::tools::CatalogScope::All).unwrap();
        view.tools.estimated_tokens()
    };
    let expected = if tokens > 8000 {
        SEARCH_TOOLS.map(str::to_owned).to_vec()
    } else {
        all
    };
    assert_eq!(auto, expected, "{tokens} tokens");
    let small = hub_with(|config| {
        config.tool_search.tools = ToolListing::Auto;
        config.tool_search.token_budget = 100;
    })
    .await;
    assert_eq!(list(&small, "/mcp", None).await, SEARCH_TOOLS);
    let first = ask(&small, "/mcp", None, "tools/list", json!({}))
        .await
        .to_string();
    for round in 0..1000 {
        let query = json!({"query": format!("something {round}")});
        call(&small, "/mcp", None, "find_tools", query).await;
        let again = ask(&small, "/mcp", None, "tools/list", json!({})).await;
        assert_eq!(again.to_string(), first);
    }
    let wrong = TestRequest::post(&hub.address, "/mcp?tools=some", &json!({}))
        .send()
        .await;
    assert_eq!(wrong.status, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn toolset_is_all_that_its_clients_see_and_call() {
    let hub = hub_with_fixture().await;
    let include = json!({"include": ["fx__test_simple*", "get_*"], "exclude": ["*employees"],
        "instructions": "Be kind."});
    let shown = save(&hub, "/api/toolsets/support", include).await;
    let expected = [
        "fx__test_simple_text",
        "get_employee_info",
        "get_sim_search",
        "get_text_embedding",
    ];
    assert_eq!(shown["toolNames"], json!(expected));
    for path in ["/mcp/t/support", "/sse/t/support"] {
        for version in &LEGACY_VERSIONS[1..] {
            let mut client = McpClient::streamable_http(&hub, path, version).await;
            let listed = client.request(1, "tools/list", json!({})).await;
            assert_eq!(names(&listed["result"]), expected);
        }
    }
    let path = "/mcp/t/support";
    let called = call(&hub, path, None, "fx__test_simple_text", json!({})).await;
    assert!(called["result"]["content"].is_array(), "{called}");
    // By no name can a client reach another tool.
    for other in [
        "search_docs",
        "maru.search_docs",
        "fx.test_error_handling",
        "test_error_handling",
    ] {
        let direct = call(&hub, path, None, other, json!({"query": "x"})).await;
        assert_eq!(direct["error"]["code"], -32602, "{other}: {direct}");
        let inner = json!({"name": other, "arguments": {"query": "x"}});
        let through = call(&hub, path, None, "call_tool", inner).await;
        assert_eq!(through["error"]["code"], -32602, "{other}: {through}");
    }
    let found = call(
        &hub,
        path,
        None,
        "find_tools",
        json!({"query": "documents about remote work", "limit": 20}),
    )
    .await;
    for name in names(&found["result"]["structuredContent"]) {
        assert!(expected.contains(&name.as_str()), "{name}");
    }
    let discovered = ask(&hub, path, None, "server/discover", json!({})).await;
    assert_eq!(discovered["result"]["instructions"], "Be kind.");
    let searched = ask(
        &hub,
        "/mcp/t/support?tools=search",
        None,
        "server/discover",
        json!({}),
    )
    .await;
    let words = searched["result"]["instructions"].as_str().unwrap();
    assert!(
        words.starts_with("Be kind.") && words.contains("find_tools"),
        "{words}"
    );
    let missing = TestRequest::post(&hub.address, "/mcp/t/none", &json!({}))
        .send()
        .await;
    assert_eq!(missing.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn change_of_a_toolset_is_live_and_clients_are_notified() {
    let hub = hub_with_fixture().await;
    save(
        &hub,
        "/api/toolsets/docs",
        json!({"include": ["search_docs"]}),
    )
    .await;
    let body = stateless_message(
        "subscriptions/listen",
        json!({"notifications": {"toolsListChanged": true}}),
    );
    let mut stream = TestRequest::post(&hub.address, "/mcp/t/docs", &body)
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "subscriptions/listen")
        .send()
        .await;
    stream.next_message().await.unwrap();
    // Another toolset is none of its business.
    save(&hub, "/api/toolsets/other", json!({"include": ["*"]})).await;
    save(
        &hub,
        "/api/toolsets/docs",
        json!({"include": ["search_docs", "server:fx"]}),
    )
    .await;
    let pushed = stream.next_message().await.unwrap();
    assert_eq!(pushed["method"], "notifications/tools/list_changed");
    assert!(list(&hub, "/mcp/t/docs", None).await.len() > 5);
    let removed = hub
        .send_as_admin("DELETE", "/api/toolsets/docs", Value::Null)
        .await;
    assert_eq!(removed.status, 204);
    let pushed = stream.next_message().await.unwrap();
    assert_eq!(pushed["method"], "notifications/tools/list_changed");
    let gone = TestRequest::post(&hub.address, "/mcp/t/docs", &body)
        .send()
        .await;
    assert_eq!(gone.status, 404);
}

#[tokio::test(flavor = "multi_thread")]
async fn token_of_a_toolset_sees_it_everywhere_and_nothing_else() {
    let hub = hub_with_fixture().await;
    save(
        &hub,
        "/api/toolsets/docs",
        json!({"include": ["search_docs"]}),
    )
    .await;
    save(&hub, "/api/toolsets/other", json!({"include": ["get_*"]})).await;
    let wrong = json!({"name": "x", "role": "agent", "toolset": "dosc"});
    let wrong = hub.send_as_admin("POST", "/api/tokens", wrong).await;
    assert_eq!(wrong.status, 400);
    let token = json!({"name": "bot", "role": "agent", "toolset": "docs"});
    let token = hub.create_token(token).await;
    let secret = token;
    let token = Some(secret.as_str());
    let exported = hub.send_as_admin("GET", "/api/export", Value::Null).await;
    assert_eq!(exported.json().await["tokens"][0]["toolset"], "docs");
    for path in ["/mcp", "/sse", "/mcp/t/docs"] {
        assert_eq!(list(&hub, path, token).await, ["search_docs"], "{path}");
    }
    let refused = call(&hub, "/mcp", token, "get_employee_info", json!({})).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    let body = stateless_message("tools/list", json!({}));
    for path in ["/mcp/t/other", "/mcp/s/fx", "/mcp/s/maru"] {
        let reply = TestRequest::post(&hub.address, path, &body)
            .header("authorization", &format!("Bearer {secret}"))
            .send()
            .await;
        assert_eq!(reply.status, 404, "{path}");
    }
    // Its toolset is removed: nothing is left, rather than everything.
    hub.send_as_admin("DELETE", "/api/toolsets/docs", Value::Null)
        .await;
    assert!(list(&hub, "/mcp", token).await.is_empty());

    let searching = json!({"name": "s", "role": "agent", "toolListing": "search"});
    let searching = hub.create_token(searching).await;
    assert_eq!(list(&hub, "/mcp", Some(&searching)).await, SEARCH_TOOLS);
    let all = list(&hub, "/mcp?tools=list", Some(&searching)).await;
    assert!(all.len() > 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_of_a_toolset_count_calls_of_all_its_clients() {
    let hub = hub_with_fixture().await;
    let limited = json!({"include": ["*"], "calls_per_day": 2});
    save(&hub, "/api/toolsets/small", limited).await;
    let path = "/mcp/t/small";
    let info = json!({"employee_id": "EMP001"});
    call(&hub, path, None, "get_employee_info", info.clone()).await;
    let inner = json!({"name": "get_employee_info", "arguments": info});
    call(&hub, path, None, "call_tool", inner).await;
    let exceeded = call(&hub, path, None, "get_employee_info", info.clone()).await;
    assert!(text(&exceeded).contains("the toolset small"), "{exceeded}");
    let elsewhere = call(&hub, "/mcp", None, "get_employee_info", info).await;
    assert!(!text(&elsewhere).contains("toolset"), "{elsewhere}");
}

#[tokio::test(flavor = "multi_thread")]
async fn toolset_of_the_settings_is_there_and_cannot_be_changed_elsewhere() {
    let hub = hub_with(|config| {
        config.toolsets = vec![ToolsetDefinition {
            name: "support".to_owned(),
            include: vec!["search_docs".to_owned()],
            tools: Some(ToolListing::Search),
            ..ToolsetDefinition::default()
        }];
    })
    .await;
    assert_eq!(list(&hub, "/mcp/t/support", None).await, SEARCH_TOOLS);
    assert_eq!(
        list(&hub, "/mcp/t/support?tools=list", None).await,
        ["search_docs"]
    );
    for (method, body) in [("PUT", json!({"include": ["*"]})), ("DELETE", Value::Null)] {
        let refused = hub
            .send_as_admin(method, "/api/toolsets/support", body)
            .await;
        assert_eq!(refused.status, 409);
    }
    let wrong = json!({"include": ["kind:x"]});
    let wrong = hub.send_as_admin("PUT", "/api/toolsets/wrong", wrong).await;
    assert_eq!(wrong.status, 400);
    assert_eq!(wrong.json().await["field"], "include");
}

#[tokio::test(flavor = "multi_thread")]
async fn override_changes_what_clients_see_and_send_and_shows_the_difference() {
    let hub = hub_with_fixture().await;
    let path = "/api/tools/get_employee_info/override";
    let change = json!({
        "name": "who_is", "title": "Who is it?", "description": "Says who somebody is.",
        "parameters": {"employee_id": {"fixed": "EMP001"}},
        "annotations": {"readOnlyHint": true}, "tags": ["people"],
    });
    let shown = save(&hub, path, change).await;
    let paths: Vec<&str> = shown["differences"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["path"].as_str().unwrap())
        .collect();
    assert!(
        paths.contains(&"/name") && paths.contains(&"/description"),
        "{shown}"
    );
    assert!(
        paths.contains(&"/inputSchema/properties/employee_id"),
        "{shown}"
    );
    let listed = list(&hub, "/mcp", None).await;
    assert!(
        listed.contains(&"who_is".to_owned()) && !listed.contains(&"get_employee_info".to_owned())
    );
    // The fixed value is sent, whatever the caller says; the old name still works.
    let called = call(&hub, "/mcp", None, "who_is", json!({})).await;
    assert!(text(&called).contains("EMP001"), "{called}");
    let old = call(&hub, "/mcp", None, "get_employee_info", json!({})).await;
    assert_eq!(old["result"], called["result"]);
    // Selections by tag and by either name contain it, and a token of the old name still may.
    for selector in [
        "tag:people",
        "who_is",
        "get_employee_info",
        "maru.get_employee_info",
    ] {
        let toolset = save(&hub, "/api/toolsets/t", json!({"include": [selector]})).await;
        assert_eq!(toolset["toolNames"], json!(["who_is"]), "{selector}");
    }
    let token = json!({"name": "t", "role": "agent", "tools": ["get_employee_info"]});
    let token = hub.create_token(token).await;
    assert_eq!(list(&hub, "/mcp", Some(&token)).await, ["who_is"]);
    let stats = hub.send_as_admin("GET", "/api/stats", Value::Null).await;
    assert!(stats.text().await.contains("get_employee_info"));
    // A name that another tool has is not taken.
    let taken = save(&hub, path, json!({"name": "search_docs"})).await;
    assert_eq!(taken["refusedName"], "search_docs", "{taken}");
    let docs = call(&hub, "/mcp", None, "search_docs", json!({"query": "연차"})).await;
    assert!(text(&docs).contains("연차"));
    let removed = hub.send_as_admin("DELETE", path, Value::Null).await;
    assert_eq!(removed.status, 204);
    let listed = list(&hub, "/mcp", None).await;
    assert!(listed.contains(&"get_employee_info".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn override_outlives_its_server_and_leaves_the_pin_alone() {
    let hub = hub_with_fixture().await;
    let change = json!({"description": "Ours."});
    save(&hub, "/api/tools/fx__test_simple_text/override", change).await;
    let description = async || {
        let listed = ask(&hub, "/mcp/s/fx", None, "tools/list", json!({})).await;
        let tools = listed["result"]["tools"].as_array().unwrap().clone();
        let tool = tools
            .iter()
            .find(|it| it["name"] == "test_simple_text")
            .unwrap()
            .clone();
        tool["description"].clone()
    };
    assert_eq!(description().await, "Ours.");
    for action in ["disconnect", "connect"] {
        let path = format!("/api/mcp/servers/fx/{action}");
        hub.send_as_admin("POST", &path, Value::Null).await;
    }
    assert_eq!(description().await, "Ours.");
    let shown = hub
        .send_as_admin("GET", "/api/mcp/servers/fx", Value::Null)
        .await;
    assert_eq!(shown.json().await["withheld"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn stdio_client_may_ask_for_a_toolset() {
    let hub = hub_with_fixture().await;
    save(
        &hub,
        "/api/toolsets/docs",
        json!({"include": ["search_docs"]}),
    )
    .await;
    for (options, expected) in [
        (&["--toolset", "docs"][..], &["search_docs"][..]),
        (&["--tools", "search"], &SEARCH_TOOLS),
        (&["--toolset", "docs", "--tools", "search"], &SEARCH_TOOLS),
    ] {
        let directory = hub.directory.path();
        let mut client = McpClient::stdio_with(directory, ".", options, "2025-11-25").await;
        let listed = client.request(1, "tools/list", json!({})).await;
        assert_eq!(names(&listed["result"]), expected, "{options:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn session_keeps_the_view_that_it_began_with() {
    let hub = hub_with_fixture().await;
    let mut client = McpClient::streamable_http(&hub, "/mcp?tools=search", "2025-06-18").await;
    let listed = client.request(1, "tools/list", json!({})).await;
    assert_eq!(names(&listed["result"]), SEARCH_TOOLS);
    let called = call_message(2, "search_docs", json!({"query": "연차"}));
    let called = client
        .request(2, "tools/call", called["params"].clone())
        .await;
    assert!(
        text(&called).contains("연차"),
        "a known tool can be called by its name"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn registry_and_cards_describe_the_hub_its_servers_and_toolsets() {
    let hub = hub_with(|config| {
        config.http.allowed_origins = vec!["https://editor.example".to_owned()];
    })
    .await;
    save(
        &hub,
        "/api/toolsets/docs",
        json!({"include": ["search_docs"]}),
    )
    .await;
    let get = async |path: &str, token: Option<&str>| {
        let mut request = TestRequest::new(&hub.address, "GET", path);
        if let Some(token) = token {
            request = request.header("authorization", &format!("Bearer {token}"));
        }
        request.send().await
    };
    let listed = get("/v0.1/servers", None).await.json().await;
    let names = |listed: &Value| -> Vec<String> {
        let servers = listed["servers"].as_array().unwrap();
        let names = servers
            .iter()
            .map(|it| it["server"]["name"].as_str().unwrap());
        names.map(str::to_owned).collect()
    };
    let expected = ["localhost/fx", "localhost/maru", "localhost/maru.docs"];
    assert_eq!(names(&listed), expected);
    let url = format!("http://{}/mcp/s/fx", hub.address);
    assert_eq!(listed["servers"][0]["server"]["remotes"][0]["url"], url);
    let mut paged = Vec::new();
    let mut path = "/v0.1/servers?limit=1".to_owned();
    loop {
        let page = get(&path, None).await.json().await;
        paged.extend(names(&page));
        let Some(next) = page["metadata"]["nextCursor"].as_str() else {
            break;
        };
        path = format!("/v0.1/servers?limit=1&cursor={}", next.replace('/', "%2F"));
    }
    assert_eq!(paged, expected);
    let one = get("/v0.1/servers/localhost%2Ffx/versions/latest", None).await;
    assert_eq!(one.json().await["server"]["name"], "localhost/fx");
    let none = get("/v0.1/servers/localhost%2Fgone/versions/latest", None).await;
    assert_eq!(none.status, 404);
    // The rules of the registry's schema for a server.
    let is_plain = |it: char| it.is_ascii_alphanumeric() || ".-_".contains(it);
    for shown in listed["servers"].as_array().unwrap() {
        let server = &shown["server"];
        let of = |name: &str| server[name].as_str().unwrap().chars().count();
        let (namespace, name) = server["name"].as_str().unwrap().split_once('/').unwrap();
        assert!(namespace.chars().all(is_plain) && name.chars().all(is_plain));
        assert!((1..=100).contains(&of("description")), "{server}");
        assert!((1..=100).contains(&of("title")) && (1..=255).contains(&of("version")));
        assert_eq!(server["remotes"][0]["type"], "streamable-http");
    }
    // Pages of other origins only if they are allowed.
    let page = |origin: &'static str| {
        let request = TestRequest::new(&hub.address, "GET", "/v0.1/servers");
        request.header("origin", origin).send()
    };
    let allowed = page("https://editor.example").await;
    assert_eq!(allowed.status, 200);
    let origin = &allowed.headers["access-control-allow-origin"];
    assert_eq!(origin, "https://editor.example");
    let other = page("https://other.example").await;
    assert!(!other.headers.contains_key("access-control-allow-origin"));
    // A token sees what it may reach.
    let token = json!({"name": "t", "role": "reader", "toolset": "docs"});
    let token = hub.create_token(token).await;
    let listed = get("/v0.1/servers", Some(&token)).await.json().await;
    assert_eq!(names(&listed), ["localhost/maru", "localhost/maru.docs"]);

    let catalog = get("/.well-known/ai-catalog.json", None).await;
    assert_eq!(catalog.headers["access-control-allow-origin"], "*");
    let catalog = catalog.json().await;
    let card = catalog["entries"][0]["url"].as_str().unwrap();
    let card = card
        .strip_prefix(&format!("http://{}", hub.address))
        .unwrap();
    let card = get(card, None).await;
    assert_eq!(
        card.headers["content-type"],
        "application/mcp-server-card+json"
    );
    let card = card.json().await;
    assert_eq!(card["remotes"][0]["url"], hub.url());
}
