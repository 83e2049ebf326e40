//! Where documents are kept and found.

use std::{collections::HashSet, path::Path, sync::Arc, time::Duration};

use rusqlite::ErrorCode;
use tokio::time::{self, Instant};

use super::{
    ChromaEndpoint, CollectionInfo, Embedder, Error, FoundDocument, NewDocument,
    blocking::{run_blocking, run_read, run_write},
    chroma::ChromaIndex,
    document::{IndexedDocument, deduplicate},
    embedded::EmbeddedIndex,
};

/// How many documents are written at once.
const WRITE_BATCH_DOCUMENTS: usize = 256;
/// More documents than this are not found for one query.
const MAX_RESULTS: usize = 10_000;
/// How long another program may be about to open a new file.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
const OPEN_RETRY_DELAY: Duration = Duration::from_millis(10);

/// Collections of documents. Cheap to clone.
#[derive(Clone, Debug)]
pub struct DocumentIndex {
    backend: IndexBackend,
    embedder: Embedder,
}

#[derive(Clone, Debug)]
enum IndexBackend {
    Embedded(Arc<EmbeddedIndex>, Ranking),
    Chroma(Arc<ChromaIndex>),
}

/// What the order of an embedded index follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ranking {
    /// Words and vectors; words count twice.
    #[default]
    Hybrid,
    /// Vectors only: for an embedder that understands texts.
    Vectors,
    /// Words only.
    Words,
}

impl DocumentIndex {
    /// Documents in an SQLite file, which is made if there is none. Another
    /// process may use it at the same time. Good for some 200,000 documents.
    pub async fn embedded(path: &Path, embedder: Embedder) -> Result<Self, Error> {
        let deadline = Instant::now() + OPEN_TIMEOUT;
        let embedded = loop {
            let path = path.to_owned();
            match run_blocking(move || EmbeddedIndex::open(path)).await {
                // SQLite does not wait by itself while another switches to WAL.
                Err(Error::IndexFile(error)) if is_busy(&error) && Instant::now() < deadline => {
                    time::sleep(OPEN_RETRY_DELAY).await;
                }
                done => break done?,
            }
        };
        Ok(Self {
            backend: IndexBackend::Embedded(Arc::new(embedded), Ranking::default()),
            embedder,
        })
    }

    /// Documents in a ChromaDB server, which is not reached before it is needed.
    pub fn chroma(settings: &ChromaEndpoint, embedder: Embedder) -> Result<Self, Error> {
        Ok(Self {
            backend: IndexBackend::Chroma(Arc::new(ChromaIndex::open(settings)?)),
            embedder,
        })
    }

    /// The same documents in another order. ChromaDB orders by vectors always.
    #[must_use]
    pub fn with_ranking(mut self, ranking: Ranking) -> Self {
        if let IndexBackend::Embedded(_, kept) = &mut self.backend {
            *kept = ranking;
        }
        self
    }

    /// What makes its vectors.
    pub fn embedder(&self) -> &Embedder {
        &self.embedder
    }

    /// For each query up to `n` documents, at most 10,000, most similar first.
    pub async fn search(
        &self,
        collection: &str,
        queries: &[String],
        n: usize,
    ) -> Result<Vec<Vec<FoundDocument>>, Error> {
        check_collection_name(collection)?;
        if queries.is_empty() || n == 0 {
            return Ok(vec![Vec::new(); queries.len()]);
        }
        let n = n.min(MAX_RESULTS);
        let vectors = self.embedder.embed(queries).await?;
        match &self.backend {
            IndexBackend::Embedded(embedded, ranking) => {
                let asked = queries.iter().cloned().zip(vectors).collect();
                let how = (n, *ranking);
                self.search_embedded(embedded, collection, asked, how).await
            }
            IndexBackend::Chroma(server) => {
                let model = self.embedder.model();
                server.search(collection, model, &vectors, n).await
            }
        }
    }

