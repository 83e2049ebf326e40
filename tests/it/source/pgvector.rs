//! Search by vectors in a real PostgreSQL with pgvector.

use maru::config::{PgvectorSettings, SourceDefinition};
use serde_json::{Value, json};

use crate::{
    http_client::TestRequest,
    postgres_cluster::PostgresCluster,
    test_hub::{TestHub, call_message},
};

async fn call(hub: &TestHub, name: &str, arguments: Value) -> String {
    let message = call_message(1, name, arguments);
    let answer = TestRequest::post(&hub.address, "/sse", &message)
        .send()
        .await;
    let answer = answer.json().await;
    let text = answer["result"]["content"][0]["text"].as_str();
    text.map_or_else(|| answer.to_string(), str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn text_becomes_the_vector_that_a_statement_orders_by() {
    let cluster = PostgresCluster::start_with_pgvector().await;
    let database = cluster.create_database();
    cluster.run_sql(
        &database,
        "CREATE EXTENSION vector; CREATE TABLE article (title text, embedding vector(1024));
         CREATE ROLE app LOGIN PASSWORD 'x'; GRANT SELECT ON article TO app",
    );
    let url = format!("postgres://app:x@127.0.0.1:{}/{database}", cluster.port);
    let hub = start_hub(&url, "article", None).await;
    let titles = ["연차 휴가 규정", "배포 절차", "salary and bonus"];
    let vectors = call(&hub, "get_text_embedding", json!({"text_list": titles})).await;
    let vectors: Vec<Value> = serde_json::from_str(&vectors).unwrap();
    for (title, vector) in titles.iter().zip(&vectors) {
        cluster.run_sql(
            &database,
            &format!("INSERT INTO article VALUES ('{title}', '{vector}')"),
        );
    }
    let nearest = json!({
        "name": "find_article", "description_agent": "Finds an article.", "tool_type": "SQL",
        "source": "articles", "result_format": "rows",
        "definition": "SELECT title FROM article ORDER BY embedding <=> :question LIMIT 1",
        "params": [{"param_name": "question", "param_type": "EMBEDDING"}],
    });
    let made = hub
        .send_as_admin("POST", "/api/custom-tools", nearest)
        .await;
    assert_eq!(made.status, 201);
    for (question, title) in [("휴가는 며칠", titles[0]), ("bonus", titles[2])] {
        let found = call(&hub, "find_article", json!({"question": question})).await;
        assert_eq!(found, json!([{"title": title}]).to_string());
    }
    let sql = "SELECT vector_dims(embedding) AS d, cosine_distance(embedding, embedding) AS c
        FROM article LIMIT 1";
    let found = call(
        &hub,
        "query_bga_database",
        json!({"generated_sql": sql, "source": "articles"}),
    )
    .await;
    assert!(found.contains(r#""records":[{"d":1024,"c":0"#), "{found}");
    let question = json!({"query_list": ["휴가는 며칠", "bonus"], "n_results": 1});
    let found = call(&hub, "get_sim_search", question.clone()).await;
    assert_eq!(found, json!([[titles[0]], [titles[2]]]).to_string());
    hub.running.stop().await;

    cluster.run_sql(
        &database,
        "CREATE TABLE small (title text, embedding vector(3)); GRANT SELECT ON small TO app",
    );
    let refusals = [
        (
            "small",
            None,
            "have 3 dimensions, and the embedding model builtin-hash-1024 makes 1024",
        ),
        (
            "article",
            Some("bge-m3"),
            "were made by bge-m3, and the embedding model is builtin-hash",
        ),
        ("missing", None, "there is no table missing"),
    ];
    for (table, model, reason) in refusals {
        let hub = start_hub(&url, table, model).await;
        let found = call(&hub, "get_sim_search", question.clone()).await;
        assert!(found.contains(reason), "{found}");
        hub.running.stop().await;
    }
}

/// A hub that searches a table of the database.
async fn start_hub(url: &str, table: &str, model: Option<&str>) -> TestHub {
    TestHub::with_config(|config| {
        config.sources = vec![SourceDefinition::new("articles", url.to_owned().into())];
        config.pgvector = Some(PgvectorSettings {
            source: "articles".to_owned(),
            table: table.to_owned(),
            text_column: "title".to_owned(),
            vector_column: "embedding".to_owned(),
            model: model.map(str::to_owned),
        });
    })
    .await
}
