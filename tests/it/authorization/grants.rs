//! What people allow, and what becomes of it.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::*;
use crate::http_client::wait_until;

#[tokio::test(flavor = "multi_thread")]
async fn client_finds_out_registers_and_gets_tokens_that_work() {
    let hub = start().await;
    let anonymous = TestRequest::post(&hub.address, "/mcp", &json!({}))
        .send()
        .await;
    assert_eq!(anonymous.status, 401);
    let base = format!("http://{}", hub.address);
    let document = format!("{base}/.well-known/oauth-protected-resource/mcp");
    let challenge = &anonymous.headers["www-authenticate"];
    assert!(
        challenge.contains(&format!("resource_metadata=\"{document}\"")),
        "{challenge}"
    );
    assert!(challenge.contains("scope=\"maru:call\""), "{challenge}");
    let get = async |path: &str| {
        TestRequest::new(&hub.address, "GET", path)
            .send()
            .await
            .json()
            .await
    };
    let resource = get("/.well-known/oauth-protected-resource/mcp").await;
    assert_eq!(resource["resource"], format!("{base}/mcp"));
    assert_eq!(resource["authorization_servers"], json!([base]));
    let root = get("/.well-known/oauth-protected-resource").await;
    assert_eq!(root["resource"], base);
    let metadata = get("/.well-known/oauth-authorization-server").await;
    assert_eq!(metadata["issuer"], base);
    assert_eq!(
        metadata["code_challenge_methods_supported"],
        json!(["S256"])
    );

    let client = register(&hub).await;
    let mut browser = Browser::of_new_account(&hub, account("kim", "agent")).await;
    let query = format!(
        "{}&resource={}&scope=maru%3Acall",
        query_of(&client),
        escaped(&format!("{base}/mcp"))
    );
    let location = browser
        .allow(&query, &[("role", "agent"), ("servers", "all")])
        .await;
    assert!(
        location.starts_with(&format!("{REDIRECT}?code=maru_ac_")),
        "{location}"
    );
    assert_eq!(parameter(&location, "state"), "abc");
    assert_eq!(parameter(&location, "iss"), base);
    let response = exchange(&hub, &client, &parameter(&location, "code")).await;
    assert_eq!(response.headers["cache-control"], "no-store");
    let tokens = response.json().await;
    assert_eq!(tokens["token_type"], "Bearer");
    assert_eq!(tokens["scope"], "maru:read maru:call");
    let listed = tools(&hub, &tokens["access_token"]).await.unwrap();
    assert!(listed.contains(&"search_docs".to_owned()), "{listed:?}");
    // An agent is no admin, and learns which scope that takes.
    let request = TestRequest::new(&hub.address, "GET", "/api/tokens");
    let token = tokens["access_token"].as_str().unwrap();
    let refused = request
        .header("authorization", &format!("Bearer {token}"))
        .send()
        .await;
    assert_eq!(refused.status, 403);
    assert!(refused.headers["www-authenticate"].contains("scope=\"maru:admin\""));
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_refreshes_keep_the_grant_and_a_replay_ends_it() {
    let hub = start().await;
    let client = register(&hub).await;
    let mut browser = Browser::of_new_account(&hub, account("kim", "agent")).await;
    let first = browser.tokens(&client, &[]).await;
    let parallel = (0..5).map(async |_| {
        let response = refresh(&hub, &client, &first["refresh_token"]).await;
        assert_eq!(response.status, 200);
        response.json().await
    });
    let renewed: Vec<Value> = join_all(parallel).await;
    for tokens in &renewed {
        assert_eq!(tokens["refresh_token"], renewed[0]["refresh_token"]);
        assert!(tools(&hub, &tokens["access_token"]).await.is_ok());
    }
    let second = refresh(&hub, &client, &renewed[3]["refresh_token"]).await;
    let second = second.json().await;
    assert_ne!(second["refresh_token"], renewed[0]["refresh_token"]);
    // The token of the sign-in was replaced twice since.
    let replayed = refresh(&hub, &client, &first["refresh_token"]).await;
    assert_eq!(replayed.status, 400);
    assert_eq!(replayed.json().await["error"], "invalid_grant");
    for token in [&first, &renewed[0], &second] {
        assert_eq!(tools(&hub, &token["access_token"]).await, Err(401));
        let refused = refresh(&hub, &client, &token["refresh_token"]).await;
        assert_eq!(refused.json().await["error"], "invalid_grant");
    }
    let audit = hub.send_as_admin("GET", "/api/audit?action=oauth%20replay", Value::Null);
    let audit = audit.await.json().await;
    assert_eq!(audit[0]["principal"], "kim", "{audit}");
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_token_works_for_a_moment_and_ends_the_grant_after_it() {
    let hub = start().await;
    let client = register(&hub).await;
    let mut browser = Browser::of_new_account(&hub, account("kim", "agent")).await;
    let first = browser.tokens(&client, &[]).await;
    let second = refresh(&hub, &client, &first["refresh_token"]).await;
    let second = second.json().await;
    // The response was lost, so the client tries again.
    let again = refresh(&hub, &client, &first["refresh_token"]).await;
    assert_eq!(again.status, 200);
    change_store(
        &hub,
        "UPDATE oauth_grant SET renewed_at = renewed_at - 31000",
    );
    let replayed = refresh(&hub, &client, &first["refresh_token"]).await;
    assert_eq!(replayed.json().await["error"], "invalid_grant");
    for token in [&first, &second] {
        assert_eq!(tools(&hub, &token["access_token"]).await, Err(401));
        let refused = refresh(&hub, &client, &token["refresh_token"]).await;
        assert_eq!(refused.status, 400);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn code_works_once_and_only_with_its_verifier_redirect_and_client() {
    let hub = start().await;
    let (client, other) = (register(&hub).await, register(&hub).await);
    let mut browser = Browser::of_new_account(&hub, account("kim", "agent")).await;
    let choice = [("role", "agent"), ("servers", "all")];
    let location = browser.allow(&query_of(&client), &choice).await;
    let code = parameter(&location, "code");
    let attempt = async |changes: &[(&str, &str)]| {
        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("client_id", &*client),
            ("code", &*code),
            ("code_verifier", VERIFIER),
            ("redirect_uri", REDIRECT),
        ];
        for (name, value) in changes {
            form.retain(|(it, _)| it != name);
            form.push((name, value));
        }
        let response = post_form(&hub, "/oauth/token", &form, &[]).await;
        (response.status.as_u16(), response.json().await)
    };
    for (changes, status, error) in [
        (
            (
                "code_verifier",
                "wrong-wrong-wrong-wrong-wrong-wrong-wrong-1",
            ),
            400,
            "invalid_grant",
        ),
        (("code_verifier", ""), 400, "invalid_grant"),
        (
            ("redirect_uri", "http://127.0.0.1:10/callback"),
            400,
            "invalid_grant",
        ),
        (("client_id", &*other), 400, "invalid_grant"),
        (("client_id", "nobody"), 401, "invalid_client"),
        (("client_secret", "x"), 401, "invalid_client"),
        (
            ("resource", "https://evil.example/mcp"),
            400,
            "invalid_target",
        ),
        (("code", "maru_ac_x.0.y"), 400, "invalid_grant"),
        (("code", ""), 400, "invalid_request"),
        (("grant_type", "password"), 400, "unsupported_grant_type"),
        (("grant_type", ""), 400, "invalid_request"),
    ] {
        let (was, body) = attempt(&[changes]).await;
        assert_eq!(
            (was, &body["error"]),
            (status, &json!(error)),
            "{changes:?}"
        );
    }
    let (status, tokens) = attempt(&[]).await;
    assert_eq!(status, 200, "{tokens}");
    assert!(tools(&hub, &tokens["access_token"]).await.is_ok());
    // Whoever has the code a second time may be a thief, and so may the first have been.
    let (status, body) = attempt(&[]).await;
    assert_eq!((status, &body["error"]), (400, &json!("invalid_grant")));
    assert_eq!(tools(&hub, &tokens["access_token"]).await, Err(401));
}

#[tokio::test(flavor = "multi_thread")]
async fn grant_has_at_most_the_role_and_lists_of_the_account() {
    let hub = start().await;
    let client = register(&hub).await;
    let restricted = json!({"name": "lee", "role": "agent", "servers": ["maru"], "tools": ["search_docs", "get_employee_info"]});
    let mut browser = Browser::of_new_account(&hub, restricted).await;
    let page = browser
        .get(&format!("/oauth/consent?{}", query_of(&client)))
        .await;
    let page = page.text().await;
    for shown in [
        "Test client",
        "127.0.0.1:9",
        "search_docs",
        "lee",
        "name=\"server.maru\"",
    ] {
        assert!(page.contains(shown), "{shown}: {page}");
    }
    assert!(!page.contains("value=\"admin\""), "{page}");
    // More than was offered is not given.
    let tokens = browser
        .tokens(&client, &[("role", "admin"), ("servers", "all")])
        .await;
    assert_eq!(tokens["scope"], "maru:read maru:call");
    let listed = tools(&hub, &tokens["access_token"]).await.unwrap();
    assert_eq!(listed, ["get_employee_info", "search_docs"]);
    let none = browser
        .tokens(
            &client,
            &[
                ("role", "agent"),
                ("servers", "some"),
                ("server.other", "on"),
            ],
        )
        .await;
    assert_eq!(tools(&hub, &none["access_token"]).await, Ok(Vec::new()));
    let reader = browser
        .tokens(&client, &[("role", "reader"), ("servers", "all")])
        .await;
    assert_eq!(reader["scope"], "maru:read");
    let call = stateless_message(
        "tools/call",
        json!({"name": "search_docs", "arguments": {"query": "x"}}),
    );
    let called = TestRequest::post(&hub.address, "/mcp", &call)
        .header(
            "authorization",
            &format!("Bearer {}", reader["access_token"].as_str().unwrap()),
        )
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", "search_docs")
        .send()
        .await;
    assert!(called.text().await.contains("error"));
}

#[tokio::test(flavor = "multi_thread")]
async fn grant_has_only_the_tools_that_the_person_chose() {
    let hub = start().await;
    let client = register(&hub).await;
    let restricted =
        json!({"name": "lee", "role": "agent", "tools": ["search_docs", "get_employee_info"]});
    let mut browser = Browser::of_new_account(&hub, restricted).await;
    let page = format!("/oauth/consent?{}", query_of(&client));
    let page = browser.get(&page).await.text().await;
    assert!(page.contains("name=\"tool.maru.search_docs\""), "{page}");
    assert!(!page.contains("query_bga_database"), "{page}");
    let choice = [
        ("role", "agent"),
        ("servers", "all"),
        ("tools", "some"),
        ("tool.maru.search_docs", "on"),
        // The account does not have this one.
        ("tool.maru.query_bga_database", "on"),
    ];
    let tokens = browser.tokens(&client, &choice).await;
    let tokens = [
        refresh(&hub, &client, &tokens["refresh_token"])
            .await
            .json()
            .await,
        tokens,
    ];
    for tokens in &tokens {
        let listed = tools(&hub, &tokens["access_token"]).await.unwrap();
        assert_eq!(listed, ["search_docs"]);
    }
    let params = json!({"name": "get_employee_info", "arguments": {}});
    let token = tokens[0]["access_token"].as_str().unwrap();
    let call = TestRequest::post(
        &hub.address,
        "/mcp",
        &stateless_message("tools/call", params),
    )
    .header("authorization", &format!("Bearer {token}"))
    .header("mcp-protocol-version", "2026-07-28")
    .header("mcp-method", "tools/call")
    .header("mcp-name", "get_employee_info");
    let refused = call.send().await.rpc_response().await;
    assert!(refused["error"]["message"].is_string(), "{refused}");
    let grants = hub.send_as_admin("GET", "/api/oauth/grants", Value::Null);
    let grants = grants.await.json().await;
    let chosen = json!(["maru.query_bga_database", "maru.search_docs"]);
    assert_eq!(grants[0]["tools"], chosen, "{grants}");
    // None chosen is none given.
    let none = [("role", "agent"), ("servers", "all"), ("tools", "some")];
    let tokens = browser.tokens(&client, &none).await;
    assert_eq!(tools(&hub, &tokens["access_token"]).await, Ok(Vec::new()));
}

#[tokio::test(flavor = "multi_thread")]
async fn grants_clients_and_accounts_are_listed_and_revoked() {
    let hub = start().await;
    let (client, second) = (register(&hub).await, register(&hub).await);
    let mut browser = Browser::of_new_account(&hub, account("kim", "agent")).await;
    let (one, two) = (
        browser.tokens(&client, &[]).await,
        browser.tokens(&client, &[]).await,
    );
    let three = browser.tokens(&second, &[]).await;
    let get = async |path: &'static str| {
        hub.send_as_admin("GET", path, Value::Null)
            .await
            .json()
            .await
    };
    let accounts = get("/api/accounts").await;
    assert_eq!(
        (&accounts[0]["name"], &accounts[0]["state"]),
        (&json!("kim"), &json!("active"))
    );
    let grants = get("/api/oauth/grants").await;
    assert_eq!(grants.as_array().unwrap().len(), 3, "{grants}");
    let clients = get("/api/oauth/clients").await;
    assert_eq!(clients.as_array().unwrap().len(), 2, "{clients}");
    // The client itself gives back one, with its access token.
    let form = [
        ("client_id", &*client),
        ("token", one["access_token"].as_str().unwrap()),
    ];
    let foreign = [("client_id", &*second), form[1]];
    assert_eq!(
        post_form(&hub, "/oauth/revoke", &foreign, &[]).await.status,
        200
    );
    assert!(tools(&hub, &one["access_token"]).await.is_ok());
    assert_eq!(
        post_form(&hub, "/oauth/revoke", &form, &[]).await.status,
        200
    );
    assert_eq!(tools(&hub, &one["access_token"]).await, Err(401));
    assert!(tools(&hub, &two["access_token"]).await.is_ok());
    let delete = async |path: String| hub.send_as_admin("DELETE", &path, Value::Null).await.status;
    assert_eq!(delete(format!("/api/oauth/clients/{client}")).await, 204);
    assert_eq!(delete(format!("/api/oauth/clients/{client}")).await, 404);
    assert_eq!(tools(&hub, &two["access_token"]).await, Err(401));
    let refused = refresh(&hub, &client, &two["refresh_token"]).await;
    assert_eq!(refused.json().await["error"], "invalid_client");
    assert!(tools(&hub, &three["access_token"]).await.is_ok());
    let grants = get("/api/oauth/grants").await;
    let id = grants[0]["id"].as_str().unwrap().to_owned();
    let four = browser.tokens(&second, &[]).await;
    assert_eq!(delete(format!("/api/oauth/grants/{id}")).await, 204);
    assert_eq!(delete(format!("/api/oauth/grants/{id}")).await, 404);
    assert_eq!(tools(&hub, &three["access_token"]).await, Err(401));
    assert!(tools(&hub, &four["access_token"]).await.is_ok());
    assert_eq!(delete("/api/accounts/kim".to_owned()).await, 204);
    assert_eq!(tools(&hub, &four["access_token"]).await, Err(401));
    let page = browser
        .get(&format!("/oauth/consent?{}", query_of(&second)))
        .await;
    assert!(page.text().await.contains("name=\"passphrase\""));
    let audit = hub
        .send_as_admin("GET", "/api/audit?limit=200", Value::Null)
        .await
        .text()
        .await;
    for action in [
        "POST /oauth/register",
        "POST /oauth/consent",
        "POST /oauth/invitation",
        "POST /oauth/revoke",
        "DELETE /api/accounts/{name}",
        "DELETE /api/oauth/grants/{id}",
        "DELETE /api/oauth/clients/{id}",
        "POST /api/accounts",
    ] {
        assert!(audit.contains(action), "{action}: {audit}");
    }
    assert!(
        !audit.contains("maru_rt_") && !audit.contains("maru_at_") && !audit.contains(PASSPHRASE)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn access_token_expires_and_is_renewed() {
    let hub = TestHub::with_config(|config| {
        serve(config);
        config.oauth.access_token_ms = 1000;
    })
    .await;
    let client = register(&hub).await;
    let mut browser = Browser::of_new_account(&hub, account("kim", "agent")).await;
    let tokens = browser.tokens(&client, &[]).await;
    assert_eq!(tokens["expires_in"], 1);
    wait_until(async || tools(&hub, &tokens["access_token"]).await == Err(401)).await;
    let renewed = refresh(&hub, &client, &tokens["refresh_token"])
        .await
        .json()
        .await;
    assert!(tools(&hub, &renewed["access_token"]).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn client_with_a_secret_proves_it_by_header_or_form() {
    let hub = start().await;
    let mut browser = Browser::of_new_account(&hub, account("kim", "agent")).await;
    for method in ["client_secret_basic", "client_secret_post"] {
        let body = json!({"redirect_uris": [REDIRECT], "token_endpoint_auth_method": method});
        let response = TestRequest::post(&hub.address, "/oauth/register", &body)
            .send()
            .await;
        let registered = response.json().await;
        let (id, secret) = (
            registered["client_id"].as_str().unwrap(),
            registered["client_secret"].as_str().unwrap(),
        );
        assert_eq!(registered["client_secret_expires_at"], 0);
        let choice = [("role", "agent"), ("servers", "all")];
        let code = parameter(&browser.allow(&query_of(id), &choice).await, "code");
        let form = [
            ("grant_type", "authorization_code"),
            ("code", &*code),
            ("code_verifier", VERIFIER),
            ("redirect_uri", REDIRECT),
        ];
        let basic = |secret: &str| {
            let text = format!("{}:{}", escaped(id), escaped(secret));
            format!("Basic {}", base64::prelude::BASE64_STANDARD.encode(text))
        };
        let public = [&form[..], &[("client_id", id)]].concat();
        assert_eq!(
            post_form(&hub, "/oauth/token", &public, &[]).await.status,
            401
        );
        let wrong = basic("maru_cs_x.0.y");
        let refused = post_form(&hub, "/oauth/token", &form, &[("authorization", &wrong)]).await;
        assert_eq!(refused.status, 401);
        assert!(refused.headers["www-authenticate"].starts_with("Basic"));
        let done = if method == "client_secret_basic" {
            post_form(
                &hub,
                "/oauth/token",
                &form,
                &[("authorization", &basic(secret))],
            )
            .await
        } else {
            let form = [&form[..], &[("client_id", id), ("client_secret", secret)]].concat();
            post_form(&hub, "/oauth/token", &form, &[]).await
        };
        assert_eq!(done.status, 200, "{method}");
    }
}
