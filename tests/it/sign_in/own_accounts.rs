//! Servers at which each caller has an account of its own.

use serde_json::{Value, json};

use super::{
    SERVER,
    browser::{follow, path_and_query},
    fake_remote::FakeRemote,
    register, sign_in,
};
use crate::{
    http_client::{TestRequest, TestResponse},
    test_hub::{TestHub, request_message, stateless_message},
};

/// A caller with a token of its own.
pub(super) struct Caller<'a> {
    hub: &'a TestHub,
    pub(super) token: String,
}

impl<'a> Caller<'a> {
    pub(super) async fn new(hub: &'a TestHub, name: &str) -> Self {
        let token = hub
            .create_token(json!({"name": name, "role": "agent"}))
            .await;
        Self { hub, token }
    }

    /// The same caller at another hub.
    pub(super) fn at(&self, hub: &'a TestHub) -> Self {
        let token = self.token.clone();
        Self { hub, token }
    }

    pub(super) async fn send(
        &self,
        method: &'static str,
        path: &str,
        body: &Value,
    ) -> TestResponse {
        let request = TestRequest::new(&self.hub.address, method, path)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("authorization", &format!("Bearer {}", self.token));
        request.body(&body.to_string()).send().await
    }

    /// Calls the tool in the form of 2026-07-28.
    pub(super) async fn call(&self, capabilities: Value, inputs: Value) -> Value {
        let mut params = json!({"name": "remote__whoami", "arguments": {}});
        if !inputs.is_null() {
            params["inputResponses"] = inputs;
        }
        let mut body = stateless_message("tools/call", params);
        body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
        let request = TestRequest::post(&self.hub.address, "/mcp", &body)
            .header("authorization", &format!("Bearer {}", self.token))
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "tools/call")
            .header("mcp-name", "remote__whoami");
        request.send().await.rpc_response().await
    }

    pub(super) async fn sign_in(&self) {
        let path = format!("{SERVER}/account");
        let begun = self.send("POST", &path, &json!({})).await.json().await;
        let link = begun["authorization_url"].as_str().unwrap();
        let redirect = follow(link, &self.hub.address).await;
        let body = json!({"redirect_url": redirect});
        assert_eq!(self.send("PUT", &path, &body).await.status, 200);
    }
}

fn text_of(answer: &Value) -> &str {
    super::text_of(answer)
}

#[tokio::test]
async fn each_caller_uses_the_own_account_and_no_other() {
    let (hub, remote) = (TestHub::start().await, FakeRemote::start().await);
    register(&hub, &remote.url(), json!({"per_user": true})).await;
    // The hub's own account lists the tools.
    sign_in(&hub).await;
    let (ann, ben) = (
        Caller::new(&hub, "ann").await,
        Caller::new(&hub, "ben").await,
    );
    let refused = ann.call(json!({}), Value::Null).await;
    assert!(
        text_of(&refused).contains("/oauth/start/remote"),
        "{refused}"
    );
    ann.sign_in().await;
    assert_eq!(
        text_of(&ann.call(json!({}), Value::Null).await),
        "account 2"
    );
    let refused = ben.call(json!({}), Value::Null).await;
    assert!(text_of(&refused).contains("needs a sign-in"), "{refused}");
    ben.sign_in().await;
    assert_eq!(
        text_of(&ben.call(json!({}), Value::Null).await),
        "account 3"
    );
    assert_eq!(
        text_of(&ann.call(json!({}), Value::Null).await),
        "account 2"
    );
    let ended = ann
        .send("DELETE", &format!("{SERVER}/account"), &json!({}))
        .await;
    assert_eq!(ended.json().await["revoked"], true);
    let refused = ann.call(json!({}), Value::Null).await;
    assert!(text_of(&refused).contains("needs a sign-in"), "{refused}");
    assert_eq!(
        text_of(&ben.call(json!({}), Value::Null).await),
        "account 3"
    );
}

