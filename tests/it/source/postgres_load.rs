//! Many queries at once on few connections.

use std::{pin::pin, time::Duration};

use futures_util::future::join_all;
use maru_postgres::PostgresAddress;
use maru_runtime::tasks::Tasks;
use maru_sources::{
    DataSource, Error, PoolSettings, QueryLimits, QueryParameters, QueryValue, SourceSettings,
};

use super::databases::{query_json, query_rows};
use tokio::process::Command;

use crate::{
    clients::{client_tools_dir, run_successfully},
    http_client::wait_until,
    postgres_cluster::PostgresCluster,
};

/// The connections of our sources.
const BACKENDS_SQL: &str = "SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE 'maru%' ORDER BY pid";
const BUSY_BACKENDS_SQL: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name LIKE 'maru%' AND state <> 'idle'";

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
            timeout: Duration::from_secs(5),
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
    // Twelve rounds of half a second each, with five seconds for each query.
    let pool = settings(5, Duration::from_secs(60));
    let source = DataSource::postgres("busy", &address, pool, &tasks).unwrap();
    let ask = async |count| {
        let answers = join_all((0..count).map(|_| query_json(&source, slow))).await;
        assert!(answers.iter().all(|it| it == r#"[{"n":7}]"#));
    };
    ask(5).await;
    let backends = || cluster.run_sql(&database, BACKENDS_SQL);
    let of_first_round = backends();
    assert_eq!(of_first_round.lines().count(), 5);
    ask(60).await;
    assert_eq!(backends(), of_first_round, "a connection was thrown away");
    // A query that the server ends leaves its connection usable.
    let late = query_rows(&source, "SELECT slow(9, 1)").await;
    assert!(matches!(late, Err(Error::TimedOut)), "{late:?}");
    wait_until(async || cluster.run_sql(&database, BUSY_BACKENDS_SQL) == "0").await;
    assert_eq!(backends(), of_first_round);

    let impatient = settings(2, Duration::from_millis(100));
    let source = DataSource::postgres("impatient", &address, impatient, &tasks).unwrap();
    join_all((0..2).map(|_| query_json(&source, slow))).await;
    let before = backends();
    let answers = join_all((0..6).map(|_| query_rows(&source, slow))).await;
    let refused = answers.iter().filter(|it| {
        matches!(it, Err(error @ Error::NoFreeConnection(_))
            if error.to_string().contains("became free within 100 ms"))
    });
    assert_eq!(refused.count(), 4, "{answers:?}");
    assert_eq!(answers.iter().filter(|it| it.is_ok()).count(), 2);
    assert_eq!(backends(), before, "the refused cost no connection");
    tasks.shutdown().await;
}

#[tokio::test]
async fn queries_at_a_cold_start_load_the_catalog_once() {
    let cluster = PostgresCluster::start().await;
    let access = "host all all all scram-sha-256\n";
    cluster.reconfigure("log_statement = all\n", access).await;
    let tasks = Tasks::default();
    let address = PostgresAddress::parse(&cluster.url("postgres")).unwrap();
    let mut settings = settings(20, Duration::from_secs(60));
    // Twenty connections at once take long on a busy machine.
    settings.limits.timeout = Duration::from_secs(30);
    let source = DataSource::postgres("cold", &address, settings, &tasks).unwrap();
    let answers = join_all((0..60).map(|_| query_json(&source, "SELECT 1 AS n"))).await;
    assert!(answers.iter().all(|it| it == r#"[{"n":1}]"#));
    let log = std::fs::read_to_string(cluster.directory.path().join("log")).unwrap();
    // A comment of one of the statements that load it.
    let loads = log.matches("-- Everything that can stand in FROM.").count();
    assert_eq!(loads, 1);
    tasks.shutdown().await;
}

#[tokio::test]
async fn query_waits_for_a_lock_as_long_as_is_set_and_keeps_its_connection() {
    let cluster = PostgresCluster::start().await;
    let database = cluster.create_database();
    cluster.run_sql(&database, "CREATE TABLE t AS SELECT 1 AS n");
    let tasks = Tasks::default();
    let address = PostgresAddress::parse(&cluster.url(&database)).unwrap();
    let settings = SourceSettings {
        lock_timeout: Some(Duration::from_millis(50)),
        ..settings(1, Duration::from_secs(30))
    };
    let source = DataSource::postgres("locked", &address, settings, &tasks).unwrap();
    query_json(&source, "SELECT 1 AS n").await;
    // A statement that did not run before, and one that is prepared already.
    for (sql, runs) in [("SELECT 0 + n AS n FROM t", 0), ("SELECT n FROM t", 1)] {
        for _ in 0..runs {
            query_json(&source, sql).await;
        }
        let hold = "BEGIN; LOCK TABLE t; SELECT pg_sleep(60)";
        let mut holder = cluster.psql(&database, hold).spawn().unwrap();
        let locks = "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted
            AND relation = 't'::regclass";
        wait_until(async || cluster.run_sql(&database, locks) == "1").await;
        let before = cluster.run_sql(&database, BACKENDS_SQL);
        let refused = query_rows(&source, sql).await.unwrap_err();
        assert!(refused.to_string().contains("lock"), "{sql}: {refused}");
        let sleeping = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
            WHERE query LIKE '%pg_sleep(60)%' AND pid <> pg_backend_pid()";
        assert_eq!(cluster.run_sql(&database, sleeping), "1");
        holder.wait().unwrap();
        assert_eq!(query_json(&source, sql).await, r#"[{"n":1}]"#);
        assert_eq!(cluster.run_sql(&database, BACKENDS_SQL), before, "{sql}");
    }
    tasks.shutdown().await;
}

/// The pool of document 000, 20 connections, with sixty queries of 0.6 to 1.1 s at once.
#[tokio::test]
async fn sixty_queries_on_twenty_connections_are_all_answered_as_by_psycopg() {
    let cluster = PostgresCluster::start().await;
    let database = cluster.create_database();
    slow_query(&cluster, &database);
    let mut python = Command::new(client_tools_dir().join("document/bin/python"));
    python
        .arg(client_tools_dir().join("psycopg_pool_client.py"))
        .args([&cluster.url(&database), "60"]);
    assert_eq!(run_successfully(&mut python).await.trim(), "60");

    let tasks = Tasks::default();
    let address = PostgresAddress::parse(&cluster.url(&database)).unwrap();
    let open = |name, pool| {
        let mut settings = settings(pool, Duration::from_secs(60));
        // The machine of the tests may be busy.
        settings.limits.timeout = Duration::from_secs(30);
        DataSource::postgres(name, &address, settings, &tasks).unwrap()
    };
    let (busy, other) = (open("busy", 20), open("other", 1));
    query_json(&other, "SELECT 1 AS n").await;
    let queries: Vec<String> = (0..60)
        .map(|it| format!("SELECT slow({}, {it}) AS n", 0.6 + f64::from(it % 6) / 10.0))
        .collect();
    let mut all = pin!(join_all(queries.iter().map(|it| query_json(&busy, it))));
    // Queries of another source are answered while those run.
    for _ in 0..20 {
        let quick = query_json(&other, "SELECT 1 AS n");
        tokio::select! {
            biased;
            answer = quick => assert_eq!(answer, r#"[{"n":1}]"#),
            _ = &mut all => panic!("the query on another source waited for all of the first"),
        }
    }
    for (number, answer) in all.await.iter().enumerate() {
        assert_eq!(*answer, format!(r#"[{{"n":{number}}}]"#));
    }
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
    "WITH RECURSIVE t(s) AS (SELECT 'x'::text UNION ALL SELECT s||s FROM t) SELECT length(s) FROM t",
    "WITH RECURSIVE t(n, s) AS (SELECT 1, 'x'::text UNION ALL SELECT n+1, concat(s,s) FROM t WHERE n < 29) SELECT max(length(s)) FROM t",
    "WITH RECURSIVE t(n, s) AS (SELECT 1, 'x'::text UNION ALL SELECT n+1, replace(s,'x','xx') FROM t WHERE n < 29) SELECT max(length(s)) FROM t",
    "WITH RECURSIVE t(n, s) AS (SELECT 1, ARRAY[1] UNION ALL SELECT n+1, s||s FROM t WHERE n < 27) SELECT max(cardinality(s)) FROM t",
    "SELECT length(s||s||s||s) FROM (SELECT s||s||s||s s FROM (SELECT s||s||s||s s FROM (SELECT s||s||s||s s FROM (SELECT repeat('x',1000000) s) a) b) c) d",
    "SELECT length(encode(encode(encode(encode(encode(encode(encode(repeat('x',1000000)::bytea,'hex')::bytea,'hex')::bytea,'hex')::bytea,'hex')::bytea,'hex')::bytea,'hex')::bytea,'hex'))",
    "SELECT string_agg(repeat('x', 4000), '') AS v FROM many a, many b, many c",
    "SELECT string_agg('x', repeat('y', 10000)) AS v FROM many a, many b",
    "SELECT array_agg(s) AS v FROM (SELECT repeat('x', 1000000) s FROM many) q",
    "SELECT array_agg(a.i) AS v FROM many a, many b, many c",
    "SELECT json_agg(a) AS v FROM many a, many b",
    "SELECT cardinality(array(SELECT a.i FROM many a, many b, many c)) AS v",
    "SELECT string_agg(md5(a.i::text), '') OVER (ORDER BY a.i) AS v FROM many a, many b, many c",
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM t WHERE n < 300000) SELECT length(string_agg(repeat('x', 3000), '')) FROM t",
    "SELECT array_length(regexp_split_to_array(repeat('x', 4000000), ''), 1)",
    "SELECT length(ts_headline('simple', repeat('a ', 100000), 'a', 'HighlightAll=true, StartSel=' || repeat('z', 30)))",
    "SELECT length(normalize(repeat(U&'\\FDFA', 1300000), NFKD))",
    "SELECT format('%999999s%999999s%999999s%999999s%999999s%999999s', 1, 2, 3, 4, 5, 6)",
    // What the server cannot estimate ends when it has too much memory.
    "WITH RECURSIVE t(n) AS (SELECT 1 UNION SELECT n+1 FROM t) SELECT count(*) FROM t",
    "SELECT count(*) FROM (SELECT md5(n::text) FROM generate_series(1, (SELECT 20000000)) n EXCEPT SELECT 'x') q",
    "SELECT count(*) FROM many WHERE t NOT IN (SELECT md5(n::text) FROM generate_series(1, (SELECT 20000000)) n)",
];

/// Statements that put many values of a moderate size beside or behind each other.
fn wide_amplifiers() -> Vec<String> {
    let repeated = |what: &str, count: usize, between: &str| vec![what; count].join(between);
    let text = "y".repeat(20_000);
    vec![
        format!("SELECT length(string_agg('{text}', '')) FROM generate_series(1, 40000)"),
        format!(
            "SELECT cardinality(array_agg(s)) FROM (SELECT '{text}'::text s FROM generate_series(1, 40000)) q"
        ),
        format!("SELECT length(array_to_string(array_agg(a.i), '{text}')) FROM many a, many b"),
        format!(
            "SELECT length(replace(replace(a, 'y', b), 'z', b)) FROM (SELECT '{}' a, '{}' b) q",
            &text[..9000],
            "z".repeat(9000)
        ),
        format!(
            "SELECT length({})",
            repeated("lpad('x', 1000000)", 700, "||")
        ),
        format!("SELECT {}", repeated("lpad('x', 999999)", 900, ", ")),
        format!("SELECT {}", repeated("1::bit(8000000)", 900, ", ")),
        format!(
            "SELECT {} FROM (SELECT repeat('x', 2000000) s OFFSET 0) q",
            repeated("upper(s)", 1500, ", ")
        ),
        format!(
            "SELECT ARRAY[{}] FROM (SELECT repeat('x', 3900000) s OFFSET 0) q",
            repeated("s", 70, ", ")
        ),
        format!(
            "SELECT length(ROW({})::text) FROM (SELECT repeat('x', 3900000) s OFFSET 0) q",
            repeated("s", 99, ", ")
        ),
    ]
}

/// Statements of the same kinds that are as small as people write them.
const COLLECTORS: &[&str] = &[
    "SELECT repeat('#', (count(*) / 10)::int) AS bar, lpad(max(t), max(length(t)) + 2) AS t FROM many",
    "SELECT string_agg(lpad(i::text, 8, '0') || '-' || lpad(i::text, 8, '0') || rpad(t, 20), ',') AS v FROM many",
    "WITH a AS MATERIALIZED (SELECT x.i, sum(y.i) AS n FROM many x, many y GROUP BY 1) SELECT string_agg(i || ':' || n, ', ') AS v FROM a",
    "SELECT json_agg(json_build_object('i', i, 'inner', json_build_object('t', t, 'list', json_build_array(i, t)))) AS v FROM many",
    "WITH RECURSIVE tree AS (SELECT i, t::text AS path FROM many WHERE i = 1 UNION ALL SELECT m.i, tree.path || ' > ' || m.t FROM tree JOIN many m ON m.i = tree.i + 1 AND m.i < 50) SELECT string_agg(path, E'\\n') AS v FROM tree",
    "SELECT i % 3 AS k, string_agg(i::text, ',' ORDER BY i) AS v FROM many GROUP BY 1 ORDER BY 1",
    "SELECT array_agg(i) AS v FROM many",
    "SELECT jsonb_agg(m) AS v FROM many m",
    "SELECT array(SELECT i FROM many ORDER BY i LIMIT 3) AS v",
    "WITH RECURSIVE t(n, s) AS (SELECT 1, 'x'::text UNION ALL SELECT t.n+1, t.s||', '||m.i FROM t JOIN many m ON m.i = t.n WHERE t.n < 50) SELECT max(length(s)) FROM t",
];

#[tokio::test]
async fn no_backend_grows_and_nothing_runs_on_after_the_answer() {
    let cluster = PostgresCluster::start().await;
    let database = cluster.create_database();
    let tasks = Tasks::default();
    let address = PostgresAddress::parse(&cluster.url(&database)).unwrap();
    let source =
        DataSource::postgres("small", &address, SourceSettings::default(), &tasks).unwrap();
    cluster.run_sql(
        &database,
        "CREATE TABLE many AS SELECT i, 'row ' || i AS t FROM generate_series(1, 300) i; ANALYZE many",
    );
    query_json(&source, "SELECT 1 AS n").await;
    for sql in COLLECTORS {
        let rows = query_rows(&source, sql)
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert!(rows.count > 0 && !rows.truncated, "{sql}");
    }
    let pids = "SELECT string_agg(pid::text, ' ') FROM pg_stat_activity WHERE application_name LIKE 'maru%'";
    let mut largest = 0;
    let wide = wide_amplifiers();
    let all = AMPLIFIERS.iter().copied();
    for sql in all.chain(wide.iter().map(String::as_str)) {
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
    wait_until(async || cluster.run_sql(&database, BUSY_BACKENDS_SQL) == "0").await;
    tasks.shutdown().await;
}

/// A statement that ran with short values is prepared already when long ones come.
#[tokio::test]
async fn no_backend_grows_by_long_parameters_of_a_statement_that_ran_before() {
    let cluster = PostgresCluster::start().await;
    let database = cluster.create_database();
    let tasks = Tasks::default();
    let address = PostgresAddress::parse(&cluster.url(&database)).unwrap();
    let source =
        DataSource::postgres("small", &address, SourceSettings::default(), &tasks).unwrap();
    let ask = async |sql: &str, a: String, b: String| {
        let mut parameters = QueryParameters::default();
        parameters.set("a", QueryValue::Text(a));
        parameters.set("b", QueryValue::Text(b));
        let limits = QueryLimits::default();
        source.query(sql, &parameters, limits).await
    };
    for sql in [
        "SELECT length(repeat(:a, 1000) || :b) AS n",
        "SELECT length(replace(:a, 'x', :b)) AS n",
        "SELECT cardinality(string_to_array(:a, 'x')) + length(:b) AS n",
    ] {
        for _ in 0..2 {
            ask(sql, "xx".to_owned(), "y".to_owned()).await.unwrap();
        }
        let answer = ask(sql, "x".repeat(4_000_000), "y".repeat(240)).await;
        assert!(
            matches!(answer, Err(Error::TooMuchMemory | Error::Refused(_))),
            "{sql}: {answer:?}"
        );
    }
    tasks.shutdown().await;
}

/// The most memory that a process of this machine had; 0 if it has ended.
pub(super) fn peak_kilobytes(pid: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|it| it.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|it| it.split_ascii_whitespace().next());
    peak.and_then(|it| it.parse().ok()).unwrap_or(0)
}
