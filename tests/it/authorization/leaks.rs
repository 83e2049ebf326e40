//! Codes, tokens, passphrases and client secrets come out nowhere but where they belong.

use super::{
    oidc::{Issuer, at_issuer},
    *,
};
use crate::{
    log_capture::LogCapture,
    secret_search::{READ_PATHS, SecretSearch},
};

#[tokio::test(flavor = "multi_thread")]
async fn no_output_and_no_file_holds_a_secret_of_the_authorization_server() {
    let log = LogCapture::install();
    let issuer = Issuer::start().await;
    let (hub, issuer_secret) = issuer.hub_with_secret(&["staff"]).await;
    let mut secrets = vec![issuer_secret, PASSPHRASE.to_owned()];

    // Somebody is invited, and invited again.
    let mut browser = Browser::of_new_account(&hub, account("kim", "agent")).await;
    let again = hub.send_as_admin("POST", "/api/accounts/kim/invitation", json!({}));
    let again = again.await.json().await;
    secrets.push(parameter(again["invitationUrl"].as_str().unwrap(), "code"));
    secrets.push(browser.cookie.split_once('=').unwrap().1.to_owned());

    // A client with a secret gets tokens, renews them and gives them back.
    let body =
        json!({"redirect_uris": [REDIRECT], "token_endpoint_auth_method": "client_secret_post"});
    let client = TestRequest::post(&hub.address, "/oauth/register", &body);
    let client = client.send().await.json().await;
    let text = |value: &Value, name: &str| value[name].as_str().unwrap().to_owned();
    let (id, secret) = (text(&client, "client_id"), text(&client, "client_secret"));
    let choice = [("role", "agent"), ("servers", "all")];
    let location = browser.allow(&query_of(&id), &choice).await;
    let code = parameter(&location, "code");
    let form = async |grant: &str, field: &str, value: &str| {
        let form = [
            ("grant_type", grant),
            ("client_id", &*id),
            ("client_secret", &*secret),
            ("code_verifier", VERIFIER),
            (field, value),
        ];
        post_form(&hub, "/oauth/token", &form, &[]).await
    };
    let first = form("authorization_code", "code", &code).await.json().await;
    let refresh_token = text(&first, "refresh_token");
    let second = form("refresh_token", "refresh_token", &refresh_token).await;
    let second = second.json().await;
    for tokens in [&first, &second] {
        assert!(tools(&hub, &tokens["access_token"]).await.is_ok());
        secrets.extend(["access_token", "refresh_token"].map(|it| text(tokens, it)));
    }
    secrets.extend([code.clone(), secret.clone(), VERIFIER.to_owned()]);
    let mut shown = String::new();
    // Used again, wrong, and given back.
    let replayed = form("authorization_code", "code", &code).await;
    shown += &replayed.text().await;
    let wrong = form(
        "refresh_token",
        "refresh_token",
        &format!("{refresh_token}x"),
    )
    .await;
    shown += &wrong.text().await;
    let revoked = [
        ("client_id", &*id),
        ("client_secret", &*secret),
        ("token", &*refresh_token),
    ];
    let revoked = post_form(&hub, "/oauth/revoke", &revoked, &[]).await;
    shown += &revoked.text().await;

    // A person of the issuer, whose code is used twice.
    let (pending, path) = at_issuer(&hub, "").await;
    secrets.extend([
        parameter(&path, "code"),
        pending.split_once('=').unwrap().1.to_owned(),
    ]);
    for _ in 0..2 {
        let back = TestRequest::new(&hub.address, "GET", &path).header("cookie", &pending);
        let back = back.send().await;
        for cookie in back.cookies().filter(|it| !it.contains("Max-Age=0")) {
            let (_, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
            secrets.push(value.to_owned());
        }
        shown += &back.text().await;
    }

    let secrets = SecretSearch::new(secrets);
    for path in READ_PATHS {
        let read = hub.send_as_admin("GET", path, Value::Null).await;
        shown += &read.text().await;
    }
    secrets.assert_absent("a response", shown);
    secrets.assert_absent("the log", log.text());
    secrets.assert_absent_in_files(hub.directory.path());
}
