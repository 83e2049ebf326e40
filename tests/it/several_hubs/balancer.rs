//! Three hubs behind haproxy, which gives every request to the next hub.

use std::{
    fs,
    net::TcpListener,
    process::{Child, Command},
};

use maru::config::SecretString;
use serde_json::json;

use super::{TwoHubs, get};
use crate::{
    conformance::count_passed,
    fixture_server::FixtureServer,
    http_client::{TestRequest, wait_until},
    test_hub::TestHub,
};

/// A balancer that runs until it is dropped.
struct TestBalancer {
    process: Child,
    address: String,
    _directory: tempfile::TempDir,
}

impl TestBalancer {
    async fn start(hubs: &[&TestHub]) -> Self {
        let port = {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().port()
        };
        let address = format!("127.0.0.1:{port}");
        let mut settings = format!(
            "defaults\n mode http\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n\
             frontend clients\n bind {address}\n default_backend hubs\n\
             backend hubs\n balance roundrobin\n option httpchk GET /healthz\n"
        );
        for (number, hub) in hubs.iter().enumerate() {
            settings += &format!(" server hub{number} {} check inter 200ms\n", hub.address);
        }
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("haproxy.cfg");
        fs::write(&file, settings).unwrap();
        let mut haproxy = Command::new("haproxy");
        haproxy.arg("-db").arg("-f").arg(file);
        let process = haproxy.spawn().expect("scripts/tools installs haproxy");
        let balancer = Self {
            process,
            address,
            _directory: directory,
        };
        wait_until(async || {
            tokio::net::TcpStream::connect(&balancer.address)
                .await
                .is_ok()
        })
        .await;
        balancer
    }
}

impl Drop for TestBalancer {
    fn drop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn suite_passes_through_a_balancer_without_sticky_sessions() {
    let hubs = TwoHubs::start().await;
    let url = hubs.cluster.url(&hubs.database);
    let third = TestHub::with_config(|it| it.store_url = Some(SecretString::from(url))).await;
    let all = [&hubs.one, &hubs.other, &third];
    let (_server, url) = FixtureServer::start("http").await;
    let server = json!({"name": "up", "autoConnect": true, "transportType": "HTTP",
        "config": {"url": url}});
    let added = third
        .send_as_admin("POST", "/api/mcp/servers", server)
        .await;
    assert_eq!(added.status, 201);
    for hub in all {
        wait_until(async || get(hub, "/api/mcp/servers/up").await["status"] == "CONNECTED").await;
    }
    let balancer = TestBalancer::start(&all).await;
    wait_until(async || {
        let probe = TestRequest::new(&balancer.address, "GET", "/healthz");
        probe.send().await.status == 200
    })
    .await;
    let url = format!("http://{}/mcp/s/up", balancer.address);
    assert_eq!(count_passed(&url, "2025-11-25", &[]).await, 30);
    assert_eq!(count_passed(&url, "2026-07-28", &[]).await, 37);
    drop(balancer);
    third.running.stop().await;
    hubs.stop().await;
}
