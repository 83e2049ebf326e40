//! Requests that nobody may be harmed by.

use serde_json::{Value, json};

use super::*;
use crate::log_capture::LogCapture;

#[tokio::test(flavor = "multi_thread")]
async fn errors_lead_only_to_registered_redirects_and_only_by_a_click() {
    let hub = start().await;
    let client = register(&hub).await;
    let browser = Browser::new(&hub);
    let good = query_of(&client);
    for bad in [
        good.replace(&escaped(REDIRECT), &escaped("https://evil.example/")),
        good.replace(
            &escaped(REDIRECT),
            &escaped("http://127.0.0.1:9@evil.example/callback"),
        ),
        good.replace(&escaped(REDIRECT), "javascript%3Aalert(1)"),
        good.replace(&format!("&redirect_uri={}", escaped(REDIRECT)), ""),
        good.replace(&escaped(&client), "nobody"),
        good.replace(&escaped(&client), ""),
        format!("{good}&client_id=x"),
        format!("{good}&redirect_uri=https://evil.example"),
        "%ff=%ff".to_owned(),
        format!("{good}&x={}", "y".repeat(20_000)),
    ] {
        for path in ["/oauth/authorize", "/oauth/consent"] {
            let response = browser.get(&format!("{path}?{bad}")).await;
            assert!(
                response.status == 400 || response.status == 414 || response.status == 431,
                "{bad} {}",
                response.status
            );
            assert!(!response.headers.contains_key("location"), "{bad}");
            assert!(!response.text().await.contains("evil.example/\""));
        }
    }
    for (bad, error) in [
        (good.replace("S256", "plain"), "invalid_request"),
        (
            good.replace("response_type=code", "response_type=token"),
            "unsupported_response_type",
        ),
        (
            format!("{good}&resource=https%3A%2F%2Fevil.example%2Fmcp"),
            "invalid_target",
        ),
    ] {
        let response = browser.get(&format!("/oauth/authorize?{bad}")).await;
        // The person follows the link or not.
        assert_eq!(response.status, 400);
        assert!(!response.headers.contains_key("location"));
        let page = response.text().await;
        let link = page.split("<a href=\"").nth(1).unwrap();
        let link = link.split('"').next().unwrap().replace("&amp;", "&");
        assert!(
            link.starts_with(&format!("{REDIRECT}?error={error}&")),
            "{page}"
        );
        assert!(page.contains("127.0.0.1:9</a>"), "{page}");
        assert_eq!(parameter(&link, "iss"), format!("http://{}", hub.address));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn consent_needs_the_own_form_of_the_own_session_for_the_same_request() {
    let hub = start().await;
    let (client, other) = (register(&hub).await, register(&hub).await);
    let mut kim = Browser::of_new_account(&hub, account("kim", "agent")).await;
    let mut lee = Browser::of_new_account(&hub, account("lee", "agent")).await;
    let (query, other_query) = (query_of(&client), query_of(&other));
    let page = async |browser: &Browser<'_>, query: &str| {
        let response = browser.get(&format!("/oauth/consent?{query}")).await;
        for (name, expected) in [("x-frame-options", "DENY"), ("cache-control", "no-store")] {
            assert_eq!(response.headers[name], expected);
        }
        let policy = &response.headers["content-security-policy"];
        assert!(policy.contains("frame-ancestors 'none'") && policy.contains("default-src 'none'"));
        assert!(
            policy.contains("form-action 'self' http://127.0.0.1:9"),
            "{policy}"
        );
        form_token(&response.text().await)
    };
    let (of_kim, of_lee) = (page(&kim, &query).await, page(&lee, &query).await);
    let of_other = page(&kim, &other_query).await;
    let mut stranger = Browser::new(&hub);
    for (who, token) in [
        (0, ""),
        (0, &*of_lee),
        (0, &*of_other),
        (1, &*of_kim),
        (2, &*of_kim),
    ] {
        let browser = [&mut kim, &mut lee, &mut stranger].into_iter().nth(who);
        let browser = browser.unwrap();
        let form = [
            ("query", &*query),
            ("form_token", token),
            ("decision", "allow"),
            ("role", "agent"),
        ];
        let response = browser.post("/oauth/consent", &form).await;
        assert_eq!(response.status, 403);
        assert!(!response.headers.contains_key("location"));
    }
    // A page of another site is refused before anything is read.
    let form = [
        ("query", &*query),
        ("form_token", &*of_kim),
        ("decision", "allow"),
    ];
    for path in ["/oauth/consent", "/oauth/sign-in"] {
        let headers = [("cookie", &*kim.cookie), ("origin", "https://evil.example")];
        assert_eq!(post_form(&hub, path, &form, &headers).await.status, 403);
    }
    let denied = [
        ("query", &*query),
        ("form_token", &*of_kim),
        ("decision", "deny"),
    ];
    let response = kim.post("/oauth/consent", &denied).await;
    assert!(response.headers["location"].contains("error=access_denied"));
    let grants = hub
        .send_as_admin("GET", "/api/oauth/grants", Value::Null)
        .await;
    assert_eq!(grants.json().await, json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_clients_are_text_and_nothing_else() {
    let hub = start().await;
    let body = json!({
        "client_name": "<script>alert(1)</script>\u{202e}\"'",
        "redirect_uris": ["https://a.example/cb?x='"],
        "token_endpoint_auth_method": "none",
    });
    let refused = TestRequest::post(&hub.address, "/oauth/register", &body)
        .send()
        .await;
    assert_eq!(refused.status, 400);
    let mut body = body;
    body["redirect_uris"] = json!([REDIRECT]);
    let registered = TestRequest::post(&hub.address, "/oauth/register", &body)
        .send()
        .await;
    let client = registered.json().await["client_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let browser = Browser::of_new_account(&hub, account("kim", "agent")).await;
    let page = browser
        .get(&format!("/oauth/consent?{}", query_of(&client)))
        .await
        .text()
        .await;
    assert!(page.contains("&lt;script&gt;alert(1)"), "{page}");
    assert!(
        !page.contains("<script") && !page.contains('\u{202e}'),
        "{page}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn registrations_are_limited_by_address() {
    let hub = start().await;
    let body = json!({"redirect_uris": [REDIRECT]});
    let mut statuses = Vec::new();
    for _ in 0..12 {
        let response = TestRequest::post(&hub.address, "/oauth/register", &body)
            .send()
            .await;
        statuses.push(response.status.as_u16());
    }
    assert_eq!(
        statuses.iter().filter(|it| **it == 201).count(),
        10,
        "{statuses:?}"
    );
    assert_eq!(statuses[11], 429);
    let clients = hub
        .send_as_admin("GET", "/api/oauth/clients", Value::Null)
        .await;
    assert_eq!(clients.json().await.as_array().unwrap().len(), 10);
    let large = json!({"redirect_uris": [REDIRECT], "client_name": "x".repeat(20_000)});
    let large = TestRequest::post(&hub.address, "/oauth/register", &large)
        .send()
        .await;
    assert_eq!(large.status, 413);
}

#[tokio::test(flavor = "multi_thread")]
async fn unused_clients_make_room_and_used_ones_stay() {
    let hub = start().await;
    let used = register(&hub).await;
    let mut browser = Browser::of_new_account(&hub, account("kim", "agent")).await;
    let tokens = browser.tokens(&used, &[]).await;
    let month_ago = "unixepoch() * 1000 - 31 * 86400000";
    change_store(
        &hub,
        &format!(
            "UPDATE oauth_client SET created_at = {month_ago};
             INSERT INTO oauth_client
               SELECT 'unused', metadata, created_at FROM oauth_client;
             WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number LIMIT 1000)
             INSERT INTO oauth_client
               SELECT 'flood' || n, metadata, unixepoch() * 1000 - n FROM oauth_client, number
               WHERE id = 'unused'"
        ),
    );
    let new = register(&hub).await;
    let clients = hub.send_as_admin("GET", "/api/oauth/clients", Value::Null);
    let clients = clients.await.json().await;
    let ids: Vec<&str> = clients
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["id"].as_str().unwrap())
        .collect();
    assert!(ids.contains(&&*used) && ids.contains(&&*new) && ids.contains(&"flood1"));
    assert!(!ids.contains(&"unused") && !ids.contains(&"flood1000"));
    // A thousand beside the one that is in use.
    assert_eq!(ids.len(), 1001);
    assert!(tools(&hub, &tokens["access_token"]).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn floods_and_replays_are_logged_once_without_their_secrets() {
    let log = LogCapture::install();
    let hub = start().await;
    let client = register(&hub).await;
    let mut browser = Browser::of_new_account(&hub, account("kim", "agent")).await;
    let choice = [("role", "agent"), ("servers", "all")];
    let location = browser.allow(&query_of(&client), &choice).await;
    let code = parameter(&location, "code");
    let tokens = exchange(&hub, &client, &code).await.json().await;
    let renewed = refresh(&hub, &client, &tokens["refresh_token"]).await;
    assert_eq!(renewed.status, 200);
    for _ in 0..3 {
        assert_eq!(exchange(&hub, &client, &code).await.status, 400);
    }
    let body = json!({"redirect_uris": [REDIRECT]});
    for _ in 0..20 {
        TestRequest::post(&hub.address, "/oauth/register", &body)
            .send()
            .await;
    }
    let log = log.text();
    for line in [
        "was used again",
        "registrations of clients from one address",
    ] {
        assert_eq!(log.matches(line).count(), 1, "{line}");
    }
    for secret in [&code, tokens["refresh_token"].as_str().unwrap(), PASSPHRASE] {
        assert!(!log.contains(secret), "{secret}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn invitation_works_once_and_passphrases_cannot_be_guessed_fast() {
    let hub = start().await;
    let code = invite(&hub, account("kim", "reader")).await;
    let mut browser = Browser::new(&hub);
    for (passphrase, repeated) in [("short", "short"), (PASSPHRASE, "another one is wrong")] {
        let form = [
            ("code", &*code),
            ("passphrase", passphrase),
            ("repeated", repeated),
        ];
        assert_eq!(browser.post("/oauth/invitation", &form).await.status, 400);
    }
    let form = [
        ("code", &*code),
        ("passphrase", PASSPHRASE),
        ("repeated", PASSPHRASE),
    ];
    assert_eq!(browser.post("/oauth/invitation", &form).await.status, 303);
    assert_eq!(browser.post("/oauth/invitation", &form).await.status, 404);
    assert_eq!(
        browser.get("/oauth/invitation?code=maru_x").await.status,
        404
    );
    let session = browser.get("/api/session").await.json().await;
    assert_eq!(
        (&session["name"], &session["role"]),
        (&json!("kim"), &json!("reader"))
    );
    let mut other = Browser::new(&hub);
    let attempt = async |browser: &mut Browser<'_>, passphrase: &str| {
        let form = [("name", "kim"), ("passphrase", passphrase), ("query", "")];
        browser.post("/oauth/sign-in", &form).await.status.as_u16()
    };
    assert_eq!(attempt(&mut other, "wrong wrong wrong").await, 403);
    assert_eq!(attempt(&mut other, PASSPHRASE).await, 303);
    let mut statuses = Vec::new();
    for _ in 0..10 {
        statuses.push(attempt(&mut other, "wrong wrong wrong").await);
    }
    assert_eq!(statuses.last(), Some(&429), "{statuses:?}");
    // A new passphrase ends what was begun with the old one.
    let client = register(&hub).await;
    let tokens = browser.tokens(&client, &[]).await;
    let again = hub.send_as_admin("POST", "/api/accounts/kim/invitation", Value::Null);
    let again = again.await.json().await;
    let code = parameter(again["invitationUrl"].as_str().unwrap(), "code");
    let new = "twelve plus one";
    let form = [("code", &*code), ("passphrase", new), ("repeated", new)];
    let mut later = Browser::new(&hub);
    assert_eq!(later.post("/oauth/invitation", &form).await.status, 303);
    assert_eq!(
        browser.get("/api/session").await.json().await["name"],
        Value::Null
    );
    assert_eq!(later.get("/api/session").await.json().await["name"], "kim");
    assert!(tools(&hub, &tokens["access_token"]).await.is_err());
    let refreshed = refresh(&hub, &client, &tokens["refresh_token"]).await;
    assert_eq!(refreshed.status, 400);
    // The token of an account has no secret: its name is none.
    for token in ["kim", ""] {
        let request = TestRequest::new(&hub.address, "GET", "/readyz");
        let response = request
            .header("authorization", &format!("Bearer {token}"))
            .send()
            .await;
        assert_eq!(response.status, 401);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hub_that_is_no_authorization_server_has_no_such_pages() {
    let hub = TestHub::start().await;
    let browser = Browser::new(&hub);
    for path in [
        "/.well-known/oauth-authorization-server",
        "/oauth/authorize",
        "/oauth/consent",
    ] {
        assert_eq!(browser.get(path).await.status, 404, "{path}");
    }
    for path in ["/oauth/token", "/oauth/revoke", "/oauth/consent"] {
        assert_eq!(
            post_form(&hub, path, &[("a", "b")], &[]).await.status,
            404,
            "{path}"
        );
    }
}

/// A client that is named by the address of a document.
#[tokio::test(flavor = "multi_thread")]
async fn client_documents_are_read_under_the_address_policy() {
    let hub = hub_that_reads_documents().await;
    let served = DocumentServer::start().await;
    let mut browser = Browser::of_new_account(&hub, account("kim", "agent")).await;
    let tokens = browser.tokens(&served.url("/good"), &[]).await;
    assert!(tools(&hub, &tokens["access_token"]).await.is_ok());
    let clients = hub
        .send_as_admin("GET", "/api/oauth/clients", Value::Null)
        .await;
    let clients = clients.json().await;
    assert_eq!(clients[0]["id"], served.url("/good"), "{clients}");
    for refused in [
        served.url("/other"),
        served.url("/moved"),
        served.url("/missing"),
        served.url("/text"),
        "https://10.0.0.1/client.json".to_owned(),
        "https://169.254.169.254/latest".to_owned(),
        "https://unlisted.example/client.json".to_owned(),
        "http://unlisted.example/client.json".to_owned(),
        "file:///etc/passwd".to_owned(),
        format!("http://{}/healthz", hub.address),
    ] {
        let page = browser
            .get(&format!("/oauth/authorize?{}", query_of(&refused)))
            .await;
        assert_eq!(page.status, 400, "{refused}");
        assert!(!page.headers.contains_key("location"));
    }
    let id = escaped(&served.url("/good"));
    let path = format!("/api/oauth/clients/{id}");
    let removed = hub.send_as_admin("DELETE", &path, Value::Null).await;
    assert_eq!(removed.status, 204);
    assert_eq!(tools(&hub, &tokens["access_token"]).await, Err(401));
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_client_documents_do_not_keep_known_clients_from_renewing() {
    let hub = hub_that_reads_documents().await;
    let served = DocumentServer::start().await;
    let browser = Browser::new(&hub);
    let open = async |path: &str| {
        let query = query_of(&served.url(path));
        browser.get(&format!("/oauth/authorize?{query}")).await
    };
    assert_eq!(open("/down").await.status, 503);
    for at in 0..60 {
        open(&format!("/missing{at}")).await;
    }
    assert_eq!(open("/good").await.status, 503);
    // The client is known, and only its code is not.
    let refused = exchange(&hub, &served.url("/good"), "x").await;
    assert_eq!(refused.status, 400);
    let down = exchange(&hub, &served.url("/down"), "x").await;
    assert_eq!(down.status, 503);
    assert_eq!(down.json().await["error"], "temporarily_unavailable");
}

/// Serves client metadata documents.
struct DocumentServer(String);

impl DocumentServer {
    #[expect(clippy::disallowed_methods, reason = "it ends with the test")]
    async fn start() -> Self {
        use axum::{Router, http::StatusCode, response::Redirect, routing::get};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let document = |id: String| json!({"client_id": id, "client_name": "Document", "redirect_uris": [REDIRECT]});
        let (good, other) = (
            document(format!("{base}/good")),
            document("https://a.example".to_owned()),
        );
        let router = Router::new()
            .route("/good", get(async move || good.to_string()))
            .route("/other", get(async move || other.to_string()))
            .route("/moved", get(async || Redirect::temporary("/good")))
            .route("/down", get(async || StatusCode::BAD_GATEWAY))
            .route("/text", get(async || "text"))
            .fallback(async || StatusCode::NOT_FOUND);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self(base)
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.0)
    }
}
