//! The REST API on every kind of store, and while the store is down.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use maru::{
    auth::AccessRole,
    config::SecretString,
    http::{RouteRule, route_rules},
};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::{
    fixture_server::fixture_program,
    http_client::{TestRequest, wait_for, wait_until, within_test_timeout},
    postgres_cluster::{PASSWORD, PostgresCluster},
    test_hub::{TestHub, call_message},
};

const SERVERS_ROUTE: &str = "/api/mcp/servers";
/// Routes that do not use the store, or need a client or a page.
const ROUTES_TESTED_ELSEWHERE: [&str; 31] = [
    "/oauth/oidc",
    "/oauth/oidc/callback",
    "/oauth/authorize",
    "/oauth/consent",
    "/oauth/invitation",
    "/oauth/register",
    "/oauth/revoke",
    "/oauth/sign-in",
    "/oauth/token",
    "/oauth/start",
    "/oauth/callback",
    "/oauth/client.json",
    "/mcp",
    "/mcp/s/{name}",
    "/mcp/t/{name}",
    "/sse/t/{name}",
    "/sse",
    "/sse/message",
    "/",
    "/servers",
    "/tools",
    "/custom-tools",
    "/play",
    "/activity",
    "/settings",
    "/connect",
    "/assets/v",
    "/docs",
    "/docs/",
    "/docs/search",
    "/docs/files",
];

/// A sequence of API calls that records requests and responses.
struct ApiWalk<'a> {
    hub: &'a TestHub,
    answers: Vec<(String, u16)>,
    asked: BTreeSet<String>,
}

impl ApiWalk<'_> {
    /// Calls a route of the route table; `steps` fill its parameters.
    async fn request(
        &mut self,
        method: &'static str,
        route: &str,
        steps: &[&str],
        body: Value,
    ) -> Value {
        let mut path = String::new();
        let mut steps = steps.iter();
        for step in route.split('/').skip(1) {
            let filled = if step.starts_with('{') {
                steps.next().expect("a step for each gap")
            } else {
                step
            };
            path = format!("{path}/{filled}");
        }
        self.asked.insert(format!("{method} {route}"));
        let reply = self.hub.send_as_admin(method, &path, body).await;
        let status = reply.status.as_u16();
        self.answers.push((format!("{method} {route}"), status));
        if reply.is_stream() {
            return Value::Null;
        }
        serde_json::from_str(&reply.text().await).unwrap_or_default()
    }
}

fn is_rest(rule: &RouteRule) -> bool {
    let under = |it: &str| rule.path == it || rule.path.starts_with(&format!("{it}/{{"));
    !ROUTES_TESTED_ELSEWHERE.iter().any(|it| under(it)) && !rule.path.starts_with("/.well-known")
}

fn fixture_server_body(name: &str) -> Value {
    json!({"name": name, "autoConnect": true, "transportType": "STDIO", "config": {"command": fixture_program(), "args": ["stdio"]}})
}

fn custom_tool_body(name: &str) -> Value {
    json!({"name": name, "description_agent": "Adds one.", "tool_type": "PYTHON",
        "definition": "n + 1", "params": [{"param_name": "n", "param_type": "INTEGER", "is_required": "Y"}]})
}

