//! An index in one SQLite file. Vectors are cached in memory and compared exhaustively;
//! words are found by SQLite's full-text search.

mod collection_table;
mod full_text;
mod fusion;
mod index_file;

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard},
};

use rusqlite::Connection;
use tokio::sync::Semaphore;
use tracing::warn;

use self::{
    collection_table::{CollectionRow, CollectionTable},
    index_file::IndexFile,
};
use super::{
    CollectionInfo, Embedder, Error, FoundDocument, Ranking, document::IndexedDocument,
    vector_set::VectorSet,
};

/// From this size on, maru recommends ChromaDB.
const LARGE_COLLECTION_DOCUMENTS: usize = 200_000;
/// Minimum number of candidates of each ranking.
const MIN_CANDIDATES: usize = 50;
const MAX_CONCURRENT_READS: usize = 8;

#[derive(Debug)]
pub(super) struct EmbeddedIndex {
    file: IndexFile,
    /// One writer, and not more readers than there are useful threads.
    pub(super) write_permit: Arc<Semaphore>,
    pub(super) read_permits: Arc<Semaphore>,
    vector_cache: Mutex<HashMap<i64, Arc<RwLock<CachedVectors>>>>,
}

/// A search for several queries.
#[derive(Debug)]
pub(super) struct EmbeddedSearch {
    /// Text and vector of each query.
    pub(super) queries: Vec<(String, Vec<f32>)>,
    /// Maximum results per query.
    pub(super) limit: usize,
    pub(super) ranking: Ranking,
}

/// The vectors of one collection after its change number `change`.
#[derive(Debug, Default)]
struct CachedVectors {
    change: i64,
    vectors: VectorSet,
}

