//! Real peers: an authorization server with rotating refresh tokens (npm `oidc-provider`)
//! in front of a server in Python. Tokens live five seconds.

use std::{
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
};

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{register, sign_in, status};
use crate::{
    clients::{client_tools_dir, node_program},
    faults::free_port,
    http_client::{TestRequest, wait_until},
    postgres_cluster::PostgresCluster,
    test_hub::{TestHub, stateless_message},
};

const PARALLEL_CALLS: usize = 50;
const EXPIRIES: u64 = 3;

struct Peers {
    programs: Vec<Child>,
    issuer: String,
    server: String,
}

impl Peers {
    async fn start() -> Self {
        let (issuer_port, port) = (free_port().to_string(), free_port().to_string());
        let (issuer, server) = (
            format!("127.0.0.1:{issuer_port}"),
            format!("127.0.0.1:{port}"),
        );
        let tools = client_tools_dir();
        let mut provider = Command::new(node_program());
        provider
            .arg(tools.join("oidc_provider.mjs"))
            .arg(&issuer_port);
        provider.arg(format!("http://{server}/mcp"));
        let mut python = Command::new(tools.join("mcp2/bin/python"));
        python.arg(tools.join("signed_in_server.py")).arg(&port);
        python.arg(format!("http://{issuer}"));
        let programs = [provider, python].map(|mut it| it.stdout(Stdio::null()).spawn().unwrap());
        let peers = Self {
            programs: programs.into(),
            issuer,
            server,
        };
        wait_until(async || {
            let is_open = async |it: &str| tokio::net::TcpStream::connect(it).await.is_ok();
            is_open(&peers.issuer).await && is_open(&peers.server).await
        })
        .await;
        peers
    }

    async fn stats(&self) -> Value {
        let request = TestRequest::new(&self.issuer, "GET", "/stats");
        request.send().await.json().await
    }

    /// Calls the tool from many clients at once until the tokens have expired often.
    async fn call_over_expiries(&self, hubs: &[&TestHub]) {
        let (is_over, done) = (AtomicBool::new(false), AtomicUsize::new(0));
        let clients = (0..PARALLEL_CALLS).map(async |number| {
            let hub = hubs[number % hubs.len()];
            while !is_over.load(Ordering::Relaxed) {
                let params =
                    json!({"name": "remote__wait_a_little", "arguments": {"text": "hello"}});
                let body = stateless_message("tools/call", params);
                let request = hub.post(&body);
                let request = request
                    .header("mcp-protocol-version", "2026-07-28")
                    .header("mcp-method", "tools/call")
                    .header("mcp-name", "remote__wait_a_little");
                let answer = request.send().await.rpc_response().await;
                let text = &answer["result"]["content"][0]["text"];
                assert_eq!(text, "hello", "{answer}");
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
        let watch = async {
            wait_until(async || self.stats().await["refreshes"].as_u64() >= Some(EXPIRIES)).await;
            is_over.store(true, Ordering::Relaxed);
        };
        tokio::join!(join_all(clients), watch);
        let stats = self.stats().await;
        assert_eq!(stats["sign_ins"], 1, "{stats}");
        assert_eq!(stats["refused"], json!({}), "{stats}");
        assert!(
            done.load(Ordering::Relaxed) >= PARALLEL_CALLS * 3,
            "{done:?}"
        );
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        for program in &mut self.programs {
            let _ = program.kill();
            let _ = program.wait();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn real_server_stays_signed_in_while_tokens_expire() {
    let (hub, peers) = (TestHub::start().await, Peers::start().await);
    let url = format!("http://{}/mcp", peers.server);
    let registered = register(&hub, &url, Value::Null).await;
    assert_eq!(registered["status"], "NEEDS_SIGN_IN", "{registered}");
    sign_in(&hub).await;
    assert_eq!(status(&hub).await["status"], "CONNECTED");
    peers.call_over_expiries(&[&hub]).await;
    let ended = hub
        .send_as_admin("POST", "/api/mcp/servers/remote/logout", Value::Null)
        .await;
    assert_eq!(ended.json().await["revoked"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn real_server_stays_signed_in_through_two_hubs_with_one_store_in_postgresql() {
    let (cluster, peers) = (PostgresCluster::start().await, Peers::start().await);
    let database = cluster.create_database();
    let keys = tempfile::tempdir().unwrap();
    let start = async || {
        TestHub::with_config(|it| {
            it.store_url = Some(cluster.url(&database).into());
            it.seal_key_file = Some(keys.path().join("seal-key"));
        })
        .await
    };
    let first = start().await;
    let url = format!("http://{}/mcp", peers.server);
    register(&first, &url, Value::Null).await;
    sign_in(&first).await;
    let second = start().await;
    for hub in [&first, &second] {
        hub.send_as_admin("POST", "/api/mcp/servers/remote/connect", Value::Null)
            .await;
        assert_eq!(status(hub).await["status"], "CONNECTED");
    }
    peers.call_over_expiries(&[&first, &second]).await;
    let stored = cluster.run_sql(&database, "SELECT data FROM server_credential");
    assert!(stored.starts_with("sealed:"), "{stored}");
}
