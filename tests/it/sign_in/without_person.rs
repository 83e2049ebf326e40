//! Servers at which no person signs in: maru is the client, or has a token that does not
//! change.

use serde_json::{Value, json};

use super::{SERVER, call, fake_remote::FakeRemote, private_key, register, status, text_of};
use crate::test_hub::TestHub;

#[tokio::test]
async fn maru_gets_tokens_for_itself_and_again_when_they_end() {
    for proof in [
        ("client_secret", "a-secret".to_owned()),
        ("private_key", private_key()),
    ] {
        let (hub, remote) = (TestHub::start().await, FakeRemote::start().await);
        let mut auth = json!({"type": "client_credentials", "client_id": "maru"});
        auth[proof.0] = proof.1.into();
        let registered = register(&hub, &remote.url(), auth).await;
        assert_eq!(registered["status"], "CONNECTED", "{registered}");
        assert_eq!(text_of(&call(&hub, json!({})).await), "account robot");
        remote.revoke_all();
        assert_eq!(text_of(&call(&hub, json!({})).await), "account robot");
        assert_eq!(remote.count("/authorize"), 0);
        // People do not sign in to it.
        let path = format!("{SERVER}/login");
        let refused = hub.send_as_admin("POST", &path, Value::Null).await;
        assert_eq!(refused.status, 409);
    }
}

#[tokio::test]
async fn fixed_token_is_sent_and_a_refused_one_starts_no_sign_in() {
    let (hub, remote) = (TestHub::start().await, FakeRemote::start().await);
    remote.accept_token("fixed-token-of-robot");
    let auth = json!({"type": "bearer", "token": "fixed-token-of-robot"});
    let registered = register(&hub, &remote.url(), auth).await;
    assert_eq!(registered["status"], "CONNECTED", "{registered}");
    assert_eq!(text_of(&call(&hub, json!({})).await), "account robot");
    remote.revoke_all();
    let refused = call(&hub, json!({})).await;
    assert_eq!(refused["result"]["isError"], true, "{refused}");
    assert_ne!(status(&hub).await["status"], "NEEDS_SIGN_IN");
    assert_eq!(remote.count("/register") + remote.count("/token"), 0);
}

#[tokio::test]
async fn client_document_is_served_where_authorization_servers_can_read_it() {
    let get = async |hub: &TestHub| {
        let path = "/oauth/client.json";
        hub.send_as_admin("GET", path, Value::Null).await
    };
    let hub = TestHub::start().await;
    assert_eq!(get(&hub).await.status, 404);
    let hub = TestHub::with_config(|config| {
        config.public_url = Some("https://maru.example.com".to_owned());
    })
    .await;
    let document = get(&hub).await.json().await;
    assert_eq!(
        document["client_id"],
        "https://maru.example.com/oauth/client.json"
    );
    let redirects = json!(["https://maru.example.com/oauth/callback"]);
    assert_eq!(document["redirect_uris"], redirects, "{document}");
}
