//! Clients sign in to maru: its own authorization server.

mod clients;
mod command_line;
mod grants;
mod hostile;
mod leaks;
mod oidc;
mod several_hubs;
mod suite;

use std::sync::atomic::{AtomicUsize, Ordering};

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use maru::config::Config;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::{
    http_client::{TestRequest, TestResponse},
    test_hub::{TestHub, stateless_message},
};

const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const REDIRECT: &str = "http://127.0.0.1:9/callback";
const PASSPHRASE: &str = "eleven plus one";

fn serve(config: &mut Config) {
    config.require_token = true;
    config.oauth.serve = true;
}

async fn start() -> TestHub {
    TestHub::with_config(serve).await
}

async fn hub_that_reads_documents() -> TestHub {
    TestHub::with_config(|config| {
        serve(config);
        config.oauth.client_hosts = vec!["127.0.0.1".to_owned()];
    })
    .await
}

/// A person's browser, with its cookie for one hub.
struct Browser<'a> {
    hub: &'a TestHub,
    cookie: String,
}

impl<'a> Browser<'a> {
    fn new(hub: &'a TestHub) -> Self {
        let cookie = String::new();
        Self { hub, cookie }
    }

    /// Invites somebody, who chooses a passphrase and is signed in then.
    async fn of_new_account(hub: &'a TestHub, account: Value) -> Self {
        let mut browser = Self::new(hub);
        let code = invite(hub, account).await;
        browser.accept_invitation(&code).await;
        browser
    }

    /// Chooses a passphrase, and is signed in then.
    async fn accept_invitation(&mut self, code: &str) {
        let page = self.get(&format!("/oauth/invitation?code={code}")).await;
        assert_eq!(page.status, 200);
        let form = [
            ("code", code),
            ("passphrase", PASSPHRASE),
            ("repeated", PASSPHRASE),
        ];
        let accepted = self.post("/oauth/invitation", &form).await;
        assert_eq!(accepted.status, 303);
    }

    async fn get(&self, path: &str) -> TestResponse {
        let request = TestRequest::new(&self.hub.address, "GET", path);
        request.header("cookie", &self.cookie).send().await
    }

    async fn post(&mut self, path: &str, form: &[(&str, &str)]) -> TestResponse {
        let response = post_form(self.hub, path, form, &[("cookie", &self.cookie)]).await;
        if let Some(cookie) = response.cookies().next() {
            self.cookie = cookie.split(';').next().unwrap().to_owned();
        }
        response
    }

    /// Opens a client's link and allows it; returns where the browser is sent.
    async fn allow(&mut self, query: &str, choice: &[(&str, &str)]) -> String {
        let first = self.get(&format!("/oauth/authorize?{query}")).await;
        assert_eq!(first.status, 200);
        let next = self.get(&format!("/oauth/consent?{query}")).await;
        let page = next.text().await;
        let token = form_token(&page);
        let form = [
            ("query", query),
            ("form_token", &token),
            ("decision", "allow"),
        ];
        let form = [&form, choice].concat();
        let response = self.post("/oauth/consent", &form).await;
        assert_eq!(response.status, 303, "{page}");
        response.headers["location"].clone()
    }

    /// Allows a client to do what an agent may, and returns the tokens.
    async fn tokens(&mut self, client: &str, choice: &[(&str, &str)]) -> Value {
        let choice = if choice.is_empty() {
            &[("role", "agent"), ("servers", "all")]
        } else {
            choice
        };
        let location = self.allow(&query_of(client), choice).await;
        let code = parameter(&location, "code");
        let response = exchange(self.hub, client, &code).await;
        assert_eq!(response.status, 200);
        response.json().await
    }
}

async fn invite(hub: &TestHub, account: Value) -> String {
    let response = hub.send_as_admin("POST", "/api/accounts", account).await;
    assert_eq!(response.status, 201);
    let body = response.json().await;
    parameter(body["invitationUrl"].as_str().unwrap(), "code")
}

fn account(name: &str, role: &str) -> Value {
    json!({"name": name, "role": role})
}