    /// Adds documents, or puts them in the place of those with the same id;
    /// how many different ones there were. What is added is on disk. After an
    /// error some may have been added; adding all again does no harm.
    pub async fn add(&self, collection: &str, documents: &[NewDocument]) -> Result<usize, Error> {
        check_collection_name(collection)?;
        let distinct = deduplicate(documents);
        for batch in distinct.chunks(WRITE_BATCH_DOCUMENTS) {
            let entries = self.embed_batch(batch).await?;
            match &self.backend {
                IndexBackend::Embedded(embedded, _) => {
                    let (name, embedder) = (collection.to_owned(), self.embedder.clone());
                    run_write(embedded, move |it| {
                        it.add_documents(&name, &embedder, &entries)
                    })
                    .await?;
                }
                IndexBackend::Chroma(server) => {
                    server
                        .upsert_documents(collection, self.embedder.model(), entries)
                        .await?;
                }
            }
        }
        Ok(distinct.len())
    }

    /// Which of `ids` the collection has; none if there is no such collection.
    pub async fn existing_ids(
        &self,
        collection: &str,
        ids: &[String],
    ) -> Result<HashSet<String>, Error> {
        check_collection_name(collection)?;
        match &self.backend {
            IndexBackend::Embedded(embedded, _) => {
                let (name, ids) = (collection.to_owned(), ids.to_vec());
                run_read(embedded, move |it| it.existing_ids(&name, &ids)).await
            }
            IndexBackend::Chroma(server) => server.existing_ids(collection, ids).await,
        }
    }

    /// All collections, by name.
    pub async fn collections(&self) -> Result<Vec<CollectionInfo>, Error> {
        let mut found = match &self.backend {
            IndexBackend::Embedded(embedded, _) => {
                run_read(embedded, EmbeddedIndex::collections).await?
            }
            IndexBackend::Chroma(server) => server.collections().await?,
        };
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// Removes a collection and its documents; whether there was one.
    pub async fn remove(&self, collection: &str) -> Result<bool, Error> {
        check_collection_name(collection)?;
        match &self.backend {
            IndexBackend::Embedded(embedded, _) => {
                let name = collection.to_owned();
                run_write(embedded, move |it| it.remove_collection(&name)).await
            }
            IndexBackend::Chroma(server) => server.remove_collection(collection).await,
        }
    }

    /// Removes documents; how many there were.
    pub async fn remove_documents(&self, collection: &str, ids: &[String]) -> Result<usize, Error> {
        check_collection_name(collection)?;
        match &self.backend {
            IndexBackend::Embedded(embedded, _) => {
                let (name, ids) = (collection.to_owned(), ids.to_vec());
                run_write(embedded, move |it| it.remove_documents(&name, &ids)).await
            }
            IndexBackend::Chroma(server) => server.remove_documents(collection, ids).await,
        }
    }

    async fn search_embedded(
        &self,
        embedded: &Arc<EmbeddedIndex>,
        collection: &str,
        queries: Vec<(String, Vec<f32>)>,
        how: (usize, Ranking),
    ) -> Result<Vec<Vec<FoundDocument>>, Error> {
        let queries = Arc::new(queries);
        for _attempt in 0..2 {
            let (name, embedder) = (collection.to_owned(), self.embedder.clone());
            let asked = Arc::clone(&queries);
            let search = move |it: &EmbeddedIndex| it.search(&name, &embedder, &asked, how);
            if let Some(found) = run_read(embedded, search).await? {
                return Ok(found);
            }
            let (name, embedder) = (collection.to_owned(), self.embedder.clone());
            run_write(embedded, move |it| it.reindex(&name, &embedder)).await?;
        }
        Err(Error::GlossaryConflict(collection.to_owned()))
    }

    async fn embed_batch(
        &self,
        batch: &[(String, &NewDocument)],
    ) -> Result<Vec<IndexedDocument>, Error> {
        let texts: Vec<String> = batch.iter().map(|(_, it)| it.text.clone()).collect();
        let vectors = self.embedder.embed(&texts).await?;
        let entries = batch.iter().zip(texts).zip(vectors);
        let entries = entries.map(|(((id, document), text), vector)| IndexedDocument {
            id: id.clone(),
            text,
            metadata: document.metadata.clone(),
            vector,
        });
        Ok(entries.collect())
    }
}

fn is_busy(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
}

fn check_collection_name(name: &str) -> Result<(), Error> {
    let length = name.chars().count();
    if (1..=512).contains(&length) && !name.chars().any(char::is_control) {
        Ok(())
    } else {
        Err(Error::InvalidCollectionName)
    }
}