/// Every REST call, in an order in which each finds what it needs.
async fn walk_every_route(hub: &TestHub) -> ApiWalk<'_> {
    let mut walk = ApiWalk {
        hub,
        answers: Vec::new(),
        asked: BTreeSet::new(),
    };
    let none = || Value::Null;
    let one = &format!("{SERVERS_ROUTE}/{{name}}");
    walk.request("POST", SERVERS_ROUTE, &[], fixture_server_body("up"))
        .await;
    walk.request("GET", SERVERS_ROUTE, &[], none()).await;
    walk.request("GET", one, &["up"], none()).await;
    walk.request(
        "PUT",
        one,
        &["up"],
        json!({"description": "changed", "enabled": true}),
    )
    .await;
    for action in [
        "disconnect",
        "connect",
        "disable",
        "enable",
        "connect",
        "accept",
    ] {
        walk.request("POST", &format!("{one}/{action}"), &["up"], none())
            .await;
    }
    let accept = format!("{one}/tools/{{tool}}/accept");
    walk.request("POST", &accept, &["up", "test_simple_text"], none())
        .await;
    walk.request("GET", &format!("{one}/log"), &["up"], none())
        .await;
    walk.request("GET", &format!("{one}/messages"), &["up"], none())
        .await;
    walk.request("POST", "/api/mcp/test", &[], fixture_server_body("trial"))
        .await;
    let file =
        json!({"mcpServers": {"imported": {"url": "http://127.0.0.1:9/mcp", "disabled": true}}});
    walk.request("POST", "/api/mcp/import", &[], file).await;
    walk.request("GET", "/api/mcp/registry", &[], none()).await;
    walk.request(
        "POST",
        "/mcp/add",
        &[],
        json!({"name": "old", "url": "http://127.0.0.1:9/sse"}),
    )
    .await;
    walk.request("GET", "/mcp/list", &[], none()).await;
    walk.request("DELETE", "/mcp/remove", &[], json!({"name": "old"}))
        .await;

    let tool = "/api/tools/{name}";
    walk.request("GET", "/api/tools", &[], none()).await;
    walk.request(
        "PUT",
        "/api/tools",
        &[],
        json!({"names": ["search_docs"], "enabled": false}),
    )
    .await;
    walk.request("PUT", tool, &["search_docs"], json!({"enabled": true}))
        .await;
    walk.request("GET", tool, &["search_docs"], none()).await;
    let arguments = json!({"arguments": {"employee_id": "EMP001"}});
    walk.request(
        "POST",
        "/api/tools/{name}/call",
        &["get_employee_info"],
        arguments,
    )
    .await;
    let change = json!({"description": "Ours.", "parameters": {"query": {"description": "What"}}});
    let route = "/api/tools/{name}/override";
    walk.request("PUT", route, &["search_docs"], change).await;
    walk.request("GET", route, &["search_docs"], none()).await;
    walk.request("GET", "/api/tool-overrides", &[], none())
        .await;
    walk.request("DELETE", route, &["search_docs"], none())
        .await;
    let toolset = "/api/toolsets/{name}";
    let include = json!({"include": ["search_*"], "tools": "search"});
    walk.request("PUT", toolset, &["docs"], include).await;
    walk.request("GET", toolset, &["docs"], none()).await;
    walk.request("GET", "/api/toolsets", &[], none()).await;
    walk.request("DELETE", toolset, &["docs"], none()).await;
    walk.request("GET", "/mcp/server-card", &[], none()).await;
    walk.request("GET", "/v0.1/servers", &[], none()).await;
    let versions = "/v0.1/servers/{name}/versions";
    let name = "localhost%2Fmaru";
    walk.request("GET", versions, &[name], none()).await;
    walk.request(
        "GET",
        &format!("{versions}/{{version}}"),
        &[name, "latest"],
        none(),
    )
    .await;
    // A program needs no sign-in, and says so.
    for action in ["login", "logout"] {
        walk.request("POST", &format!("{one}/{action}"), &["up"], none())
            .await;
    }
    let returned = json!({"url": "http://127.0.0.1/oauth/callback?state=x"});
    let complete = format!("{one}/login/complete");
    walk.request("POST", &complete, &["up"], returned.clone())
        .await;
    let account = format!("{one}/account");
    walk.request("POST", &account, &["up"], none()).await;
    walk.request("PUT", &account, &["up"], returned).await;
    walk.request("DELETE", &account, &["up"], none()).await;
    let calls = walk.request("GET", "/api/calls", &[], none()).await;
    let calls = calls
        .as_array()
        .or(calls["calls"].as_array())
        .unwrap()
        .clone();
    let id = calls[0]["id"].to_string();
    walk.request("GET", "/api/calls/{id}", &[id.trim_matches('"')], none())
        .await;
    walk.request("GET", "/api/stats", &[], none()).await;
    walk.request("GET", "/api/connect", &[], none()).await;
    walk.request("GET", "/api/call-usage", &[], none()).await;
    walk.request("GET", "/api/prompts", &[], none()).await;
    walk.request("GET", "/api/resources", &[], none()).await;
    let uri = json!({"uri": "none://such"});
    walk.request("POST", "/api/resources/read", &[], uri).await;
    walk.request("POST", "/api/prompts/{name}", &["none"], json!({}))
        .await;
    let responses = json!({"responses": {}});
    walk.request("POST", "/api/tool-inputs/{id}", &["none"], responses)
        .await;
    let document = walk.request("GET", "/api/export", &[], none()).await;
    let body = json!({"document": document, "dryRun": true});
    walk.request("POST", "/api/import", &[], body).await;

    walk.request("GET", "/api/sources", &[], none()).await;
    walk.request("GET", "/api/sources/{name}/tables", &["sample"], none())
        .await;
    walk.request(
        "GET",
        "/api/sources/{name}/tables/{table}",
        &["sample", "employees"],
        none(),
    )
    .await;

    let made = "/api/custom-tools/{name}";
    walk.request("POST", "/api/custom-tools", &[], custom_tool_body("plus"))
        .await;
    walk.request(
        "POST",
        "/api/custom-tools/test",
        &[],
        json!({"tool": custom_tool_body("plus"), "arguments": {"n": 1}}),
    )
    .await;
    walk.request("GET", "/api/custom-tools", &[], none()).await;
    walk.request("GET", made, &["plus"], none()).await;
    walk.request("PUT", made, &["plus"], json!({"definition": "n + 2"}))
        .await;
    walk.request("POST", &format!("{made}/deactivate"), &["plus"], none())
        .await;
    walk.request("POST", &format!("{made}/activate"), &["plus"], none())
        .await;
    let draft = json!({"tool_type": "PYTHON", "definition": "n"});
    walk.request("PUT", &format!("{made}/draft"), &["plus"], draft)
        .await;
    walk.request("DELETE", &format!("{made}/draft"), &["plus"], none())
        .await;
    let tool = json!({"tool": custom_tool_body("plus")});
    walk.request("POST", &format!("{made}/publish"), &["plus"], tool)
        .await;
    walk.request("GET", &format!("{made}/versions"), &["plus"], none())
        .await;
    walk.request(
        "POST",
        &format!("{made}/versions/{{version}}/restore"),
        &["plus", "1"],
        none(),
    )
    .await;
    walk.request("DELETE", made, &["plus"], none()).await;

    let source = json!({"name": "added", "url": "postgres://u:p@127.0.0.1:9/db"});
    let added = "/api/sources/{name}";
    walk.request("POST", "/api/sources", &[], source.clone())
        .await;
    walk.request("POST", "/api/sources/test", &[], json!({"name": "no"}))
        .await;
    walk.request("GET", "/api/source-settings", &[], none())
        .await;
    walk.request("GET", added, &["added"], none()).await;
    walk.request("PUT", added, &["added"], source).await;
    walk.request("DELETE", added, &["added"], none()).await;

    walk.request("GET", "/v1/models", &[], none()).await;
    walk.request("GET", "/v1/models/{*name}", &["none"], none())
        .await;
    let host = "/api/allowed-hosts/{host}";
    walk.request("PUT", host, &["mcp.example.com"], none())
        .await;
    walk.request("GET", "/api/allowed-hosts", &[], none()).await;
    walk.request("DELETE", host, &["mcp.example.com"], none())
        .await;
    walk.request("GET", "/api/models", &[], none()).await;
    let model = json!({"name": "added", "base_url": "http://127.0.0.1:9/v1"});
    let added = "/api/models/{name}";
    walk.request("POST", "/api/models", &[], model.clone())
        .await;
    walk.request("POST", "/api/models/test", &[], json!({"definition": {}}))
        .await;
    walk.request("GET", added, &["added"], none()).await;
    walk.request("PUT", added, &["added"], model).await;
    walk.request("DELETE", added, &["added"], none()).await;
    let chat = json!({"model": "none", "messages": [{"role": "user", "content": "hi"}]});
    walk.request("POST", "/v1/chat/completions", &[], chat)
        .await;
    let text = json!({"model": "none", "prompt": "hi"});
    walk.request("POST", "/v1/completions", &[], text).await;
    let message =
        json!({"model": "none", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]});
    for path in ["/v1/messages", "/v1/messages/count_tokens"] {
        walk.request("POST", path, &[], message.clone()).await;
    }
    let input = json!({"model": "none", "input": "hi"});
    walk.request("POST", "/v1/responses", &[], input).await;
    walk.request(
        "POST",
        "/v1/embeddings",
        &[],
        json!({"model": "builtin", "input": "hi"}),
    )
    .await;
    let messages = json!([{"role": "user", "content": "hi"}]);
    let chat = json!({"model": "none", "messages": messages});
    walk.request("POST", "/api/chat", &[], chat).await;
    let prompt = json!({"model": "none", "prompt": "hi"});
    for path in ["/api/generate", "/api/embeddings"] {
        walk.request("POST", path, &[], prompt.clone()).await;
    }
    let input = json!({"model": "builtin", "input": "hi"});
    walk.request("POST", "/api/embed", &[], input).await;
    walk.request("POST", "/api/show", &[], json!({"model": "none"}))
        .await;
    let budget = "/api/budgets/{name}";
    let day = json!({"period": "day", "tokens": 1_000_000});
    walk.request("PUT", budget, &["b"], day).await;
    for path in [
        "/api/tags",
        "/api/ps",
        "/api/version",
        "/api/usage",
        "/api/budgets",
    ] {
        walk.request("GET", path, &[], none()).await;
    }
    walk.request("DELETE", budget, &["b"], none()).await;
    for path in ["/generate", "/generate_with_mcp"] {
        walk.request("POST", path, &[], json!({"model": "none", "prompt": "hi"}))
            .await;
    }
    walk.request("GET", "/api/runs", &[], none()).await;
    walk.request("GET", "/api/runs/{id}", &["none"], none())
        .await;
    for action in ["approve", "refuse"] {
        let path = format!("/api/runs/{{id}}/calls/{{call}}/{action}");
        walk.request("POST", &path, &["none", "none"], none()).await;
    }

    let limit = "/api/limits/{target_type}/{target_id}";
    walk.request(
        "POST",
        "/api/tokens",
        &[],
        json!({"name": "t", "role": "agent", "tools": ["search_docs"]}),
    )
    .await;
    walk.request("GET", "/api/tokens", &[], none()).await;
    let account = json!({"name": "kim", "role": "reader"});
    walk.request("POST", "/api/accounts", &[], account).await;
    walk.request("GET", "/api/accounts", &[], none()).await;
    let invitation = "/api/accounts/{name}/invitation";
    walk.request("POST", invitation, &["kim"], none()).await;
    walk.request("DELETE", "/api/accounts/{name}", &["kim"], none())
        .await;
    for list in ["grants", "clients"] {
        let route = format!("/api/oauth/{list}");
        walk.request("GET", &route, &[], none()).await;
        walk.request("DELETE", &format!("{route}/{{id}}"), &["x"], none())
            .await;
    }
    walk.request("DELETE", "/api/tokens/{name}", &["t"], none())
        .await;
    let most = json!({"max_count": 5, "max_per_minute": 6});
    walk.request("PUT", limit, &["USER", "local"], most).await;
    walk.request("GET", "/api/limits", &[], none()).await;
    walk.request("DELETE", limit, &["USER", "local"], none())
        .await;
    let records = walk.request("GET", "/api/audit", &[], none()).await;
    assert!(
        records.as_array().is_some_and(|it| it.len() > 20),
        "{records}"
    );

    let token = json!({"token": hub.running.admin_token.reveal()});
    walk.request("POST", "/api/session", &[], token).await;
    walk.request("GET", "/api/session", &[], none()).await;
    walk.request("DELETE", "/api/session", &[], none()).await;
    walk.request("POST", "/api/session/link", &[], none()).await;
    walk.request("GET", "/api/events", &[], none()).await;
    for path in [
        "/api/config",
        "/metrics",
        "/api/openapi.json",
        "/readyz",
        "/healthz",
    ] {
        walk.request("GET", path, &[], none()).await;
    }
    walk.request("DELETE", one, &["up"], none()).await;
    walk
}

