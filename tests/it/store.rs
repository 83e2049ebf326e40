//! The store keeps the same promises in a file, in memory and in PostgreSQL.

mod databases;
mod files;
mod promises;

use std::{
    io::{BufRead as _, BufReader},
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use maru::store::{Error, ServerRow, Store};
use tokio::{net::TcpListener, time::Instant};

use crate::postgres::{Cluster, PASSWORD};

/// 2026-08-01 12:34:56.789 UTC.
const TIME: i64 = 1_785_587_696_789;

#[tokio::test]
async fn in_memory_all_promises_hold() {
    promises::check(async || Store::in_memory().await.unwrap()).await;
}

#[tokio::test]
async fn in_a_file_all_promises_hold() {
    let directory = tempfile::tempdir().unwrap();
    let files = files::Files::new(directory.path());
    promises::check(async || Store::open(&files.fresh()).await.unwrap()).await;
    promises::check_opened_again(&files.fresh(), async |path| Store::open(path).await).await;
    for _again in 0..30 {
        promises::check_opened_at_once(&files.fresh(), async |path| Store::open(path).await).await;
    }
    files::check(&files).await;
}

#[tokio::test]
async fn in_postgres_all_promises_hold() {
    let cluster = Cluster::start().await;
    let fresh = || cluster.url(&cluster.database());
    promises::check(async || Store::connect(&fresh()).await.unwrap()).await;
    promises::check_opened_again(&fresh(), async |url| Store::connect(url).await).await;
    promises::check_opened_at_once(&fresh(), async |url| Store::connect(url).await).await;
    databases::check(&cluster).await;
}

#[tokio::test]
async fn refused_connection_names_the_place_and_not_the_password() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let url = format!("postgres://maru:{PASSWORD}@127.0.0.1:{port}/somewhere");
    let why = told(Store::connect(&url).await.unwrap_err());
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
    let why = told(Store::connect(&url).await.unwrap_err());
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
    let kept = names_in(&Store::open(&path).await.unwrap()).await;
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
        assert!(store.insert_server(&server(&name)).await.unwrap());
        println!("\nwrote {name}");
    }
}

fn server(name: &str) -> ServerRow {
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
        created_at: TIME,
        updated_at: TIME,
    }
}

async fn names_in(store: &Store) -> Vec<String> {
    let servers = store.servers().await.unwrap();
    servers.into_iter().map(|it| it.name).collect()
}

/// All that an error says, to people and to programmers.
fn told(error: Error) -> String {
    let error = anyhow::Error::from(error);
    format!("{error:#} {error:?}")
}
