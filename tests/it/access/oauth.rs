//! Tokens of somebody else's authorisation server.

use std::{fs, time::Duration};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    hub::TestHub,
    wire::{Ask, Reply, within},
};

const ISSUER: &str = "https://login.example";
const RESOURCE: &str = "https://maru.example/mcp";

fn pair(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
}

fn key_set(seeds: &[u8]) -> String {
    let keys: Vec<Value> = seeds
        .iter()
        .map(|seed| {
            let x = BASE64_URL_SAFE_NO_PAD.encode(pair(*seed).public_key());
            json!({"kty": "OKP", "crv": "Ed25519", "kid": seed.to_string(), "x": x})
        })
        .collect();
    json!({"keys": keys}).to_string()
}

fn signed(seed: u8, scope: &str, changes: Value) -> String {
    let mut claims = json!({"iss": ISSUER, "aud": RESOURCE, "sub": "kim", "exp": 4_000_000_000_i64, "scope": scope});
    for (name, value) in changes.as_object().unwrap() {
        claims[name] = value.clone();
    }
    let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let header = json!({"alg": "EdDSA", "kid": seed.to_string()});
    let text = format!("{}.{}", part(&header), part(&claims));
    let signature = pair(seed).sign(text.as_bytes());
    format!("{text}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
}

async fn hub() -> TestHub {
    let keys = tempfile::tempdir().unwrap().keep().join("keys.json");
    fs::write(&keys, key_set(&[1, 2])).unwrap();
    TestHub::with(|config| {
        config.require_token = true;
        config.oauth.issuer = Some(ISSUER.to_owned());
        config.oauth.resource = Some(RESOURCE.to_owned());
        config.oauth.jwks_file = Some(keys);
    })
    .await
}

async fn ask(hub: &TestHub, token: &str, method: &'static str, path: &str) -> Reply {
    let asked = Ask::new(&hub.address, method, path)
        .header("content-type", "application/json")
        .header("authorization", &format!("Bearer {token}"));
    asked.body("{}").send().await
}

#[tokio::test(flavor = "multi_thread")]
async fn scopes_become_roles_and_clients_learn_where_tokens_are() {
    let hub = hub().await;
    let anonymous = Ask::post(&hub.address, "/mcp", &json!({})).send().await;
    assert_eq!(anonymous.status, 401);
    let expected = "Bearer realm=\"maru\", resource_metadata=\"https://maru.example/.well-known/oauth-protected-resource/mcp\"";
    assert_eq!(anonymous.headers["www-authenticate"], expected);
    for path in ["", "/mcp"] {
        let path = format!("/.well-known/oauth-protected-resource{path}");
        let told = Ask::new(&hub.address, "GET", &path)
            .send()
            .await
            .json()
            .await;
        assert_eq!(told["resource"], RESOURCE);
        assert_eq!(told["authorization_servers"], json!([ISSUER]));
    }
    let reader = signed(1, "maru:read", json!({}));
    assert_eq!(ask(&hub, &reader, "GET", "/readyz").await.status, 200);
    let refused = ask(&hub, &reader, "GET", "/api/tokens").await;
    assert_eq!(refused.status, 403);
    let challenge = &refused.headers["www-authenticate"];
    assert!(challenge.contains("insufficient_scope") && challenge.contains("maru:admin"));
    let admin = signed(2, "openid maru:admin", json!({}));
    assert_eq!(ask(&hub, &admin, "GET", "/api/tokens").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_for_others_or_of_others_are_refused() {
    let hub = hub().await;
    for (name, token) in [
        (
            "audience",
            signed(1, "maru:admin", json!({"aud": "https://other/mcp"})),
        ),
        (
            "issuer",
            signed(1, "maru:admin", json!({"iss": "https://evil"})),
        ),
        (
            "expired",
            signed(1, "maru:admin", json!({"exp": 1_000_000_000})),
        ),
        (
            "early",
            signed(1, "maru:admin", json!({"nbf": 4_000_000_000_i64})),
        ),
        ("key", signed(9, "maru:admin", json!({}))),
        ("scope", signed(1, "openid", json!({}))),
        ("garbage", "a.b.c".to_owned()),
    ] {
        let refused = ask(&hub, &token, "GET", "/readyz").await;
        assert_eq!(refused.status, 401, "{name}");
        let challenge = &refused.headers["www-authenticate"];
        assert!(challenge.contains("invalid_token"), "{name}: {challenge}");
    }
}

/// Keys are fetched again when one is unknown, though not for every such token.
#[tokio::test(flavor = "multi_thread")]
async fn keys_come_over_http_through_the_policy() {
    use axum::{Router, routing::get};
    let served = axum::serve(
        tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap(),
        Router::new().route("/keys", get(|| async { key_set(&[3]) })),
    );
    let address = served.local_addr().unwrap();
    maru::tasks::Tasks::default().spawn(async move {
        let _ = served.await;
    });
    let hub = TestHub::with(|config| {
        config.oauth.issuer = Some(ISSUER.to_owned());
        config.oauth.resource = Some(RESOURCE.to_owned());
        config.oauth.jwks_url = Some(format!("http://{address}/keys"));
    })
    .await;
    let admin = signed(3, "maru:admin", json!({}));
    assert_eq!(ask(&hub, &admin, "GET", "/api/tokens").await.status, 200);
    let unknown = signed(4, "maru:admin", json!({}));
    assert_eq!(ask(&hub, &unknown, "GET", "/api/tokens").await.status, 401);
}

/// Asks until the answer has this status.
async fn becomes(hub: &TestHub, token: &str, status: u16) {
    within(async {
        while ask(hub, token, "GET", "/readyz").await.status != status {
            sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn withdrawn_key_is_not_trusted_after_the_next_refresh() {
    let keys = tempfile::tempdir().unwrap().keep().join("keys.json");
    fs::write(&keys, key_set(&[1, 2])).unwrap();
    let hub = TestHub::with(|config| {
        config.require_token = true;
        config.oauth.issuer = Some(ISSUER.to_owned());
        config.oauth.resource = Some(RESOURCE.to_owned());
        config.oauth.jwks_file = Some(keys.clone());
        config.oauth.jwks_refresh_ms = 1000;
    })
    .await;
    let (kept, withdrawn) = (
        signed(1, "maru:read", json!({})),
        signed(2, "maru:read", json!({})),
    );
    becomes(&hub, &withdrawn, 200).await;
    fs::write(&keys, key_set(&[1])).unwrap();
    becomes(&hub, &withdrawn, 401).await;
    assert_eq!(ask(&hub, &kept, "GET", "/readyz").await.status, 200);
    // The last one, too.
    fs::write(&keys, key_set(&[])).unwrap();
    becomes(&hub, &kept, 401).await;
    fs::write(&keys, key_set(&[1])).unwrap();
    becomes(&hub, &kept, 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_cannot_be_read_again_are_trusted_for_a_bounded_time() {
    let keys = tempfile::tempdir().unwrap().keep().join("keys.json");
    fs::write(&keys, key_set(&[1])).unwrap();
    let hub = TestHub::with(|config| {
        config.require_token = true;
        config.oauth.issuer = Some(ISSUER.to_owned());
        config.oauth.resource = Some(RESOURCE.to_owned());
        config.oauth.jwks_file = Some(keys.clone());
        config.oauth.jwks_refresh_ms = 1000;
        config.oauth.jwks_max_age_ms = 2000;
    })
    .await;
    let token = signed(1, "maru:read", json!({}));
    becomes(&hub, &token, 200).await;
    fs::remove_file(&keys).unwrap();
    becomes(&hub, &token, 401).await;
}