/// The responses of every REST call on a hub with this store.
async fn statuses_on_store(store: Option<String>) -> Vec<(String, u16)> {
    let hub = TestHub::with_config(|config| {
        config.store_url = store.map(SecretString::from);
        config.limits.drain_notice_ms = 0;
        config.limits.drain_ms = 100;
    })
    .await;
    let walk = walk_every_route(&hub).await;
    let table: BTreeSet<String> = route_rules()
        .iter()
        .filter(|it| is_rest(it))
        .map(|it| format!("{} {}", it.method, it.path))
        .collect();
    let missing: Vec<_> = table.difference(&walk.asked).collect();
    assert!(missing.is_empty(), "not asked: {missing:?}");
    let answers = walk.answers;
    hub.running.stop().await;
    answers
}

#[tokio::test(flavor = "multi_thread")]
async fn every_rest_call_gives_the_same_response_on_every_store() {
    let cluster = PostgresCluster::start().await;
    let url = cluster.url(&cluster.create_database());
    let stores = [None, Some("memory".to_owned()), Some(url)];
    let all = join_all(stores.map(statuses_on_store)).await;
    // Models are not there; everything else works.
    let is_model = |it: &str| it.contains("/v1/") || it.contains("/generate");
    // The server is a program, which nobody signs in to.
    let is_sign_in = |it: &str| {
        ["/login", "/logout", "/account"]
            .iter()
            .any(|at| it.contains(at))
    };
    for (what, status) in &all[0] {
        let expected = [200, 201, 204, 404];
        assert!(
            expected.contains(status) || is_model(what) || is_sign_in(what) && *status < 500,
            "{what}: {status}"
        );
    }
    assert!(all[0] == all[1] && all[0] == all[2], "{all:?}");
}

