//! What only a PostgreSQL database promises.

use std::time::Duration;

use maru_store::{AuditRow, Store, TokenRow};
use tokio::time::Instant;

use super::{TEST_TIME_MS, full_error_text, server_names, server_row};
use crate::{
    http_client::wait_until,
    postgres_cluster::{PASSWORD, PostgresCluster},
};

const LIST_TABLES_SQL: &str = "SELECT string_agg(relname, ',' ORDER BY relname) FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'";

pub(super) async fn check_database(cluster: &PostgresCluster) {
    older_database_is_upgraded(cluster).await;
    newer_database_is_refused_and_left_as_it_is(cluster).await;
    newer_database_is_used_if_it_only_has_more(cluster).await;
    upgrade_is_whole_or_not_at_all(cluster).await;
    times_are_real_and_utc(cluster).await;
    finished_tables_need_no_right_to_make_any(cluster).await;
    lost_connections_are_replaced(cluster).await;
    statement_has_a_deadline(cluster).await;
    socket_in_a_directory_serves_too(cluster).await;
    wrong_password_is_named_and_not_shown(cluster).await;
}

async fn older_database_is_upgraded(cluster: &PostgresCluster) {
    let database = cluster.create_database();
    let first = include_str!("../../../migrations/postgres/001_token.sql");
    cluster.run_sql(&database, first);
    cluster.run_sql(
        &database,
        "CREATE TABLE maru_schema (step BIGINT PRIMARY KEY);
         INSERT INTO maru_schema VALUES (1);
         INSERT INTO token VALUES ('old', 'agent', decode(repeat('00', 32), 'hex'), now())",
    );
    let store = Store::connect(&cluster.url(&database)).await.unwrap();
    assert_eq!(store.tokens().await.unwrap()[0].name, "old");
    assert_eq!(server_names(&store).await, [""; 0]);
}

async fn newer_database_is_used_if_it_only_has_more(cluster: &PostgresCluster) {
    let database = cluster.create_database();
    let url = cluster.url(&database);
    let running = Store::connect(&url).await.unwrap();
    cluster.run_sql(
        &database,
        "ALTER TABLE token ADD COLUMN more TEXT NOT NULL DEFAULT '';
         ALTER TABLE mcp_servers ADD COLUMN more TEXT;
         ALTER TABLE audit ADD COLUMN more BIGINT;
         INSERT INTO maru_schema (step, is_additive) VALUES (998, TRUE), (999, TRUE)",
    );
    let started = Store::connect(&url).await.unwrap();
    for (store, name, hash) in [(&running, "old", [1; 32]), (&started, "restarted", [2; 32])] {
        let token = TokenRow::new(name, "agent", hash);
        store.put_token(&token).await.unwrap();
        store
            .insert_audit_rows([AuditRow::default()])
            .await
            .unwrap();
    }
    assert_eq!(running.tokens().await.unwrap().len(), 2);
    cluster.run_sql(&database, "INSERT INTO maru_schema (step) VALUES (1000)");
    let refused = Store::connect(&url).await.unwrap_err();
    let why = full_error_text(refused);
    assert!(why.contains("newer maru (schema 1000)"), "{why}");
}

async fn newer_database_is_refused_and_left_as_it_is(cluster: &PostgresCluster) {
    let database = cluster.create_database();
    cluster.run_sql(
        &database,
        "CREATE TABLE maru_schema (step BIGINT PRIMARY KEY); INSERT INTO maru_schema VALUES (99)",
    );
    let refused = Store::connect(&cluster.url(&database)).await.unwrap_err();
    let why = full_error_text(refused);
    assert!(why.contains("newer maru (schema 99)"), "{why}");
    assert!(why.contains(&database), "{why}");
    assert_eq!(cluster.run_sql(&database, LIST_TABLES_SQL), "maru_schema");
    assert_eq!(
        cluster.run_sql(&database, "SELECT * FROM maru_schema"),
        "99"
    );
}

