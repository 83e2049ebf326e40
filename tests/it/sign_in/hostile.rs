//! Documents and redirects that lie.

use serde_json::{Value, json};

use super::{
    SERVER, begin,
    browser::{follow, open_on_hub, path_and_query},
    fake_remote::{CANARY, FakeRemote},
    register, status,
};
use crate::test_hub::TestHub;

const RESOURCE: &str = "/.well-known/oauth-protected-resource/mcp";
const ISSUER: &str = "/.well-known/oauth-authorization-server";

/// Each is refused before anything is registered or requested at the endpoints.
#[tokio::test]
async fn lying_documents_are_refused_before_a_sign_in() {
    let hub = TestHub::start().await;
    let huge = "x".repeat(300 << 10);
    for (path, members, reason) in [
        (
            RESOURCE,
            json!({"resource": "https://evil.example/mcp"}),
            "another resource",
        ),
        (RESOURCE, json!({"resource": null}), "names no resource"),
        (
            RESOURCE,
            json!({"authorization_servers": []}),
            "names no authorization server",
        ),
        (
            RESOURCE,
            json!({"authorization_servers": ["http://evil.example"]}),
            "not reached by https",
        ),
        (
            RESOURCE,
            json!({"authorization_servers": ["https://10.0.0.1"]}),
            "private address",
        ),
        (
            RESOURCE,
            json!({"authorization_servers": ["https://169.254.169.254"]}),
            "refused",
        ),
        (
            RESOURCE,
            json!({"authorization_servers": ["https://evil.example"]}),
            "not a listed host",
        ),
        (
            RESOURCE,
            json!({"authorization_servers": ["http://127.0.0.1:22"]}),
            "another kind of service",
        ),
        (RESOURCE, json!({"padding": huge}), "larger than"),
        (
            ISSUER,
            json!({"issuer": "https://evil.example"}),
            "another issuer",
        ),
        (ISSUER, json!({"issuer": null}), "another issuer"),
        (
            ISSUER,
            json!({"token_endpoint": null}),
            "names no token_endpoint",
        ),
        (
            ISSUER,
            json!({"token_endpoint": "http://evil.example/token"}),
            "not reached by https",
        ),
        (
            ISSUER,
            json!({"authorization_endpoint": "javascript:alert(1)"}),
            "not reached by https",
        ),
        (
            ISSUER,
            json!({"registration_endpoint": "https://10.0.0.1/register"}),
            "private address",
        ),
        (
            ISSUER,
            json!({"code_challenge_methods_supported": ["plain"]}),
            "PKCE with S256",
        ),
        (
            ISSUER,
            json!({"registration_endpoint": null}),
            "registers no clients",
        ),
        (ISSUER, json!({"padding": huge}), "larger than"),
    ] {
        let remote = FakeRemote::start().await;
        remote.change_document(path, members.clone());
        register(&hub, &remote.url(), Value::Null).await;
        let refused = hub
            .send_as_admin("POST", &format!("{SERVER}/login"), Value::Null)
            .await;
        let shown: String = members.to_string().chars().take(100).collect();
        assert_eq!(refused.status, 502, "{shown}");
        let text = refused.text().await;
        assert!(text.contains(reason), "{shown}: {text}");
        for endpoint in ["/authorize", "/token"] {
            assert_eq!(remote.count(endpoint), 0, "{shown}");
        }
        hub.send_as_admin("DELETE", SERVER, Value::Null).await;
    }
}

#[tokio::test]
async fn documents_that_redirect_are_not_followed() {
    let hub = TestHub::start().await;
    let (remote, elsewhere) = (FakeRemote::start().await, FakeRemote::start().await);
    for path in [RESOURCE, ISSUER] {
        remote.replace_document(path, format!("{}{path}", elsewhere.issuer()).into());
    }
    register(&hub, &remote.url(), Value::Null).await;
    let refused = hub
        .send_as_admin("POST", &format!("{SERVER}/login"), Value::Null)
        .await;
    let text = refused.text().await;
    assert!(text.contains("redirects are not followed"), "{text}");
    assert_eq!(elsewhere.count(RESOURCE) + elsewhere.count(ISSUER), 0);
}

#[tokio::test]
async fn documents_that_never_come_are_given_up() {
    let (hub, remote) = (TestHub::start().await, FakeRemote::start().await);
    register(&hub, &remote.url(), Value::Null).await;
    remote.replace_document(RESOURCE, Value::Null);
    let path = format!("{SERVER}/login");
    let refused = hub.send_as_admin("POST", &path, Value::Null).await;
    assert_eq!(refused.status, 502);
    let text = refused.text().await;
    assert!(text.contains("did not answer in time"), "{text}");
    assert_eq!(remote.count("/register"), 0);
}

/// The code never reaches the token endpoint.
#[tokio::test]
async fn redirects_that_belong_to_no_sign_in_are_refused() {
    let hub = TestHub::start().await;
    let other = "https://evil.example".to_owned();
    for (name, value) in [
        ("state", None),
        ("state", Some("a-state-of-nobody".to_owned())),
        ("iss", None),
        ("iss", Some(other)),
        ("code", None),
    ] {
        let remote = FakeRemote::start().await;
        register(&hub, &remote.url(), Value::Null).await;
        remote.change_redirect(name, value.clone());
        let redirect = follow(&begin(&hub).await, &hub.address).await;
        let page = open_on_hub(&hub, path_and_query(&redirect)).await;
        assert!(page.status.as_u16() >= 400, "{name}: {value:?}");
        let text = page.text().await;
        assert!(!text.contains(CANARY), "{text}");
        assert_eq!(remote.count("/token"), 0, "{name}: {value:?}");
        assert_eq!(status(&hub).await["status"], "NEEDS_SIGN_IN");
        hub.send_as_admin("DELETE", SERVER, Value::Null).await;
    }
}

/// A server that is sent to the authorization server of another one (mix-up).
#[tokio::test]
async fn code_of_one_issuer_is_not_sent_to_another() {
    let hub = TestHub::start().await;
    let (honest, evil) = (FakeRemote::start().await, FakeRemote::start().await);
    register(&hub, &evil.url(), Value::Null).await;
    // The evil server sends people to the honest endpoint, to get its code.
    let endpoint = format!("{}/authorize", honest.issuer());
    evil.change_document(ISSUER, json!({"authorization_endpoint": endpoint}));
    let redirect = follow(&begin(&hub).await, &hub.address).await;
    let page = open_on_hub(&hub, path_and_query(&redirect)).await;
    assert_eq!(page.status, 502);
    let text = page.text().await;
    assert!(text.contains("another authorization server"), "{text}");
    assert_eq!(evil.count("/token"), 0);
}

/// Tokens stay with the address that they are for.
#[tokio::test]
async fn server_with_another_address_gets_no_token_of_the_old_one() {
    let hub = TestHub::start().await;
    let (remote, other) = (FakeRemote::start().await, FakeRemote::start().await);
    register(&hub, &remote.url(), Value::Null).await;
    super::sign_in(&hub).await;
    assert_eq!(status(&hub).await["status"], "CONNECTED");
    let changed = json!({"config": {"url": other.url()}});
    let changed = hub.send_as_admin("PUT", SERVER, changed).await;
    assert_eq!(changed.status, 200);
    assert_eq!(changed.json().await["status"], "NEEDS_SIGN_IN");
}
