//! The index in a real ChromaDB server.

use maru_retrieval::{ChromaEndpoint, DocumentIndex, Embedder, Error};

use maru::config::SecretString;
use serde_json::{Value, json};

use super::{
    check_index, document, hit_rate, ids, load_set,
    services::{ChromaServer, EmbeddingServer},
    texts,
};
use crate::http_client::TestRequest;

const COLLECTIONS_PATH: &str =
    "/api/v2/tenants/default_tenant/databases/default_database/collections";

async fn send_to_chroma(
    server: &ChromaServer,
    method: &'static str,
    path: &str,
    body: Value,
) -> Value {
    let address = format!("127.0.0.1:{}", server.port);
    let ask = TestRequest::new(&address, method, &format!("{COLLECTIONS_PATH}{path}"))
        .header("content-type", "application/json")
        .body(&body.to_string());
    let reply = ask.send().await;
    assert!(reply.status.is_success(), "{path}");
    reply.json().await
}

#[tokio::test]
async fn chroma_index_satisfies_the_index_contract() {
    let server = ChromaServer::start().await;
    let index = DocumentIndex::chroma(&server.settings(), Embedder::builtin()).unwrap();
    check_index(&index).await;
    let set = load_set();
    index.add("columns", &set.documents()).await.unwrap();
    let vectors = hit_rate(&index, &set.q).await;
    println!("hit@3 of the built-in vectors in ChromaDB: {vectors:.3}");
    assert!(vectors >= 0.9);
}

#[tokio::test]
async fn collections_of_others_are_searched() {
    let server = ChromaServer::start().await;
    let index = DocumentIndex::chroma(&server.settings(), Embedder::builtin()).unwrap();
    let made = send_to_chroma(&server, "POST", "", json!({"name": "theirs"})).await;
    let id = made["id"].as_str().unwrap();
    let mut axis = vec![0.0; 1024];
    axis[3] = 1.0;
    let body = json!({"ids": ["x", "y"], "embeddings": [axis, axis], "documents": ["주문", null]});
    send_to_chroma(&server, "POST", &format!("/{id}/upsert"), body).await;
    let found = index.search("theirs", &texts(&["주문"]), 5).await.unwrap();
    let mut found: Vec<_> = found[0]
        .iter()
        .map(|it| (it.id.as_str(), it.text.as_deref()))
        .collect();
    found.sort_unstable();
    assert_eq!(found, [("x", Some("주문")), ("y", None)]);
    let known = index.collections().await.unwrap();
    assert_eq!(
        (known[0].model.as_deref(), known[0].dimension),
        (None, Some(1024))
    );

    // Removed and made again behind our back, it has another id.
    send_to_chroma(&server, "DELETE", "/theirs", Value::Null).await;
    let found = index.search("theirs", &texts(&["주문"]), 5).await;
    assert!(matches!(found, Err(Error::NoCollection(_))));
    index.add("theirs", &[document("z", "주문")]).await.unwrap();
    send_to_chroma(&server, "DELETE", "/theirs", Value::Null).await;
    let other = DocumentIndex::chroma(&server.settings(), Embedder::builtin()).unwrap();
    other.add("theirs", &[document("w", "주문")]).await.unwrap();
    let found = index.search("theirs", &texts(&["주문"]), 5).await.unwrap();
    assert_eq!(ids(&found[0]), ["w"]);
    send_to_chroma(&server, "DELETE", "/theirs", Value::Null).await;
    assert_eq!(
        index.add("theirs", &[document("v", "주문")]).await.unwrap(),
        1
    );
}

#[tokio::test]
async fn models_are_not_mixed_in_chroma() {
    let (server, embeddings) = (ChromaServer::start().await, EmbeddingServer::start().await);
    let index = DocumentIndex::chroma(&server.settings(), Embedder::builtin()).unwrap();
    index.add("ours", &[document("a", "주문")]).await.unwrap();
    let words = Embedder::endpoint(&embeddings.settings("embeddings")).unwrap();
    let other = DocumentIndex::chroma(&server.settings(), words).unwrap();
    let added = other.add("ours", &[document("b", "직원")]).await;
    let shown = added.unwrap_err().to_string();
    assert!(
        shown.contains("builtin-hash-1024 (1024 dimensions)"),
        "{shown}"
    );
    let found = other.search("ours", &texts(&["a"]), 1).await;
    assert!(matches!(found, Err(Error::IncompatibleVectors { .. })));
    assert_eq!(
        other.add("more", &[document("b", "직원")]).await.unwrap(),
        1
    );
}

#[tokio::test]
async fn refusals_of_the_server_are_named() {
    let server = ChromaServer::start().await;
    let index = DocumentIndex::chroma(&server.settings(), Embedder::builtin()).unwrap();
    let shown = index
        .add("주문", &[document("a", "secret")])
        .await
        .unwrap_err()
        .to_string();
    assert!(
        shown.ends_with("collections answered 400 (InvalidArgumentError)"),
        "{shown}"
    );
    let elsewhere = ChromaEndpoint {
        tenant: "no/such tenant".to_owned(),
        headers: vec![(
            "x-chroma-token".to_owned(),
            SecretString::from("hush".to_owned()),
        )],
        ..server.settings()
    };
    let index = DocumentIndex::chroma(&elsewhere, Embedder::builtin()).unwrap();
    assert!(!format!("{index:?}").contains("hush"));
    assert!(index.add("abc", &[document("a", "secret")]).await.is_err());
    let (port, settings) = (server.port, server.settings());
    drop(server);
    let index = DocumentIndex::chroma(&settings, Embedder::builtin()).unwrap();
    let shown = index.collections().await.unwrap_err().to_string();
    assert_eq!(
        shown,
        format!("cannot reach http://127.0.0.1:{port}{COLLECTIONS_PATH}")
    );
}