async fn upgrade_is_whole_or_not_at_all(cluster: &PostgresCluster) {
    let database = cluster.create_database();
    cluster.run_sql(&database, "CREATE TABLE mcp_servers (x TEXT)");
    let refused = Store::connect(&cluster.url(&database)).await.unwrap_err();
    let why = full_error_text(refused);
    assert!(why.contains("already exists"), "{why}");
    assert_eq!(cluster.run_sql(&database, LIST_TABLES_SQL), "mcp_servers");
}

async fn times_are_real_and_utc(cluster: &PostgresCluster) {
    let database = cluster.create_database();
    let zone = format!("ALTER DATABASE {database} SET TimeZone = 'Asia/Seoul'");
    cluster.run_sql("postgres", &zone);
    let store = Store::connect(&cluster.url(&database)).await.unwrap();
    store.insert_server(&server_row("timed")).await.unwrap();
    let kept = cluster.run_sql(&database, "SELECT created_at FROM mcp_servers");
    assert_eq!(kept, "2026-08-01 12:34:56.789");
    let by_hand = "UPDATE mcp_servers SET updated_at = '2026-08-01 12:34:56.790123'";
    cluster.run_sql(&database, by_hand);
    assert_eq!(
        store.servers().await.unwrap()[0].updated_at,
        TEST_TIME_MS + 1
    );
}

async fn finished_tables_need_no_right_to_make_any(cluster: &PostgresCluster) {
    let database = cluster.create_database();
    drop(Store::connect(&cluster.url(&database)).await.unwrap());
    cluster.run_sql(
        &database,
        "CREATE ROLE guest LOGIN PASSWORD 'guest'; REVOKE CREATE ON SCHEMA public FROM PUBLIC;
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO guest",
    );
    let url = format!(
        "postgres://guest:guest@127.0.0.1:{}/{database}",
        cluster.port
    );
    let store = Store::connect(&url).await.unwrap();
    assert!(store.insert_server(&server_row("guest")).await.unwrap());
}

async fn lost_connections_are_replaced(cluster: &PostgresCluster) {
    let database = cluster.create_database();
    let store = Store::connect(&cluster.url(&database)).await.unwrap();
    store.insert_server(&server_row("kept")).await.unwrap();
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    assert_eq!(cluster.run_sql(&database, end), "1");
    assert_eq!(server_names(&store).await, ["kept"]);
}

async fn statement_has_a_deadline(cluster: &PostgresCluster) {
    let database = cluster.create_database();
    let url = cluster.url(&database);
    let url = format!("{url}?options=-c%20statement_timeout=200");
    let store = Store::connect(&url).await.unwrap();
    let hold = "BEGIN; LOCK TABLE mcp_servers; SELECT pg_sleep(60)";
    let mut holder = cluster.psql(&database, hold).spawn().unwrap();
    let held = "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted
        AND relation = 'mcp_servers'::regclass";
    wait_until(async || cluster.run_sql(&database, held) == "1").await;
    let begun = Instant::now();
    let why = full_error_text(store.insert_server(&server_row("late")).await.unwrap_err());
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(why.contains("did not add the server"), "{why}");
    assert!(why.contains("statement timeout"), "{why}");
    let end = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE query LIKE '%pg_sleep(60)' AND pid <> pg_backend_pid()";
    cluster.run_sql("postgres", end);
    holder.wait().unwrap();
    assert_eq!(server_names(&store).await, [""; 0]);
}

async fn socket_in_a_directory_serves_too(cluster: &PostgresCluster) {
    let (port, database) = (cluster.port, cluster.create_database());
    let host = cluster.directory.path().display().to_string();
    let host = host.replace('/', "%2F");
    let url = format!("postgres://maru:{PASSWORD}@{host}:{port}/{database}");
    let store = Store::connect(&url).await.unwrap();
    assert!(store.insert_server(&server_row("near")).await.unwrap());
}

async fn wrong_password_is_named_and_not_shown(cluster: &PostgresCluster) {
    let url = cluster.url("postgres").replace(PASSWORD, "wrong-secret");
    let why = full_error_text(Store::connect(&url).await.unwrap_err());
    let port = cluster.port.to_string();
    for part in [
        "127.0.0.1",
        &port,
        "database postgres",
        "the password of the role is wrong",
    ] {
        assert!(why.contains(part), "{why}");
    }
    assert!(!why.contains("wrong-secret"), "{why}");
}
