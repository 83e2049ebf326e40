//! What only a PostgreSQL database promises.

use std::time::Duration;

use maru::store::Store;
use tokio::time::{Instant, sleep};

use super::{TIME, names_in, server, told};
use crate::postgres::{Cluster, PASSWORD};

const TABLES: &str = "SELECT string_agg(relname, ',' ORDER BY relname) FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'";

pub(super) async fn check(cluster: &Cluster) {
    older_database_is_upgraded(cluster).await;
    newer_database_is_refused_and_left_as_it_is(cluster).await;
    upgrade_is_whole_or_not_at_all(cluster).await;
    times_are_real_and_utc(cluster).await;
    finished_tables_need_no_right_to_make_any(cluster).await;
    lost_connections_are_replaced(cluster).await;
    statement_has_a_deadline(cluster).await;
    socket_in_a_directory_serves_too(cluster).await;
    wrong_password_is_named_and_not_shown(cluster).await;
}

async fn older_database_is_upgraded(cluster: &Cluster) {
    let database = cluster.database();
    let first = include_str!("../../../migrations/postgres/001_token.sql");
    cluster.sql(&database, first);
    cluster.sql(
        &database,
        "CREATE TABLE maru_schema (step BIGINT PRIMARY KEY);
         INSERT INTO maru_schema VALUES (1);
         INSERT INTO token VALUES ('old', 'agent', decode(repeat('00', 32), 'hex'), now())",
    );
    let store = Store::connect(&cluster.url(&database)).await.unwrap();
    assert_eq!(store.tokens().await.unwrap()[0].name, "old");
    assert_eq!(names_in(&store).await, [""; 0]);
}

async fn newer_database_is_refused_and_left_as_it_is(cluster: &Cluster) {
    let database = cluster.database();
    cluster.sql(
        &database,
        "CREATE TABLE maru_schema (step BIGINT PRIMARY KEY); INSERT INTO maru_schema VALUES (99)",
    );
    let refused = Store::connect(&cluster.url(&database)).await.unwrap_err();
    let why = told(refused);
    assert!(why.contains("newer maru (schema 99)"), "{why}");
    assert!(why.contains(&database), "{why}");
    assert_eq!(cluster.sql(&database, TABLES), "maru_schema");
    assert_eq!(cluster.sql(&database, "SELECT * FROM maru_schema"), "99");
}

async fn upgrade_is_whole_or_not_at_all(cluster: &Cluster) {
    let database = cluster.database();
    cluster.sql(&database, "CREATE TABLE mcp_servers (x TEXT)");
    let refused = Store::connect(&cluster.url(&database)).await.unwrap_err();
    let why = told(refused);
    assert!(why.contains("already exists"), "{why}");
    assert_eq!(cluster.sql(&database, TABLES), "mcp_servers");
}

async fn times_are_real_and_utc(cluster: &Cluster) {
    let database = cluster.database();
    let zone = format!("ALTER DATABASE {database} SET TimeZone = 'Asia/Seoul'");
    cluster.sql("postgres", &zone);
    let store = Store::connect(&cluster.url(&database)).await.unwrap();
    store.insert_server(&server("timed")).await.unwrap();
    let kept = cluster.sql(&database, "SELECT created_at FROM mcp_servers");
    assert_eq!(kept, "2026-08-01 12:34:56.789");
    let by_hand = "UPDATE mcp_servers SET updated_at = '2026-08-01 12:34:56.790123'";
    cluster.sql(&database, by_hand);
    assert_eq!(store.servers().await.unwrap()[0].updated_at, TIME + 1);
}

async fn finished_tables_need_no_right_to_make_any(cluster: &Cluster) {
    let database = cluster.database();
    drop(Store::connect(&cluster.url(&database)).await.unwrap());
    cluster.sql(
        &database,
        "CREATE ROLE guest LOGIN PASSWORD 'guest'; REVOKE CREATE ON SCHEMA public FROM PUBLIC;
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO guest",
    );
    let url = format!(
        "postgres://guest:guest@127.0.0.1:{}/{database}",
        cluster.port
    );
    let store = Store::connect(&url).await.unwrap();
    assert!(store.insert_server(&server("guest")).await.unwrap());
}

async fn lost_connections_are_replaced(cluster: &Cluster) {
    let database = cluster.database();
    let store = Store::connect(&cluster.url(&database)).await.unwrap();
    store.insert_server(&server("kept")).await.unwrap();
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    assert_eq!(cluster.sql(&database, end), "1");
    assert_eq!(names_in(&store).await, ["kept"]);
}

async fn statement_has_a_deadline(cluster: &Cluster) {
    let database = cluster.database();
    let url = cluster.url(&database);
    let url = format!("{url}?options=-c%20statement_timeout=200");
    let store = Store::connect(&url).await.unwrap();
    let hold = "BEGIN; LOCK TABLE mcp_servers; SELECT pg_sleep(60)";
    let mut holder = cluster.psql(&database, hold).spawn().unwrap();
    let held = "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted
        AND relation = 'mcp_servers'::regclass";
    while cluster.sql(&database, held) != "1" {
        sleep(Duration::from_millis(20)).await;
    }
    let begun = Instant::now();
    let why = told(store.insert_server(&server("late")).await.unwrap_err());
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(why.contains("did not add the server"), "{why}");
    assert!(why.contains("statement timeout"), "{why}");
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE query LIKE '%pg_sleep(60)' AND pid <> pg_backend_pid()";
    cluster.sql("postgres", end);
    holder.wait().unwrap();
    assert_eq!(names_in(&store).await, [""; 0]);
}

async fn socket_in_a_directory_serves_too(cluster: &Cluster) {
    let (port, database) = (cluster.port, cluster.database());
    let host = cluster.directory.path().display().to_string();
    let host = host.replace('/', "%2F");
    let url = format!("postgres://maru:{PASSWORD}@{host}:{port}/{database}");
    let store = Store::connect(&url).await.unwrap();
    assert!(store.insert_server(&server("near")).await.unwrap());
}

async fn wrong_password_is_named_and_not_shown(cluster: &Cluster) {
    let url = cluster.url("postgres").replace(PASSWORD, "wrong-secret");
    let why = told(Store::connect(&url).await.unwrap_err());
    let port = cluster.port.to_string();
    for part in [
        "127.0.0.1",
        &port,
        "database postgres",
        "password authentication failed",
    ] {
        assert!(why.contains(part), "{why}");
    }
    assert!(!why.contains("wrong-secret"), "{why}");
}