async fn post_form(
    hub: &TestHub,
    path: &str,
    form: &[(&str, &str)],
    headers: &[(&str, &str)],
) -> TestResponse {
    let pairs = form
        .iter()
        .map(|(name, value)| format!("{name}={}", escaped(value)));
    let body = pairs.collect::<Vec<_>>().join("&");
    let mut request = TestRequest::new(&hub.address, "POST", path)
        .header("content-type", "application/x-www-form-urlencoded");
    for (name, value) in headers.iter().filter(|(_, value)| !value.is_empty()) {
        request = request.header(name, value);
    }
    request.body(&body).send().await
}

/// Changes what the hub stored, such as the age of a row.
fn change_store(hub: &TestHub, sql: &str) {
    let path = hub.directory.path().join("maru.db");
    let store = rusqlite::Connection::open(path).unwrap();
    store.execute_batch(sql).unwrap();
}

/// Registers a public client.
async fn register(hub: &TestHub) -> String {
    let body = json!({
        "client_name": "Test client",
        "redirect_uris": [REDIRECT],
        "token_endpoint_auth_method": "none",
    });
    let response = TestRequest::post(&hub.address, "/oauth/register", &body)
        .send()
        .await;
    assert_eq!(response.status, 201);
    response.json().await["client_id"]
        .as_str()
        .unwrap()
        .to_owned()
}

fn query_of(client: &str) -> String {
    let challenge = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(VERIFIER));
    format!(
        "response_type=code&client_id={}&redirect_uri={}&state=abc&code_challenge={challenge}&code_challenge_method=S256",
        escaped(client),
        escaped(REDIRECT)
    )
}

async fn exchange(hub: &TestHub, client: &str, code: &str) -> TestResponse {
    let form = [
        ("grant_type", "authorization_code"),
        ("client_id", client),
        ("code", code),
        ("code_verifier", VERIFIER),
        ("redirect_uri", REDIRECT),
    ];
    post_form(hub, "/oauth/token", &form, &[]).await
}

async fn refresh(hub: &TestHub, client: &str, token: &Value) -> TestResponse {
    let form = [
        ("grant_type", "refresh_token"),
        ("client_id", client),
        ("refresh_token", token.as_str().unwrap()),
    ];
    post_form(hub, "/oauth/token", &form, &[]).await
}

/// The tools that an access token may list, or the status that refuses it.
async fn tools(hub: &TestHub, token: &Value) -> Result<Vec<String>, u16> {
    let body = stateless_message("tools/list", json!({}));
    let response = TestRequest::post(&hub.address, "/mcp", &body)
        .header(
            "authorization",
            &format!("Bearer {}", token.as_str().unwrap()),
        )
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/list")
        .send()
        .await;
    if response.status != 200 {
        return Err(response.status.as_u16());
    }
    let listed = response.rpc_response().await;
    let tools = listed["result"]["tools"].as_array().unwrap().iter();
    Ok(tools
        .map(|it| it["name"].as_str().unwrap().to_owned())
        .collect())
}

fn form_token(page: &str) -> String {
    let (_, rest) = page
        .split_once("name=\"form_token\" value=\"")
        .unwrap_or_else(|| panic!("{page}"));
    rest.split('"').next().unwrap().to_owned()
}

fn parameter(url: &str, name: &str) -> String {
    let (_, query) = url.split_once('?').unwrap();
    let mut pairs = query.split('&').filter_map(|it| it.split_once('='));
    let (_, value) = pairs
        .find(|(it, _)| *it == name)
        .unwrap_or_else(|| panic!("{url}"));
    percent_encoding::percent_decode_str(value)
        .decode_utf8()
        .unwrap()
        .into_owned()
}

fn escaped(value: &str) -> String {
    percent_encoding::utf8_percent_encode(value, percent_encoding::NON_ALPHANUMERIC).to_string()
}

/// A name that no other account of the test has.
fn unused_name() -> String {
    static NEXT: AtomicUsize = AtomicUsize::new(1);
    format!("person{}", NEXT.fetch_add(1, Ordering::Relaxed))
}
