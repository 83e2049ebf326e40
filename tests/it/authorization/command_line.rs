//! `maru token` for accounts, grants and clients.

use super::*;
use crate::servers::run_maru;

async fn maru_token(hub: &TestHub, arguments: &[&str]) -> String {
    let arguments = [&["token"], arguments].concat();
    let (code, shown, why) = run_maru(hub.directory.path(), &arguments).await;
    assert_eq!(code, Some(0), "{arguments:?}: {why}");
    shown
}

/// The link that an invitation prints.
fn invitation_code(shown: &str) -> String {
    let link = shown.lines().next().unwrap();
    assert!(link.starts_with("http://"), "{shown}");
    parameter(link, "code")
}

#[tokio::test(flavor = "multi_thread")]
async fn person_is_invited_and_what_was_allowed_is_listed_and_revoked() {
    let hub = start().await;
    let invited = maru_token(
        &hub,
        &["invite", "kim", "--role", "reader", "--server", "maru"],
    )
    .await;
    let accounts = maru_token(&hub, &["accounts"]).await;
    for part in ["kim", "reader", "maru", "invited"] {
        assert!(accounts.contains(part), "{accounts}");
    }
    let again = maru_token(&hub, &["invite", "kim", "--again"]).await;
    let mut browser = Browser::new(&hub);
    // The second invitation replaces the first.
    let replaced = invitation_code(&invited);
    let page = format!("/oauth/invitation?code={replaced}");
    assert_eq!(browser.get(&page).await.status, 404);
    browser.accept_invitation(&invitation_code(&again)).await;
    let accounts = maru_token(&hub, &["accounts"]).await;
    assert!(accounts.contains("active"), "{accounts}");

    let (client, other) = (register(&hub).await, register(&hub).await);
    let choice = [
        ("role", "reader"),
        ("servers", "all"),
        ("tools", "some"),
        ("tool.maru.search_docs", "on"),
    ];
    let first = browser.tokens(&client, &choice).await;
    let second = browser.tokens(&other, &[]).await;
    let grants = maru_token(&hub, &["grants"]).await;
    for part in ["kim", "Test client", "reader", "maru.search_docs"] {
        assert!(grants.contains(part), "{grants}");
    }
    let clients = maru_token(&hub, &["clients"]).await;
    assert!(
        clients.contains(&client) && clients.contains(&other),
        "{clients}"
    );

    let line = grants.lines().find(|it| it.contains("maru.search_docs"));
    let id = line.unwrap().split_whitespace().next().unwrap();
    maru_token(&hub, &["revoke-grant", id]).await;
    assert_eq!(tools(&hub, &first["access_token"]).await, Err(401));
    assert!(tools(&hub, &second["access_token"]).await.is_ok());
    maru_token(&hub, &["revoke-client", &other]).await;
    assert_eq!(tools(&hub, &second["access_token"]).await, Err(401));
    let clients = maru_token(&hub, &["clients"]).await;
    assert!(
        clients.contains(&client) && !clients.contains(&other),
        "{clients}"
    );
    maru_token(&hub, &["revoke", "kim"]).await;
    let accounts = maru_token(&hub, &["accounts"]).await;
    assert!(!accounts.contains("kim"), "{accounts}");
    let wrong = ["token", "revoke-grant", id];
    let (code, _, why) = run_maru(hub.directory.path(), &wrong).await;
    assert_eq!(code, Some(2), "{why}");
}
