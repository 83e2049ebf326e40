//! Many queries at once on few connections.

use std::time::Duration;

use futures_util::future::join_all;
use maru_postgres::PostgresAddress;
use maru_runtime::tasks::Tasks;
use maru_sources::{DataSource, Error, PoolSettings, QueryLimits, SourceSettings};

use super::databases::{query_json, query_rows};
use crate::{http_client::wait_until, postgres_cluster::PostgresCluster};

/// A query that takes as long as it says, and is not refused as `pg_sleep` is.
fn slow_query(cluster: &PostgresCluster, database: &str) -> &'static str {
    cluster.run_sql(
        database,
        "CREATE FUNCTION slow(seconds float8, n int) RETURNS int LANGUAGE sql STABLE
         AS 'SELECT n FROM pg_sleep(seconds)'",
    );
    "SELECT slow(0.5, 7) AS n"
}

fn settings(max_connections: usize, acquire_timeout: Duration) -> SourceSettings {
    SourceSettings {
        functions: vec!["slow".to_owned()],
        limits: QueryLimits {
            timeout: Duration::from_secs(3),
            ..QueryLimits::default()
        },
        pool: PoolSettings {
            min_connections: 1,
            max_connections,
            acquire_timeout,
        },
        ..SourceSettings::default()
    }
}

#[tokio::test]
async fn waiting_for_a_connection_takes_nothing_from_the_time_of_a_query() {
    let cluster = PostgresCluster::start().await;
    let database = cluster.create_database();
    let slow = slow_query(&cluster, &database);
    let tasks = Tasks::default();
    let address = PostgresAddress::parse(&cluster.url(&database)).unwrap();
    // Twelve rounds of half a second each, with three seconds for each query.
    let pool = settings(5, Duration::from_secs(60));
    let source = DataSource::postgres("busy", &address, pool, &tasks).unwrap();
    let answers = join_all((0..60).map(|_| query_json(&source, slow))).await;
    assert!(answers.iter().all(|it| it == r#"[{"n":7}]"#));
    // No connection was thrown away: those of the first round answered all.
    let opened = "SELECT sessions FROM pg_stat_database WHERE datname = current_database()";
    let before: i64 = cluster.run_sql(&database, opened).parse().unwrap();
    let backends = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid()";
    assert_eq!(
        cluster.run_sql(&database, backends),
        "5",
        "{before} sessions"
    );
    // A query that the server ends leaves its connection usable.
    let late = query_rows(&source, "SELECT slow(9, 1)").await;
    assert!(matches!(late, Err(Error::TimedOut)), "{late:?}");
    let busy = format!("{backends} AND state <> 'idle'");
    wait_until(async || cluster.run_sql(&database, &busy) == "0").await;
    assert_eq!(cluster.run_sql(&database, backends), "5");

    let impatient = settings(2, Duration::from_millis(100));
    let source = DataSource::postgres("impatient", &address, impatient, &tasks).unwrap();
    query_json(&source, "SELECT 1 AS n").await;
    let answers = join_all((0..6).map(|_| query_rows(&source, slow))).await;
    let refused = answers.iter().filter(|it| {
        matches!(it, Err(error @ Error::NoFreeConnection(_))
            if error.to_string().contains("became free within 100 ms"))
    });
    assert_eq!(refused.count(), 4, "{answers:?}");
    assert_eq!(answers.iter().filter(|it| it.is_ok()).count(), 2);
    tasks.shutdown().await;
}

/// Statements that would make a great value out of a small text.
const AMPLIFIERS: &[&str] = &[
    "SELECT format('%1000000000s', 'x') AS v",
    "SELECT repeat('x', 1000000000) AS v",
    "SELECT length(repeat('x', 1000000000)) AS v",
    "SELECT lpad('x', 1000000000) AS v",
    "SELECT rpad('x', 1000000000, 'yz') AS v",
    "SELECT array_fill('x'::text, ARRAY[100000000]) AS v",
    "SELECT string_agg(repeat('x', 100000), '') AS v FROM generate_series(1, 10000)",
    "SELECT string_agg(n::text, ',') AS v FROM generate_series(1, 1000000000) n",
    "SELECT array_agg(n) AS v FROM generate_series(1, 1000000000) n",
    "SELECT json_agg(n) AS v FROM generate_series(1, 1000000000) n",
    "SELECT jsonb_build_object('k', repeat('x', 500000000)) AS v",
    "SELECT json_build_array(repeat('x', 500000000)) AS v",
    "SELECT replace(repeat('x', 30000), 'x', repeat('y', 30000)) AS v",
    "SELECT to_json(format('%900000000s', 'x')) AS v",
    "SELECT repeat('x', 3000000) AS v",
    "SELECT repeat('x', 2000000) AS v FROM generate_series(1, 2) n",
    "SELECT n, md5(n::text) FROM generate_series(1, 1000000) n",
];

#[tokio::test]
async fn no_backend_grows_and_nothing_runs_on_after_the_answer() {
    let cluster = PostgresCluster::start().await;
    let database = cluster.create_database();
    let tasks = Tasks::default();
    let address = PostgresAddress::parse(&cluster.url(&database)).unwrap();
    let source =
        DataSource::postgres("small", &address, SourceSettings::default(), &tasks).unwrap();
    query_json(&source, "SELECT 1 AS n").await;
    let pids = "SELECT string_agg(pid::text, ' ') FROM pg_stat_activity WHERE application_name LIKE 'maru%'";
    let mut largest = 0;
    for sql in AMPLIFIERS {
        // The second time a statement takes another way.
        for _ in 0..2 {
            let answer = query_rows(&source, sql).await;
            let is_bounded = answer.as_ref().map_or(true, |it| it.truncated);
            assert!(is_bounded, "{sql}: {answer:?}");
        }
        for pid in cluster.run_sql(&database, pids).split(' ') {
            largest = largest.max(peak_kilobytes(pid));
        }
        assert!(largest < 256 * 1024, "{sql}: {largest} kB");
    }
    let long = query_rows(&source, "SELECT repeat('x', 3000000) AS v").await;
    let note = long.unwrap().truncation_note().unwrap();
    assert!(note.contains("a row is larger"), "{note}");
    let running = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'maru%' AND state <> 'idle'";
    wait_until(async || cluster.run_sql(&database, running) == "0").await;
    tasks.shutdown().await;
}

/// The most memory that a process of this machine had; 0 if it has ended.
fn peak_kilobytes(pid: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|it| it.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|it| it.split_ascii_whitespace().next());
    peak.and_then(|it| it.parse().ok()).unwrap_or(0)
}
