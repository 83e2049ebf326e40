//! SQLite files.

use std::time::Duration;

use maru_runtime::tasks::Tasks;
use maru_sources::{
    DataSource, QueryLimits, QueryParameterKind, QueryParameters, QueryValue, SourceSettings,
    TableKind,
};

use super::{
    databases::{query_json, query_rows, source_settings, sqlite_fixture},
    hostile,
    postgres_load::peak_kilobytes,
};

fn open_fixture(settings: SourceSettings) -> (tempfile::TempDir, DataSource) {
    let directory = tempfile::tempdir().unwrap();
    let path = sqlite_fixture(directory.path());
    let source = DataSource::sqlite("file", &path, settings, &Tasks::default()).unwrap();
    (directory, source)
}

#[tokio::test]
async fn sqlite_rejects_hostile_statements() {
    let (directory, source) = open_fixture(source_settings());
    let path = directory.path().join("fixture.db");
    let before = std::fs::read(&path).unwrap();
    let tally = hostile::run_statements(&source, "sqlite", None, async |id| {
        assert_eq!(
            query_json(&source, "SELECT count(*) AS n FROM h_user").await,
            r#"[{"n":200}]"#,
            "{id}"
        );
    })
    .await;
    assert_eq!(
        tally,
        hostile::HostileTally {
            hostile: 75,
            legitimate: 16
        }
    );
    hostile::run_name_cases(&source, 'S').await;
    assert_eq!(hostile::run_argument_cases(&source).await, 47);
    assert!(before == std::fs::read(&path).unwrap());
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

/// Statements that would make many great values.
fn amplifiers() -> Vec<String> {
    let count = "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM r LIMIT 100000)";
    let columns = |value: &str| format!("SELECT {}", vec![value; 900].join(", "));
    vec![
        columns("hex(zeroblob(1900000))"),
        columns("printf('%3900000s', 1)"),
        format!("{count} SELECT json_group_array(hex(zeroblob(10000))) FROM r"),
        "SELECT json_group_object(a.id, hex(zeroblob(1000))) FROM orders a, orders b".to_owned(),
        format!(
            "SELECT length(json_array({}))",
            vec!["hex(zeroblob(1900000))"; 99].join(", ")
        ),
        format!(
            "SELECT count(*) FROM json_each(json_pretty('{}{}', hex(zeroblob(5000))))",
            "[".repeat(400),
            "]".repeat(400)
        ),
    ]
}

#[tokio::test]
async fn no_query_takes_the_memory_of_the_hub_or_runs_on() {
    let (_directory, source) = open_fixture(source_settings());
    for sql in amplifiers() {
        let answer = query_rows(&source, &sql).await;
        let is_bounded = answer.as_ref().map_or(true, |it| it.count == 0);
        assert!(is_bounded, "{sql}: {answer:?}");
        // The connection that had too much goes on.
        let long = query_json(&source, "SELECT length(hex(zeroblob(1900000))) AS n").await;
        assert_eq!(long, r#"[{"n":3800000}]"#);
        let peak = peak_kilobytes("self");
        assert!(peak < 400 * 1024, "{sql}: {peak} kB");
    }
}

#[tokio::test]
async fn sqlite_values_are_exact() {
    let (_directory, source) = open_fixture(SourceSettings::default());
    let cases = [
        ("9007199254740993", "9007199254740993"),
        ("0.1 + 0.2", "0.30000000000000004"),
        ("1e999", "\"Infinity\""),
        ("-1e999", "\"-Infinity\""),
        ("NULL", "null"),
        ("x'00ff'", r#""\\x00ff""#),
        ("'이영희 \"x\" ' || char(10)", r#""이영희 \"x\" \n""#),
        ("instr('가나다', '다')", "3"),
        ("replace('aXbX', 'X', '--')", "\"a--b--\""),
        ("trim('xxaxx', 'x')", "\"a\""),
    ];
    for (expression, expected) in cases {
        let got = query_json(&source, &format!("SELECT {expression} AS v")).await;
        assert_eq!(got, format!("[{{\"v\":{expected}}}]"), "{expression}");
    }
    let twice = query_rows(&source, "SELECT 1 AS id, 2 AS id")
        .await
        .unwrap();
    assert_eq!(
        (twice.columns, twice.json.as_str()),
        (vec!["id".into(), "id_2".into()], r#"[{"id":1,"id_2":2}]"#)
    );
}

#[tokio::test]
async fn sqlite_errors_name_the_problem_and_the_available_tables() {
    let (_directory, source) = open_fixture(source_settings());
    let said = async |sql: &str| query_rows(&source, sql).await.unwrap_err().to_string();
    assert_eq!(
        said("SELECT nope FROM h_user").await,
        "the database says: no such column: nope"
    );
    assert!(
        said("SELECT key FROM maru_secrets")
            .await
            .contains("maru_secrets is not one")
    );
    assert!(
        said("SELECT key FROM 'maru_secrets'")
            .await
            .contains("maru_secrets is not one")
    );
    assert!(
        said("SELECT load_extension('x')")
            .await
            .contains("load_extension may not be called")
    );
    assert!(said("SELECT :a").await.contains(":a has no value"));
    let both = "SELECT count(*) AS n FROM h_user WHERE (:d IS NULL OR dept = :d)";
    let parameters: QueryParameters = [("d", QueryValue::Text("dev".into()))]
        .into_iter()
        .collect();
    let found = source
        .query(both, &parameters, QueryLimits::default())
        .await
        .unwrap();
    assert_eq!(found.json, r#"[{"n":50}]"#);
    assert_eq!(
        QueryValue::from_json(QueryParameterKind::Text, &serde_json::json!(1)),
        None
    );
    let tables = source.tables().await.unwrap();
    assert_eq!(tables.len(), 7);
    let view = tables.iter().find(|it| it.name == "v_user_limits").unwrap();
    assert_eq!(view.kind, TableKind::View);
    let columns = source.describe("vacations").await.unwrap();
    assert!(columns[0].primary_key && columns[1].primary_key && !columns[2].primary_key);
    assert!(source.describe("maru_secrets").await.is_err());
}

#[tokio::test]
async fn view_over_a_hidden_table_opens_only_itself() {
    let mut settings = source_settings();
    settings.relations.push("v_leaky".into());
    let (_directory, source) = open_fixture(settings);
    assert!(
        query_json(&source, "SELECT nickname FROM v_leaky")
            .await
            .contains("second")
    );
    let hidden = [
        "SELECT key FROM maru_secrets",
        "WITH v_leaky AS (SELECT key FROM maru_secrets) SELECT * FROM v_leaky",
        "WITH v_leaky AS (SELECT key FROM \"MARU_secrets\") SELECT * FROM v_leaky",
        "WITH v_user_limits AS (SELECT key FROM maru_secrets) SELECT * FROM v_user_limits",
    ];
    for sql in hidden {
        assert!(query_rows(&source, sql).await.is_err(), "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlite_query_of_a_caller_who_left_ends() {
    let directory = tempfile::tempdir().unwrap();
    let path = sqlite_fixture(directory.path());
    let tasks = Tasks::default();
    let source = DataSource::sqlite("file", &path, SourceSettings::default(), &tasks).unwrap();
    let endless =
        "WITH RECURSIVE r(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM r) SELECT count(*) FROM r";
    let left = tokio::time::timeout(Duration::from_millis(100), query_rows(&source, endless)).await;
    assert!(left.is_err(), "{left:?}");
    let closed = tokio::time::timeout(Duration::from_secs(1), tasks.shutdown()).await;
    assert!(closed.is_ok());
}

/// A query that was quick is tried where it was asked for; that it is not quick
/// any more, or that another program holds the file, changes no answer.
#[tokio::test]
async fn quick_sqlite_query_may_become_slow() {
    let (directory, source) = open_fixture(SourceSettings::default());
    let counting = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < :n) \
        SELECT count(*) AS n, (SELECT count(*) FROM h_user) AS u FROM c";
    for most in [1, 2, 3, 1_000_000, 4, 5, 6] {
        let parameters = [("n", QueryValue::Integer(most))].into_iter().collect();
        let found = source.query(counting, &parameters, source.limits()).await;
        let expected = format!("[{{\"n\":{most},\"u\":200}}]");
        assert_eq!(found.unwrap().json, expected);
    }
    let users = "SELECT count(*) AS u FROM h_user WHERE user_nm <> ''";
    for _ in 0..3 {
        assert_eq!(query_json(&source, users).await, r#"[{"u":200}]"#);
    }
    let other = rusqlite::Connection::open(directory.path().join("fixture.db")).unwrap();
    other.execute_batch("BEGIN EXCLUSIVE").unwrap();
    // Nothing shows that the query waits for the lock, so it is held for a while.
    let release = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        other.execute_batch("ROLLBACK").unwrap();
    };
    let (found, ()) = tokio::join!(query_json(&source, users), release);
    assert_eq!(found, r#"[{"u":200}]"#);
}
