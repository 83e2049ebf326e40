//! A real PostgreSQL.

use std::time::Duration;

use maru_postgres::PostgresAddress;
use maru_runtime::tasks::Tasks;
use maru_sources::{
    DataSource, QueryLimits, QueryParameters, QueryValue, SourceSettings, TableKind,
};

use tokio::time;

use super::{
    databases::{postgres_fixture, query_json, query_rows, source_settings, url_as_role},
    hostile,
    postgres_load::peak_kilobytes,
};
use crate::{
    http_client::{wait_for, wait_until},
    postgres_cluster::PostgresCluster,
};

/// Everything that a statement could have changed.
const STATE_DIGEST_SQL: &str = "SELECT md5(string_agg(t::text, '|')) FROM (
    SELECT h::text FROM h_user h UNION ALL SELECT e::text FROM employees e
    UNION ALL SELECT v::text FROM vacations v UNION ALL SELECT l::text FROM h_mcp_tool_limit l
    UNION ALL SELECT d::text FROM documents d UNION ALL SELECT s::text FROM maru_secrets s
    UNION ALL SELECT a::text FROM audit_log a UNION ALL SELECT count(*)::text FROM orders
    UNION ALL SELECT q.last_value::text || q.is_called FROM fx_seq q
    UNION ALL SELECT count(*)::text FROM pg_class UNION ALL SELECT count(*)::text FROM pg_proc
    UNION ALL SELECT count(*)::text FROM pg_largeobject_metadata
    UNION ALL SELECT count(*)::text FROM pg_prepared_xacts) t";
const ADVISORY_LOCKS_SQL: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
/// The processes of our connections, each with whether it works.
const BACKENDS_SQL: &str = "SELECT pid, state <> 'idle' FROM pg_stat_activity
    WHERE application_name LIKE 'maru%' AND datname = current_database()";
/// How soon after its answer nothing of a statement runs any more.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);
const MAX_BACKEND_KILOBYTES: u64 = 256 * 1024;

#[tokio::test]
async fn postgres_rejects_hostile_names_from_a_superuser() {
    let cluster = PostgresCluster::start().await;
    let database = postgres_fixture(&cluster);
    let tasks = Tasks::default();
    let address = PostgresAddress::parse(&cluster.url(&database)).unwrap();
    let superuser = DataSource::postgres("superuser", &address, source_settings(), &tasks).unwrap();
    hostile::run_name_cases(&superuser, 'P').await;
    tasks.shutdown().await;
}

#[tokio::test]
async fn postgres_rejects_hostile_statements_from_the_owner_of_the_tables() {
    run_hostile_sets("fx_owner", source_settings()).await;
}

#[tokio::test]
async fn postgres_rejects_hostile_statements_from_a_role_that_may_only_read() {
    run_hostile_sets("fx_agent", source_settings()).await;
}

/// The variables of document 000 name no tables, so a role that may only read decides.
#[tokio::test]
async fn postgres_rejects_hostile_statements_where_only_the_role_bounds_them() {
    run_hostile_sets("fx_agent", SourceSettings::default()).await;
}

/// An owner may read every table then, but nothing else.
#[tokio::test]
async fn postgres_rejects_what_an_owner_without_bounds_may_not_do_beside_reading() {
    let cluster = PostgresCluster::start().await;
    let database = postgres_fixture(&cluster);
    let settings = SourceSettings::default();
    let of_tables = Some("leak");
    let tally = run_hostile_statements(&cluster, &database, "fx_owner", settings, of_tables).await;
    assert_eq!((tally.hostile, tally.legitimate), (115, 22));
}

async fn run_hostile_sets(role: &str, settings: SourceSettings) {
    let cluster = PostgresCluster::start().await;
    let database = postgres_fixture(&cluster);
    let tally = run_hostile_statements(&cluster, &database, role, settings.clone(), None).await;
    assert_eq!((tally.hostile, tally.legitimate), (134, 22));
    let tasks = Tasks::default();
    let source = url_as_role(&cluster, &database, role, settings, &tasks);
    let before = cluster.run_sql(&database, STATE_DIGEST_SQL);
    assert_eq!(hostile::run_argument_cases(&source).await, 47);
    hostile::run_name_cases(&source, 'P').await;
    assert_nothing_left(&cluster, &database, "the names").await;
    assert_eq!(cluster.run_sql(&database, STATE_DIGEST_SQL), before);
    tasks.shutdown().await;
}

