//! maru signs in to servers that want OAuth.

pub(crate) mod browser;
mod command_line;
mod fake_remote;
mod hostile;
mod leaks;
mod oidc_provider;
mod own_accounts;
mod several_hubs;
mod without_person;

use std::process::Command;

use serde_json::{Value, json};

use crate::{http_client::wait_for, test_hub::TestHub};

use browser::{follow, open_on_hub, path_and_query};
use fake_remote::FakeRemote;

const SERVER: &str = "/api/mcp/servers/remote";

/// Registers the server at `url`, and returns what the hub says of it.
async fn register(hub: &TestHub, url: &str, auth: Value) -> Value {
    let mut config = json!({"url": url});
    if !auth.is_null() {
        config["auth"] = auth;
    }
    let body =
        json!({"name": "remote", "transportType": "HTTP", "config": config, "autoConnect": true});
    let response = hub.send_as_admin("POST", "/api/mcp/servers", body).await;
    assert_eq!(response.status, 201);
    response.json().await
}

/// A new key in PKCS #8 (PEM).
fn private_key() -> String {
    let arguments = "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256";
    let made = Command::new("openssl").args(arguments.split(' ')).output();
    String::from_utf8(made.unwrap().stdout).unwrap()
}

async fn status(hub: &TestHub) -> Value {
    hub.send_as_admin("GET", SERVER, Value::Null)
        .await
        .json()
        .await
}

async fn begin(hub: &TestHub) -> String {
    let path = format!("{SERVER}/login");
    let response = hub.send_as_admin("POST", &path, Value::Null).await;
    assert_eq!(response.status, 200);
    let link = response.json().await["authorization_url"].clone();
    link.as_str().unwrap().to_owned()
}

/// Signs in as a browser would, and returns the page at the end.
async fn sign_in(hub: &TestHub) -> String {
    let redirect = follow(&begin(hub).await, &hub.address).await;
    open_on_hub(hub, path_and_query(&redirect))
        .await
        .text()
        .await
}

async fn call(hub: &TestHub, arguments: Value) -> Value {
    let params = json!({"name": "remote__whoami", "arguments": arguments});
    hub.stateless_request("tools/call", params)
        .send()
        .await
        .rpc_response()
        .await
}

fn text_of(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"]
        .as_str()
        .unwrap_or_default()
}

#[tokio::test]
async fn server_that_wants_a_sign_in_says_so_and_works_after_it() {
    let (hub, remote) = (TestHub::start().await, FakeRemote::start().await);
    let registered = register(&hub, &remote.url(), Value::Null).await;
    assert_eq!(registered["status"], "NEEDS_SIGN_IN", "{registered}");
    let page = sign_in(&hub).await;
    assert!(page.contains("maru is signed in to remote"), "{page}");
    assert_eq!(status(&hub).await["status"], "CONNECTED");
    let answer = call(&hub, json!({})).await;
    assert_eq!(text_of(&answer), "account 1", "{answer}");
    // The token survives what the hub forgets.
    hub.send_as_admin("POST", &format!("{SERVER}/disconnect"), Value::Null)
        .await;
    hub.send_as_admin("POST", &format!("{SERVER}/connect"), Value::Null)
        .await;
    assert_eq!(text_of(&call(&hub, json!({})).await), "account 1");
    assert_eq!(remote.count("/token"), 1);
}

#[tokio::test]
async fn api_with_six_states_says_failed_and_why_and_keeps_how_to_sign_in() {
    let (hub, remote) = (TestHub::start().await, FakeRemote::start().await);
    let add = async || {
        let body = json!({"name": "remote", "url": remote.url()});
        let added = hub.send_as_admin("POST", "/mcp/add", body).await;
        added.json().await
    };
    let added = add().await;
    assert_eq!(added["status"], "FAILED", "{added}");
    let cause = added["cause"].as_str().unwrap();
    assert!(cause.contains("needs a sign-in"), "{added}");
    let config = json!({"url": remote.url(), "auth": {"per_user": true, "client_id": "mine"}});
    let body = json!({"name": "remote", "transportType": "HTTP", "config": config});
    let changed = hub.send_as_admin("PUT", SERVER, body).await;
    assert_eq!(changed.status, 200);
    add().await;
    let auth = &status(&hub).await["config"]["auth"];
    assert_eq!(
        (&auth["per_user"], &auth["client_id"]),
        (&json!(true), &json!("mine"))
    );
}

