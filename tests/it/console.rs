//! What the console is served with: signing in, events, calls, switches.

use maru::{app, config::Config};
use serde_json::{Value, json};

use crate::{
    fixture_server::FixtureServer,
    http_client::{TestRequest, TestResponse},
    test_hub::TestHub,
};

fn post(hub: &TestHub, path: &str, body: &Value) -> TestRequest {
    TestRequest::new(&hub.address, "POST", path)
        .header("content-type", "application/json")
        .body(&body.to_string())
}

/// What a browser sends after it signed in with `body`.
async fn sign_in_cookie(hub: &TestHub, body: Value) -> String {
    let reply = post(hub, "/api/session", &body).send().await;
    assert_eq!(reply.status, 200);
    let line = reply.headers["set-cookie"].clone();
    assert!(line.contains("HttpOnly; SameSite=Strict"), "{line}");
    line.split(';').next().unwrap().to_owned()
}

async fn call(hub: &TestHub, name: &str, arguments: Value) -> Value {
    hub.stateless_request("tools/call", json!({"name": name, "arguments": arguments}))
        .send()
        .await
        .rpc_response()
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn restricted_token_cannot_open_the_console() {
    let hub = TestHub::start().await;
    for (name, list) in [("few", json!(["search_docs"])), ("all", Value::Null)] {
        let token = hub
            .create_token(json!({"name": name, "role": "reader", "tools": list}))
            .await;
        let reply = post(&hub, "/api/session", &json!({"token": token}));
        let reply = reply.send().await;
        match name {
            "all" => assert_eq!(reply.status, 200),
            _ => {
                assert_eq!(reply.status, 403);
                let told = reply.text().await;
                assert!(told.contains("maru token create"), "{told}");
            }
        }
    }
}

/// The next event of a kind.
async fn next_event(stream: &mut TestResponse, kind: &str) -> (String, Value) {
    loop {
        let event = stream.next_event().await.expect("the stream goes on");
        if event.name == kind {
            let data = serde_json::from_str(&event.data).unwrap();
            return (event.id.unwrap_or_default(), data);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_printed_code_signs_in_once_and_changes_need_our_header() {
    let hub = TestHub::start().await;
    let code = json!({"code": hub.running.console_code().await.unwrap().reveal()});
    let cookie = sign_in_cookie(&hub, code.clone()).await;
    let again = post(&hub, "/api/session", &code).send().await;
    assert_eq!(again.status, 403);
    let who = TestRequest::new(&hub.address, "GET", "/api/session")
        .header("cookie", &cookie)
        .send()
        .await
        .json()
        .await;
    assert_eq!(
        (&who["name"], &who["role"]),
        (&json!("admin"), &json!("admin"))
    );
    let change = |header: bool| {
        let ask = TestRequest::new(&hub.address, "PUT", "/api/tools/search_docs")
            .header("content-type", "application/json")
            .header("cookie", &cookie)
            .body(r#"{"enabled":true}"#);
        if header {
            ask.header("x-maru-console", "1")
        } else {
            ask
        }
    };
    assert_eq!(change(false).send().await.status, 403);
    assert_eq!(change(true).send().await.status, 200);
    // A cookie opens no MCP session for an admin.
    let out = TestRequest::new(&hub.address, "DELETE", "/api/session")
        .header("cookie", &cookie)
        .send()
        .await;
    assert_eq!(out.status, 204);
    assert_eq!(change(true).send().await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn console_session_survives_a_restart() {
    let hub = TestHub::start().await;
    let token = json!({"token": hub.running.admin_token.reveal()});
    let cookie = sign_in_cookie(&hub, token).await;
    let port = hub.running.address.port();
    let TestHub {
        running, directory, ..
    } = hub;
    running.stop().await;
    let config = Config {
        listen: format!("127.0.0.1:{port}").parse().unwrap(),
        data_dir: directory.path().to_owned(),
        ..Config::default()
    };
    let running = app::start(config).await.unwrap();
    let who = TestRequest::new(&running.address.to_string(), "GET", "/api/session")
        .header("cookie", &cookie)
        .send()
        .await
        .json()
        .await;
    assert_eq!(who["role"], "admin");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn console_page_is_not_cached_and_its_assets_are_immutable() {
    let hub = TestHub::with_config(|config| config.require_token = true).await;
    for path in ["/", "/servers", "/tools/a/b", "/settings"] {
        let page = TestRequest::new(&hub.address, "GET", path).send().await;
        assert_eq!(page.status, 200, "{path}");
        assert_eq!(page.headers["cache-control"], "no-store");
        let policy = page.headers["content-security-policy"].clone();
        assert!(
            policy.starts_with("default-src 'none'; script-src 'self';"),
            "{policy}"
        );
        let text = page.text().await;
        let nonce = policy.split("'nonce-").nth(1).unwrap();
        let nonce = nonce.split('\'').next().unwrap();
        assert!(text.contains(nonce) && !text.contains("__CSP_NONCE__"));
        let at = text.find("/assets/v/").unwrap();
        let file = text[at..].split('"').next().unwrap();
        let file = TestRequest::new(&hub.address, "GET", file).send().await;
        assert!(file.headers["cache-control"].contains("immutable"));
        let old = TestRequest::new(&hub.address, "GET", "/assets/v/old/app.js")
            .send()
            .await;
        assert_eq!(old.status, 404);
    }
    let refused = TestRequest::new(&hub.address, "GET", "/api/events")
        .send()
        .await;
    assert_eq!(refused.status, 401);
    // A browser at a wrong path gets a page that says so; a program gets the error.
    let wrong = TestRequest::new(&hub.address, "GET", "/sorvers");
    let page = wrong.header("accept", "text/html,*/*;q=0.8").send().await;
    assert_eq!(
        (page.status.as_u16(), page.headers["content-type"].as_str()),
        (404, "text/html; charset=utf-8")
    );
    for (path, accept) in [
        ("/sorvers", "application/json"),
        ("/api/sorvers", "text/html"),
    ] {
        let wrong = TestRequest::new(&hub.address, "GET", path).header("accept", accept);
        let refused = wrong.send().await;
        assert!(refused.status == 401 || refused.status == 404, "{path}");
        assert!(!refused.text().await.contains("<html"), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn console_events_start_with_a_snapshot_and_can_be_resumed() {
    let hub = TestHub::start().await;
    let mut stream = hub.send_as_admin("GET", "/api/events", Value::Null).await;
    let (_, snapshot) = next_event(&mut stream, "snapshot").await;
    assert!(
        snapshot["tools"]["count"].as_u64().unwrap() >= 10,
        "{snapshot}"
    );
    let (server, url) = FixtureServer::start("http").await;
    let body = json!({"name": "new", "autoConnect": true, "transportType": "HTTP", "config": {"url": url}});
    hub.send_as_admin("POST", "/api/mcp/servers", body).await;
    loop {
        let (_, shown) = next_event(&mut stream, "server").await;
        if shown["status"] == "CONNECTED" {
            assert_eq!(shown["name"], "new");
            break;
        }
    }
    call(&hub, "get_employee_info", json!({"employee_id": "EMP001"})).await;
    let (id, shown) = next_event(&mut stream, "call").await;
    assert_eq!(shown["tool"], "get_employee_info");
    drop(stream);
    // While nobody listens, things happen.
    call(&hub, "search_docs", json!({"query": "x"})).await;
    let resumed = |id: &str| {
        TestRequest::new(&hub.address, "GET", "/api/events")
            .header(
                "authorization",
                &format!("Bearer {}", hub.running.admin_token.reveal()),
            )
            .header("last-event-id", id)
    };
    let mut stream = resumed(&id).send().await;
    let (_, missed) = next_event(&mut stream, "call").await;
    assert_eq!(missed["tool"], "search_docs");
    let mut stream = resumed("another-1-1").send().await;
    assert_eq!(stream.next_event().await.unwrap().name, "snapshot");
    drop(server);
    hub.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_stored_masked_and_visible_to_their_caller() {
    let hub = TestHub::start().await;
    let arguments = json!({"employee_id": "EMP001", "password": "canary"});
    call(&hub, "get_employee_info", arguments).await;
    call(&hub, "no_such_tool", json!({})).await;
    call(&hub, "search_docs", json!({"query": 5})).await;
    let listed = hub
        .send_as_admin("GET", "/api/calls", Value::Null)
        .await
        .json()
        .await;
    let outcomes: Vec<&str> = listed["calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["outcome"].as_str().unwrap())
        .collect();
    assert_eq!(outcomes, ["refused"; 3], "{listed}");
    let id = listed["calls"][2]["id"].to_string();
    let path = format!("/api/calls/{id}");
    let shown = hub
        .send_as_admin("GET", &path, Value::Null)
        .await
        .text()
        .await;
    assert!(
        shown.contains("EMP001") && !shown.contains("canary"),
        "{shown}"
    );
    // Of this machine, without a token: its own calls, not those of the admin.
    hub.send_as_admin(
        "POST",
        "/api/tools/search_docs/call",
        json!({"arguments": {"query": "x"}}),
    )
    .await;
    let own = TestRequest::new(&hub.address, "GET", "/api/calls")
        .send()
        .await;
    let own = own.json().await;
    assert_eq!(own["calls"].as_array().unwrap().len(), 3, "{own}");
    let all = hub
        .send_as_admin("GET", "/api/calls?limit=2", Value::Null)
        .await;
    let all = all.json().await;
    assert_eq!(
        (
            all["calls"].as_array().unwrap().len(),
            all["cursor"].is_i64()
        ),
        (2, true)
    );
    let stats = hub
        .send_as_admin("GET", "/api/stats", Value::Null)
        .await
        .json()
        .await;
    assert_eq!(
        (&stats["calls"], &stats["errors"]),
        (&json!(4), &json!(3)),
        "{stats}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn disabled_tool_stays_disabled_across_restarts() {
    let hub = TestHub::start().await;
    let off = hub
        .send_as_admin("PUT", "/api/tools/search_docs", json!({"enabled": false}))
        .await;
    assert_eq!(off.status, 200);
    assert!(!hub.tool_names().await.contains("search_docs "));
    let answer = call(&hub, "search_docs", json!({"query": "x"})).await;
    assert!(answer["error"].is_object(), "{answer}");
    let tools = hub
        .send_as_admin("GET", "/api/tools", Value::Null)
        .await
        .text()
        .await;
    assert!(tools.contains("\"search_docs\""), "a person still sees it");
    let hub = hub.restart().await;
    assert!(!hub.tool_names().await.contains("search_docs "));
    let on = json!({"names": ["search_docs"], "enabled": true});
    hub.send_as_admin("PUT", "/api/tools", on).await;
    assert!(hub.tool_names().await.contains("search_docs "));
}

#[tokio::test(flavor = "multi_thread")]
async fn server_is_tried_out_without_being_registered_and_its_log_is_for_admins() {
    let hub = TestHub::start().await;
    let (_server, url) = FixtureServer::start("http").await;
    let good = json!({"name": "maybe", "transportType": "HTTP", "config": {"url": url}});
    let tried = hub
        .send_as_admin("POST", "/api/mcp/test", good)
        .await
        .json()
        .await;
    assert_eq!(tried["ok"], true, "{tried}");
    assert!(!tried["tools"].as_array().unwrap().is_empty());
    let config = json!({"command": "ls", "args": ["/no/such"], "env": {"KEY": "canary"}});
    let bad = json!({"name": "bad", "transportType": "STDIO", "config": config});
    let tried = hub
        .send_as_admin("POST", "/api/mcp/test", bad.clone())
        .await
        .json()
        .await;
    assert!(
        tried["cause"].as_str().unwrap().contains("No such file"),
        "{tried}"
    );
    let servers = hub
        .send_as_admin("GET", "/api/mcp/servers", Value::Null)
        .await;
    assert_eq!(servers.json().await, json!([]));
    hub.send_as_admin("POST", "/api/mcp/servers", bad).await;
    for what in ["log", "messages"] {
        let path = format!("/api/mcp/servers/bad/{what}");
        let refused = TestRequest::new(&hub.address, "GET", &path).send().await;
        assert_eq!(refused.status, 401, "{what}");
        let text = hub
            .send_as_admin("GET", &path, Value::Null)
            .await
            .text()
            .await;
        assert!(!text.contains("canary"), "{text}");
    }
    let refused = TestRequest::new(&hub.address, "GET", "/api/config")
        .send()
        .await;
    assert_eq!(refused.status, 401);
    hub.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connect_page_names_this_hub_and_its_program() {
    let hub = TestHub::start().await;
    let page = hub.send_as_admin("GET", "/api/connect", Value::Null).await;
    let page = page.json().await;
    let url = hub.url();
    assert_eq!(page["origin"], *url.trim_end_matches("/mcp"));
    assert_eq!(page["requiresToken"], false);
    let client = |id: &str| {
        let clients = page["clients"].as_array().unwrap().iter();
        clients.clone().find(|it| it["id"] == id).unwrap().clone()
    };
    let cursor = client("cursor");
    let text = cursor["mcp"]["methods"][0]["text"].as_str().unwrap();
    let settings: Value = serde_json::from_str(text).unwrap();
    assert_eq!(settings, json!({"mcpServers": {"maru": {"url": url}}}));
    let desktop = client("claude-desktop");
    let text = desktop["mcp"]["methods"][0]["text"].as_str().unwrap();
    let settings: Value = serde_json::from_str(text).unwrap();
    let arguments = &settings["mcpServers"]["maru"]["args"];
    let directory = hub.directory.path().to_str().unwrap();
    assert_eq!(*arguments, json!(["--data-dir", directory, "stdio"]));

    let path = "/api/connect?token=true&model=qwen3";
    let page = hub.send_as_admin("GET", path, Value::Null).await;
    let text = page.json().await.to_string();
    assert!(text.contains("Bearer YOUR_TOKEN") && text.contains("qwen3"));
}

/// Calls a tool as the console does, answers its questions with `answers`, and returns what
/// it said and its result.
async fn try_tool(hub: &TestHub, name: &str, answers: &[Value]) -> (Vec<Value>, Value) {
    let path = format!("/api/tools/{name}/call");
    let body = json!({"arguments": {"message": "Who?", "prompt": "Say hi"}});
    let call = TestRequest::new(&hub.address, "POST", &path)
        .header("content-type", "application/json")
        .header("accept", "text/event-stream")
        .body(&body.to_string());
    let (mut reply, mut said, mut answers) = (call.send().await, Vec::new(), answers.iter());
    loop {
        let event = reply
            .next_event()
            .await
            .expect("the stream ends with a result");
        let data: Value = serde_json::from_str(&event.data).unwrap();
        match event.name.as_str() {
            "result" => return (said, data),
            "input" => {
                let key = data["requests"].as_object().unwrap().keys().next().unwrap();
                let responses = json!({"responses": {key.as_str(): answers.next().unwrap()}});
                let path = format!("/api/tool-inputs/{}", data["id"].as_str().unwrap());
                // Only the caller may answer.
                let other = hub.send_as_admin("POST", &path, responses.clone()).await;
                assert_eq!(other.status, 404);
                let done = TestRequest::post(&hub.address, &path, &responses)
                    .send()
                    .await;
                assert_eq!(done.status, 204);
                let again = TestRequest::post(&hub.address, &path, &responses)
                    .send()
                    .await;
                assert_eq!(again.status, 404, "a question is answered once");
            }
            _ => said.push(data),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn console_shows_progress_and_logs_and_answers_what_a_tool_asks() {
    let hub = TestHub::with_suite_tools().await;
    let (said, result) = try_tool(&hub, "test_tool_with_progress", &[]).await;
    let progress: Vec<_> = said
        .iter()
        .filter_map(|it| it["params"]["progress"].as_f64())
        .collect();
    assert_eq!(
        (progress, &result["ok"]),
        (vec![0.0, 50.0, 100.0], &json!(true)),
        "{result}"
    );
    let (said, _) = try_tool(&hub, "test_tool_with_logging", &[]).await;
    assert_eq!(
        said[0]["params"]["data"], "Tool execution started",
        "{said:?}"
    );
    let accepted = json!({"action": "accept", "content": {"username": "hong", "email": "h@x"}});
    let (_, result) = try_tool(&hub, "test_elicitation", &[accepted]).await;
    assert!(result["result"].to_string().contains("hong"), "{result}");
    let written = json!({"role": "assistant", "model": "a person", "content": {"type": "text", "text": "안녕"}});
    let (_, result) = try_tool(&hub, "test_sampling", &[written]).await;
    assert!(
        result["result"].to_string().contains("LLM response: 안녕"),
        "{result}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn console_lists_prompts_and_resources_and_tries_them() {
    let hub = TestHub::with_suite_tools().await;
    let send = async |method: &'static str, path: &str, body: Value| {
        hub.send_as_admin(method, path, body).await.json().await
    };
    let prompts = send("GET", "/api/prompts", Value::Null).await;
    let names: Vec<&str> = prompts
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|it| it["key"].as_str())
        .collect();
    assert!(names.contains(&"test_prompt_with_arguments"), "{prompts}");
    assert!(
        prompts
            .as_array()
            .unwrap()
            .iter()
            .all(|it| it["server"] == "maru")
    );
    let arguments = json!({"arguments": {"arg1": "a", "arg2": "b"}});
    let rendered = send("POST", "/api/prompts/test_prompt_with_arguments", arguments).await;
    assert!(
        rendered["result"]["messages"]
            .to_string()
            .contains("arg1='a'"),
        "{rendered}"
    );
    let resources = send("GET", "/api/resources", Value::Null).await;
    assert_eq!(
        resources["templates"][0]["key"], "test://template/{id}/data",
        "{resources}"
    );
    let uri = json!({"uri": "test://static-text"});
    let read = send("POST", "/api/resources/read", uri).await;
    assert!(
        read["result"]["contents"][0]["text"]
            .as_str()
            .unwrap()
            .contains("static text"),
        "{read}"
    );
    let wrong = send("POST", "/api/prompts/no_such_prompt", json!({})).await;
    assert_eq!(
        (&wrong["ok"], &wrong["error"]["code"]),
        (&json!(false), &json!("refused")),
        "{wrong}"
    );
}
