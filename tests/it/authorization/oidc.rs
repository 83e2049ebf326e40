//! People sign in at the company's issuer: npm `oidc-provider`.

use std::{
    net::SocketAddr,
    process::{Child, Command, Stdio},
};

use maru_store::{Store, TokenRow};

use super::*;
use crate::{
    clients::{client_tools_dir, node_program},
    faults::free_port,
    http_client::wait_until,
    sign_in::browser::follow,
};

pub(super) struct Issuer {
    program: Child,
    address: String,
}

impl Issuer {
    pub(super) async fn start() -> Self {
        let port = free_port();
        let address = format!("127.0.0.1:{port}");
        let program = Command::new(node_program())
            .arg(client_tools_dir().join("oidc_provider.mjs"))
            .args([&port.to_string(), "http://127.0.0.1/unused"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let issuer = Self { program, address };
        wait_until(async || {
            tokio::net::TcpStream::connect(&issuer.address)
                .await
                .is_ok()
        })
        .await;
        issuer
    }

    /// Registers a hub that will listen on `port`; returns its id and secret.
    async fn register(&self, port: u16) -> (String, String) {
        let body = json!({
            "application_type": "native",
            "redirect_uris": [format!("http://127.0.0.1:{port}/oauth/oidc/callback")],
            "token_endpoint_auth_method": "client_secret_basic",
        });
        let response = TestRequest::post(&self.address, "/reg", &body).send().await;
        assert_eq!(response.status, 201);
        let body = response.json().await;
        let text = |name: &str| body[name].as_str().unwrap().to_owned();
        (text("client_id"), text("client_secret"))
    }

    async fn hub(&self, groups: &[&str]) -> TestHub {
        self.hub_with_secret(groups).await.0
    }

    /// A hub, and its secret at the issuer.
    pub(super) async fn hub_with_secret(&self, groups: &[&str]) -> (TestHub, String) {
        let port = free_port();
        let (id, secret) = self.register(port).await;
        let issuer = format!("http://{}", self.address);
        let hub = TestHub::with_config(|config| {
            serve(config);
            config.listen = SocketAddr::from(([127, 0, 0, 1], port));
            config.oidc.issuer = Some(issuer);
            config.oidc.client_id = Some(id);
            config.oidc.client_secret = Some(secret.clone().into());
            config.oidc.agent_groups = groups.iter().map(|it| (*it).to_owned()).collect();
        })
        .await;
        (hub, secret)
    }
}

impl Drop for Issuer {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

/// Signs in at the issuer; returns the cookie that the hub set before, and the redirect.
pub(super) async fn at_issuer(hub: &TestHub, query: &str) -> (String, String) {
    let path = format!("/oauth/oidc?query={}", escaped(query));
    let begun = TestRequest::new(&hub.address, "GET", &path).send().await;
    assert_eq!(begun.status, 303);
    let cookie = begun.cookies().next().unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax"));
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let redirect = follow(&begun.headers["location"], &hub.address).await;
    let path = redirect
        .strip_prefix(&format!("http://{}", hub.address))
        .unwrap()
        .to_owned();
    (cookie, path)
}

#[tokio::test(flavor = "multi_thread")]
async fn person_of_the_issuer_allows_a_client_and_uses_the_console() {
    let issuer = Issuer::start().await;
    let hub = issuer.hub(&["staff"]).await;
    let client = register(&hub).await;
    let query = query_of(&client);
    let page = Browser::new(&hub)
        .get(&format!("/oauth/consent?{query}"))
        .await;
    assert!(page.text().await.contains("/oauth/oidc?query="));
    let (pending, path) = at_issuer(&hub, &query).await;
    // The redirect of somebody else's sign-in signs nobody in.
    let (other, _) = at_issuer(&hub, "").await;
    for wrong in ["", &*other] {
        let request = TestRequest::new(&hub.address, "GET", &path).header("cookie", wrong);
        let refused = request.send().await;
        assert_eq!(refused.status, 400);
        assert_eq!(refused.cookies().count(), 0);
    }
    let request = TestRequest::new(&hub.address, "GET", &path).header("cookie", &pending);
    let back = request.send().await;
    assert_eq!(back.status, 200);
    let session = back.cookies().next().unwrap();
    let cookie = session.split(';').next().unwrap().to_owned();
    assert!(
        back.text()
            .await
            .contains("/oauth/consent?response_type=code")
    );
    let mut browser = Browser { hub: &hub, cookie };
    let session = browser.get("/api/session").await.json().await;
    assert_eq!(
        (&session["name"], &session["role"]),
        (&json!("oidc:person"), &json!("agent"))
    );
    let tokens = browser.tokens(&client, &[]).await;
    assert!(tools(&hub, &tokens["access_token"]).await.is_ok());
    let accounts = hub.send_as_admin("GET", "/api/accounts", Value::Null).await;
    let accounts = accounts.json().await;
    assert_eq!(accounts[0]["label"], "person@example.com", "{accounts}");
    assert_eq!(accounts[0]["state"], "issuer");
    // A code works once.
    let request = TestRequest::new(&hub.address, "GET", &path).header("cookie", &pending);
    assert_eq!(request.send().await.status, 502);
}

#[tokio::test(flavor = "multi_thread")]
async fn person_without_a_group_of_the_hub_gets_no_account() {
    let issuer = Issuer::start().await;
    let hub = issuer.hub(&["board"]).await;
    // The person had an account once, by other groups.
    let path = hub.directory.path().join("maru.db");
    let store = Store::open(&path).await.unwrap();
    let row = TokenRow::new("oidc:person", "admin", [7; 32]);
    assert!(store.insert_token(&row).await.unwrap());
    store
        .put_account("oidc:person", Some("p"), 1)
        .await
        .unwrap();
    let (cookie, path) = at_issuer(&hub, "").await;
    let request = TestRequest::new(&hub.address, "GET", &path).header("cookie", &cookie);
    let refused = request.send().await;
    assert_eq!(refused.status, 403);
    assert_eq!(refused.cookies().count(), 0);
    let accounts = hub.send_as_admin("GET", "/api/accounts", Value::Null).await;
    assert_eq!(accounts.json().await, json!([]));
}
