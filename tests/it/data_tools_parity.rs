//! The data tools against a `FastMCP` server that is written as their specification says:
//! every example, field by field, through the client libraries that people use.

use std::{process::Stdio, time::Duration};

use maru::config::{Config, SecretString};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::timeout,
};

use crate::{
    clients::{client_tools_dir, run_successfully},
    postgres_cluster::{PASSWORD, PostgresCluster},
    retrieval::services::{ChromaServer, command_ending_with_test},
    test_hub::TestHub,
};

const COLLECTION: &str = "column_metadata";
/// Cases in which the specification leaves the words of the error to `FastMCP`.
const REFUSED_CASES: [&str; 4] = [
    "wrong number",
    "wrong type",
    "missing argument",
    "unknown argument",
];

/// The `FastMCP` server, and the embedder that it and the hub use.
struct DocumentServer {
    _child: Child,
    url: String,
    embedder_url: String,
}

impl DocumentServer {
    async fn start(cluster: &PostgresCluster, database: &str, chroma: &ChromaServer) -> Self {
        let mut child = command_ending_with_test(client_tools_dir().join("document/bin/python"))
            .arg(client_tools_dir().join("document_server.py"))
            .envs([
                ("POSTGRESQL_DB_USER", "maru"),
                ("POSTGRESQL_DB_PASS", PASSWORD),
                ("POSTGRESQL_DB_NAME", database),
                ("POSTGRESQL_DB_HOST", "127.0.0.1"),
                ("CHROMADB_HOST", "127.0.0.1"),
                ("CHROMADB_COLLECTION_NAME", COLLECTION),
            ])
            .env("POSTGRESQL_DB_PORT", cluster.port.to_string())
            .env("CHROMADB_PORT", chroma.port.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = timeout(Duration::from_secs(60), lines.next_line()).await;
        let line = line.unwrap().unwrap().expect("the server prints its ports");
        let (embedder, server) = line.split_once(' ').unwrap();
        Self {
            _child: child,
            url: format!("http://127.0.0.1:{server}/mcp"),
            embedder_url: format!("http://127.0.0.1:{embedder}/v1/embeddings"),
        }
    }
}

/// What a client library shows of every case.
async fn observe(library: &str, url: &str) -> Value {
    let mut command = Command::new(client_tools_dir().join("document/bin/python"));
    command
        .arg(client_tools_dir().join("document_client.py"))
        .args([library, url]);
    serde_json::from_str(&run_successfully(&mut command).await).unwrap()
}

fn use_databases(
    config: &mut Config,
    cluster: &PostgresCluster,
    database: &str,
    chroma: &ChromaServer,
) {
    config.postgresql.host = Some("127.0.0.1".to_owned());
    config.postgresql.port = cluster.port;
    config.postgresql.user = "maru".to_owned();
    config.postgresql.password = SecretString::from(PASSWORD.to_owned());
    config.postgresql.database = database.to_owned();
    config.chromadb.host = Some("127.0.0.1".to_owned());
    config.chromadb.port = chroma.port;
    config.chromadb.collection = COLLECTION.to_owned();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_example_looks_the_same_as_on_a_fastmcp_server() {
    let cluster = PostgresCluster::start().await;
    let database = cluster.create_database();
    cluster.run_sql(
        &database,
        "CREATE TABLE users (user_id int, username text, email text);
         INSERT INTO users VALUES (101, 'alice', 'alice@example.com'),
             (102, 'bob', 'bob@example.com'), (103, 'charlie', 'charlie@example.com')",
    );
    let chroma = ChromaServer::start().await;
    let server = DocumentServer::start(&cluster, &database, &chroma).await;
    let hub = TestHub::with_config(|config| {
        use_databases(config, &cluster, &database, &chroma);
        config.embedding.url = Some(server.embedder_url.clone());
        config.embedding.model = Some("bge-m3-ko".to_owned());
    })
    .await;
    for library in ["mcp", "fastmcp", "adk"] {
        let ours = observe(library, &hub.url()).await;
        let theirs = observe(library, &server.url).await;
        for (tool, schema) in theirs["schemas"].as_object().unwrap() {
            assert_eq!(&ours["schemas"][tool], schema, "{library}: {tool}");
        }
        let cases = theirs["results"].as_object().unwrap();
        assert!(cases.len() > 20, "{cases:?}");
        for (case, expected) in cases {
            let seen = &ours["results"][case];
            if REFUSED_CASES.contains(&case.as_str()) {
                assert_refused(seen, &format!("{library}: {case}"));
                assert_refused(expected, &format!("{library}: {case} on FastMCP"));
            } else {
                assert_eq!(normalize(seen), normalize(expected), "{library}: {case}");
            }
        }
    }
    hub.running.stop().await;
}

/// The observation with texts read where they are JSON: white space may differ.
fn normalize(seen: &Value) -> Value {
    let mut seen = seen.clone();
    for text in seen["texts"].as_array_mut().unwrap() {
        if let Ok(json) = serde_json::from_str(text.as_str().unwrap()) {
            *text = json;
        }
    }
    seen
}

/// A refused call is flagged, says why in a text and has nothing else.
fn assert_refused(seen: &Value, context: &str) {
    assert_eq!(seen["error"], true, "{context}: {seen}");
    assert_eq!(seen["structure"], Value::Null, "{context}: {seen}");
    assert_eq!(seen["texts"].as_array().unwrap().len(), 1, "{context}");
    assert_eq!(seen.get("data").unwrap_or(&json!(null)), &json!(null));
}
