//! Three hubs behind haproxy, which gives every request to the next hub.

use std::{
    fs,
    net::TcpListener,
    path::Path,
    process::{Child, Command, Stdio},
};

use maru::config::{Config, SecretString};
use serde_json::{Value, json};

use super::{TwoHubs, get};
use crate::{
    conformance::count_passed,
    fixture_server::FixtureServer,
    http_client::{TestRequest, wait_until},
    postgres_cluster::PostgresCluster,
    test_hub::{TestHub, call_message, initialize_message},
};

/// A balancer that runs until it is dropped.
struct TestBalancer {
    process: Child,
    address: String,
    _directory: tempfile::TempDir,
}

impl TestBalancer {
    async fn start(address: String, hubs: &[&str]) -> Self {
        let mut settings = format!(
            "defaults\n mode http\n timeout connect 5s\n timeout client 60s\n timeout server 60s\n\
             option redispatch\n retries 3\n retry-on conn-failure\n\
             frontend clients\n bind {address}\n default_backend hubs\n\
             backend hubs\n balance roundrobin\n option httpchk\n\
             http-check send meth GET uri /healthz ver HTTP/1.1 hdr Host localhost\n"
        );
        for (number, hub) in hubs.iter().enumerate() {
            settings += &format!(" server hub{number} {hub} check inter 1s fall 3 rise 1\n");
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

/// A hub in a process of its own, which can be killed.
pub(super) struct HubProcess {
    process: Child,
    pub(super) address: String,
    directory: tempfile::TempDir,
    store_url: String,
}

impl HubProcess {
    pub(super) async fn start(store_url: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let address = free_address();
        let hub = Self {
            process: spawn_hub(&address, directory.path(), store_url),
            address,
            directory,
            store_url: store_url.to_owned(),
        };
        hub.until_serving().await;
        hub
    }

    async fn until_serving(&self) {
        wait_until(async || {
            let connected = tokio::net::TcpStream::connect(&self.address).await;
            connected.is_ok()
        })
        .await;
        // It listens before it is ready.
        let probe = TestRequest::new(&self.address, "GET", "/healthz");
        assert_eq!(probe.send().await.status, 200);
    }

    pub(super) fn process_id(&self) -> u32 {
        self.process.id()
    }

    pub(super) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub(super) async fn restart(&mut self) {
        self.process = spawn_hub(&self.address, self.directory.path(), &self.store_url);
        self.until_serving().await;
    }
}

impl Drop for HubProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The `Authorization` of the admin of a hub, who is admin of all.
pub(super) fn admin_of(hub: &HubProcess) -> String {
    let token = hub.directory.path().join("admin-token");
    format!("Bearer {}", fs::read_to_string(token).unwrap().trim())
}

fn spawn_hub(address: &str, directory: &Path, store_url: &str) -> Child {
    let mut hub = Command::new(env!("CARGO_BIN_EXE_maru"));
    hub.args(["serve", "--listen", address, "--data-dir"])
        .arg(directory)
        .env("MARU_STORE_URL", store_url)
        .env_remove("MARU_CONFIG")
        .current_dir(directory)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    hub.spawn().unwrap()
}

pub(super) fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

#[expect(clippy::disallowed_methods, reason = "a longer run is asked for")]
#[tokio::test(flavor = "multi_thread")]
async fn hubs_are_killed_in_turn_and_nothing_acknowledged_is_lost() {
    // A long run: HUB_KILLS=500 cargo nextest run several_hubs::balancer::hubs_are_killed
    let kills = std::env::var("HUB_KILLS").map_or(9, |it| it.parse().unwrap());
    let cluster = PostgresCluster::start().await;
    let url = cluster.url(&cluster.create_database());
    let mut hubs = Vec::new();
    for _ in 0..3 {
        hubs.push(HubProcess::start(&url).await);
    }
    let admin = admin_of(&hubs[0]);
    let addresses: Vec<&str> = hubs.iter().map(|it| it.address.as_str()).collect();
    let balancer = TestBalancer::start(free_address(), &addresses).await;
    let post = async |path: &str, session: &str, body: &Value| {
        let request = TestRequest::post(&balancer.address, path, body);
        let request = request.header("authorization", &admin);
        let request = request.header("mcp-session-id", session);
        request.send().await
    };
    let initialize = initialize_message("2025-11-25", &json!({}));
    let opened = TestRequest::post(&balancer.address, "/mcp", &initialize);
    let opened = opened.header("authorization", &admin).send().await;
    let session = opened.headers["mcp-session-id"].clone();
    let call = call_message(1, "serialize_for_cell", json!({"data": "x"}));
    let (mut calls, mut repeated, mut acknowledged) = (0, 0, Vec::new());
    for round in 0..kills {
        hubs[round % 3].kill();
        for number in 0..6 {
            loop {
                let answer = post("/mcp", &session, &call).await;
                // The balancer's own answers: the hub was gone, or is not back yet.
                if matches!(answer.status.as_u16(), 502..=504) {
                    repeated += 1;
                    continue;
                }
                assert_eq!(answer.status, 200, "the session goes on");
                let answer = answer.rpc_response().await;
                assert!(
                    answer["error"].is_null() && answer["result"]["isError"] != true,
                    "{answer}"
                );
                calls += 1;
                break;
            }
            let name = format!("made_{round}_{number}");
            let tool = json!({"name": name, "description_agent": "x", "tool_type": "PYTHON",
                "definition": "1", "params": []});
            let made = post("/api/custom-tools", "", &tool).await;
            match made.status.as_u16() {
                201 => acknowledged.push(name),
                status => assert!(matches!(status, 502..=504), "{status}"),
            }
        }
        hubs[round % 3].restart().await;
    }
    eprintln!(
        "{calls} calls, {repeated} repeated, {} writes",
        acknowledged.len()
    );
    assert_eq!(calls, kills * 6);
    for hub in &hubs {
        wait_until(async || {
            let listed = TestRequest::new(&hub.address, "GET", "/api/custom-tools");
            let listed = listed.header("authorization", &admin).send().await;
            let listed = listed.text().await;
            let is_listed = |name: &String| listed.contains(&format!("\"{name}\""));
            acknowledged.iter().all(is_listed)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn suite_passes_through_a_balancer_without_sticky_sessions() {
    let address = free_address();
    let port = address.rsplit(':').next().unwrap();
    // The balancer's own address is not one of the hubs'.
    let origins = ["127.0.0.1", "localhost"].map(|host| format!("http://{host}:{port}"));
    let allow = |config: &mut Config| config.http.allowed_origins = origins.to_vec();
    let hubs = TwoHubs::start_with(allow).await;
    let url = hubs.cluster.url(&hubs.database);
    let third = TestHub::with_config(|config| {
        config.store_url = Some(SecretString::from(url));
        allow(config);
    })
    .await;
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
    let balancer = TestBalancer::start(address, &all.map(|it| it.address.as_str())).await;
    wait_until(async || {
        let probe = TestRequest::new(&balancer.address, "GET", "/healthz");
        probe.send().await.status == 200
    })
    .await;
    let url = format!("http://{}/mcp/s/up", balancer.address);
    assert_eq!(count_passed(&url, "2025-11-25", &[]).await, 30);
    assert_eq!(count_passed(&url, "2026-07-28", &[]).await, 37);
    drop(balancer);
    Box::pin(third.running.stop()).await;
    hubs.stop().await;
}
