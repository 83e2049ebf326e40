//! Documents that are found again: the same promises for every index.

mod chroma;
mod crash;
mod embedded;
mod endpoint;
pub(crate) mod services;

use maru_retrieval::{DocumentIndex, Error, FoundDocument, NewDocument};
use serde::Deserialize;
use serde_json::json;

/// 200 columns of tables, 40 questions, and 20 that were written later.
#[derive(Deserialize)]
struct RetrievalSet {
    docs: Vec<String>,
    ids: Vec<String>,
    q: Vec<(String, Vec<String>)>,
    held: Vec<(String, Vec<String>)>,
}

fn load_set() -> RetrievalSet {
    serde_json::from_str(include_str!("../data/retrieval.json")).unwrap()
}

impl RetrievalSet {
    fn documents(&self) -> Vec<NewDocument> {
        let named = self.ids.iter().zip(&self.docs);
        let named = named.map(|(id, text)| NewDocument {
            id: Some(id.clone()),
            ..NewDocument::from_text(text)
        });
        named.collect()
    }
}

/// How many of the questions have a right answer among the first three.
async fn hit_rate(index: &DocumentIndex, asked: &[(String, Vec<String>)]) -> f64 {
    let queries: Vec<String> = asked.iter().map(|(query, _)| query.clone()).collect();
    let found = index.search("columns", &queries, 3).await.unwrap();
    let good = found.iter().zip(asked).filter(|(found, (_, right))| {
        assert!(found.len() <= 3);
        found.iter().any(|it| right.contains(&it.id))
    });
    good.count() as f64 / asked.len() as f64
}

fn document(id: &str, text: &str) -> NewDocument {
    let metadata = json!({"from": id, "page": 7});
    NewDocument {
        id: Some(id.to_owned()),
        text: text.to_owned(),
        metadata: metadata.as_object().unwrap().clone(),
    }
}

fn texts(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|it| (*it).to_owned()).collect()
}

fn ids(found: &[FoundDocument]) -> Vec<&str> {
    found.iter().map(|it| it.id.as_str()).collect()
}

/// What every index promises, whoever keeps the documents.
async fn check_index(index: &DocumentIndex) {
    assert_eq!(index.collections().await.unwrap(), []);
    let nothing = index.search("orders", &texts(&["주문"]), 3).await;
    assert!(matches!(nothing, Err(Error::NoCollection(name)) if name == "orders"));
    assert!(
        index
            .existing_ids("orders", &texts(&["a"]))
            .await
            .unwrap()
            .is_empty()
    );

    let all = [
        document("a", "orders.order_date 주문 날짜"),
        document("b", "employees.salary 직원 급여"),
        document("a", "orders.order_date 주문 생성 일시"),
        NewDocument::from_text("products.price 상품 가격"),
    ];
    assert_eq!(index.add("orders", &all).await.unwrap(), 3);
    assert_eq!(index.add("orders", &all).await.unwrap(), 3);
    let known = index.collections().await.unwrap();
    assert_eq!(known.len(), 1);
    assert_eq!((known[0].name.as_str(), known[0].count), ("orders", 3));
    assert_eq!(known[0].model.as_deref(), Some(index.embedder().model()));
    assert!(known[0].dimension.is_some_and(|it| it > 1));

    let queries = texts(&["주문 생성 일시", "직원 급여", "상품 가격"]);
    let found = index.search("orders", &queries, 2).await.unwrap();
    assert_eq!(found.len(), 3);
    assert_eq!(ids(&found[0])[0], "a");
    assert_eq!(ids(&found[1])[0], "b");
    assert_eq!(ids(&found[2])[0], all[3].id_or_digest());
    assert!(
        found
            .iter()
            .all(|it| it.len() == 2 && it[0].score >= it[1].score)
    );
    assert_eq!(
        found[0][0].text.as_deref(),
        Some("orders.order_date 주문 생성 일시")
    );
    assert_eq!(found[0][0].metadata["page"], 7);
    assert!(found[2][0].metadata.is_empty());

    let asked = texts(&["a", "b", "c"]);
    let has = index.existing_ids("orders", &asked).await.unwrap();
    assert_eq!(has, ["a".to_owned(), "b".to_owned()].into());
    assert_eq!(index.remove_documents("orders", &asked).await.unwrap(), 2);
    let found = index
        .search("orders", &texts(&["직원 급여"]), 9)
        .await
        .unwrap();
    assert_eq!(ids(&found[0]), [all[3].id_or_digest()]);
    assert!(index.search("orders", &[], 3).await.unwrap().is_empty());
    assert!(index.search("orders", &texts(&["x"]), 0).await.unwrap()[0].is_empty());

    assert!(index.remove("orders").await.unwrap());
    assert!(!index.remove("orders").await.unwrap());
    let nothing = index.search("orders", &texts(&["주문"]), 3).await;
    assert!(matches!(nothing, Err(Error::NoCollection(_))));
    // The name is free again.
    assert_eq!(index.add("orders", &all[..1]).await.unwrap(), 1);
    let found = index.search("orders", &texts(&["주문"]), 3).await.unwrap();
    assert_eq!(ids(&found[0]), ["a"]);
    assert!(index.remove("orders").await.unwrap());
    for bad in ["", "a\nb"] {
        assert!(matches!(
            index.remove(bad).await,
            Err(Error::InvalidCollectionName)
        ));
    }
}
