//! The store keeps the same promises in a file, in memory and in PostgreSQL.

mod contract;
mod postgres_store;
mod sqlite_store;

use std::{
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use maru_store::{Error, ServerRow, Store};
use tokio::{net::TcpListener, time::Instant};

use crate::postgres_cluster::{PASSWORD, PostgresCluster};

/// 2026-08-01 12:34:56.789 UTC.
const TEST_TIME_MS: i64 = 1_785_587_696_789;

#[tokio::test]
async fn store_in_memory_satisfies_the_contract() {
    contract::check_store(async || Store::in_memory().await.unwrap()).await;
}

#[tokio::test]
async fn store_in_a_file_satisfies_the_contract() {
    let directory = tempfile::tempdir().unwrap();
    let files = sqlite_store::StoreFiles::new(directory.path());
    contract::check_store(async || Store::open(&files.fresh_path()).await.unwrap()).await;
    contract::check_reopened(&files.fresh_path(), async |path| Store::open(path).await).await;
    for _again in 0..30 {
        contract::check_concurrent_open(&files.fresh_path(), async |path| Store::open(path).await)
            .await;
    }
    sqlite_store::check_files(&files).await;
}

#[tokio::test]
async fn store_in_postgres_satisfies_the_contract() {
    let cluster = PostgresCluster::start().await;
    let fresh = || cluster.url(&cluster.create_database());
    contract::check_store(async || Store::connect(&fresh()).await.unwrap()).await;
    contract::check_reopened(&fresh(), async |url| Store::connect(url).await).await;
    contract::check_concurrent_open(&fresh(), async |url| Store::connect(url).await).await;
    postgres_store::check_database(&cluster).await;
}

#[tokio::test]
async fn refused_connection_names_the_address_and_not_the_password() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let url = format!("postgres://maru:{PASSWORD}@127.0.0.1:{port}/somewhere");
    let why = full_error_text(Store::connect(&url).await.unwrap_err());
    for part in ["127.0.0.1", &port.to_string(), "somewhere", "refused"] {
        assert!(why.contains(part), "{why}");
    }
    assert!(!why.contains(PASSWORD), "{why}");
}

#[tokio::test(start_paused = true)]
async fn silent_server_is_given_up_after_ten_seconds() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let begun = Instant::now();
    let url = format!("postgres://maru:{PASSWORD}@127.0.0.1:{port}/somewhere");
    let why = full_error_text(Store::connect(&url).await.unwrap_err());
    assert!(begun.elapsed() < Duration::from_millis(10_100));
    assert!(why.contains("no answer within 10s"), "{why}");
}

#[tokio::test]
async fn acknowledged_writes_survive_a_kill() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("maru.db");
    let mut writer = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "store::writer", "--ignored", "--nocapture"])
        .env("MARU_TEST_STORE", &path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(writer.stdout.take().unwrap()).lines();
    let written = lines.map_while(Result::ok);
    let names: Vec<String> = written
        .filter_map(|line| Some(line.strip_prefix("wrote ")?.to_owned()))
        .take(50)
        .collect();
    writer.kill().unwrap();
    writer.wait().unwrap();
    assert_eq!(names.len(), 50);
    let kept = server_names(&Store::open(&path).await.unwrap()).await;
    let lost = names.iter().filter(|it| !kept.contains(it));
    assert_eq!(lost.count(), 0);
}

#[tokio::test]
#[ignore = "the process that `acknowledged_writes_survive_a_kill` kills"]
#[expect(clippy::disallowed_methods, reason = "the parent says where to write")]
async fn writer() {
    let path = PathBuf::from(std::env::var("MARU_TEST_STORE").unwrap());
    let store = Store::open(&path).await.unwrap();
    for number in 0.. {
        let name = format!("server{number:06}");
        assert!(store.insert_server(&server_row(&name)).await.unwrap());
        println!("\nwrote {name}");
    }
}

fn server_row(name: &str) -> ServerRow {
    ServerRow {
        id: format!("id of {name}"),
        name: name.to_owned(),
        description: None,
        transport_type: "stdio".to_owned(),
        config: r#"{"env":{"KEY":"hush-hush"}}"#.to_owned(),
        version: None,
        auto_connect: false,
        enabled: true,
        origin: "api".to_owned(),
        trust: "pin".to_owned(),
        protocol_version: None,
        created_at: TEST_TIME_MS,
        updated_at: TEST_TIME_MS,
    }
}

async fn server_names(store: &Store) -> Vec<String> {
    let servers = store.servers().await.unwrap();
    servers.into_iter().map(|it| it.name).collect()
}

/// All that an error says, to people and to programmers.
fn full_error_text(error: Error) -> String {
    let error = anyhow::Error::from(error);
    format!("{error:#} {error:?}")
}
