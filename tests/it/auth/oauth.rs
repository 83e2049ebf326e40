//! Tokens of somebody else's authorisation server.

use std::fs;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use maru::config::Config;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};

use crate::{
    http_client::{TestRequest, TestResponse, wait_for},
    test_hub::TestHub,
};

const ISSUER: &str = "https://login.example";
const RESOURCE: &str = "https://maru.example/mcp";

fn signing_key(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
}

fn key_set(seeds: &[u8]) -> String {
    let keys: Vec<Value> = seeds
        .iter()
        .map(|seed| {
            let x = BASE64_URL_SAFE_NO_PAD.encode(signing_key(*seed).public_key());
            json!({"kty": "OKP", "crv": "Ed25519", "kid": seed.to_string(), "x": x})
        })
        .collect();
    json!({"keys": keys}).to_string()
}

/// An access token of the issuer with the key of this seed.
pub(crate) fn signed_jwt(seed: u8, scope: &str, changes: Value) -> String {
    let mut claims = json!({"iss": ISSUER, "aud": RESOURCE, "sub": "kim", "exp": 4_000_000_000_i64, "scope": scope});
    for (name, value) in changes.as_object().unwrap() {
        claims[name] = value.clone();
    }
    let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
    let header = json!({"alg": "EdDSA", "kid": seed.to_string()});
    let text = format!("{}.{}", part(&header), part(&claims));
    let signature = signing_key(seed).sign(text.as_bytes());
    format!("{text}.{}", BASE64_URL_SAFE_NO_PAD.encode(signature))
}

/// Accepts the tokens that [`signed_jwt`] makes with the seeds 1 and 2.
pub(crate) fn trust_issuer(config: &mut Config) {
    let keys = tempfile::tempdir().unwrap().keep().join("keys.json");
    fs::write(&keys, key_set(&[1, 2])).unwrap();
    config.oauth.issuer = Some(ISSUER.to_owned());
    config.oauth.resource = Some(RESOURCE.to_owned());
    config.oauth.jwks_file = Some(keys);
}

async fn oauth_hub() -> TestHub {
    TestHub::with_config(|config| {
        config.require_token = true;
        trust_issuer(config);
    })
    .await
}

async fn send_with_token(
    hub: &TestHub,
    token: &str,
    method: &'static str,
    path: &str,
) -> TestResponse {
    let asked = TestRequest::new(&hub.address, method, path)
        .header("content-type", "application/json")
        .header("authorization", &format!("Bearer {token}"));
    asked.body("{}").send().await
}

