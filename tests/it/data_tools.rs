//! The data tools through the hub: on its defaults, and on what is set up.

use std::{fs, process::Command};

use maru::config::{QueryBounds, SecretString, SourceDefinition};
use serde_json::{Value, json};

use crate::{
    http_client::TestRequest,
    postgres_cluster::{PASSWORD, PostgresCluster},
    retrieval::services::{ChromaServer, EmbeddingServer},
    test_hub::TestHub,
};

impl TestHub {
    /// The structured content of a call, or its text where there is none, and whether it is
    /// flagged as failed.
    pub(crate) async fn call_data_tool(&self, name: &str, arguments: Value) -> (Value, bool) {
        let params = json!({"name": name, "arguments": arguments});
        let answer = self
            .stateless_request("tools/call", params)
            .send()
            .await
            .rpc_response()
            .await;
        let result = &answer["result"];
        let text = result["content"][0]["text"].as_str().unwrap();
        let value = match result.get("structuredContent") {
            Some(structure) => structure.clone(),
            None => serde_json::from_str(text).unwrap(),
        };
        (value, result["isError"] == true)
    }
}

#[tokio::test]
async fn integer_with_a_fraction_of_zero_is_that_integer() {
    let hub = TestHub::start().await;
    for year in [json!(2026), json!(2026.0)] {
        let arguments = json!({"employee_id": "EMP001", "year": year});
        let (found, failed) = hub
            .call_data_tool("calculate_vacation_days", arguments)
            .await;
        assert!(!failed, "{found}");
        assert_eq!(found["result"]["year"], 2026);
    }
    for count in [json!(1), json!(1.0)] {
        let arguments = json!({"query_list": ["name"], "n_results": count});
        let (found, _) = hub.call_data_tool("get_sim_search", arguments).await;
        assert_eq!(found["result"][0].as_array().unwrap().len(), 1, "{found}");
    }
}

#[tokio::test]
async fn too_many_texts_are_refused_with_the_reason() {
    let hub = TestHub::start().await;
    let arguments = json!({"text_list": vec!["a"; 2049]});
    let (refused, failed) = hub.call_data_tool("get_text_embedding", arguments).await;
    assert!(failed, "{refused}");
    assert_eq!(
        refused["error"],
        "wrong arguments: text_list: a list of 2049 values has more than 2048 items \
         (Texts to embed); expected get_text_embedding(text_list: [string])"
    );
}

#[tokio::test]
async fn sample_tools_answer_from_the_sample_data() {
    let hub = TestHub::start().await;
    let ask = |name, arguments| hub.call_data_tool(name, arguments);
    let (one, _) = ask("get_employee_info", json!({"employee_id": "EMP001"})).await;
    assert_eq!(one["result"]["name"], "김민준");
    assert!(one["result"]["days_of_service"].as_i64().unwrap() > 0);
    let (all, _) = ask("get_all_employees", json!({})).await;
    assert_eq!(all["result"][0], json!({"id": "EMP001", "name": "김민준"}));
    let nobody = json!({"employee_id": "EMP999", "year": 2026});
    let (failed, is_error) = ask("calculate_vacation_days", nobody).await;
    assert!(is_error);
    assert_eq!(
        failed["error"],
        "no employee EMP999; get_all_employees lists them"
    );
    let early = json!({"employee_id": "EMP001", "year": 1999});
    let (failed, _) = ask("calculate_vacation_days", early).await;
    let why = failed["error"].as_str().unwrap();
    assert!(
        why.starts_with("no vacation days of EMP001 in 1999; known years: 20"),
        "{why}"
    );
    for (query, count) in [
        ("REMOTE", 1),
        ("100%", 0),
        ("_", 0),
        (&"연".repeat(1000), 0),
    ] {
        let (found, failed) = ask("search_docs", json!({"query": query})).await;
        assert!(!failed, "{found}");
        assert_eq!(found["result"].as_array().unwrap().len(), count, "{query}");
    }
}

