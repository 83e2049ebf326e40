//! The authorisation table, walked from outside.

use maru::{
    auth::AccessRole,
    http::{RouteRule, route_rules},
};
use serde_json::{Value, json};

use crate::{
    http_client::TestRequest,
    test_hub::{TestHub, call_message},
};

const ROLES: [(&str, Option<AccessRole>); 4] = [
    ("none", None),
    ("reader", Some(AccessRole::Reader)),
    ("agent", Some(AccessRole::Agent)),
    ("admin", Some(AccessRole::Admin)),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_route_admits_exactly_the_documented_roles() {
    let hub = TestHub::with_config(|config| config.require_token = true).await;
    let mut walked = 0;
    for (name, role) in ROLES {
        let token = match role {
            None => None,
            Some(AccessRole::Admin) => Some(hub.running.admin_token.reveal().to_owned()),
            Some(role) => Some(
                hub.create_token(json!({"name": name, "role": role.as_str()}))
                    .await,
            ),
        };
        for rule in route_rules() {
            let status = status_for(&hub, &rule, token.as_deref()).await;
            let expected = match (rule.min_role, role) {
                // A page that asks who opens it.
                (None, None) if rule.path == "/oauth/start/{name}" => Some(401),
                (None, _) => None,
                (Some(_), None) => Some(401),
                (Some(needed), Some(role)) if role < needed => Some(403),
                _ => None,
            };
            let shown = format!("{} {} as {name}: {status}", rule.method, rule.path);
            match expected {
                Some(expected) => assert_eq!(status, expected, "{shown}"),
                None => assert!(![401, 403].contains(&status), "{shown}"),
            }
            walked += 1;
        }
    }
    assert_eq!(walked, route_rules().len() * 4);
}

/// What is not in the table is not there, and who is not known does not learn it.
#[tokio::test(flavor = "multi_thread")]
async fn undocumented_routes_do_not_exist() {
    let hub = TestHub::with_config(|config| config.require_token = true).await;
    for path in ["/api", "/api/secret", "/api/mcp/servers/", "//healthz"] {
        let anonymous = TestRequest::new(&hub.address, "GET", path).send().await;
        assert_eq!(anonymous.status, 401, "{path}");
        assert_eq!(
            hub.send_as_admin("GET", path, Value::Null).await.status,
            404,
            "{path}"
        );
    }
    let patched = hub.send_as_admin("PATCH", "/api/tokens", Value::Null).await;
    assert_eq!(patched.status, 405);
    assert_eq!(patched.headers["allow"], "GET, POST");
}

/// Documents name the routes that are there.
#[test]
fn every_route_is_documented() {
    let text = include_str!("../../../docs/openapi.json");
    let document: Value = serde_json::from_str(text).unwrap();
    let missing: Vec<String> = route_rules()
        .iter()
        // The page of the console has many addresses and is no part of the API.
        .filter(|rule| rule.min_role.is_some() || !is_page(rule.path))
        .filter(|rule| {
            let path = rule.path.replace("{*", "{");
            document["paths"][path][rule.method.as_str().to_lowercase()].is_null()
        })
        .map(|rule| format!("{} {}", rule.method, rule.path))
        .collect();
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

fn is_page(path: &str) -> bool {
    !["/api/", "/healthz", "/.well-known/"]
        .iter()
        .any(|it| path.starts_with(it))
}

#[tokio::test(flavor = "multi_thread")]
async fn reader_lists_and_does_not_call() {
    let hub = TestHub::start().await;
    let token = hub
        .create_token(json!({"name": "r", "role": "reader"}))
        .await;
    let bearer = format!("Bearer {token}");
    let listed = hub.stateless_request("tools/list", json!({}));
    let listed = listed.header("authorization", &bearer).send().await;
    assert!(listed.rpc_response().await["result"]["tools"][0].is_object());
    for (method, params) in [
        (
            "tools/call",
            json!({"name": "get_all_employees", "arguments": {}}),
        ),
        ("prompts/get", json!({"name": "x"})),
        ("resources/read", json!({"uri": "x://y"})),
    ] {
        let asked = hub
            .stateless_request(method, params)
            .header("authorization", &bearer);
        let refused = asked.send().await;
        assert_eq!(refused.status, 403, "{method}");
        assert_eq!(refused.json().await["error"]["code"], -32003, "{method}");
    }
    // The same in a session, and over SSE.
    let asked = hub.post(&crate::test_hub::initialize_message(
        "2025-06-18",
        &json!({}),
    ));
    let opened = asked.header("authorization", &bearer).send().await;
    let session = opened.headers["mcp-session-id"].clone();
    let body = call_message(1, "get_all_employees", json!({}));
    let refused = hub
        .session_request(&session, &body)
        .header("authorization", &bearer);
    assert_eq!(refused.send().await.status, 403);
    let mut stream = TestRequest::new(&hub.address, "GET", "/sse")
        .header("accept", "text/event-stream")
        .header("authorization", &bearer)
        .send()
        .await;
    let path = stream.next_event().await.unwrap().data;
    let posted = TestRequest::post(&hub.address, &path, &body).header("authorization", &bearer);
    assert_eq!(posted.send().await.status, 202);
    assert_eq!(
        stream.next_message().await.unwrap()["error"]["code"],
        -32003
    );
}

async fn status_for(hub: &TestHub, rule: &RouteRule, token: Option<&str>) -> u16 {
    // Nothing of that name exists, so nothing is changed.
    let path: Vec<&str> = rule
        .path
        .split('/')
        .map(|step| {
            if step.starts_with('{') {
                "nothing"
            } else {
                step
            }
        })
        .collect();
    let method = ["GET", "POST", "PUT", "DELETE"]
        .into_iter()
        .find(|it| rule.method == *it)
        .unwrap();
    let mut ask = TestRequest::new(&hub.address, method, &path.join("/"))
        .header("content-type", "application/json")
        .header("accept", "application/json")
        .body("[]");
    if let Some(token) = token {
        ask = ask.header("authorization", &format!("Bearer {token}"));
    }
    ask.send().await.status.as_u16()
}
