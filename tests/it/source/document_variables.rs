//! The database of document 000, which variables name and bound, and the advice about roles.

use serde_json::{Value, json};

use super::databases::postgres_fixture;
use crate::{
    http_client::{TestRequest, wait_until},
    postgres_cluster::PostgresCluster,
    signals::ServeProcess,
    test_hub::call_message,
};

/// The five variables of the document, and those of `bounds`.
fn variables(cluster: &PostgresCluster, database: &str, role: &str, bounds: &str) -> String {
    format!(
        "POSTGRESQL_DB_HOST=127.0.0.1\nPOSTGRESQL_DB_PORT={}\nPOSTGRESQL_DB_NAME={database}\n\
         POSTGRESQL_DB_USER={role}\nPOSTGRESQL_DB_PASS=x\n{bounds}",
        cluster.port
    )
}

/// The structured content of a call.
async fn call(hub: &ServeProcess, name: &str, arguments: Value) -> Value {
    let reply = TestRequest::post(&hub.address, "/sse", &call_message(1, name, arguments));
    let answer = reply.send().await.json().await;
    let text = answer["result"]["content"][0]["text"].as_str().unwrap();
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

/// The content of a result, or the message of a failure.
async fn query(hub: &ServeProcess, sql: &str) -> Value {
    let answer = call(hub, "query_bga_database", json!({"generated_sql": sql})).await;
    match answer["status"].as_str() {
        Some("success") => answer["data"]["content"].clone(),
        _ => answer["message"].clone(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn variables_bound_the_document_s_database() {
    let cluster = PostgresCluster::start().await;
    let database = postgres_fixture(&cluster);
    cluster.run_sql(
        &database,
        "CREATE SCHEMA shop; GRANT USAGE ON SCHEMA shop TO fx_owner;
         CREATE TABLE shop.item AS SELECT 'caller' AS owner, repeat('x', 500) AS t
             UNION ALL SELECT 'local', 'y' UNION ALL SELECT 'local', 'z';
         ALTER TABLE shop.item ENABLE ROW LEVEL SECURITY;
         CREATE POLICY own ON shop.item USING (owner = current_setting('app.user', true));
         GRANT SELECT ON shop.item TO fx_owner;
         CREATE FUNCTION shop.slow(seconds float8) RETURNS int LANGUAGE sql STABLE
             AS 'SELECT 1 FROM pg_sleep(seconds)'",
    );
    let bounds = "POSTGRESQL_DB_RELATIONS=public.h_user,public.orders,shop.item\n\
        POSTGRESQL_DB_FUNCTIONS=slow\nPOSTGRESQL_DB_MAX_ROWS=7\nPOSTGRESQL_DB_MAX_BYTES=2048\n\
        POSTGRESQL_DB_TIMEOUT_MS=3000\nPOSTGRESQL_DB_ACQUIRE_TIMEOUT_MS=1000\n\
        POSTGRESQL_DB_LOCK_TIMEOUT_MS=60\nPOSTGRESQL_DB_MIN_CONNECTIONS=1\n\
        POSTGRESQL_DB_MAX_CONNECTIONS=1\nPOSTGRESQL_DB_SEARCH_PATH=shop,public\n\
        POSTGRESQL_DB_SAMPLE_VALUES=2\nPOSTGRESQL_DB_CALLER_SETTINGS=app.user=name\n";
    let variables = variables(&cluster, &database, "fx_owner", bounds);
    let hub = ServeProcess::start_with_variables("sample_data: false\n", &variables).await;

    for sql in [
        "SELECT * FROM maru_secrets",
        "SELECT nickname FROM v_leaky",
        "SELECT maru_secrets FROM maru_secrets",
        "WITH x AS (SELECT key FROM public.maru_secrets) SELECT * FROM x",
        "SELECT * FROM employees",
    ] {
        let refused = query(&hub, sql).await;
        let message = refused.as_str().unwrap_or_default();
        assert!(
            message.starts_with("Error while querying DB: "),
            "{sql}: {refused}"
        );
        assert!(!refused.to_string().contains("CANARY"), "{refused}");
    }
    let rows = query(&hub, "SELECT id FROM orders").await;
    assert_eq!(rows["records"].as_array().unwrap().len(), 7, "{rows}");
    assert_eq!(rows["truncated"], true);
    let rows = query(&hub, "SELECT repeat('x', 1500) AS t FROM h_user").await;
    assert_eq!(rows["records"].as_array().unwrap().len(), 1, "max_bytes");
    let own = query(&hub, "SELECT t FROM item ORDER BY t").await;
    assert_eq!(own["records"], json!([{"t": "y"}, {"t": "z"}]));
    let described = call(&hub, "describe_table", json!({"table": "public.h_user"})).await;
    assert_eq!(
        described[0]["samples"].as_array().unwrap().len(),
        2,
        "{described}"
    );

    let connections = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'fx_owner'";
    assert_eq!(cluster.run_sql(&database, connections), "1");
    let running = "SELECT count(*) FROM pg_stat_activity
        WHERE state = 'active' AND query LIKE '%slow(9)%' AND pid <> pg_backend_pid()";
    let (ended, refused) = tokio::join!(query(&hub, "SELECT slow(9)"), async {
        wait_until(async || cluster.run_sql(&database, running) == "1").await;
        query(&hub, "SELECT 1").await
    });
    assert!(ended.to_string().contains("took too long"), "{ended}");
    assert!(
        refused.to_string().contains("free within 1000 ms"),
        "{refused}"
    );
    let mut holder = cluster.psql(
        &database,
        "BEGIN; LOCK TABLE shop.item; SELECT pg_sleep(60)",
    );
    let mut holder = holder.spawn().unwrap();
    let locks = "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted
        AND relation = 'shop.item'::regclass";
    wait_until(async || cluster.run_sql(&database, locks) == "1").await;
    let refused = query(&hub, "SELECT t FROM item").await;
    assert!(refused.to_string().contains("lock"), "{refused}");
    cluster.stop();
    holder.wait().unwrap();
}

/// The statements of the advice, with a password.
fn advised_statements(log: &str, source: &str) -> String {
    let advice = format!("the role of source {source} ");
    let advice = log.lines().find(|it| it.contains(&advice)).unwrap();
    let (_, statements) = advice.split_once("is safer: ").unwrap();
    let (statements, _) = statements.split_once(" source.name=").unwrap();
    statements.replace('…', "x")
}

#[tokio::test(flavor = "multi_thread")]
async fn advice_about_a_role_makes_one_that_can_only_read() {
    let cluster = PostgresCluster::start().await;
    let database = postgres_fixture(&cluster);
    cluster.run_sql(&database, "GRANT INSERT ON orders TO fx_agent");
    let address = format!("127.0.0.1:{}/{database}", cluster.port);
    let yaml = format!(
        "sample_data: false\nsources:\n\
         - {{name: writer, url: 'postgres://fx_agent:x@{address}', relations: [orders]}}\n\
         - {{name: everything, url: '{}'}}\n",
        cluster.url(&database)
    );
    let bounds = "POSTGRESQL_DB_RELATIONS=h_user,orders\n";
    let owner = variables(&cluster, &database, "fx_owner", bounds);
    let hub = ServeProcess::start_with_variables(&yaml, &owner).await;
    for advice in [
        "the role of source bga owns tables, may create tables",
        "the role of source writer may write to tables",
        "the role of source everything is superuser",
    ] {
        hub.wait_for("stderr", advice).await;
    }
    let last = r#"GRANT SELECT ON "public"."h_user", "public"."orders" TO maru_reader;"#;
    let log = hub.wait_for("stderr", last).await;
    drop(hub);
    cluster.run_sql(&database, &advised_statements(&log, "bga"));

    let reader = variables(&cluster, &database, "maru_reader", "");
    let hub = ServeProcess::start_with_variables("sample_data: false\n", &reader).await;
    let rows = query(&hub, "SELECT count(*) AS n FROM h_user").await;
    assert_eq!(rows["records"], json!([{"n": 200}]));
    let tables = call(&hub, "list_tables", json!({})).await;
    let names = tables.as_array().unwrap().iter();
    let names: Vec<&str> = names.map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["h_user", "orders"]);
    let as_reader = |sql: &str| {
        let mut psql = cluster.psql(&database, &format!("SET ROLE maru_reader; {sql}"));
        psql.status().unwrap().success()
    };
    assert!(as_reader("SELECT * FROM orders"));
    for refused in [
        "SELECT * FROM maru_secrets",
        "DELETE FROM orders",
        "CREATE TABLE mine (n int)",
    ] {
        assert!(!as_reader(refused), "{refused}");
    }
    let log = hub.wait_for("stderr", "").await;
    assert!(!log.contains("the role of source"), "{log}");
}
