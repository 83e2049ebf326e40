//! Sign-ins and sign-outs at one of two hubs with one database.

use serde_json::{Value, json};

use super::{
    SERVER, begin,
    browser::{follow, open_on_hub, path_and_query},
    fake_remote::FakeRemote,
    own_accounts::Caller,
    register, sign_in, status, text_of,
};
use crate::{http_client::wait_until, several_hubs::TwoHubs, test_hub::TestHub};

async fn wait_for_status(hub: &TestHub, expected: &str) {
    wait_until(async || status(hub).await["status"] == expected).await;
}

async fn start() -> (TwoHubs, FakeRemote) {
    let keys = tempfile::tempdir().unwrap();
    let key = keys.path().join("seal-key");
    let hubs = TwoHubs::start_with(|it| it.seal_key_file = Some(key.clone())).await;
    (hubs, FakeRemote::start().await)
}

#[tokio::test(flavor = "multi_thread")]
async fn sign_in_and_sign_out_at_one_hub_reach_the_other() {
    let (hubs, remote) = start().await;
    let (one, other) = (&hubs.one, &hubs.other);
    register(one, &remote.url(), Value::Null).await;
    wait_until(async || status(other).await["status"] == "NEEDS_SIGN_IN").await;
    // The redirect comes back to the hub that did not begin.
    let link = begin(one).await;
    let redirect = follow(&link, &one.address).await;
    let page = open_on_hub(other, path_and_query(&redirect)).await;
    assert_eq!(page.status, 200);
    for hub in [one, other] {
        wait_for_status(hub, "CONNECTED").await;
    }
    assert_eq!(remote.count("/token"), 1);

    let path = format!("{SERVER}/logout");
    other.send_as_admin("POST", &path, Value::Null).await;
    for hub in [one, other] {
        wait_for_status(hub, "DISCONNECTED").await;
    }
    // The link was used at the other hub.
    assert_ne!(begin(one).await, link);
    hubs.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn own_account_that_is_signed_out_or_revoked_at_one_hub_ends_at_the_other() {
    let (hubs, remote) = start().await;
    let (one, other) = (&hubs.one, &hubs.other);
    register(one, &remote.url(), json!({"per_user": true})).await;
    sign_in(one).await;
    wait_for_status(other, "CONNECTED").await;
    let kim = Caller::new(one, "kim").await;
    let answer_at_other = async |caller: &Caller<'_>| {
        let answer = caller.at(other).call(json!({}), Value::Null).await;
        text_of(&answer).to_owned()
    };
    kim.sign_in().await;
    wait_until(async || answer_at_other(&kim).await == "account 2").await;
    let path = format!("{SERVER}/account");
    let ended = kim.send("DELETE", &path, &json!({})).await;
    assert_eq!(ended.status, 200);
    wait_until(async || answer_at_other(&kim).await.contains("needs a sign-in")).await;

    kim.sign_in().await;
    wait_until(async || answer_at_other(&kim).await == "account 3").await;
    let revoked = one.send_as_admin("DELETE", "/api/tokens/kim", Value::Null);
    assert_eq!(revoked.await.status, 204);
    let next = Caller::new(one, "kim").await;
    wait_until(async || answer_at_other(&next).await.contains("needs a sign-in")).await;
    hubs.stop().await;
}