impl EmbeddedIndex {
    pub(super) fn open(path: PathBuf) -> Result<Self, Error> {
        Ok(Self {
            file: IndexFile::open(path)?,
            write_permit: Arc::new(Semaphore::new(1)),
            read_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_READS)),
            vector_cache: Mutex::default(),
        })
    }

    /// Returns the best documents for each query; `None` if the collection must be
    /// reindexed first.
    pub(super) fn search(
        &self,
        name: &str,
        embedder: &Embedder,
        search: &EmbeddedSearch,
    ) -> Result<Option<Vec<Vec<FoundDocument>>>, Error> {
        self.file.read_snapshot(|snapshot| {
            let collection = collection_table::find_collection(snapshot, name)?;
            let collection = collection.ok_or_else(|| Error::NoCollection(name.to_owned()))?;
            let dimension = search.queries.first().map_or(0, |(_, vector)| vector.len());
            collection.check_compatible(name, embedder.model(), dimension)?;
            if collection.glossary != embedder.glossary().digest() {
                return Ok(None);
            }
            let cache = self.cached_vectors(snapshot, &collection)?;
            let table = CollectionTable::new(snapshot, collection.id);
            let size = read_lock(&cache).vectors.len();
            let found = search.queries.iter().map(|(text, vector)| {
                let depth = search.limit.max(MIN_CANDIDATES);
                let by_vector = match search.ranking {
                    Ranking::Words => Vec::new(),
                    Ranking::Hybrid | Ranking::Vectors => nearest(&cache, vector, depth),
                };
                let by_word = match search.ranking {
                    Ranking::Vectors => Vec::new(),
                    Ranking::Hybrid | Ranking::Words => {
                        let words = embedder.glossary().extract_terms(text);
                        table
                            .words
                            .matching(&words, size, collection_table::to_u32(depth))?
                    }
                };
                table.load_documents(fusion::fuse_rankings(&by_vector, &by_word, search.limit))
            });
            found.collect::<Result<_, Error>>().map(Some)
        })
    }

    /// Writes `entries` in one transaction.
    pub(super) fn add_documents(
        &self,
        name: &str,
        embedder: &Embedder,
        entries: &[IndexedDocument],
    ) -> Result<(), Error> {
        let dimension = entries.first().map_or(0, |it| it.vector.len());
        let (before, after) = self.file.write_transaction(|transaction| {
            let collection = collection_table::find_or_create_collection(
                transaction,
                name,
                embedder,
                dimension,
            )?;
            collection.check_compatible(name, embedder.model(), dimension)?;
            reindex_if_stale(transaction, &collection, embedder)?;
            let table = CollectionTable::new(transaction, collection.id);
            let before = table.count()?;
            let change = table.next_change()?;
            for entry in entries {
                let words = embedder.glossary().extract_terms(&entry.text);
                table.upsert_document(entry, &words, change)?;
            }
            Ok((before, table.count()?))
        })?;
        if before < LARGE_COLLECTION_DOCUMENTS && LARGE_COLLECTION_DOCUMENTS <= after {
            warn!(
                collection = name,
                "{name} has more than {LARGE_COLLECTION_DOCUMENTS} documents; ChromaDB searches that many faster"
            );
        }
        Ok(())
    }

    /// Reindexes a collection whose texts were indexed with another glossary.
    pub(super) fn reindex(&self, name: &str, embedder: &Embedder) -> Result<(), Error> {
        self.file.write_transaction(|transaction| {
            match collection_table::find_collection(transaction, name)? {
                Some(collection) => reindex_if_stale(transaction, &collection, embedder),
                None => Ok(()),
            }
        })
    }

    pub(super) fn existing_ids(
        &self,
        name: &str,
        ids: &[String],
    ) -> Result<HashSet<String>, Error> {
        self.file.read_snapshot(|snapshot| {
            match collection_table::find_collection(snapshot, name)? {
                Some(collection) => CollectionTable::new(snapshot, collection.id).existing_ids(ids),
                None => Ok(HashSet::new()),
            }
        })
    }

    pub(super) fn collections(&self) -> Result<Vec<CollectionInfo>, Error> {
        self.file
            .read_snapshot(|snapshot| Ok(collection_table::list_collections(snapshot)?))
    }

    pub(super) fn remove_collection(&self, name: &str) -> Result<bool, Error> {
        let removed = self.file.write_transaction(|transaction| {
            let Some(collection) = collection_table::find_collection(transaction, name)? else {
                return Ok(None);
            };
            CollectionTable::new(transaction, collection.id).remove_collection()?;
            Ok(Some(collection.id))
        })?;
        if let Some(id) = removed {
            self.lock_cache().remove(&id);
        }
        Ok(removed.is_some())
    }

    pub(super) fn remove_documents(&self, name: &str, ids: &[String]) -> Result<usize, Error> {
        self.file.write_transaction(|transaction| {
            let collection = collection_table::find_collection(transaction, name)?;
            let collection = collection.ok_or_else(|| Error::NoCollection(name.to_owned()))?;
            CollectionTable::new(transaction, collection.id).remove_documents(ids)
        })
    }

    /// Returns the cached vectors of a collection, at least as new as `collection`.
    fn cached_vectors(
        &self,
        snapshot: &Connection,
        collection: &CollectionRow,
    ) -> Result<Arc<RwLock<CachedVectors>>, Error> {
        let cache = Arc::clone(self.lock_cache().entry(collection.id).or_default());
        let is_current = read_lock(&cache).change >= collection.change;
        if !is_current {
            let mut cache = cache.write().unwrap_or_else(PoisonError::into_inner);
            cache.catch_up(&CollectionTable::new(snapshot, collection.id), collection)?;
        }
        Ok(cache)
    }

    fn lock_cache(&self) -> std::sync::MutexGuard<'_, HashMap<i64, Arc<RwLock<CachedVectors>>>> {
        self.vector_cache
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl CachedVectors {
    /// Loads the vectors that changed. Removed documents only show in the count; then
    /// everything is loaded again.
    fn catch_up(
        &mut self,
        table: &CollectionTable<'_>,
        collection: &CollectionRow,
    ) -> Result<(), Error> {
        if self.change >= collection.change {
            return Ok(());
        }
        if self.change == 0 {
            self.vectors = VectorSet::new(collection.dimension);
        }
        table.load_vectors_since(self.change, &mut self.vectors)?;
        if self.vectors.len() != table.count()? {
            self.vectors = VectorSet::new(collection.dimension);
            table.load_vectors_since(0, &mut self.vectors)?;
        }
        self.change = collection.change;
        Ok(())
    }
}

fn reindex_if_stale(
    transaction: &Connection,
    collection: &CollectionRow,
    embedder: &Embedder,
) -> Result<(), Error> {
    if collection.glossary == embedder.glossary().digest() {
        Ok(())
    } else {
        CollectionTable::new(transaction, collection.id).reindex(embedder)
    }
}

fn nearest(cache: &RwLock<CachedVectors>, vector: &[f32], count: usize) -> Vec<i64> {
    let found = read_lock(cache).vectors.nearest(vector, count).into_iter();
    found.map(|(number, _)| number).collect()
}

fn read_lock(cache: &RwLock<CachedVectors>) -> RwLockReadGuard<'_, CachedVectors> {
    cache.read().unwrap_or_else(PoisonError::into_inner)
}