/// Everything that a change could have affected.
async fn visible_state(hub: &TestHub) -> Vec<Value> {
    let mut all = Vec::new();
    for path in [
        SERVERS_ROUTE,
        "/api/mcp/servers/up",
        "/api/custom-tools",
        "/api/custom-tools/plus/versions",
        "/api/tokens",
        "/api/limits",
        "/api/custom-tools/plus",
        "/api/tools",
        "/api/tool-overrides",
        "/api/toolsets",
        "/api/sources",
        "/api/models",
        "/api/accounts",
        "/api/oauth/grants",
        "/api/oauth/clients",
        "/api/allowed-hosts",
        "/api/budgets",
    ] {
        let reply = hub.send_as_admin("GET", path, Value::Null).await;
        assert_eq!(reply.status, 200, "{path}");
        let mut shown = reply.json().await;
        // Calls go on without the store.
        for tool in shown.as_array_mut().into_iter().flatten() {
            tool.as_object_mut().map(|it| it.remove("calls"));
        }
        // Whether a source or a model answers changes without a change of ours.
        all.push(if matches!(path, "/api/sources" | "/api/models") {
            names_in(&shown)
        } else {
            shown
        });
    }
    all.push(hub.tool_names().await.into());
    all
}

/// Every member `name`, in order.
fn names_in(value: &Value) -> Value {
    let children: Vec<&Value> = match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(members) => members.values().collect(),
        _ => Vec::new(),
    };
    let below = children.into_iter().map(names_in);
    let below = below.flat_map(|it| it.as_array().cloned().unwrap_or_default());
    let own = value.get("name").cloned();
    own.into_iter().chain(below).collect()
}

