//! A process that is killed while it adds documents.

use std::{collections::HashSet, path::PathBuf, time::Duration};

use maru_retrieval::{DocumentIndex, Embedder, NewDocument};
use tokio::time::{sleep, timeout};

use super::{services::command_ending_with_test, texts};

const INDEX_PATH_VARIABLE: &str = "MARU_TEST_INDEX";
const DOCUMENT_COUNT: usize = 20_000;

fn documents() -> Vec<NewDocument> {
    let documents = (0..DOCUMENT_COUNT).map(|at| NewDocument::from_text(format!("표 {at}의 칼럼")));
    documents.collect()
}

#[tokio::test]
async fn index_stays_usable_after_its_writer_is_killed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("index.db");
    let index = DocumentIndex::embedded(&path, Embedder::builtin())
        .await
        .unwrap();
    let mut writer = command_ending_with_test(std::env::current_exe().unwrap())
        .args(["--exact", "retrieval::crash::writer", "--ignored"])
        .env(INDEX_PATH_VARIABLE, &path)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let some = timeout(Duration::from_secs(60), async {
        while count(&index).await < 1000 {
            sleep(Duration::from_millis(5)).await;
        }
    });
    some.await.unwrap();
    writer.kill().await.unwrap();

    let kept = count(&index).await;
    assert!((1000..DOCUMENT_COUNT).contains(&kept), "{kept}");
    // Nothing is there by half: documents, their words and their vectors agree.
    let index = DocumentIndex::embedded(&path, Embedder::builtin())
        .await
        .unwrap();
    let all = documents();
    let ids: Vec<String> = all.iter().map(NewDocument::id_or_digest).collect();
    let has = index.existing_ids("c", &ids).await.unwrap();
    assert_eq!(has.len(), kept);
    let found = index
        .search("c", &texts(&["표 7의 칼럼"]), 1)
        .await
        .unwrap();
    assert_eq!(found[0][0].id, ids[7]);
    let rest: Vec<NewDocument> = missing(&all, &has).take(600).collect();
    index.add("c", &rest).await.unwrap();
    assert_eq!(count(&index).await, kept + rest.len());
    let query = rest[599].text.clone();
    let found = index.search("c", &[query], 1).await.unwrap();
    assert_eq!(found[0][0].id, rest[599].id_or_digest());
}

/// What the killed process does.
#[tokio::test]
#[ignore = "run by the test above"]
#[expect(clippy::disallowed_methods, reason = "the test above says where")]
async fn writer() {
    let Ok(path) = std::env::var(INDEX_PATH_VARIABLE) else {
        return;
    };
    let path = PathBuf::from(path);
    let index = DocumentIndex::embedded(&path, Embedder::builtin())
        .await
        .unwrap();
    index.add("c", &documents()).await.unwrap();
}

fn missing(all: &[NewDocument], has: &HashSet<String>) -> impl Iterator<Item = NewDocument> {
    all.iter()
        .filter(|it| !has.contains(&it.id_or_digest()))
        .cloned()
}

async fn count(index: &DocumentIndex) -> usize {
    let known = index.collections().await.unwrap();
    known.first().map_or(0, |it| it.count)
}
