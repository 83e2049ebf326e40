//! A search over 100,000 documents, as a tool sees it: `cargo bench --bench
//! retrieval`. The endpoint is a stub on loopback with vectors of 384 numbers.

use std::{hint::black_box, time::Duration};

use axum::{Router, body::Bytes, routing::post};
use criterion::{Criterion, criterion_group, criterion_main};

use maru_http::{AddressPolicy, ClientTls};
use maru_retrieval::{DocumentIndex, Embedder, EmbeddingEndpoint, NewDocument, Ranking};
use maru_runtime::tasks::Tasks;
use serde_json::{Value, json};
use tokio::{net::TcpListener, runtime::Runtime};

const DOCUMENTS: usize = 100_000;
const DIMENSION: usize = 384;

fn searches(c: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("index.db");
    let tasks = Tasks::default();
    let index = runtime.block_on(async {
        let embedder = Embedder::endpoint(&endpoint(&tasks).await).expect("an endpoint");
        let index = DocumentIndex::embedded(&path, embedder)
            .await
            .expect("an index");
        index.add("columns", &documents()).await.expect("documents");
        index
    });
    let mut group = c.benchmark_group("search of 100,000 × 384");
    group
        .sample_size(50)
        .measurement_time(Duration::from_secs(10));
    for (name, ranking) in [
        ("hybrid", Ranking::Hybrid),
        ("vectors", Ranking::Vectors),
        ("words", Ranking::Words),
    ] {
        let index = index.clone().with_ranking(ranking);
        let query = ["주문 날짜 필드".to_owned()];
        group.bench_function(name, |b| {
            b.to_async(&runtime).iter(async || {
                let found = index.search("columns", black_box(&query), 3).await;
                assert_eq!(found.map_or(0, |it| it[0].len()), 3);
            });
        });
    }
    group.finish();
}

/// Columns of tables, each with words that hundreds or thousands of others have.
fn documents() -> Vec<NewDocument> {
    let set: Value =
        serde_json::from_str(include_str!("../tests/data/retrieval.json")).expect("the set");
    let texts = set["docs"].as_array().expect("documents");
    let texts = texts.iter().filter_map(Value::as_str).cycle().enumerate();
    let texts = texts.map(|(at, text)| NewDocument::from_text(format!("t{at}.{text} {at}")));
    texts.take(DOCUMENTS).collect()
}

async fn endpoint(tasks: &Tasks) -> EmbeddingEndpoint {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("its address");
    let router = Router::new().route("/v1/embeddings", post(async |body: Bytes| answer(&body)));
    tasks.spawn(async {
        let _ = axum::serve(listener, router).await;
    });
    EmbeddingEndpoint {
        url: format!("http://{address}/v1/embeddings"),
        model: "noise".to_owned(),
        key: None,
        timeout: Duration::from_secs(60),
        policy: AddressPolicy {
            serves_loopback_only: true,
            ..AddressPolicy::default()
        },
        tls: ClientTls::default(),
    }
}

fn answer(body: &[u8]) -> String {
    let asked: Value = serde_json::from_slice(body).expect("a question");
    let texts = asked["input"].as_array().expect("texts");
    let vectors = texts.iter().enumerate().map(
        |(at, text)| json!({"index": at, "embedding": noise(text.as_str().unwrap_or_default())}),
    );
    json!({"data": vectors.collect::<Vec<_>>()}).to_string()
}

/// Numbers that look random and follow from the text.
fn noise(text: &str) -> Vec<f32> {
    let seed = text.bytes().fold(7_u64, |sum, byte| {
        sum.wrapping_mul(31).wrapping_add(byte.into())
    });
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        f32::from((state >> 48) as u16) / 32_768.0 - 1.0
    };
    std::iter::repeat_with(next).take(DIMENSION).collect()
}

criterion_group!(benches, searches);
criterion_main!(benches);