/// Every route of the table that only an admin may use and that changes something, for
/// things which exist.
fn every_admin_change() -> Vec<(&'static str, String)> {
    let methods = ["POST", "PUT", "DELETE"];
    let is_change = |it: &RouteRule| it.min_role == Some(AccessRole::Admin);
    let rules = route_rules().into_iter().filter(is_change);
    let changes = rules.filter_map(|rule| {
        let method = *methods.iter().find(|it| rule.method == **it)?;
        let name = match rule.path.split('/').nth(2)? {
            "mcp" => "up",
            "custom-tools" => "plus",
            "tools" => "search_docs",
            "accounts" => "kim",
            "allowed-hosts" => "kept.example",
            _ => "kept",
        };
        let steps = rule.path.split('/').map(|step| match step {
            "{target_type}" => "USER",
            "{target_id}" => "local",
            "{tool}" => "test_simple_text",
            "{version}" => "1",
            step if step.starts_with('{') => name,
            step => step,
        });
        Some((method, steps.collect::<Vec<_>>().join("/")))
    });
    let changes: Vec<_> = changes.collect();
    assert!(changes.len() > 50, "{changes:?}");
    changes
}

async fn readiness_status(hub: &TestHub) -> u16 {
    let reply = hub.send_as_admin("GET", "/readyz", Value::Null).await;
    reply.status.as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn change_that_the_store_cannot_save_returns_503_and_has_no_effect() {
    let cluster = PostgresCluster::start().await;
    let url = cluster.url(&cluster.create_database());
    let hub = TestHub::with_config(|config| {
        config.store_url = Some(SecretString::from(url));
        config.limits.store_grace_ms = 0;
    })
    .await;
    let most = json!({"max_count": 5});
    let token = json!({"name": "kept", "role": "agent"});
    let made = [
        ("POST", SERVERS_ROUTE, fixture_server_body("up")),
        ("POST", "/api/custom-tools", custom_tool_body("plus")),
        ("POST", "/api/tokens", token),
        ("PUT", "/api/limits/USER/local", most),
        ("POST", "/api/mcp/servers/up/connect", Value::Null),
        (
            "PUT",
            "/api/custom-tools/plus/draft",
            json!({"tool_type": "PYTHON", "definition": "n"}),
        ),
        (
            "PUT",
            "/api/tools/search_docs/override",
            json!({"description": "Ours."}),
        ),
        ("PUT", "/api/toolsets/kept", json!({"include": ["*"]})),
        (
            "POST",
            "/api/sources",
            json!({"name": "kept", "url": "postgres://u:p@127.0.0.1:9/db"}),
        ),
        (
            "POST",
            "/api/models",
            json!({"name": "kept", "base_url": "http://127.0.0.1:9/v1"}),
        ),
        (
            "POST",
            "/api/accounts",
            json!({"name": "kim", "role": "reader"}),
        ),
        ("PUT", "/api/allowed-hosts/kept.example", Value::Null),
        (
            "PUT",
            "/api/budgets/kept",
            json!({"period": "day", "tokens": 5}),
        ),
    ];
    for (method, path, body) in made {
        let reply = hub.send_as_admin(method, path, body).await;
        assert!(reply.status.is_success(), "{path}: {}", reply.text().await);
    }
    let before = visible_state(&hub).await;
    assert_eq!(readiness_status(&hub).await, 200);
    let file = std::fs::read_to_string(hub.directory.path().join("mcp.json")).unwrap();

    cluster.stop();
    assert_eq!(readiness_status(&hub).await, 503);
    let alive = TestRequest::new(&hub.address, "GET", "/healthz")
        .send()
        .await;
    assert_eq!(alive.status, 200);
    let off = || json!({"enabled": false});
    let session = json!({"token": hub.running.admin_token.reveal()});
    let none = Value::Null;
    let remote = json!({"name": "remote", "url": "http://127.0.0.1:9/mcp"});
    let changes = [
        ("POST", SERVERS_ROUTE, fixture_server_body("other")),
        ("PUT", "/api/mcp/servers/up", json!({"description": "x"})),
        ("PUT", "/api/mcp/servers/up", off()),
        ("POST", "/api/mcp/servers/up/disconnect", none.clone()),
        ("POST", "/api/mcp/servers/up/connect", none.clone()),
        ("POST", "/api/mcp/servers/up/disable", none.clone()),
        ("POST", "/api/mcp/servers/up/accept", none.clone()),
        ("DELETE", "/api/mcp/servers/up", none.clone()),
        ("POST", "/api/mcp/test", fixture_server_body("trial")),
        ("POST", "/api/mcp/import", json!([remote.clone()])),
        ("POST", "/mcp/add", remote),
        ("DELETE", "/mcp/remove", json!({"name": "up"})),
        ("PUT", "/api/tools/search_docs", off()),
        ("POST", "/api/custom-tools", custom_tool_body("minus")),
        ("PUT", "/api/custom-tools/plus", json!({"definition": "n"})),
        ("POST", "/api/custom-tools/plus/deactivate", none.clone()),
        ("DELETE", "/api/custom-tools/plus", none.clone()),
        (
            "POST",
            "/api/tokens",
            json!({"name": "new", "role": "agent"}),
        ),
        ("DELETE", "/api/tokens/kept", none.clone()),
        ("PUT", "/api/limits/USER/admin", json!({"max_count": 1})),
        ("DELETE", "/api/limits/USER/local", none.clone()),
        (
            "PUT",
            "/api/budgets/b",
            json!({"period": "day", "tokens": 1}),
        ),
        ("POST", "/api/session", session),
    ];
    for (method, path, body) in changes {
        let reply = hub.send_as_admin(method, path, body).await;
        assert_eq!(reply.status, 503, "{method} {path}");
        // Whoever signs in is not known yet, and is not told where the store is.
        if path == "/api/session" {
            continue;
        }
        let why = reply.text().await;
        assert!(why.contains("the store in PostgreSQL at"), "{path}: {why}");
        assert!(why.contains("is down"), "{path}: {why}");
        assert!(!why.contains(PASSWORD), "{path}: {why}");
    }
    for (method, path) in every_admin_change() {
        let reply = hub.send_as_admin(method, &path, json!({})).await;
        assert_eq!(reply.status, 503, "{method} {path}");
    }
    // What needs no store goes on.
    let echo = call_message(1, "up__test_simple_text", json!({}));
    let session = hub.initialize_session("2025-06-18", json!({})).await;
    let answer = hub
        .session_request(&session, &echo)
        .send()
        .await
        .rpc_response()
        .await;
    assert!(answer["result"]["content"].is_array(), "{answer}");

    cluster.restart().await;
    wait_for(async || readiness_status(&hub).await, |it| *it == 200).await;
    for (now, before) in visible_state(&hub).await.iter().zip(&before) {
        assert_eq!(now, before);
    }
    let now = std::fs::read_to_string(hub.directory.path().join("mcp.json")).unwrap();
    assert_eq!(now, file);
    let done = hub
        .send_as_admin("POST", "/api/mcp/servers/up/disconnect", Value::Null)
        .await;
    assert_eq!(done.status, 200);
    hub.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readiness_fails_before_the_port_closes_at_shutdown() {
    let hub = TestHub::start().await;
    let TestHub {
        address, running, ..
    } = hub;
    let probe = async || {
        TestRequest::new(&address, "GET", "/readyz")
            .send()
            .await
            .status
    };
    assert_eq!(probe().await, 200);
    let watch = async {
        // A port that closes first makes this fail.
        while probe().await == 200 {
            tokio::task::yield_now().await;
        }
        wait_until(async || TcpStream::connect(&address).await.is_err()).await;
    };
    within_test_timeout(async { tokio::join!(Box::pin(running.stop()), watch) }).await;
}
