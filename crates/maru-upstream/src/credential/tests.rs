//! A renewal while another hub changes the same credential.

use maru_http::{AddressPolicy, ClientTls};
use maru_oauth::{ClientAuthMethod, OAuthHttp};
use maru_runtime::tasks::Tasks;
use maru_store::Store;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::*;
use crate::sign_in::SignInOptions;

const SERVER_URL: &str = "http://127.0.0.1:9/mcp";

fn data(issuer: &str, tokens: &Value) -> String {
    let stored = json!({
        "server_url": SERVER_URL,
        "resource": null,
        "issuer": {
            "issuer": issuer, "authorization_endpoint": null,
            "token_endpoint": format!("{issuer}/token"), "registration_endpoint": null,
            "revocation_endpoint": null, "scopes": [], "auth_methods": null,
            "supports_client_documents": false, "sends_issuer": false, "supports_s256": true,
        },
        "client": ClientIdentity {
            client_id: "a-client".to_owned(),
            client_secret: None,
            method: ClientAuthMethod::None,
        },
        "redirect_uri": "",
        "requested": [],
        "tokens": tokens,
    });
    stored.to_string()
}

fn credential(store: &Store) -> Arc<Credential> {
    let policy = AddressPolicy {
        serves_loopback_only: true,
        ..AddressPolicy::default()
    };
    let http = OAuthHttp::new(policy, ClientTls::default());
    let options = SignInOptions::default();
    let services = SignInServices::new(store.clone(), http, Tasks::default(), options);
    Arc::new(Credential {
        server_id: "id".to_owned(),
        server_name: "remote".to_owned(),
        server_url: SERVER_URL.to_owned(),
        subject: String::new(),
        auth: RemoteAuth::default(),
        services: Arc::new(services),
        state: Mutex::default(),
        renewal: tokio::sync::Mutex::default(),
        changes: watch::Sender::default(),
    })
}

/// Refreshes a token while `change` runs, between the request to the issuer and its response.
async fn refresh_while(
    store: &Store,
    change: impl AsyncFnOnce(String, ServerCredentialRow),
) -> Result<HeaderValue, Error> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let issuer = format!("http://{}", listener.local_addr().unwrap());
    let old = json!({"access_token": "old", "refresh_token": "once", "issued_at": 0, "expires_at": null, "scope": null});
    let stored = store.put_credential("id", "", &data(&issuer, &old)).await;
    let row = stored.unwrap().unwrap();
    let credential = credential(store);
    let used = credential.authorization().await.unwrap();
    let renewed = credential.on_unauthorized(used.as_ref(), Challenge::default());
    let answer = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let _request = stream.read(&mut [0; 4096]).await.unwrap();
        change(issuer, row).await;
        let body = r#"{"access_token": "new", "token_type": "Bearer"}"#;
        let length = body.len();
        let response = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}");
        stream.write_all(response.as_bytes()).await.unwrap();
        stream
    };
    let (renewed, _stream) = tokio::join!(renewed, answer);
    renewed
}

#[tokio::test]
async fn tokens_replace_the_refusal_that_another_hub_stored() {
    let store = Store::in_memory().await.unwrap();
    let renewed = refresh_while(&store, async |issuer, row| {
        // That hub used the same refresh token a moment later.
        let refused = data(&issuer, &Value::Null);
        let saved = store.replace_credential(&row, &refused).await.unwrap();
        assert!(saved.is_some());
    });
    assert_eq!(renewed.await.unwrap(), "Bearer new");
    let stored = store.credential("id", "").await.unwrap().unwrap();
    assert!(stored.data.contains("\"new\""), "{}", stored.data);
}

#[tokio::test]
async fn tokens_do_not_come_back_after_a_sign_out() {
    let store = Store::in_memory().await.unwrap();
    let renewed = refresh_while(&store, async |_, _| {
        assert!(store.delete_credential("id", "").await.unwrap());
    });
    assert!(matches!(renewed.await, Err(Error::SignInRequired(_))));
    assert_eq!(store.credential("id", "").await.unwrap(), None);
}
