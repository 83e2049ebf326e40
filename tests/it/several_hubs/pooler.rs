//! Hubs that reach PostgreSQL through `PgBouncer`.

use std::{
    path::Path,
    process::{Child, Stdio},
};

use maru_store::Store;
use serde_json::{Value, json};

use super::{TwoHubs, balancer::free_address, call, get, tool};
use crate::{
    fixture_server::fixture_program,
    http_client::{wait_for, wait_until},
    postgres_cluster::{PASSWORD, PostgresCluster, unprivileged_command},
};

/// A pooler that runs until it is dropped.
struct TestPooler {
    process: Child,
    address: String,
}

impl TestPooler {
    async fn start(cluster: &PostgresCluster, pool_mode: &str, pool_size: u32) -> Self {
        let address = free_address();
        let port = address.rsplit(':').next().unwrap();
        let server = cluster.port;
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={server} user=maru password={PASSWORD}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = any\n\
             unix_socket_dir =\npool_mode = {pool_mode}\ndefault_pool_size = {pool_size}\n"
        );
        cluster.write_private("pgbouncer.ini", settings.as_bytes());
        let mut command = unprivileged_command(Path::new("/usr/sbin/pgbouncer"));
        command.arg(cluster.directory.path().join("pgbouncer.ini"));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().expect("scripts/tools installs PgBouncer");
        let pooler = Self { process, address };
        wait_until(async || {
            let connected = tokio::net::TcpStream::connect(&pooler.address).await;
            connected.is_ok()
        })
        .await;
        pooler
    }

    fn url(&self, database: &str) -> String {
        format!("postgres://maru:{PASSWORD}@{}/{database}", self.address)
    }
}

impl Drop for TestPooler {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hubs_work_together_through_a_pooler_in_session_mode() {
    let cluster = PostgresCluster::start().await;
    let database = cluster.create_database();
    let pooler = TestPooler::start(&cluster, "session", 40).await;
    let url = pooler.url(&database);
    let hubs = TwoHubs::start_on(cluster, database, &url, |_| ()).await;
    let (one, other) = (&hubs.one, &hubs.other);
    hubs.wait_until_listening().await;
    let made = one
        .send_as_admin("POST", "/api/custom-tools", tool("n + 1"))
        .await;
    assert_eq!(made.status, 201);
    wait_until(async || call(other).await == 2).await;
    let session = one.initialize_session("2025-11-25", json!({})).await;
    let list = super::sessions::list_tools();
    let listed = other.session_request(&session, &list).send().await;
    assert_eq!(listed.status, 200);
    let server = json!({"name": "single", "autoConnect": true, "transportType": "STDIO",
        "config": {"command": fixture_program(), "args": ["stdio"], "run": "single"}});
    let added = one.send_as_admin("POST", "/api/mcp/servers", server).await;
    assert_eq!(added.status, 201);
    let status = async |hub| get(hub, "/api/mcp/servers/single").await["status"].clone();
    wait_until(async || status(other).await == "CONNECTED").await;
    let removed = one
        .send_as_admin("DELETE", "/api/mcp/servers/single", Value::Null)
        .await;
    assert_eq!(removed.status, 204);
    hubs.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn old_pooler_in_transaction_mode_is_named_as_the_cause() {
    let cluster = PostgresCluster::start().await;
    let database = cluster.create_database();
    let pooler = TestPooler::start(&cluster, "transaction", 2).await;
    let store = Store::connect(&pooler.url(&database)).await.unwrap();
    // Statements get to another connection of the server than they were prepared on.
    let failure = wait_for(
        async || {
            let (tokens, servers) = tokio::join!(store.tokens(), store.servers());
            tokens.err().or(servers.err()).map(|it| format!("{it:?}"))
        },
        Option::is_some,
    );
    let failure = failure.await.unwrap();
    assert!(failure.contains("transaction mode"), "{failure}");
}
