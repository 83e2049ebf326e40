//! An index in one SQLite file. Vectors are also kept in memory, where all of
//! them are compared; words are found by SQLite's full-text index.

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

/// From here on, a server does better.
const LARGE_COLLECTION_DOCUMENTS: usize = 200_000;
/// How many candidates each way of searching names at least.
const MIN_CANDIDATES: usize = 50;
const MAX_CONCURRENT_READS: usize = 8;

#[derive(Debug)]
pub(super) struct EmbeddedIndex {
    file: IndexFile,
    /// One writes, and not more search than there are threads worth having.
    pub(super) write_permit: Arc<Semaphore>,
    pub(super) read_permits: Arc<Semaphore>,
    vector_cache: Mutex<HashMap<i64, Arc<RwLock<CachedVectors>>>>,
}

/// The vectors of one collection as they were after its `change`.
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

    /// The best `n` documents for each query; `None` if the texts have to be
    /// read again first.
    pub(super) fn search(
        &self,
        name: &str,
        embedder: &Embedder,
        queries: &[(String, Vec<f32>)],
        (n, ranking): (usize, Ranking),
    ) -> Result<Option<Vec<Vec<FoundDocument>>>, Error> {
        self.file.read_snapshot(|snapshot| {
            let state = collection_table::find_collection(snapshot, name)?;
            let state = state.ok_or_else(|| Error::NoCollection(name.to_owned()))?;
            let dimension = queries.first().map_or(0, |(_, vector)| vector.len());
            state.check_compatible(name, embedder.model(), dimension)?;
            if state.glossary != embedder.glossary().digest() {
                return Ok(None);
            }
            let shelf = self.cached_vectors(snapshot, &state)?;
            let table = CollectionTable::new(snapshot, state.id);
            let size = read_lock(&shelf).vectors.len();
            let found = queries.iter().map(|(text, vector)| {
                let depth = n.max(MIN_CANDIDATES);
                let by_vector = match ranking {
                    Ranking::Words => Vec::new(),
                    Ranking::Hybrid | Ranking::Vectors => nearest(&shelf, vector, depth),
                };
                let by_word = match ranking {
                    Ranking::Vectors => Vec::new(),
                    Ranking::Hybrid | Ranking::Words => {
                        let words = embedder.glossary().extract_terms(text);
                        table
                            .words
                            .matching(&words, size, collection_table::to_u32(depth))?
                    }
                };
                table.load_documents(fusion::fuse_rankings(&by_vector, &by_word, n))
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
            let state = collection_table::find_or_create_collection(
                transaction,
                name,
                embedder,
                dimension,
            )?;
            state.check_compatible(name, embedder.model(), dimension)?;
            reindex_if_stale(transaction, &state, embedder)?;
            let table = CollectionTable::new(transaction, state.id);
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

    /// Reads all texts again if that was done with another glossary.
    pub(super) fn reindex(&self, name: &str, embedder: &Embedder) -> Result<(), Error> {
        self.file.write_transaction(|transaction| {
            match collection_table::find_collection(transaction, name)? {
                Some(state) => reindex_if_stale(transaction, &state, embedder),
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
                Some(state) => CollectionTable::new(snapshot, state.id).existing_ids(ids),
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
            let Some(state) = collection_table::find_collection(transaction, name)? else {
                return Ok(None);
            };
            CollectionTable::new(transaction, state.id).remove_collection()?;
            Ok(Some(state.id))
        })?;
        if let Some(id) = removed {
            self.lock_cache().remove(&id);
        }
        Ok(removed.is_some())
    }

    pub(super) fn remove_documents(&self, name: &str, ids: &[String]) -> Result<usize, Error> {
        self.file.write_transaction(|transaction| {
            let state = collection_table::find_collection(transaction, name)?;
            let state = state.ok_or_else(|| Error::NoCollection(name.to_owned()))?;
            CollectionTable::new(transaction, state.id).remove_documents(ids)
        })
    }

    /// The vectors of a collection, at least as new as `state`.
    fn cached_vectors(
        &self,
        snapshot: &Connection,
        state: &CollectionRow,
    ) -> Result<Arc<RwLock<CachedVectors>>, Error> {
        let shelf = Arc::clone(self.lock_cache().entry(state.id).or_default());
        let is_current = read_lock(&shelf).change >= state.change;
        if !is_current {
            let mut shelf = shelf.write().unwrap_or_else(PoisonError::into_inner);
            shelf.catch_up(&CollectionTable::new(snapshot, state.id), state)?;
        }
        Ok(shelf)
    }

    fn lock_cache(&self) -> std::sync::MutexGuard<'_, HashMap<i64, Arc<RwLock<CachedVectors>>>> {
        self.vector_cache
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl CachedVectors {
    /// Takes in what changed. What was removed is seen by the count only, and
    /// then everything is loaded.
    fn catch_up(
        &mut self,
        table: &CollectionTable<'_>,
        state: &CollectionRow,
    ) -> Result<(), Error> {
        if self.change >= state.change {
            return Ok(());
        }
        if self.change == 0 {
            self.vectors = VectorSet::new(state.dimension);
        }
        table.load_vectors_since(self.change, &mut self.vectors)?;
        if self.vectors.len() != table.count()? {
            self.vectors = VectorSet::new(state.dimension);
            table.load_vectors_since(0, &mut self.vectors)?;
        }
        self.change = state.change;
        Ok(())
    }
}

fn reindex_if_stale(
    transaction: &Connection,
    state: &CollectionRow,
    embedder: &Embedder,
) -> Result<(), Error> {
    if state.glossary == embedder.glossary().digest() {
        Ok(())
    } else {
        CollectionTable::new(transaction, state.id).reindex(embedder)
    }
}

fn nearest(shelf: &RwLock<CachedVectors>, vector: &[f32], count: usize) -> Vec<i64> {
    let found = read_lock(shelf).vectors.nearest(vector, count).into_iter();
    found.map(|(number, _)| number).collect()
}

fn read_lock(shelf: &RwLock<CachedVectors>) -> RwLockReadGuard<'_, CachedVectors> {
    shelf.read().unwrap_or_else(PoisonError::into_inner)
}
