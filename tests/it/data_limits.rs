//! The bounds of SQL tools and their arguments, through the hub.

use futures_util::future::join_all;
use maru::config::{Config, QueryBounds, SourceDefinition};
use serde_json::{Value, json};

use crate::{http_client::wait_until, postgres_cluster::PostgresCluster, test_hub::TestHub};

/// A database with a query that takes as long as it says, and is not refused as `pg_sleep` is.
fn slow_database(cluster: &PostgresCluster) -> String {
    let database = cluster.create_database();
    cluster.run_sql(
        &database,
        "CREATE FUNCTION slow(seconds float8) RETURNS int LANGUAGE sql STABLE
         AS 'SELECT 7 FROM pg_sleep(seconds)'",
    );
    database
}

/// A source with one connection.
fn add_source(config: &mut Config, name: &str, url: &str, bounds: QueryBounds) {
    config.sources.push(SourceDefinition {
        bounds: QueryBounds {
            functions: vec!["slow".to_owned()],
            max_connections: 1,
            ..bounds
        },
        ..SourceDefinition::new(name, url.to_owned().into())
    });
}

fn query(source: &str, sql: &str) -> Value {
    json!({"generated_sql": sql, "source": source})
}

#[tokio::test(flavor = "multi_thread")]
async fn sql_tool_waits_and_runs_as_long_as_its_source_allows() {
    let cluster = PostgresCluster::start().await;
    let database = slow_database(&cluster);
    let url = cluster.url(&database);
    let hub = TestHub::with_config(|config| {
        // Less than any of the queries takes.
        config.limits.tool_timeout_ms = 500;
        let patient = QueryBounds {
            timeout_ms: 10_000,
            ..QueryBounds::default()
        };
        add_source(config, "patient", &url, patient);
        let hasty = QueryBounds {
            timeout_ms: 4000,
            acquire_timeout_ms: 100,
            ..QueryBounds::default()
        };
        add_source(config, "hasty", &url, hasty);
    })
    .await;
    let tool = json!({
        "name": "wait_long", "description_agent": "Waits.", "tool_type": "SQL",
        "source": "patient", "definition": "SELECT slow(0.8) AS n",
    });
    let made = hub.send_as_admin("POST", "/api/custom-tools", tool).await;
    assert_eq!(made.status, 201);
    let of_custom_tool = hub.call_data_tool("wait_long", json!({}));
    let slow = query("patient", "SELECT slow(0.8) AS n");
    let others = (0..2).map(|_| hub.call_data_tool("query_bga_database", slow.clone()));
    let (custom, others) = tokio::join!(of_custom_tool, join_all(others));
    assert_eq!(custom, (json!({"result": {"n": 7}}), false));
    for (answer, _) in others {
        assert_eq!(answer["status"], "success", "{answer}");
    }
    let tool = json!({
        "name": "wait_short", "description_agent": "Waits.", "tool_type": "SQL", "timeout_ms": 100,
        "source": "patient", "definition": "SELECT slow(5) AS n",
    });
    let made = hub.send_as_admin("POST", "/api/custom-tools", tool).await;
    assert_eq!(made.status, 201);
    let (ended, failed) = hub.call_data_tool("wait_short", json!({})).await;
    assert!(
        failed && ended.to_string().contains("took too long"),
        "{ended}"
    );

    let ask = async |sql: &str| {
        let (answer, _) = hub
            .call_data_tool("query_bga_database", query("hasty", sql))
            .await;
        answer["message"].as_str().unwrap().to_owned()
    };
    let running = "SELECT count(*) FROM pg_stat_activity
        WHERE state = 'active' AND query LIKE '%slow(9)%' AND pid <> pg_backend_pid()";
    let (ended, refused) = tokio::join!(ask("SELECT slow(9)"), async {
        wait_until(async || cluster.run_sql(&database, running) == "1").await;
        ask("SELECT 1").await
    });
    assert!(ended.contains("the query took too long"), "{ended}");
    assert!(refused.contains("became free within 100 ms"), "{refused}");
    hub.running.stop().await;
}

#[tokio::test]
async fn arguments_over_a_mebibyte_are_refused_by_every_data_and_custom_tool() {
    let hub = TestHub::start().await;
    let parameters = [
        ("sum_list", "PYTHON", "sum(values)", "LIST"),
        ("text_length", "PYTHON", "len(values)", "STRING"),
        (
            "find_ids",
            "SQL",
            "SELECT id FROM employees WHERE id = ANY(:values)",
            "LIST",
        ),
    ];
    for (name, kind, definition, parameter) in parameters {
        let tool = json!({
            "name": name, "description_agent": name, "tool_type": kind, "definition": definition,
            "params": [{"param_name": "values", "param_type": parameter}],
        });
        let made = hub.send_as_admin("POST", "/api/custom-tools", tool).await;
        assert_eq!(made.status, 201, "{name}");
    }
    let long = "x".repeat(2 << 20);
    let numbers = vec![1234; (2 << 20) / 5];
    let calls = [
        ("sum_list", json!({"values": numbers})),
        ("text_length", json!({"values": long})),
        ("find_ids", json!({"values": numbers})),
        ("get_text_embedding", json!({"text_list": [long]})),
        ("get_sim_search", json!({"query_list": [long]})),
        ("query_bga_database", json!({"generated_sql": long})),
        ("describe_table", json!({"table": long})),
        ("serialize_for_cell", json!({"data": long})),
    ];
    for (name, arguments) in calls {
        let (answer, _) = hub.call_data_tool(name, arguments).await;
        let text = answer.to_string();
        assert!(
            text.contains("larger than 1048576 bytes"),
            "{name}: {text:.200}"
        );
    }
    let fits = json!({"data": "x".repeat(1 << 19)});
    let (answer, _) = hub.call_data_tool("serialize_for_cell", fits).await;
    assert_eq!(answer["result"].as_str().map(str::len), Some(1 << 19));
}
