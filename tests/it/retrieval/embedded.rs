//! The index in a file of its own.

use maru_retrieval::{DocumentIndex, Embedder, Error, Glossary, NewDocument, Ranking};

use super::{check_index, document, hit_rate, ids, load_set, services::EmbeddingServer, texts};

async fn open(directory: &tempfile::TempDir) -> DocumentIndex {
    let path = directory.path().join("index.db");
    DocumentIndex::embedded(&path, Embedder::builtin())
        .await
        .unwrap()
}

#[tokio::test]
async fn embedded_index_satisfies_the_index_contract() {
    let directory = tempfile::tempdir().unwrap();
    check_index(&open(&directory).await).await;
}

#[tokio::test]
async fn questions_find_their_columns() {
    let directory = tempfile::tempdir().unwrap();
    let index = open(&directory).await;
    let set = load_set();
    index.add("columns", &set.documents()).await.unwrap();
    for ranking in [Ranking::Hybrid, Ranking::Vectors, Ranking::Words] {
        let index = index.clone().with_ranking(ranking);
        let (asked, held) = (
            hit_rate(&index, &set.q).await,
            hit_rate(&index, &set.held).await,
        );
        println!("hit@3 {ranking:?}: {asked:.3}, of those written later {held:.3}");
        assert!(asked >= 0.9 && held >= 0.8);
    }
    assert!(hit_rate(&index, &set.held).await >= 0.9);
}

#[tokio::test]
async fn documents_survive_a_restart_and_are_visible_to_other_processes() {
    let directory = tempfile::tempdir().unwrap();
    let one = open(&directory).await;
    one.add("c", &[document("a", "주문 날짜")]).await.unwrap();
    let other = open(&directory).await;
    let query = texts(&["주문"]);
    assert_eq!(ids(&other.search("c", &query, 9).await.unwrap()[0]), ["a"]);
    one.add("c", &[document("b", "주문 번호"), document("a", "직원")])
        .await
        .unwrap();
    let found = other.search("c", &query, 9).await.unwrap();
    assert_eq!(ids(&found[0]), ["b", "a"]);
    one.remove_documents("c", &texts(&["b"])).await.unwrap();
    let found = other.search("c", &query, 9).await.unwrap();
    assert_eq!(ids(&found[0]), ["a"]);
}

#[tokio::test]
async fn models_are_not_mixed() {
    let server = EmbeddingServer::start().await;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("index.db");
    let index = open(&directory).await;
    index.add("c", &[document("a", "주문")]).await.unwrap();
    let words = Embedder::endpoint(&server.settings("embeddings")).unwrap();
    let other = DocumentIndex::embedded(&path, words).await.unwrap();
    let expected = "the collection \"c\" contains vectors of builtin-hash-1024 (1024 dimensions), \
        but the embedder is wordllama (256 dimensions); \
        use the embedder it was filled with, or fill a new collection";
    let added = other.add("c", &[document("b", "직원")]).await;
    assert_eq!(added.unwrap_err().to_string(), expected);
    let found = other.search("c", &texts(&["주문"]), 1).await;
    assert_eq!(found.unwrap_err().to_string(), expected);
    other.add("d", &[document("b", "직원")]).await.unwrap();
    assert!(matches!(
        index.search("d", &texts(&["주문"]), 1).await,
        Err(Error::IncompatibleVectors { .. })
    ));
    let known = index.collections().await.unwrap();
    let models: Vec<_> = known.iter().map(|it| (it.dimension, it.count)).collect();
    assert_eq!(models, [(Some(1024), 1), (Some(256), 1)]);
}

#[tokio::test]
async fn new_glossary_reindexes_existing_documents() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("index.db");
    let index = open(&directory).await;
    let all = [
        NewDocument::from_text("lots.reflow_temp"),
        NewDocument::from_text("lots.xray"),
    ];
    index.add("c", &all).await.unwrap();
    let glossary = Glossary::default().with_groups("xray 엑스선 투시");
    let embedder = Embedder::builtin().with_glossary(glossary);
    let index = DocumentIndex::embedded(&path, embedder).await.unwrap();
    for ranking in [Ranking::Hybrid, Ranking::Vectors, Ranking::Words] {
        let index = index.clone().with_ranking(ranking);
        let found = index.search("c", &texts(&["투시로 본"]), 1).await.unwrap();
        assert_eq!(ids(&found[0]), [all[1].id_or_digest()], "{ranking:?}");
    }
}

#[tokio::test]
async fn searches_go_on_while_documents_are_added() {
    let directory = tempfile::tempdir().unwrap();
    let index = open(&directory).await;
    index.add("c", &[document("a", "주문 날짜")]).await.unwrap();
    let many: Vec<NewDocument> = (0..1500)
        .map(|at| NewDocument::from_text(format!("칼럼 {at}")))
        .collect();
    let query = texts(&["주문 날짜"]);
    let searches = async {
        for _ in 0..40 {
            let found = index.search("c", &query, 3).await.unwrap();
            assert_eq!(found[0][0].id, "a");
        }
    };
    let (added, ()) = tokio::join!(index.add("c", &many), searches);
    assert_eq!(added.unwrap(), 1500);
    assert_eq!(index.collections().await.unwrap()[0].count, 1501);
}

#[tokio::test]
async fn new_index_file_can_be_opened_concurrently() {
    let directory = tempfile::tempdir().unwrap();
    let opened = futures_util::future::join_all((0..12).map(async |at| {
        let index = open(&directory).await;
        let id = at.to_string();
        index.add("c", &[document(&id, "주문 날짜")]).await.unwrap();
        index
    }));
    for index in opened.await {
        let found = index.search("c", &texts(&["주문"]), 99).await.unwrap();
        assert_eq!(found[0].len(), 12);
    }
}

#[tokio::test]
async fn query_text_cannot_break_full_text_search() {
    let directory = tempfile::tempdir().unwrap();
    let index = open(&directory).await;
    index.add("c", &[document("a", "주문 날짜")]).await.unwrap();
    let long = "주문 ".repeat(100_000);
    let queries = texts(&[
        "",
        "\"",
        "NEAR(a b)",
        "a* OR (",
        "주문'); DROP TABLE x",
        "\0",
        &long,
    ]);
    let found = index.search("c", &queries, 3).await.unwrap();
    assert_eq!(found.len(), queries.len());
    assert_eq!(ids(&found[4]), ["a"]);
}

#[tokio::test]
async fn file_that_is_not_an_index_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("index.db");
    std::fs::write(
        &path,
        "not a database, but long enough to be one ".repeat(100),
    )
    .unwrap();
    let opened = DocumentIndex::embedded(&path, Embedder::builtin()).await;
    assert!(matches!(opened, Err(Error::IndexFile(_))));
}
