//! An index in one SQLite file. Vectors are also kept in memory, where all of
//! them are compared; words are found by SQLite's full-text index.

mod file;
mod full_text;
mod rank;
mod table;

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard},
};

use rusqlite::Connection;
use tokio::sync::Semaphore;
use tracing::warn;

use self::{
    file::File,
    table::{State, Table},
};
use super::{Collection, Document, Embedder, Error, Ranking, document::Entry, vectors::Vectors};

/// From here on, a server does better.
const MANY: usize = 200_000;
/// How many candidates each way of searching names at least.
const DEPTH: usize = 50;
const READERS: usize = 8;

#[derive(Debug)]
pub(super) struct Embedded {
    file: File,
    /// One writes, and not more search than there are threads worth having.
    pub(super) writing: Arc<Semaphore>,
    pub(super) reading: Arc<Semaphore>,
    shelves: Mutex<HashMap<i64, Arc<RwLock<Shelf>>>>,
}

/// The vectors of one collection as they were after its `change`.
#[derive(Debug, Default)]
struct Shelf {
    change: i64,
    vectors: Vectors,
}

impl Embedded {
    pub(super) fn open(path: PathBuf) -> Result<Self, Error> {
        Ok(Self {
            file: File::open(path)?,
            writing: Arc::new(Semaphore::new(1)),
            reading: Arc::new(Semaphore::new(READERS)),
            shelves: Mutex::default(),
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
    ) -> Result<Option<Vec<Vec<Document>>>, Error> {
        self.file.read(|snapshot| {
            let state = table::state(snapshot, name)?;
            let state = state.ok_or_else(|| Error::NoCollection(name.to_owned()))?;
            let dimension = queries.first().map_or(0, |(_, vector)| vector.len());
            state.check(name, embedder.model(), dimension)?;
            if state.glossary != embedder.glossary().digest() {
                return Ok(None);
            }
            let shelf = self.shelf(snapshot, &state)?;
            let table = Table::new(snapshot, state.id);
            let size = read(&shelf).vectors.len();
            let found = queries.iter().map(|(text, vector)| {
                let depth = n.max(DEPTH);
                let by_vector = match ranking {
                    Ranking::Words => Vec::new(),
                    Ranking::Hybrid | Ranking::Vectors => nearest(&shelf, vector, depth),
                };
                let by_word = match ranking {
                    Ranking::Vectors => Vec::new(),
                    Ranking::Hybrid | Ranking::Words => {
                        let words = embedder.glossary().read(text);
                        table.words.matching(&words, size, table::number(depth))?
                    }
                };
                table.documents(rank::fuse(&by_vector, &by_word, n))
            });
            found.collect::<Result<_, Error>>().map(Some)
        })
    }

    /// Writes `entries` in one transaction.
    pub(super) fn add(
        &self,
        name: &str,
        embedder: &Embedder,
        entries: &[Entry],
    ) -> Result<(), Error> {
        let dimension = entries.first().map_or(0, |it| it.vector.len());
        let (before, after) = self.file.write(|transaction| {
            let state = table::make(transaction, name, embedder, dimension)?;
            state.check(name, embedder.model(), dimension)?;
            refresh(transaction, &state, embedder)?;
            let table = Table::new(transaction, state.id);
            let before = table.count()?;
            let change = table.next_change()?;
            for entry in entries {
                let words = embedder.glossary().read(&entry.text);
                table.put(entry, &words, change)?;
            }
            Ok((before, table.count()?))
        })?;
        if before < MANY && MANY <= after {
            warn!(
                collection = name,
                "{name} has more than {MANY} documents; ChromaDB searches that many faster"
            );
        }
        Ok(())
    }

    /// Reads all texts again if that was done with another glossary.
    pub(super) fn reread(&self, name: &str, embedder: &Embedder) -> Result<(), Error> {
        self.file
            .write(|transaction| match table::state(transaction, name)? {
                Some(state) => refresh(transaction, &state, embedder),
                None => Ok(()),
            })
    }

    pub(super) fn has(&self, name: &str, ids: &[String]) -> Result<HashSet<String>, Error> {
        self.file
            .read(|snapshot| match table::state(snapshot, name)? {
                Some(state) => Table::new(snapshot, state.id).has(ids),
                None => Ok(HashSet::new()),
            })
    }

    pub(super) fn collections(&self) -> Result<Vec<Collection>, Error> {
        self.file.read(|snapshot| Ok(table::collections(snapshot)?))
    }

    pub(super) fn remove(&self, name: &str) -> Result<bool, Error> {
        let removed = self.file.write(|transaction| {
            let Some(state) = table::state(transaction, name)? else {
                return Ok(None);
            };
            Table::new(transaction, state.id).remove()?;
            Ok(Some(state.id))
        })?;
        if let Some(id) = removed {
            self.lock().remove(&id);
        }
        Ok(removed.is_some())
    }

    pub(super) fn remove_documents(&self, name: &str, ids: &[String]) -> Result<usize, Error> {
        self.file.write(|transaction| {
            let state = table::state(transaction, name)?;
            let state = state.ok_or_else(|| Error::NoCollection(name.to_owned()))?;
            Table::new(transaction, state.id).remove_documents(ids)
        })
    }

    /// The vectors of a collection, at least as new as `state`.
    fn shelf(&self, snapshot: &Connection, state: &State) -> Result<Arc<RwLock<Shelf>>, Error> {
        let shelf = Arc::clone(self.lock().entry(state.id).or_default());
        let is_current = read(&shelf).change >= state.change;
        if !is_current {
            let mut shelf = shelf.write().unwrap_or_else(PoisonError::into_inner);
            shelf.catch_up(&Table::new(snapshot, state.id), state)?;
        }
        Ok(shelf)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<i64, Arc<RwLock<Shelf>>>> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    /// Takes in what changed. What was removed is seen by the count only, and
    /// then everything is loaded.
    fn catch_up(&mut self, table: &Table<'_>, state: &State) -> Result<(), Error> {
        if self.change >= state.change {
            return Ok(());
        }
        if self.change == 0 {
            self.vectors = Vectors::new(state.dimension);
        }
        table.vectors(self.change, &mut self.vectors)?;
        if self.vectors.len() != table.count()? {
            self.vectors = Vectors::new(state.dimension);
            table.vectors(0, &mut self.vectors)?;
        }
        self.change = state.change;
        Ok(())
    }
}

fn refresh(transaction: &Connection, state: &State, embedder: &Embedder) -> Result<(), Error> {
    match state.glossary == embedder.glossary().digest() {
        true => Ok(()),
        false => Table::new(transaction, state.id).reread(embedder),
    }
}

fn nearest(shelf: &RwLock<Shelf>, vector: &[f32], count: usize) -> Vec<i64> {
    let found = read(shelf).vectors.nearest(vector, count).into_iter();
    found.map(|(number, _)| number).collect()
}

fn read(shelf: &RwLock<Shelf>) -> RwLockReadGuard<'_, Shelf> {
    shelf.read().unwrap_or_else(PoisonError::into_inner)
}