/// Sends the statements of the set but those of the class `skipped`, and looks at the
/// database after each.
async fn run_hostile_statements(
    cluster: &PostgresCluster,
    database: &str,
    role: &str,
    settings: SourceSettings,
    skipped: Option<&str>,
) -> hostile::HostileTally {
    let before = cluster.run_sql(database, STATE_DIGEST_SQL);
    let tasks = Tasks::default();
    let source = url_as_role(cluster, database, role, settings, &tasks);
    let tally = hostile::run_statements(&source, "postgres", skipped, async |id| {
        assert_nothing_left(cluster, database, id).await;
        assert_clean_session(&source, id).await;
    })
    .await;
    assert_eq!(cluster.run_sql(database, STATE_DIGEST_SQL), before);
    tasks.shutdown().await;
    tally
}

/// Connections are cleaned up behind the answer, at once, and none has grown.
async fn assert_nothing_left(cluster: &PostgresCluster, database: &str, id: &str) {
    let is_idle = async || {
        let backends = cluster.run_sql(database, BACKENDS_SQL);
        for line in backends.lines() {
            let (pid, _) = line.split_once('|').unwrap();
            let peak = peak_kilobytes(pid);
            assert!(peak < MAX_BACKEND_KILOBYTES, "{id}: {peak} kB");
        }
        !backends.contains("|t")
    };
    let stopped = time::timeout(STOP_TIMEOUT, wait_until(is_idle)).await;
    assert!(stopped.is_ok(), "{id} still runs");
    assert_eq!(cluster.run_sql(database, ADVISORY_LOCKS_SQL), "0", "{id}");
}