#[tokio::test]
async fn data_tools_work_without_configuration() {
    let hub = TestHub::start().await;
    let (vectors, _) = hub
        .call_data_tool(
            "get_text_embedding",
            json!({"text_list": ["연차", "hello"]}),
        )
        .await;
    assert_eq!(vectors["result"].as_array().unwrap().len(), 2);
    assert_eq!(vectors["result"][0].as_array().unwrap().len(), 1024);
    let (found, _) = hub
        .call_data_tool(
            "get_sim_search",
            json!({"query_list": ["입사 날짜", "연차 총 일수"]}),
        )
        .await;
    assert_eq!(found["result"].as_array().unwrap().len(), 2);
    assert_eq!(found["result"][0].as_array().unwrap().len(), 3);
    assert!(
        found["result"][0][0]
            .as_str()
            .unwrap()
            .starts_with("employees.hire_date"),
        "{found}"
    );
    assert!(
        found["result"][1][0]
            .as_str()
            .unwrap()
            .starts_with("vacations.total"),
        "{found}"
    );
    let sql = "SELECT\u{a0}id, name FROM employees ORDER BY id LIMIT 1";
    let (rows, failed) = hub
        .call_data_tool("query_bga_database", json!({"generated_sql": sql}))
        .await;
    assert!(!failed);
    let expected = json!({
        "status": "success", "message": "SQL executed.",
        "data": {"type": "csv_table", "content": {
            "sql": "SELECT id, name FROM employees ORDER BY id LIMIT 1",
            "records": [{"id": "EMP001", "name": "김민준"}],
        }},
    });
    assert_eq!(rows, expected);
    let (refused, failed) = hub
        .call_data_tool(
            "query_bga_database",
            json!({"generated_sql": "DELETE FROM employees"}),
        )
        .await;
    assert!(!failed && refused["status"] == "error");
    assert!(
        refused["message"]
            .as_str()
            .unwrap()
            .starts_with("Error while querying DB: "),
        "{refused}"
    );
    let (clean, _) = hub
        .call_data_tool("serialize_for_cell", json!({"data": "a\u{a0}b"}))
        .await;
    assert_eq!(clean["result"], "a b");
    let (tables, _) = hub.call_data_tool("list_tables", json!({})).await;
    assert_eq!(tables["result"].as_array().unwrap().len(), 5);
    let columns = TestRequest::new(&hub.address, "GET", "/api/sources/sample/tables/vacations")
        .send()
        .await
        .json()
        .await;
    assert_eq!(columns[0]["references"], json!(["main.employees.id"]));
    let missing = TestRequest::new(&hub.address, "GET", "/api/sources/nobody/tables")
        .send()
        .await;
    assert_eq!(missing.status, 404);
}

/// Failed statements are reported in the status, as the specification says, and known as
/// failed to the journal. The setting adds the flag; wrong arguments always have it.
#[tokio::test]
async fn failed_statement_is_reported_in_the_status_and_flagged_where_that_is_set() {
    for flag in [false, true] {
        let hub = TestHub::with_config(|config| config.sql_error_flag = flag).await;
        let sql = json!({"generated_sql": "SELEC 1"});
        let (report, is_flagged) = hub.call_data_tool("query_bga_database", sql).await;
        assert_eq!(is_flagged, flag);
        let expected =
            "Error while querying DB: near \"SELEC\": syntax error\nLINE 1: SELEC 1\n        ^";
        assert_eq!(report, json!({"status": "error", "message": expected}));
        let calls = hub.send_as_admin("GET", "/api/calls", Value::Null).await;
        assert_eq!(calls.json().await["calls"][0]["outcome"], "failed");
        let (report, is_flagged) = hub.call_data_tool("query_bga_database", json!({})).await;
        assert!(is_flagged, "{report}");
        assert_eq!(report["status"], "error");
        let message = report["message"].as_str().unwrap();
        assert!(message.starts_with("wrong arguments: "), "{message}");
    }
}

