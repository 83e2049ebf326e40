//! What agents explore a database with: pages, formats, plans, indexes and sample values.

use std::path::{Path, PathBuf};

use maru::config::{QueryBounds, SourceDefinition};
use serde_json::{Value, json};

use crate::{postgres_cluster::PostgresCluster, test_hub::TestHub};

const ROWS: i64 = 25;

fn numbers_file(directory: &Path) -> PathBuf {
    let path = directory.join("numbers.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "CREATE TABLE number (id INTEGER PRIMARY KEY, name TEXT UNIQUE, half REAL);
             CREATE INDEX number_half ON number (half, name);
             CREATE TABLE secret (id INTEGER PRIMARY KEY);
             CREATE VIEW opened AS SELECT id FROM secret;
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 25)
             INSERT INTO number SELECT i, 'n' || i, i / 2.0 FROM n",
        )
        .unwrap();
    path
}

async fn hub_with(name: &str, url: &str, bounds: QueryBounds) -> TestHub {
    let source = SourceDefinition {
        bounds,
        ..SourceDefinition::new(name, url.to_owned().into())
    };
    TestHub::with_config(|config| config.sources = vec![source]).await
}

impl TestHub {
    /// The structured content of a call; null if it failed.
    async fn call_structured(&self, name: &str, arguments: Value) -> Value {
        let params = json!({"name": name, "arguments": arguments});
        let request = self.stateless_request("tools/call", params);
        let answer = request.send().await.rpc_response().await;
        answer["result"]["structuredContent"].clone()
    }

    /// The content of a successful query, or the whole status object.
    async fn query_content(&self, arguments: Value) -> Value {
        let answer = self.call_structured("query_bga_database", arguments).await;
        match answer["status"].as_str() {
            Some("success") => answer["data"]["content"].clone(),
            _ => answer,
        }
    }
}

/// Reads a statement page by page; all ids, in the order in which they came.
async fn read_pages(hub: &TestHub, sql: &str) -> Vec<i64> {
    let mut ids = Vec::new();
    let mut cursor = Value::Null;
    loop {
        let arguments = json!({"generated_sql": sql, "cursor": cursor});
        let page = hub.query_content(arguments).await;
        let records = page["records"].as_array().expect("records");
        assert!(records.len() <= 10, "{page}");
        ids.extend(records.iter().map(|it| it["id"].as_i64().unwrap()));
        cursor = page["next_cursor"].clone();
        assert_eq!(page["truncated"] == true, cursor.is_string(), "{page}");
        if cursor.is_null() {
            return ids;
        }
    }
}

async fn check_pages(hub: &TestHub) {
    let sql = "SELECT id, name FROM number ORDER BY id";
    let all: Vec<i64> = (1..=ROWS).collect();
    assert_eq!(read_pages(hub, sql).await, all);
    // The second time the statement is known.
    assert_eq!(read_pages(hub, sql).await, all);
    let first = hub.query_content(json!({"generated_sql": sql})).await;
    let cursor = &first["next_cursor"];
    let other = json!({"generated_sql": "SELECT id FROM number", "cursor": cursor});
    let refused = hub.query_content(other).await;
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("belongs to another query"), "{message}");

    let csv = "SELECT id, name FROM number WHERE id < 3 ORDER BY id";
    let csv = json!({"generated_sql": csv, "format": "csv"});
    let csv = hub.query_content(csv).await;
    assert_eq!(csv["text"], "id,name\r\n1,n1\r\n2,n2");
    let pipes = "SELECT id, name || '|x' AS name FROM number WHERE id < 3 ORDER BY id";
    let markdown = json!({"generated_sql": pipes, "format": "markdown"});
    let markdown = hub.query_content(markdown).await;
    let rows = "| id | name |\n| --- | --- |\n| 1 | n1\\|x |\n| 2 | n2\\|x |";
    assert_eq!(markdown["text"], rows);
    let none = "SELECT id, name FROM number WHERE id < 0";
    let markdown = json!({"generated_sql": none, "format": "markdown"});
    let markdown = hub.query_content(markdown).await;
    assert_eq!(markdown["text"], "| id | name |\n| --- | --- |");
}

async fn check_plans(hub: &TestHub) {
    let explain = async |sql| {
        let arguments = json!({"generated_sql": sql, "explain": true});
        hub.query_content(arguments).await
    };
    let plan = explain("SELECT name FROM number WHERE id = 1").await["plan"].to_string();
    assert!(plan.contains("number"), "{plan}");
    for sql in [
        "SELECT id FROM opened",
        "DELETE FROM number",
        "SELECT id FROM secret",
        "SELECT 1) AS q; DELETE FROM number; --",
    ] {
        let refused = explain(sql).await;
        let message = refused["message"].as_str().expect(sql);
        let has_plan = message.to_ascii_lowercase().contains("scan");
        assert!(message.contains("Error while") && !has_plan, "{message}");
    }
}

