//! Several hubs on one database, and a hub that starts again.

use super::*;
use crate::{http_client::wait_until, postgres_cluster::PostgresCluster};

#[tokio::test(flavor = "multi_thread")]
async fn grant_of_one_hub_works_at_the_other_on_postgresql_at_once_and_until_it_ends() {
    let cluster = PostgresCluster::start().await;
    let database = cluster.create_database();
    let keys = tempfile::tempdir().unwrap();
    let open = async || {
        TestHub::with_config(|config| {
            serve(config);
            config.store_url = Some(cluster.url(&database).into());
            config.seal_key_file = Some(keys.path().join("seal-key"));
        })
        .await
    };
    let (one, other) = (open().await, open().await);
    let name = unused_name();
    let mut browser = Browser::of_new_account(&one, account(&name, "agent")).await;
    // The account reaches the other hub by a notification.
    wait_until(async || {
        let accounts = other.send_as_admin("GET", "/api/tokens", Value::Null).await;
        accounts.text().await.contains(&name)
    })
    .await;
    let client = register(&one).await;
    let choice = [("role", "agent"), ("servers", "all")];
    let location = browser.allow(&query_of(&client), &choice).await;
    // Each step at the other hub.
    let tokens = exchange(&other, &client, &parameter(&location, "code")).await;
    let tokens = tokens.json().await;
    for hub in [&one, &other] {
        assert!(tools(hub, &tokens["access_token"]).await.is_ok());
    }
    let hubs = [&one, &other, &one, &other, &one];
    let parallel = hubs.map(async |hub| {
        let response = refresh(hub, &client, &tokens["refresh_token"]).await;
        assert_eq!(response.status, 200);
        response.json().await
    });
    let renewed = futures_util::future::join_all(parallel).await;
    assert!(
        renewed
            .iter()
            .all(|it| it["refresh_token"] == renewed[0]["refresh_token"])
    );
    assert!(tools(&other, &renewed[2]["access_token"]).await.is_ok());
    let key = cluster.run_sql(
        &database,
        "SELECT value FROM hub_setting WHERE name = 'shared_key'",
    );
    assert!(key.starts_with("sealed:"), "{key}");
    // Ended at one, it ends at the other.
    let grants = one
        .send_as_admin("GET", "/api/oauth/grants", Value::Null)
        .await
        .json()
        .await;
    let path = format!("/api/oauth/grants/{}", grants[0]["id"].as_str().unwrap());
    assert_eq!(
        one.send_as_admin("DELETE", &path, Value::Null).await.status,
        204
    );
    assert_eq!(tools(&one, &renewed[0]["access_token"]).await, Err(401));
    wait_until(async || tools(&other, &renewed[0]["access_token"]).await == Err(401)).await;
    one.running.stop().await;
    other.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_survive_a_restart() {
    let hub = start().await;
    let client = register(&hub).await;
    let mut browser = Browser::of_new_account(&hub, account("kim", "agent")).await;
    let tokens = browser.tokens(&client, &[]).await;
    let directory = hub.directory;
    hub.running.stop().await;
    let mut config = Config {
        data_dir: directory.path().to_owned(),
        listen: "127.0.0.1:0".parse().unwrap(),
        ..Config::default()
    };
    serve(&mut config);
    let hub = TestHub::with_directory(config).await;
    assert!(tools(&hub, &tokens["access_token"]).await.is_ok());
    let renewed = refresh(&hub, &client, &tokens["refresh_token"]).await;
    assert_eq!(renewed.status, 200);
}
