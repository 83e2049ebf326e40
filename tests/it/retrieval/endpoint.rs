//! Vectors from an endpoint: a real model, in good and bad moods.

use std::time::Duration;

use maru_retrieval::{DocumentIndex, Embedder, EmbeddingEndpoint, Ranking};

use maru::config::SecretString;
use tokio::time::Instant;

use super::{check_index, hit_rate, load_set, services::EmbeddingServer, texts};

#[tokio::test]
async fn vectors_come_in_the_order_of_the_texts() {
    let server = EmbeddingServer::start().await;
    let asked: Vec<String> = (0..300).map(|at| format!("칼럼 number {at}")).collect();
    let plain = Embedder::endpoint(&server.settings("embeddings")).unwrap();
    let vectors = plain.embed(&asked).await.unwrap();
    assert_eq!((vectors.len(), vectors[0].len()), (300, 256));
    assert_ne!(vectors[0], vectors[299]);
    for mode in ["reversed", "base64"] {
        let other = Embedder::endpoint(&server.settings(mode)).unwrap();
        assert_eq!(other.embed(&asked).await.unwrap(), vectors, "{mode}");
    }
    let one = plain.embed(&asked[299..]).await.unwrap();
    assert_eq!(one[0], vectors[299]);
    assert!(plain.embed(&[]).await.unwrap().is_empty());
    let counts = server.counts().await;
    assert_eq!(
        (&counts["requests"], &counts["largest"]),
        (&16.into(), &64.into())
    );
    assert!(counts["at_once"].as_u64().unwrap() <= 4);
    // Four for each embedder, and one that asks for the counts.
    assert!(counts["connections"].as_u64().unwrap() <= 13, "{counts}");
}

#[tokio::test]
async fn invalid_responses_are_reported_without_quoting_them() {
    let server = EmbeddingServer::start().await;
    let check = async |mode: &str, expected: &str| {
        let mut settings = server.settings(mode);
        settings.url += "?token=hush-hush";
        settings.key = Some(SecretString::from("hush-hush-2".to_owned()));
        let embedder = Embedder::endpoint(&settings).unwrap();
        let error = embedder.embed(&texts(&["주문", "직원"])).await.unwrap_err();
        let shown = error.to_string();
        let place = settings.url.split('?').next().unwrap();
        assert_eq!(shown, format!("{place} {expected}"), "{mode}");
        let all = format!("{error:?} {embedder:?}").replace("?token=hush-hush", "");
        assert!(
            !all.contains("hush-hush-2") && !all.contains("secret words"),
            "{all}"
        );
    };
    check("broken", "answered 500").await;
    check("busy", "answered 429").await;
    check("key", "answered 401").await;
    check("count", "sent 1 vectors for 2 texts").await;
    check(
        "dimension",
        "sent vectors of different lengths, or empty ones",
    )
    .await;
    check("form", "sent a response in an unexpected format").await;
    // Two that may be asked again are asked four times, the others once.
    assert_eq!(server.counts().await["requests"], 12);
}

#[tokio::test]
async fn transient_errors_are_retried_and_lasting_ones_reported() {
    let server = EmbeddingServer::start().await;
    let hiccup = Embedder::endpoint(&server.settings("hiccup")).unwrap();
    let vectors = hiccup.embed(&texts(&["주문"])).await.unwrap();
    assert_eq!(vectors.len(), 1);
    let slow = EmbeddingEndpoint {
        timeout: Duration::from_millis(500),
        ..server.settings("slow")
    };
    let begin = Instant::now();
    let late = Embedder::endpoint(&slow)
        .unwrap()
        .embed(&texts(&["a"]))
        .await;
    assert!(
        late.unwrap_err()
            .to_string()
            .ends_with("did not answer within 500ms")
    );
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[tokio::test]
async fn api_keys_are_sent_and_addresses_are_checked() {
    let server = EmbeddingServer::start().await;
    let mut settings = server.settings("key");
    settings.key = Some(SecretString::from("hush-hush".to_owned()));
    let embedder = Embedder::endpoint(&settings).unwrap();
    assert_eq!(embedder.embed(&texts(&["a"])).await.unwrap().len(), 1);
    let cloud = EmbeddingEndpoint {
        url: "http://169.254.169.254/v1/embeddings?token=hush-hush".to_owned(),
        ..settings.clone()
    };
    let error = Embedder::endpoint(&cloud).unwrap_err();
    assert!(!format!("{error:?}").contains("hush"), "{error:?}");
    settings.key = Some(SecretString::from("a\nb".to_owned()));
    assert!(Embedder::endpoint(&settings).is_err());
}

#[tokio::test]
async fn a_real_model_fills_an_embedded_index() {
    let server = EmbeddingServer::start().await;
    let embedder = Embedder::endpoint(&server.settings("embeddings")).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("index.db");
    let index = DocumentIndex::embedded(&path, embedder).await.unwrap();
    check_index(&index).await;
    let set = load_set();
    index.add("columns", &set.documents()).await.unwrap();
    let hybrid = hit_rate(&index, &set.q).await;
    let vectors = hit_rate(&index.with_ranking(Ranking::Vectors), &set.q).await;
    println!("hit@3 of wordllama: {vectors:.3}, with words {hybrid:.3}");
    // A small English model; words make up for what it does not know.
    assert!(vectors >= 0.5 && hybrid >= 0.8);
}