#[tokio::test]
async fn signing_out_revokes_and_forgets_the_tokens() {
    let (hub, remote) = (TestHub::start().await, FakeRemote::start().await);
    register(&hub, &remote.url(), Value::Null).await;
    sign_in(&hub).await;
    let ended = hub
        .send_as_admin("POST", &format!("{SERVER}/logout"), Value::Null)
        .await;
    assert_eq!(ended.json().await, json!({"revoked": true}));
    assert_eq!(remote.count("/revoke"), 2);
    hub.send_as_admin("POST", &format!("{SERVER}/connect"), Value::Null)
        .await;
    assert_eq!(status(&hub).await["status"], "NEEDS_SIGN_IN");
}

#[tokio::test]
async fn refused_refresh_token_means_a_new_sign_in() {
    let (hub, remote) = (TestHub::start().await, FakeRemote::start().await);
    register(&hub, &remote.url(), Value::Null).await;
    sign_in(&hub).await;
    remote.revoke_all();
    let answer = call(&hub, json!({})).await;
    assert!(text_of(&answer).contains("needs a sign-in"), "{answer}");
    let waiting = wait_for(
        async || status(&hub).await,
        |it| it["status"] == "NEEDS_SIGN_IN",
    );
    waiting.await;
    sign_in(&hub).await;
    assert_eq!(text_of(&call(&hub, json!({})).await), "account 2");
}

#[tokio::test]
async fn pasted_redirect_completes_the_sign_in_once() {
    let (hub, remote) = (TestHub::start().await, FakeRemote::start().await);
    register(&hub, &remote.url(), Value::Null).await;
    let redirect = follow(&begin(&hub).await, &hub.address).await;
    let complete = async |url: &str| {
        let path = format!("{SERVER}/login/complete");
        hub.send_as_admin("POST", &path, json!({"redirect_url": url}))
            .await
            .status
    };
    assert_eq!(complete("no address").await, 400);
    assert_eq!(complete(&redirect).await, 200);
    assert_eq!(status(&hub).await["status"], "CONNECTED");
    // A code or state that was used is worth nothing.
    assert_eq!(complete(&redirect).await, 400);
    assert_eq!(
        open_on_hub(&hub, path_and_query(&redirect)).await.status,
        400
    );
    assert_eq!(remote.count("/token"), 1);
}

#[tokio::test]
async fn challenge_is_read_also_behind_that_of_another_scheme() {
    let (hub, remote) = (TestHub::start().await, FakeRemote::start().await);
    let metadata = format!("{}/metadata", remote.issuer());
    remote.change_challenges(vec![
        "Basic realm=\"a\"".to_owned(),
        format!("Bearer resource_metadata=\"{metadata}\""),
    ]);
    let document = json!({"resource": remote.url(), "authorization_servers": [remote.issuer()]});
    remote.replace_document("/metadata", document);
    remote.replace_document(
        "/.well-known/oauth-protected-resource/mcp",
        json!({"resource": "https://evil.example/mcp"}),
    );
    register(&hub, &remote.url(), Value::Null).await;
    sign_in(&hub).await;
    assert_eq!(status(&hub).await["status"], "CONNECTED");
}

#[tokio::test]
async fn only_an_admin_signs_in_for_all() {
    let (hub, remote) = (TestHub::start().await, FakeRemote::start().await);
    register(&hub, &remote.url(), Value::Null).await;
    let page = open_on_hub(&hub, "/oauth/start/remote").await;
    assert_eq!(page.status, 403);
    assert_eq!(remote.count("/register"), 0);
}