#[tokio::test]
async fn next_holder_of_a_name_inherits_neither_account_nor_sign_in() {
    let (hub, remote) = (TestHub::start().await, FakeRemote::start().await);
    register(&hub, &remote.url(), json!({"per_user": true})).await;
    sign_in(&hub).await;
    let path = format!("{SERVER}/account");
    let before = Caller::new(&hub, "kim").await;
    before.sign_in().await;
    let answer = before.call(json!({}), Value::Null).await;
    assert_eq!(text_of(&answer), "account 2");
    let begun = before.send("POST", &path, &json!({})).await.json().await;
    let earlier_link = begun["authorization_url"].as_str().unwrap();
    let revoked = hub.send_as_admin("DELETE", "/api/tokens/kim", Value::Null);
    assert_eq!(revoked.await.status, 204);

    let after = Caller::new(&hub, "kim").await;
    let refused = after.call(json!({}), Value::Null).await;
    assert!(text_of(&refused).contains("needs a sign-in"), "{refused}");
    let redirect = follow(earlier_link, &hub.address).await;
    let body = json!({"redirect_url": redirect});
    assert_eq!(after.send("PUT", &path, &body).await.status, 400);
    let begun = after.send("POST", &path, &json!({})).await.json().await;
    assert_ne!(begun["authorization_url"], earlier_link);
    after.sign_in().await;
    let answer = after.call(json!({}), Value::Null).await;
    assert_eq!(text_of(&answer), "account 4", "{answer}");
}

#[tokio::test]
async fn sign_in_of_one_caller_is_not_completed_by_another() {
    let (hub, remote) = (TestHub::start().await, FakeRemote::start().await);
    register(&hub, &remote.url(), json!({"per_user": true})).await;
    let (ann, eve) = (
        Caller::new(&hub, "ann").await,
        Caller::new(&hub, "eve").await,
    );
    let path = format!("{SERVER}/account");
    let begun = ann.send("POST", &path, &json!({})).await.json().await;
    let redirect = follow(begun["authorization_url"].as_str().unwrap(), &hub.address).await;
    let body = json!({"redirect_url": redirect});
    assert_eq!(eve.send("PUT", &path, &body).await.status, 403);
    assert_eq!(remote.count("/token"), 0);
    // Nor in the browser of somebody who was sent the link.
    let begun = ann.send("POST", &path, &json!({})).await.json().await;
    let redirect = follow(begun["authorization_url"].as_str().unwrap(), &hub.address).await;
    let page = super::open_on_hub(&hub, path_and_query(&redirect)).await;
    assert_eq!(page.status, 403);
    assert_eq!(remote.count("/token"), 0);
}

#[tokio::test]
async fn client_that_opens_pages_is_asked_to_and_answered_after_the_sign_in() {
    let (hub, remote) = (TestHub::start().await, FakeRemote::start().await);
    register(&hub, &remote.url(), json!({"per_user": true})).await;
    sign_in(&hub).await;
    let ann = Caller::new(&hub, "ann").await;
    let able = || json!({"elicitation": {"url": {}}});
    let asked = ann.call(able(), Value::Null).await;
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    let requests = asked["result"]["inputRequests"].as_object().unwrap();
    let (key, request) = requests.iter().next().unwrap();
    let page = request["params"]["url"].as_str().unwrap();
    // The page belongs to whoever opens it, so the link may be seen by others.
    let opened = ann.send("GET", path_and_query(page), &json!({})).await;
    assert_eq!(opened.status, 303);
    let cookie = opened.cookies().next().unwrap();
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let redirect = follow(&opened.headers["location"], &hub.address).await;
    let back = TestRequest::new(&hub.address, "GET", path_and_query(&redirect));
    let inputs = json!({key: {"action": "accept"}});
    let (answer, page) = tokio::join!(
        ann.call(able(), inputs),
        back.header("cookie", &cookie).send()
    );
    assert_eq!(page.status, 200);
    assert_eq!(text_of(&answer), "account 2", "{answer}");
}

#[tokio::test]
async fn older_client_gets_the_error_that_names_the_page() {
    let (hub, remote) = (TestHub::start().await, FakeRemote::start().await);
    register(&hub, &remote.url(), json!({"per_user": true})).await;
    sign_in(&hub).await;
    let capabilities = json!({"elicitation": {"form": {}, "url": {}}});
    let session = hub.initialize_session("2025-11-25", capabilities).await;
    let params = json!({"name": "remote__whoami", "arguments": {}});
    let body = request_message(1, "tools/call", params);
    let answer = hub
        .session_request(&session, &body)
        .send()
        .await
        .rpc_response()
        .await;
    assert_eq!(answer["error"]["code"], -32042, "{answer}");
    let page = &answer["error"]["data"]["elicitations"][0]["url"];
    assert!(
        page.as_str().unwrap().ends_with("/oauth/start/remote"),
        "{page}"
    );
}