/// `null` for an argument that need not be given means its default, and a number may be
/// quoted.
#[tokio::test]
async fn null_and_quoted_numbers_are_taken_as_models_mean_them() {
    let hub = TestHub::start().await;
    for (count, expected) in [(Value::Null, 3), (json!("2"), 2), (json!(1000), 1000)] {
        let arguments = json!({"query_list": ["name"], "n_results": count});
        let (found, failed) = hub.call_data_tool("get_sim_search", arguments).await;
        let found = found["result"][0].as_array().unwrap();
        assert!(!failed && found.len() <= expected, "{found:?}");
        assert_eq!(found.len() == expected, expected < 1000, "{found:?}");
    }
    let sql = json!({"generated_sql": "SELECT 1 AS one", "source": null});
    let (rows, _) = hub.call_data_tool("query_bga_database", sql).await;
    assert_eq!(rows["data"]["content"]["records"], json!([{"one": 1}]));
    for wrong in [json!(0), json!(-1), json!("x"), json!(true)] {
        let arguments = json!({"query_list": ["name"], "n_results": wrong});
        let (refused, failed) = hub.call_data_tool("get_sim_search", arguments).await;
        assert!(failed && refused["success"] == false, "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn postgresql_of_the_settings_is_queried() {
    let cluster = PostgresCluster::start().await;
    let database = cluster.create_database();
    cluster.run_sql(&database, "CREATE TABLE big AS SELECT n, 9007199254740993 + n AS huge FROM generate_series(1, 3000) n");
    cluster.run_sql(&database, "COMMENT ON TABLE big IS '숫자'");
    let hub = TestHub::with_config(|config| {
        config.postgresql.host = Some("127.0.0.1".to_owned());
        config.postgresql.port = cluster.port;
        config.postgresql.user = "maru".to_owned();
        config.postgresql.password = SecretString::from(PASSWORD.to_owned());
        config.postgresql.database.clone_from(&database);
        config.sources = vec![SourceDefinition {
            bounds: QueryBounds {
                max_rows: 2,
                ..QueryBounds::default()
            },
            ..SourceDefinition::new("few", SecretString::from(cluster.url(&database)))
        }];
    })
    .await;
    let ask = |sql: &str| json!({"generated_sql": sql});
    let (rows, failed) = hub
        .call_data_tool(
            "query_bga_database",
            ask("SELECT huge FROM big WHERE n = 1"),
        )
        .await;
    assert!(!failed, "{rows}");
    // Compared as text: the number is larger than a double can hold.
    assert!(
        rows.to_string().contains("{\"huge\":9007199254740994}"),
        "{rows}"
    );
    let (all, _) = hub
        .call_data_tool("query_bga_database", ask("SELECT n FROM big"))
        .await;
    let content = &all["data"]["content"];
    assert_eq!(
        (
            content["records"].as_array().unwrap().len(),
            &content["truncated"]
        ),
        (1000, &json!(true))
    );
    for sql in [
        "DROP TABLE big",
        "SELECT pg_read_file('/etc/passwd')",
        "WITH x AS (DELETE FROM big RETURNING n) SELECT * FROM x",
    ] {
        let (refused, failed) = hub.call_data_tool("query_bga_database", ask(sql)).await;
        assert!(!failed && refused["status"] == "error", "{sql}: {refused}");
    }
    assert_eq!(
        cluster
            .run_sql(&database, "SELECT count(*) FROM big")
            .trim(),
        "3000"
    );
    let (few, _) = hub
        .call_data_tool(
            "query_bga_database",
            json!({"generated_sql": "SELECT n FROM big", "source": "few"}),
        )
        .await;
    assert_eq!(
        few["data"]["content"]["records"].as_array().unwrap().len(),
        2
    );
    let (tables, _) = hub
        .call_data_tool("list_tables", json!({"source": "bga"}))
        .await;
    assert_eq!(tables["result"][0]["comment"], "숫자");
    hub.running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn chromadb_and_a_real_model_are_used_when_they_are_set_up() {
    let (chroma, model) = (ChromaServer::start().await, EmbeddingServer::start().await);
    let endpoint = model.settings("embeddings");
    let hub = TestHub::with_config(|config| {
        config.chromadb.host = Some("127.0.0.1".to_owned());
        config.chromadb.port = chroma.port;
        config.chromadb.collection = "columns".to_owned();
        config.embedding.url = Some(endpoint.url.clone());
        config.embedding.model = Some(endpoint.model.clone());
    })
    .await;
    let file = hub.directory.path().join("columns.jsonl");
    fs::write(&file, "\"users.email VARCHAR(255) email address of the user\"\n{\"text\": \"orders.order_date TIMESTAMP date of the order\", \"id\": \"o\"}\n").unwrap();
    let add = || {
        let output = Command::new(env!("CARGO_BIN_EXE_maru"))
            .args(["--data-dir", "cli", "index", "add"])
            .arg(&file)
            .current_dir(hub.directory.path())
            .envs([
                ("CHROMADB_HOST", "127.0.0.1"),
                ("CHROMADB_COLLECTION_NAME", "columns"),
            ])
            .env("CHROMADB_PORT", chroma.port.to_string())
            .env("TEXT_EMBEDDING_MODEL_URL", &endpoint.url)
            .env("TEXT_EMBEDDING_MODEL_NAME", &endpoint.model)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    assert_eq!(
        add(),
        "2 documents added to columns, 0 were there already\n"
    );
    assert_eq!(
        add(),
        "0 documents added to columns, 2 were there already\n"
    );
    let (found, _) = hub
        .call_data_tool(
            "get_sim_search",
            json!({"query_list": ["user email"], "n_results": 1}),
        )
        .await;
    assert!(
        found["result"][0][0]
            .as_str()
            .unwrap()
            .starts_with("users.email"),
        "{found}"
    );
    drop(model);
    let (failed, is_error) = hub
        .call_data_tool("get_text_embedding", json!({"text_list": ["x"]}))
        .await;
    assert!(
        is_error && failed["error"].as_str().unwrap().contains("/v1/embeddings"),
        "{failed}"
    );
    hub.running.stop().await;
}