/// The next user sees a session that is as new.
async fn assert_clean_session(source: &DataSource, id: &str) {
    let now = query_json(
        source,
        "SELECT count(*) AS n, interval '1 month' AS i FROM h_user",
    )
    .await;
    assert_eq!(now, r#"[{"n":200,"i":"P1M"}]"#, "{id}");
}

const CREATE_TYPES_SQL: &str = "
    CREATE TYPE mood AS ENUM ('ok', 'sad');
    CREATE TYPE pair AS (a int, b text);
    CREATE TABLE kinds (id serial PRIMARY KEY, parent int REFERENCES kinds, m mood DEFAULT 'ok');
    COMMENT ON TABLE kinds IS 'all kinds';
    COMMENT ON COLUMN kinds.m IS 'how it is';
    CREATE TABLE hidden (id int PRIMARY KEY);
    ALTER TABLE kinds ADD secret int REFERENCES hidden;
    CREATE VIEW through AS SELECT * FROM hidden;
    INSERT INTO hidden VALUES (7);
    CREATE TABLE many AS SELECT i, repeat('x', 1000) AS t FROM generate_series(1, 5000) i;
    ANALYZE";

/// One exact JSON form for each type.
const TYPE_VALUES: &[(&str, &str)] = &[
    ("9007199254740993::int8", "9007199254740993"),
    (
        "1234567890123456789012345678901234567890.5::numeric",
        "1234567890123456789012345678901234567890.5",
    ),
    ("'NaN'::numeric", r#""NaN""#),
    ("'NaN'::float8", r#""NaN""#),
    ("'-Infinity'::float8", r#""-Infinity""#),
    ("0.1::float8 + 0.2::float8", "0.30000000000000004"),
    ("1.1::real", "1.1"),
    ("true", "true"),
    ("NULL::text", "null"),
    (
        "timestamptz '2026-11-15 12:34:56.123456+09'",
        r#""2026-11-15T03:34:56.123456+00:00""#,
    ),
    (
        "timestamp '2026-11-15 12:34:56'",
        r#""2026-11-15T12:34:56""#,
    ),
    ("date '0044-03-15 BC'", r#""0044-03-15 BC""#),
    ("'infinity'::date", r#""infinity""#),
    ("time '01:02:03'", r#""01:02:03""#),
    (
        "interval '1 month 2 days 03:04:05.6'",
        r#""P1M2DT3H4M5.6S""#,
    ),
    (
        "'6ba7b810-9dad-11d1-80b4-00c04fd430c8'::uuid",
        r#""6ba7b810-9dad-11d1-80b4-00c04fd430c8""#,
    ),
    (
        "'{\"a\": 12345678901234567890.12345}'::jsonb",
        r#"{"a": 12345678901234567890.12345}"#,
    ),
    ("ARRAY[[1,2],[3,NULL]]", "[[1,2],[3,null]]"),
    ("ARRAY['ok','sad']::mood[]", r#"["ok","sad"]"#),
    ("'sad'::mood", r#""sad""#),
    ("ROW(1,'x')::pair", r#"{"a":1,"b":"x"}"#),
    ("int4range(1,5)", r#""[1,5)""#),
    ("'{[1,3),[5,7)}'::int4multirange", r#""{[1,3),[5,7)}""#),
    ("'\\xdeadbeef'::bytea", r#""\\xdeadbeef""#),
    ("'10.0.0.1/8'::inet", r#""10.0.0.1/8""#),
    ("point(1,2)", r#""(1,2)""#),
    ("E'이영희 \"x\"\\n'", r#""이영희 \"x\"\n""#),
];

#[tokio::test]
async fn postgres_values_are_exact_and_abandoned_queries_are_cancelled() {
    let cluster = PostgresCluster::start().await;
    let database = cluster.create_database();
    cluster.run_sql(&database, CREATE_TYPES_SQL);
    let tasks = Tasks::default();
    let address = PostgresAddress::parse(&cluster.url(&database)).unwrap();
    let relations = ["kinds", "public.through", "many"]
        .map(str::to_owned)
        .to_vec();
    let settings = SourceSettings {
        relations,
        ..SourceSettings::default()
    };
    let source = DataSource::postgres("kinds", &address, settings, &tasks).unwrap();
    check_values(&source).await;
    check_parameters(&source).await;
    check_refusals(&source).await;
    check_explore(&source).await;
    check_dropped_query(&source, &cluster, &database).await;
    tasks.shutdown().await;
}

async fn check_values(source: &DataSource) {
    for (expression, expected) in TYPE_VALUES {
        // The server makes the JSON of the first run; maru makes that of the next if it can.
        for _ in 0..2 {
            let got = query_json(source, &format!("SELECT {expression} AS v")).await;
            assert_eq!(got, format!("[{{\"v\":{expected}}}]"), "{expression}");
        }
    }
    let twice = query_rows(source, "SELECT 1 AS id, 2 AS id, 3 AS _q, 4 AS \"a\"\"b\"")
        .await
        .unwrap();
    assert_eq!(twice.columns, ["id", "id_2", "_q", "a\"b"]);
    assert_eq!(twice.json, r#"[{"id":1,"id_2":2,"_q":3,"a\"b":4}]"#);
    let cut = query_rows(source, "SELECT i FROM many ORDER BY i DESC")
        .await
        .unwrap();
    assert_eq!((cut.count, cut.truncated), (1000, true));
    assert!(cut.json.starts_with(r#"[{"i":5000},{"i":4999}"#));
    let bytes = QueryLimits {
        max_bytes: 10_000,
        ..QueryLimits::default()
    };
    let long = "SELECT repeat('x', 20000) AS t, 1 AS n";
    let blank = "SELECT ''::char(20000) AS t";
    for sql in ["SELECT * FROM many", long, blank].repeat(2) {
        let cut = source
            .query(sql, &QueryParameters::default(), bytes)
            .await
            .unwrap();
        assert!(cut.truncated && cut.json.len() <= 10_000, "{sql}");
    }
    for _ in 0..2 {
        assert_eq!(query_rows(source, long).await.unwrap().json.len(), 20_016);
    }
}

/// Values of all types that become JSON here, odd ones and many at random.
const ODD_VALUES_SQL: &str = "
    CREATE TABLE odd (b bool, i2 int2, i4 int4, i8 int8, f4 float4, f8 float8, n numeric,
        t text, v varchar, c char(5), j json, u uuid, d date, m time, ts timestamp, tz timestamptz);
    INSERT INTO odd (f4) SELECT unnest('{0,-0,1,1e5,99999,999999,1e6,3059796.25,1e-4,1e-5,0.00012345,
        -2.25e-30,NaN,Infinity,-Infinity}'::float4[]);
    INSERT INTO odd (f8) SELECT unnest('{0,-0,1,1e5,999999,1e6,1e14,123456789012345,999999999999999,1e15,
        4503599627370495,1e-4,1e-5,0.00012345,5e-324,-2.25e-30,NaN,Infinity,-Infinity}'::float8[]);
    INSERT INTO odd (n) SELECT unnest('{0,0.00,-0.0001,0.00000001,1,10000,99999999,100000000,1e20,
        123456789.00012000,-1234567890123456789012345678901234567890.5,NaN,Infinity,-Infinity}'::numeric[]);
    INSERT INTO odd (d, ts, tz) SELECT x::date, x, x AT TIME ZONE 'UTC' FROM unnest('{infinity,-infinity,
        2000-01-01,1999-12-31 23:59:59.999999,2000-02-29 00:00:00.5,1900-03-01,2100-02-28,0001-01-01,
        0004-02-29,9999-12-31}'::timestamp[]) x;
    INSERT INTO odd (m) VALUES ('00:00'), ('23:59:59.000001'), ('01:02:03.1');
    INSERT INTO odd (t, v, c, j) SELECT x, x, left(x, 5), to_json(x) FROM unnest(ARRAY['', 'plain', '이영희 \"',
        E'\\b\\f\\n\\r\\t\\x01\\x1f\\x7f\\\\/', repeat('긴 글 ', 1000)]) x;
    INSERT INTO odd (j) VALUES ('{\"a\" : [1.0e5, null]}');
    INSERT INTO odd (b, i2, i4, i8) VALUES (true, -32768, -2147483648, -9223372036854775808),
        (false, 32767, 2147483647, 9223372036854775807), (NULL, 0, 0, 0);
    INSERT INTO odd (f4, f8, n, u, d, m, ts, tz) SELECT
        ((random() - 0.5) * pow(10, random() * 36 - 30))::float4,
        (random() - 0.5) * pow(10, random() * 315 - 300),
        round(((random() - 0.5) * pow(10, random() * 30))::numeric, (random() * 20)::int),
        md5(i::text)::uuid, date '0001-01-01' + (random() * 2000000)::int,
        time '00:00' + random() * interval '1 day', timestamp '0001-01-01' + random() * interval '4000 years',
        timestamptz '0001-01-01' + random() * interval '4000 years' FROM generate_series(1, 20000) i;
    CREATE TABLE large AS SELECT x::float4 AS f4, x AS f8 FROM unnest('{118917376,1e16,1.5e30,
        9007199254740992,36028797018963968}'::float8[]) x;
    CREATE TABLE far AS SELECT x::date AS d, x AS ts, x AT TIME ZONE 'UTC' AS tz, time '24:00' AS m
        FROM unnest('{0001-12-31 23:00 BC,4713-01-01 BC,10000-01-01,250000-07-01 12:00}'::timestamp[]) x";

#[tokio::test]
async fn rows_serialised_by_maru_equal_those_of_postgres() {
    let cluster = PostgresCluster::start().await;
    let database = cluster.create_database();
    cluster.run_sql(&database, ODD_VALUES_SQL);
    let tasks = Tasks::default();
    let address = PostgresAddress::parse(&cluster.url(&database)).unwrap();
    let limits = QueryLimits {
        rows: 100_000,
        max_bytes: 100_000_000,
        timeout: Duration::from_secs(60),
        ..QueryLimits::default()
    };
    let settings = SourceSettings {
        limits,
        ..SourceSettings::default()
    };
    for zone in ["UTC", "Asia/Seoul"] {
        cluster.run_sql(
            &database,
            &format!("ALTER ROLE maru SET TimeZone = '{zone}'"),
        );
        let source = DataSource::postgres("odd", &address, settings.clone(), &tasks).unwrap();
        let none = QueryParameters::default();
        let ask = |sql| source.query(sql, &none, limits);
        let odd = "SELECT * FROM odd";
        let (theirs, ours) = (ask(odd).await.unwrap(), ask(odd).await.unwrap());
        assert!(theirs.count > 20_000 && !theirs.truncated, "{theirs:?}");
        let lines = |it: &str| it.split("},").map(str::to_owned).collect::<Vec<_>>();
        for (theirs, ours) in lines(&theirs.json).iter().zip(lines(&ours.json)) {
            assert_eq!(*theirs, ours);
        }
        assert_eq!(theirs, ours);
        for left_to_the_server in ["SELECT * FROM large", "SELECT * FROM far"] {
            let (first, again) = (ask(left_to_the_server).await, ask(left_to_the_server).await);
            assert_eq!(first.unwrap(), again.unwrap());
        }
    }
    tasks.shutdown().await;
}

async fn check_parameters(source: &DataSource) {
    let text = |it: &str| QueryValue::Text(it.into());
    let cases = [
        ("SELECT :a AS v", text("x'; --"), r#""x'; --""#),
        ("SELECT :a + :a AS v", QueryValue::Integer(2), "4"),
        ("SELECT :a IS NULL AS v", QueryValue::Null, "true"),
        (
            "SELECT count(*) AS v FROM many WHERE (:a IS NULL OR i = :a)",
            QueryValue::Null,
            "5000",
        ),
        (
            "SELECT count(*) AS v FROM many WHERE (:a IS NULL OR i = :a)",
            QueryValue::Integer(7),
            "1",
        ),
        (
            "SELECT count(*) AS v FROM many WHERE i < :a",
            QueryValue::Number(2.5),
            "2",
        ),
        (
            "SELECT i AS v FROM many ORDER BY i LIMIT :a",
            QueryValue::Integer(1),
            "1",
        ),
        (
            "SELECT count(*) AS v FROM kinds WHERE m = :a",
            text("sad"),
            "0",
        ),
        ("SELECT NOT :a AS v", QueryValue::Boolean(false), "true"),
        (
            "SELECT ':a' || $$:a$$ || :a::text AS v",
            text("!"),
            r#"":a:a!""#,
        ),
        (
            "SELECT (ARRAY[1,2,3])[1:2] AS v WHERE :a = 1",
            QueryValue::Integer(1),
            "[1,2]",
        ),
        (
            "SELECT jsonb_build_object('k', :a) AS v",
            QueryValue::Boolean(true),
            r#"{"k": true}"#,
        ),
    ];
    for (sql, value, expected) in cases {
        let parameters: QueryParameters = [("a", value)].into_iter().collect();
        let got = source.query(sql, &parameters, QueryLimits::default()).await;
        assert_eq!(
            got.unwrap().json,
            format!("[{{\"v\":{expected}}}]"),
            "{sql}"
        );
    }
    let given: QueryParameters = [("b", QueryValue::Null)].into_iter().collect();
    let why = source
        .query("SELECT 1", &given, QueryLimits::default())
        .await
        .unwrap_err();
    assert!(why.to_string().contains(":b"));
    let columns = source
        .check("SELECT :b AS x, 2 AS y", &given)
        .await
        .unwrap();
    assert_eq!(columns, ["x", "y"]);
    assert!(source.check("SELECT * FROM :b", &given).await.is_err());
}

/// A superuser asks; what it may not read or call stays so.
async fn check_refusals(source: &DataSource) {
    let cases = [
        ("SELECT nope FROM many", "column \"nope\" does not exist"),
        ("SELECT id FROM hidden", "hidden is not one"),
        (
            "WITH hidden AS (SELECT 1 AS id) SELECT h.id FROM public.hidden h",
            "hidden is not one",
        ),
        (
            "SELECT id FROM through UNION SELECT id FROM hidden",
            "hidden is not one",
        ),
        ("SELECT t::int FROM many", "does not have the form"),
        (
            "SELECT ('/etc/passwd'::text).pg_read_file",
            "pg_read_file may not",
        ),
        (
            "SELECT pg_read_file /**/ ('/etc/passwd')",
            "pg_read_file may not",
        ),
        ("SELECT * FROM pg_catalog.pg_authid", "pg_authid is not one"),
        (
            "SELECT * FROM information_schema.tables",
            "tells about the server",
        ),
        ("SELECT 'hidden'::regclass", "regclass may not"),
        ("SELECT current_user", "current_user tells"),
        ("SELECT 1; SELECT 2", "more than one"),
    ];
    for (sql, expected) in cases {
        let why = query_rows(source, sql).await.unwrap_err().to_string();
        assert!(why.contains(expected), "{sql}: {why}");
    }
    assert_eq!(
        query_json(source, "SELECT id FROM through").await,
        r#"[{"id":7}]"#
    );
    let local = "WITH hidden AS (SELECT 1 AS id) SELECT id FROM hidden";
    assert_eq!(query_json(source, local).await, r#"[{"id":1}]"#);
}

async fn check_explore(source: &DataSource) {
    let tables = source.tables().await.unwrap();
    let names: Vec<&str> = tables.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["kinds", "many", "through"]);
    assert_eq!(tables[0].comment.as_deref(), Some("all kinds"));
    assert_eq!(tables[1].estimated_rows, Some(5000));
    assert_eq!(tables[2].kind, TableKind::View);
    let columns = source.describe("kinds").await.unwrap();
    let [id, parent, m, secret] = columns.as_slice() else {
        panic!("{columns:?}")
    };
    assert!(id.primary_key && !id.nullable && parent.nullable);
    assert_eq!(parent.references[0].table, "kinds");
    assert_eq!(
        (m.data_type.as_str(), m.comment.as_deref()),
        ("mood", Some("how it is"))
    );
    assert_eq!(m.default.as_deref(), Some("'ok'::mood"));
    assert!(secret.references.is_empty());
    assert!(source.describe("hidden").await.is_err());
}

/// Dropping the future ends the query on the server, and the pool goes on.
async fn check_dropped_query(source: &DataSource, cluster: &PostgresCluster, database: &str) {
    let endless = "SELECT count(*) FROM many a, many b, many c, many d";
    let limits = QueryLimits {
        request: Some([0, 0xfeed]),
        ..source.limits()
    };
    let none = QueryParameters::default();
    // The name on the server leads to the call in the audit log.
    let running = "SELECT application_name FROM pg_stat_activity
        WHERE state = 'active' AND query LIKE '%many a, many b%' AND pid <> pg_backend_pid()";
    let running = async || cluster.run_sql(database, running);
    tokio::select! {
        answer = source.query(endless, &none, limits) => panic!("{answer:?}"),
        _ = wait_for(running, |it| it == "maru 0000000000000000000000000000feed") => (),
    }
    wait_for(running, String::is_empty).await;
    assert_eq!(
        query_json(source, "SELECT i FROM many WHERE i = 3").await,
        r#"[{"i":3}]"#
    );
}

#[tokio::test]
async fn prepared_statement_is_checked_against_the_current_schema() {
    let cluster = PostgresCluster::start().await;
    let database = cluster.create_database();
    let change = |sql: &str| cluster.run_sql(&database, sql);
    change("CREATE TABLE t AS SELECT 1 AS a; CREATE TABLE hidden AS SELECT 'CANARY' AS b");
    change("CREATE VIEW v AS SELECT a FROM t");
    let tasks = Tasks::default();
    let address = PostgresAddress::parse(&cluster.url(&database)).unwrap();
    let settings = SourceSettings {
        relations: vec!["t".to_owned(), "v".to_owned()],
        ..SourceSettings::default()
    };
    let source = DataSource::postgres("now", &address, settings, &tasks).unwrap();
    for _ in 0..3 {
        assert_eq!(query_json(&source, "SELECT * FROM t").await, "[{\"a\":1}]");
        assert_eq!(query_json(&source, "SELECT * FROM v").await, "[{\"a\":1}]");
    }
    change("ALTER TABLE t ADD COLUMN c text DEFAULT 'new'");
    for _ in 0..2 {
        assert_eq!(
            query_json(&source, "SELECT * FROM t").await,
            "[{\"a\":1,\"c\":\"new\"}]"
        );
    }
    change("ALTER TABLE t RENAME COLUMN c TO d");
    let none = QueryParameters::default();
    let checked = source.check("SELECT * FROM t", &none);
    assert_eq!(checked.await.unwrap(), ["a", "d"]);
    let renamed = query_rows(&source, "SELECT * FROM t").await.unwrap();
    assert_eq!(renamed.columns, ["a", "d"]);
    // The same words mean something else now, and what they mean is not offered.
    change(
        "CREATE SCHEMA maru AUTHORIZATION maru; CREATE VIEW maru.t AS SELECT * FROM public.hidden",
    );
    change("ALTER ROLE maru SET search_path = maru, public");
    let moved = DataSource::postgres(
        "moved",
        &address,
        SourceSettings {
            relations: vec!["public.t".to_owned()],
            ..SourceSettings::default()
        },
        &tasks,
    )
    .unwrap();
    for _ in 0..2 {
        let refused = query_rows(&moved, "SELECT * FROM t").await;
        assert!(refused.is_err(), "{refused:?}");
        assert_eq!(
            query_json(&moved, "SELECT a FROM public.t").await,
            "[{\"a\":1}]"
        );
    }
    change("DROP SCHEMA maru CASCADE; DROP VIEW v; DROP TABLE public.t");
    let none = QueryParameters::default();
    let checked = source.check("SELECT * FROM t", &none);
    assert!(checked.await.is_err());
    let gone = query_rows(&source, "SELECT * FROM t").await;
    assert!(gone.is_err(), "{gone:?}");
    tasks.shutdown().await;
}