#[tokio::test(flavor = "multi_thread")]
async fn scopes_become_roles_and_clients_learn_where_tokens_are() {
    let hub = oauth_hub().await;
    let anonymous = TestRequest::post(&hub.address, "/mcp", &json!({}))
        .send()
        .await;
    assert_eq!(anonymous.status, 401);
    let expected = "Bearer realm=\"maru\", resource_metadata=\"https://maru.example/.well-known/oauth-protected-resource/mcp\"";
    assert_eq!(anonymous.headers["www-authenticate"], expected);
    for path in ["", "/mcp"] {
        let path = format!("/.well-known/oauth-protected-resource{path}");
        let told = TestRequest::new(&hub.address, "GET", &path)
            .send()
            .await
            .json()
            .await;
        assert_eq!(told["resource"], RESOURCE);
        assert_eq!(told["authorization_servers"], json!([ISSUER]));
    }
    let reader = signed_jwt(1, "maru:read", json!({}));
    assert_eq!(
        send_with_token(&hub, &reader, "GET", "/readyz")
            .await
            .status,
        200
    );
    let refused = send_with_token(&hub, &reader, "GET", "/api/tokens").await;
    assert_eq!(refused.status, 403);
    let challenge = &refused.headers["www-authenticate"];
    assert!(challenge.contains("insufficient_scope") && challenge.contains("maru:admin"));
    let admin = signed_jwt(2, "openid maru:admin", json!({}));
    assert_eq!(
        send_with_token(&hub, &admin, "GET", "/api/tokens")
            .await
            .status,
        200
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_other_audiences_or_issuers_are_refused() {
    let hub = oauth_hub().await;
    for (name, token) in [
        (
            "audience",
            signed_jwt(1, "maru:admin", json!({"aud": "https://other/mcp"})),
        ),
        (
            "issuer",
            signed_jwt(1, "maru:admin", json!({"iss": "https://evil"})),
        ),
        (
            "expired",
            signed_jwt(1, "maru:admin", json!({"exp": 1_000_000_000})),
        ),
        (
            "early",
            signed_jwt(1, "maru:admin", json!({"nbf": 4_000_000_000_i64})),
        ),
        ("key", signed_jwt(9, "maru:admin", json!({}))),
        ("scope", signed_jwt(1, "openid", json!({}))),
        ("garbage", "a.b.c".to_owned()),
    ] {
        let refused = send_with_token(&hub, &token, "GET", "/readyz").await;
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
    maru_runtime::tasks::Tasks::default().spawn(async move {
        let _ = served.await;
    });
    let hub = TestHub::with_config(|config| {
        config.oauth.issuer = Some(ISSUER.to_owned());
        config.oauth.resource = Some(RESOURCE.to_owned());
        config.oauth.jwks_url = Some(format!("http://{address}/keys"));
    })
    .await;
    let admin = signed_jwt(3, "maru:admin", json!({}));
    assert_eq!(
        send_with_token(&hub, &admin, "GET", "/api/tokens")
            .await
            .status,
        200
    );
    let unknown = signed_jwt(4, "maru:admin", json!({}));
    assert_eq!(
        send_with_token(&hub, &unknown, "GET", "/api/tokens")
            .await
            .status,
        401
    );
}

/// Asks until the answer has this status.
async fn wait_for_status(hub: &TestHub, token: &str, status: u16) {
    let answer = async || send_with_token(hub, token, "GET", "/readyz").await.status;
    wait_for(answer, |it| *it == status).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn withdrawn_key_is_not_trusted_after_the_next_refresh() {
    let keys = tempfile::tempdir().unwrap().keep().join("keys.json");
    fs::write(&keys, key_set(&[1, 2])).unwrap();
    let hub = TestHub::with_config(|config| {
        config.require_token = true;
        config.oauth.issuer = Some(ISSUER.to_owned());
        config.oauth.resource = Some(RESOURCE.to_owned());
        config.oauth.jwks_file = Some(keys.clone());
        config.oauth.jwks_refresh_ms = 1000;
    })
    .await;
    let (kept, withdrawn) = (
        signed_jwt(1, "maru:read", json!({})),
        signed_jwt(2, "maru:read", json!({})),
    );
    wait_for_status(&hub, &withdrawn, 200).await;
    fs::write(&keys, key_set(&[1])).unwrap();
    wait_for_status(&hub, &withdrawn, 401).await;
    assert_eq!(
        send_with_token(&hub, &kept, "GET", "/readyz").await.status,
        200
    );
    // The last one, too.
    fs::write(&keys, key_set(&[])).unwrap();
    wait_for_status(&hub, &kept, 401).await;
    fs::write(&keys, key_set(&[1])).unwrap();
    wait_for_status(&hub, &kept, 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_cannot_be_read_again_are_trusted_for_a_bounded_time() {
    let keys = tempfile::tempdir().unwrap().keep().join("keys.json");
    fs::write(&keys, key_set(&[1])).unwrap();
    let hub = TestHub::with_config(|config| {
        config.require_token = true;
        config.oauth.issuer = Some(ISSUER.to_owned());
        config.oauth.resource = Some(RESOURCE.to_owned());
        config.oauth.jwks_file = Some(keys.clone());
        config.oauth.jwks_refresh_ms = 1000;
        config.oauth.jwks_max_age_ms = 2000;
    })
    .await;
    let token = signed_jwt(1, "maru:read", json!({}));
    wait_for_status(&hub, &token, 200).await;
    fs::remove_file(&keys).unwrap();
    wait_for_status(&hub, &token, 401).await;
}
