//! The index of documents, embedded or in ChromaDB.

use std::{collections::HashSet, path::Path, sync::Arc, time::Duration};

use rusqlite::ErrorCode;
use tokio::time::{self, Instant};

use super::{
    ChromaEndpoint, CollectionInfo, Embedder, Error, FoundDocument, NewDocument,
    blocking::{run_blocking, run_read, run_write},
    chroma::ChromaIndex,
    document::{IndexedDocument, deduplicate},
    embedded::{EmbeddedIndex, EmbeddedSearch},
};

/// Documents per write.
const WRITE_BATCH_DOCUMENTS: usize = 256;
/// Maximum results per query.
const MAX_RESULTS: usize = 10_000;
/// How long to wait while another process opens a new file.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
const OPEN_RETRY_DELAY: Duration = Duration::from_millis(10);

/// Searchable collections of documents. Cheap to clone.
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

/// How an embedded index ranks its results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ranking {
    /// By full text and vectors; full text has twice the weight.
    #[default]
    Hybrid,
    /// By vectors only, for a semantic embedding model.
    Vectors,
    /// By full text only.
    Words,
}

impl DocumentIndex {
    /// Opens an SQLite file, which is created if it is missing and may be shared with
    /// other processes. Suits up to 200,000 documents per collection.
    pub async fn embedded(path: &Path, embedder: Embedder) -> Result<Self, Error> {
        let deadline = Instant::now() + OPEN_TIMEOUT;
        let embedded = loop {
            let path = path.to_owned();
            match run_blocking(move || EmbeddedIndex::open(path)).await {
                // `busy_timeout` does not cover the switch to WAL by another process.
                Err(Error::IndexFile(error)) if is_busy(&error) && Instant::now() < deadline => {
                    time::sleep(OPEN_RETRY_DELAY).await;
                }
                opened => break opened?,
            }
        };
        Ok(Self {
            backend: IndexBackend::Embedded(Arc::new(embedded), Ranking::default()),
            embedder,
        })
    }

    /// Uses a ChromaDB server; the connection is opened at the first request.
    pub fn chroma(settings: &ChromaEndpoint, embedder: Embedder) -> Result<Self, Error> {
        Ok(Self {
            backend: IndexBackend::Chroma(Arc::new(ChromaIndex::open(settings)?)),
            embedder,
        })
    }

    /// Sets the ranking. ChromaDB always ranks by vectors.
    #[must_use]
    pub fn with_ranking(mut self, ranking: Ranking) -> Self {
        if let IndexBackend::Embedded(_, current) = &mut self.backend {
            *current = ranking;
        }
        self
    }

    /// Returns the embedder.
    pub fn embedder(&self) -> &Embedder {
        &self.embedder
    }

    /// Returns up to `n` documents (at most 10,000) for each query, most similar first.
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
                let search = EmbeddedSearch {
                    queries: queries.iter().cloned().zip(vectors).collect(),
                    limit: n,
                    ranking: *ranking,
                };
                self.search_embedded(embedded, collection, search).await
            }
            IndexBackend::Chroma(server) => {
                let model = self.embedder.model();
                server.search(collection, model, &vectors, n).await
            }
        }
    }

    /// Inserts documents, or replaces those with the same id. Returns the number of
    /// distinct documents, which are on disk. After an error some may have been added; it
    /// is safe to add all again.
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

    /// Returns those of `ids` that the collection contains; none if it does not exist.
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

    /// Lists the collections, sorted by name.
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

    /// Removes a collection with its documents; false if it does not exist.
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

    /// Removes documents by id; returns how many existed.
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
        search: EmbeddedSearch,
    ) -> Result<Vec<Vec<FoundDocument>>, Error> {
        let search = Arc::new(search);
        for _attempt in 0..2 {
            let (name, embedder) = (collection.to_owned(), self.embedder.clone());
            let search = Arc::clone(&search);
            let run = move |it: &EmbeddedIndex| it.search(&name, &embedder, &search);
            if let Some(found) = run_read(embedded, run).await? {
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
