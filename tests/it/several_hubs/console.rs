//! The console of several hubs: a person may reach another hub with every request.

use serde_json::{Value, json};

use super::{TwoHubs, call, get, tool};
use crate::{
    http_client::{TestRequest, wait_until},
    test_hub::TestHub,
};

/// Two hubs that are not told when tokens or signed-in browsers change.
async fn start_without_news() -> TwoHubs {
    let hubs = TwoHubs::start().await;
    hubs.cluster.run_sql(
        &hubs.database,
        "ALTER TABLE token DISABLE TRIGGER notify_change;
         ALTER TABLE console_session DISABLE TRIGGER notify_change",
    );
    hubs
}

async fn sign_in(hub: &TestHub, body: &Value) -> Option<String> {
    let response = TestRequest::post(&hub.address, "/api/session", body);
    let response = response.send().await;
    let cookie = response.headers.get("set-cookie")?;
    Some(cookie.split(';').next()?.to_owned())
}

async fn status_with(hub: &TestHub, header: (&str, &str)) -> u16 {
    let request = TestRequest::new(&hub.address, "GET", "/api/audit");
    request
        .header(header.0, header.1)
        .send()
        .await
        .status
        .into()
}

#[tokio::test(flavor = "multi_thread")]
async fn person_who_signed_in_at_one_hub_is_known_at_the_next_request_to_the_other() {
    let hubs = start_without_news().await;
    let (one, other) = (&hubs.one, &hubs.other);
    let code = one.running.console_code().await.unwrap();
    let code = json!({"code": code.reveal()});
    let cookie = sign_in(other, &code).await.expect("signed in");
    assert_eq!(sign_in(one, &code).await, None, "a link works once");
    for hub in [one, other] {
        assert_eq!(status_with(hub, ("cookie", &cookie)).await, 200);
    }
    let token = one
        .create_token(json!({"name": "colleague", "role": "admin"}))
        .await;
    let bearer = format!("Bearer {token}");
    assert_eq!(status_with(other, ("authorization", &bearer)).await, 200);
    let second = one
        .create_token(json!({"name": "second", "role": "admin"}))
        .await;
    assert!(sign_in(other, &json!({"token": second})).await.is_some());

    let (name, _) = cookie.split_once('=').unwrap();
    let unknown = format!("{name}=unknown");
    assert_eq!(status_with(other, ("cookie", &unknown)).await, 401);
    let unknown = ("authorization", "Bearer unknown");
    assert_eq!(status_with(other, unknown).await, 401);
    hubs.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_all_hubs_are_shown_with_the_name_of_their_hub() {
    let hubs = TwoHubs::start().await;
    let (one, other) = (&hubs.one, &hubs.other);
    let cookie = {
        let code = one.running.console_code().await.unwrap();
        sign_in(one, &json!({"code": code.reveal()})).await.unwrap()
    };
    let page = TestRequest::new(&one.address, "GET", "/api/events");
    let mut page = page.header("cookie", &cookie).send().await;
    assert_eq!(page.next_event().await.unwrap().name, "snapshot");

    let made = one
        .send_as_admin("POST", "/api/custom-tools", tool("n + 1"))
        .await;
    assert_eq!(made.status, 201);
    for hub in [one, other] {
        wait_until(async || call(hub).await == 2).await;
    }
    let mut shown = Vec::new();
    while shown.len() < 2 {
        let event = page.next_event().await.unwrap();
        let data: Value = serde_json::from_str(&event.data).unwrap();
        if event.name == "call" && data["outcome"] == "ok" && !shown.contains(&data["hub"]) {
            shown.push(data["hub"].clone());
        }
    }
    assert!(shown.contains(&json!("other")), "{shown:?}");

    // Hubs that start at the same moment give the same numbers.
    hubs.cluster.run_sql(
        &hubs.database,
        "ALTER TABLE audit DISABLE TRIGGER audit_unchanged;
         UPDATE audit SET call_number =
            (SELECT max(call_number) FROM audit WHERE hub = 'one') WHERE hub = 'other'",
    );
    let listed = get(one, "/api/calls?outcome=ok").await;
    let listed = listed["calls"].as_array().unwrap();
    for name in ["one", "other"] {
        let row = listed.iter().find(|it| it["hub"] == name).unwrap();
        let path = format!("/api/calls/{}@{name}", row["id"]);
        for hub in [one, other] {
            let call = get(hub, &path).await;
            assert_eq!(call["hub"], name, "{call}");
            assert_eq!(call["request"], row["request"], "{call}");
        }
    }
    let changes = get(other, "/api/audit?action=POST%20/api/custom-tools").await;
    assert_eq!(changes[0]["hub"], "one", "{changes}");
    hubs.stop().await;
}