async fn check_paged_tool(hub: &TestHub) {
    let tool = json!({
        "name": "numbers", "description_agent": "Lists numbers", "tool_type": "SQL",
        "definition": "SELECT id FROM number WHERE id > :above ORDER BY id", "result_format": "rows",
        "params": [{"param_name": "above", "param_type": "INTEGER"}],
        "paged": true, "max_rows": 4, "timeout_ms": 900,
    });
    let mut without = tool.clone();
    without["max_rows"] = json!(0);
    let create = async |tool| hub.send_as_admin("POST", "/api/custom-tools", tool).await;
    assert_eq!(create(without).await.status, 400);
    let made = create(tool).await;
    assert_eq!(made.status, 201);
    let shown = made.json().await;
    assert_eq!(
        (&shown["max_rows"], &shown["timeout_ms"], &shown["paged"]),
        (&json!(4), &json!(900), &json!(true))
    );
    let call = |arguments| hub.call_structured("numbers", arguments);
    let first = call(json!({"above": 20})).await;
    let rows = json!([{"id": 21}, {"id": 22}, {"id": 23}, {"id": 24}]);
    assert_eq!(first["result"]["rows"], rows, "{first}");
    let cursor = &first["result"]["next_cursor"];
    let rest = call(json!({"above": 20, "cursor": cursor})).await;
    assert_eq!(rest["result"], json!([{"id": 25}]));
    let other = call(json!({"above": 2, "cursor": cursor})).await;
    assert_eq!(other, Value::Null, "the cursor belongs to other arguments");
}

fn column<'a>(columns: &'a Value, name: &str) -> &'a Value {
    let mut columns = columns["result"].as_array().unwrap().iter();
    columns.find(|it| it["name"] == name).expect("the column")
}

#[tokio::test]
async fn rows_come_in_pages_and_tables_show_indexes_on_sqlite() {
    let files = tempfile::tempdir().unwrap();
    let path = numbers_file(files.path());
    let bounds = QueryBounds {
        relations: vec!["number".to_owned(), "opened".to_owned()],
        max_rows: 10,
        sample_values: 2,
        ..QueryBounds::default()
    };
    let hub = hub_with("numbers", path.to_str().unwrap(), bounds).await;
    check_pages(&hub).await;
    check_plans(&hub).await;
    check_paged_tool(&hub).await;
    let table = json!({"table": "number"});
    let columns = hub.call_structured("describe_table", table).await;
    let name = column(&columns, "name");
    assert_eq!(name["samples"], json!(["n1", "n2"]), "{columns}");
    let indexes = name["indexes"].to_string();
    assert!(
        indexes.contains("UNIQUE (name)") && indexes.contains("number_half"),
        "{indexes}"
    );
    hub.running.stop().await;
}

#[tokio::test]
async fn rows_come_in_pages_and_tables_show_indexes_on_postgres() {
    let cluster = PostgresCluster::start().await;
    let database = cluster.create_database();
    cluster.run_sql(
        &database,
        "CREATE TABLE number (id int PRIMARY KEY, name text, hidden text);
         CREATE TABLE part (id int PRIMARY KEY, name text, kind text);
         CREATE INDEX part_lower ON part (lower(name)) WHERE kind = 'x';
         INSERT INTO number SELECT i, 'n' || i, 'CANARY' FROM generate_series(1, 25) i;
         INSERT INTO part SELECT i, 'p' || i, 'k' FROM generate_series(1, 3) i;
         CREATE TABLE secret (id int); CREATE VIEW opened AS SELECT id FROM secret;
         CREATE SCHEMA other; CREATE TABLE other.thing (id int);
         CREATE ROLE app LOGIN PASSWORD 'x'; GRANT USAGE ON SCHEMA other TO app;
         GRANT SELECT (id, name) ON number TO app;
         GRANT SELECT ON part, opened, other.thing TO app",
    );
    let url = format!("postgres://app:x@127.0.0.1:{}/{database}", cluster.port);
    let bounds = QueryBounds {
        max_rows: 10,
        sample_values: 3,
        ..QueryBounds::default()
    };
    let hub = hub_with("numbers", &url, bounds).await;
    check_pages(&hub).await;
    check_plans(&hub).await;
    check_paged_tool(&hub).await;
    let describe = |table: &str| hub.call_structured("describe_table", json!({"table": table}));
    let columns = describe("number").await;
    let samples = &column(&columns, "name")["samples"];
    assert_eq!(*samples, json!(["n1", "n2", "n3"]));
    let shown = columns.to_string();
    assert!(
        !shown.contains("CANARY") && !shown.contains("hidden"),
        "{shown}"
    );
    let columns = describe("part").await;
    for name in ["name", "kind"] {
        let indexes = column(&columns, name)["indexes"].to_string();
        assert!(indexes.contains("lower(name)"), "{name}: {indexes}");
    }
    let other = json!({"schema": "other"});
    let listed = hub.call_structured("list_tables", other).await;
    let names = listed["result"].as_array().unwrap().iter();
    let names: Vec<&Value> = names.map(|it| &it["name"]).collect();
    assert_eq!(names, [&json!("thing")]);
    hub.running.stop().await;
}
