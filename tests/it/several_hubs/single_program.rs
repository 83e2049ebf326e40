//! A program that one of the hubs runs for all.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use serde_json::{Value, json};

use super::{
    TwoHubs,
    balancer::{HubProcess, admin_of, free_address},
};
use crate::{
    conformance::count_passed,
    fixture_server::fixture_program,
    http_client::{TestRequest, wait_until},
    postgres_cluster::PostgresCluster,
    test_hub::call_message,
};

/// Counts the processes of a server, which have a variable of their own.
#[derive(Clone)]
struct ProcessCounter {
    mark: String,
    most: Arc<AtomicUsize>,
    stopped: Arc<AtomicBool>,
}

impl ProcessCounter {
    fn start() -> (Self, JoinHandle<()>) {
        let counter = Self {
            mark: format!("SINGLE_MARK={}", free_address()),
            most: Arc::default(),
            stopped: Arc::default(),
        };
        let watching = counter.clone();
        let watcher = thread::spawn(move || {
            while !watching.stopped.load(Relaxed) {
                watching.most.fetch_max(watching.running().len(), Relaxed);
                // A program that runs twice for a moment must be seen.
                thread::park_timeout(Duration::from_millis(5));
            }
        });
        (counter, watcher)
    }

    /// The ids of the processes; those that start them do not count.
    fn running(&self) -> Vec<u32> {
        let all = fs::read_dir("/proc").unwrap().flatten();
        let ids = all.filter_map(|it| it.file_name().to_str()?.parse().ok());
        let program = fixture_program();
        let is_program = |id: &u32| {
            let directory = Path::new("/proc").join(id.to_string());
            let environment = fs::read(directory.join("environ")).unwrap_or_default();
            let has_mark = environment
                .split(|it| *it == 0)
                .any(|it| it == self.mark.as_bytes());
            has_mark && fs::read_link(directory.join("exe")).is_ok_and(|it| it == program)
        };
        ids.filter(is_program).collect()
    }

    /// The server as it is registered.
    fn server(&self) -> Value {
        let (name, value) = self.mark.split_once('=').unwrap();
        json!({"name": "single", "autoConnect": true, "transportType": "STDIO", "config": {
            "command": fixture_program(), "args": ["stdio"], "run": "single", "env": {name: value}}})
    }
}

async fn call(address: &str, admin: &str) -> bool {
    let message = call_message(1, "single__test_simple_text", json!({}));
    let request = TestRequest::post(address, "/sse", &message);
    let answer = request.header("authorization", admin).send().await;
    if answer.status != 200 {
        return false;
    }
    let answer = answer.rpc_response().await;
    answer["result"]["isError"] != true && answer["error"].is_null()
}

fn parent_of(process: u32) -> u32 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let parent = status.lines().find_map(|it| it.strip_prefix("PPid:"));
    parent.map_or(0, |it| it.trim().parse().unwrap())
}

fn is_below(mut process: u32, ancestor: u32) -> bool {
    while process > 1 {
        if process == ancestor {
            return true;
        }
        process = parent_of(process);
    }
    false
}

#[tokio::test(flavor = "multi_thread")]
async fn program_of_all_hubs_runs_once_and_another_hub_takes_it_over() {
    const KILLS: usize = 3;
    let cluster = PostgresCluster::start().await;
    let database = cluster.create_database();
    let url = cluster.url(&database);
    let mut hubs = Vec::new();
    for _ in 0..3 {
        hubs.push(HubProcess::start(&url).await);
    }
    let admin = admin_of(&hubs[0]);
    let (counter, watcher) = ProcessCounter::start();
    let add = TestRequest::post(&hubs[0].address, "/api/mcp/servers", &counter.server());
    let added = add.header("authorization", &admin).send().await;
    assert_eq!(added.status, 201);
    for hub in &hubs {
        wait_until(async || call(&hub.address, &admin).await).await;
    }
    assert_eq!(counter.running().len(), 1);

    for _ in 0..KILLS {
        let program = counter.running()[0];
        let holder = hubs
            .iter_mut()
            .find(|it| is_below(program, it.process_id()))
            .unwrap();
        holder.kill();
        let holder = holder.address.clone();
        for hub in hubs.iter().filter(|it| it.address != holder) {
            wait_until(async || call(&hub.address, &admin).await).await;
        }
        let killed = hubs.iter_mut().find(|it| it.address == holder).unwrap();
        killed.restart().await;
        wait_until(async || call(&killed.address, &admin).await).await;
        assert_eq!(counter.running().len(), 1);
    }

    // A hub that lost its lock may not go on.
    let program = counter.running()[0];
    cluster.run_sql(
        &database,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE application_name LIKE 'maru-hub-%'",
    );
    wait_until(async || !counter.running().contains(&program)).await;
    for hub in &hubs {
        wait_until(async || call(&hub.address, &admin).await).await;
    }
    let removed = TestRequest::new(&hubs[1].address, "DELETE", "/api/mcp/servers/single");
    let removed = removed.header("authorization", &admin).send().await;
    assert_eq!(removed.status, 204);
    wait_until(async || counter.running().is_empty()).await;
    counter.stopped.store(true, Relaxed);
    watcher.join().unwrap();
    assert_eq!(counter.most.load(Relaxed), 1, "never two at a time");
}

#[tokio::test(flavor = "multi_thread")]
async fn suite_passes_at_a_hub_that_does_not_run_the_program() {
    let hubs = TwoHubs::start().await;
    let server = json!({"name": "single", "autoConnect": true, "transportType": "STDIO",
        "config": {"command": fixture_program(), "args": ["stdio"], "run": "single"}});
    let added = hubs
        .one
        .send_as_admin("POST", "/api/mcp/servers", server)
        .await;
    assert_eq!(added.status, 201);
    for hub in [&hubs.one, &hubs.other] {
        let connected = async || {
            let server = super::get(hub, "/api/mcp/servers/single").await;
            server["status"] == "CONNECTED"
        };
        wait_until(connected).await;
    }
    let shown = super::get(&hubs.one, "/api/mcp/servers/single").await;
    let runs_at_one = !shown["program"].is_null();
    let away = if runs_at_one { &hubs.other } else { &hubs.one };
    let url = format!("http://{}/mcp/s/single", away.address);
    assert_eq!(count_passed(&url, "2025-11-25", &[]).await, 30);
    assert_eq!(count_passed(&url, "2026-07-28", &[]).await, 37);
    hubs.stop().await;
}
