//! SQL statements on collections and their documents.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::super::{
    CollectionInfo, Embedder, Error, FoundDocument, document::IndexedDocument,
    glossary::SearchTerms, vector_set::VectorSet,
};
use super::full_text::FullTextTable;

/// A row of the table of collections.
#[derive(Debug)]
pub(super) struct CollectionRow {
    pub(super) id: i64,
    pub(super) model: String,
    pub(super) dimension: usize,
    /// The digest of the glossary that its texts were indexed with.
    pub(super) glossary: String,
    /// A number that grows with every change of its documents.
    pub(super) change: i64,
}

/// The documents of one collection within a transaction.
pub(super) struct CollectionTable<'a> {
    connection: &'a Connection,
    collection: i64,
    pub(super) words: FullTextTable<'a>,
}

pub(super) fn find_collection(
    connection: &Connection,
    name: &str,
) -> Result<Option<CollectionRow>, Error> {
    let sql = "SELECT id, model, dimension, glossary, change FROM collection WHERE name = ?1";
    let mut statement = connection.prepare_cached(sql)?;
    let row = statement.query_row([name], |row| {
        Ok(CollectionRow {
            id: row.get(0)?,
            model: row.get(1)?,
            dimension: read_usize(row, 2)?,
            glossary: row.get(3)?,
            change: row.get(4)?,
        })
    });
    Ok(row.optional()?)
}

/// Finds a collection, or creates it.
pub(super) fn find_or_create_collection(
    connection: &Connection,
    name: &str,
    embedder: &Embedder,
    dimension: usize,
) -> Result<CollectionRow, Error> {
    if let Some(collection) = find_collection(connection, name)? {
        return Ok(collection);
    }
    connection.execute(
        "INSERT INTO collection (name, model, dimension, glossary, change) VALUES (?1, ?2, ?3, ?4, 0)",
        params![name, embedder.model(), to_u32(dimension), embedder.glossary().digest()],
    )?;
    CollectionTable::new(connection, connection.last_insert_rowid())
        .words
        .create()?;
    find_collection(connection, name)?.ok_or_else(|| Error::NoCollection(name.to_owned()))
}

pub(super) fn list_collections(connection: &Connection) -> rusqlite::Result<Vec<CollectionInfo>> {
    let mut statement = connection.prepare_cached(
        "SELECT name, model, dimension,
            (SELECT count(*) FROM document WHERE collection = collection.id)
         FROM collection ORDER BY name",
    )?;
    let rows = statement.query_map([], |row| {
        Ok(CollectionInfo {
            name: row.get(0)?,
            model: row.get(1)?,
            dimension: read_usize(row, 2).map(Some)?,
            count: read_usize(row, 3)?,
        })
    })?;
    rows.collect()
}

impl CollectionRow {
    /// Fails if the collection has another embedding model or dimension.
    pub(super) fn check_compatible(
        &self,
        name: &str,
        model: &str,
        dimension: usize,
    ) -> Result<(), Error> {
        if self.model == model && self.dimension == dimension {
            return Ok(());
        }
        let describe = |model: &str, dimension: usize| format!("{model} ({dimension} dimensions)");
        Err(Error::IncompatibleVectors {
            collection: name.to_owned(),
            stored: describe(&self.model, self.dimension),
            current: describe(model, dimension),
        })
    }
}

impl<'a> CollectionTable<'a> {
    pub(super) fn new(connection: &'a Connection, collection: i64) -> Self {
        Self {
            connection,
            collection,
            words: FullTextTable::new(connection, collection),
        }
    }

    pub(super) fn count(&self) -> Result<usize, Error> {
        let sql = "SELECT count(*) FROM document WHERE collection = ?1";
        let mut statement = self.connection.prepare_cached(sql)?;
        Ok(statement.query_row([self.collection], |row| read_usize(row, 0))?)
    }

    /// Increments the change number and returns it.
    pub(super) fn next_change(&self) -> Result<i64, Error> {
        let sql = "UPDATE collection SET change = change + 1 WHERE id = ?1 RETURNING change";
        let mut statement = self.connection.prepare_cached(sql)?;
        Ok(statement.query_row([self.collection], |row| row.get(0))?)
    }

    /// Inserts a document, or replaces the one with its id.
    pub(super) fn upsert_document(
        &self,
        entry: &IndexedDocument,
        words: &SearchTerms,
        change: i64,
    ) -> Result<(), Error> {
        let mut statement = self.connection.prepare_cached(
            "INSERT INTO document (collection, id, body, metadata, vector, change)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)
             ON CONFLICT (collection, id) DO UPDATE SET
                body = ?3, metadata = ?4, vector = ?5, change = ?6
             RETURNING number",
        )?;
        let metadata = serde_json::Value::Object(entry.metadata.clone()).to_string();
        let values = params![
            self.collection,
            entry.id,
            entry.text,
            metadata,
            vector_to_bytes(&entry.vector),
            change
        ];
        let number: i64 = statement.query_row(values, |row| row.get(0))?;
        self.words.upsert(number, words)
    }

    /// Extracts the terms of all texts again, after the glossary changed.
    pub(super) fn reindex(&self, embedder: &Embedder) -> Result<(), Error> {
        let change = self.next_change()?;
        let digest = embedder.glossary().digest();
        let sql = "UPDATE collection SET glossary = ?2 WHERE id = ?1";
        self.connection
            .execute(sql, params![self.collection, digest])?;
        let sql = "SELECT number, body FROM document WHERE collection = ?1";
        let mut texts = self.connection.prepare(sql)?;
        let sql = "UPDATE document SET vector = ?2, change = ?3 WHERE number = ?1";
        let mut update = self.connection.prepare(sql)?;
        let mut rows = texts.query([self.collection])?;
        while let Some(row) = rows.next()? {
            let (number, text): (i64, String) = (row.get(0)?, row.get(1)?);
            self.words
                .upsert(number, &embedder.glossary().extract_terms(&text))?;
            if embedder.is_lexical()
                && let [vector] = &*embedder.embed_lexically(&[text])
            {
                update.execute(params![number, vector_to_bytes(vector), change])?;
            }
        }
        Ok(())
    }

    /// Loads the vectors that changed after `change`.
    pub(super) fn load_vectors_since(
        &self,
        change: i64,
        vectors: &mut VectorSet,
    ) -> Result<(), Error> {
        let mut statement = self.connection.prepare_cached(
            "SELECT number, vector FROM document WHERE collection = ?1 AND change > ?2",
        )?;
        let mut rows = statement.query([self.collection, change])?;
        while let Some(row) = rows.next()? {
            let blob = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
            let (floats, _) = blob.as_chunks::<4>();
            let vector = floats.iter().map(|it| f32::from_le_bytes(*it)).collect();
            vectors.upsert(row.get(0)?, vector);
        }
        Ok(())
    }

    /// Loads the documents with these numbers and scores.
    pub(super) fn load_documents(
        &self,
        found: Vec<(i64, f32)>,
    ) -> Result<Vec<FoundDocument>, Error> {
        let sql = "SELECT id, body, metadata FROM document WHERE number = ?1 AND collection = ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut documents = Vec::with_capacity(found.len());
        for (number, score) in found {
            let document = statement.query_row([number, self.collection], |row| {
                let metadata: String = row.get(2)?;
                Ok(FoundDocument {
                    id: row.get(0)?,
                    text: row.get(1)?,
                    metadata: serde_json::from_str(&metadata).unwrap_or_default(),
                    score,
                })
            });
            documents.extend(document.optional()?);
        }
        Ok(documents)
    }

    pub(super) fn existing_ids(&self, ids: &[String]) -> Result<HashSet<String>, Error> {
        let sql = "SELECT 1 FROM document WHERE collection = ?1 AND id = ?2";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut found = HashSet::new();
        for id in ids {
            if statement.exists(params![self.collection, id])? {
                found.insert(id.clone());
            }
        }
        Ok(found)
    }

    pub(super) fn remove_documents(&self, ids: &[String]) -> Result<usize, Error> {
        self.next_change()?;
        let sql = "DELETE FROM document WHERE collection = ?1 AND id = ?2 RETURNING number";
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut count = 0;
        for id in ids {
            let number = statement.query_row(params![self.collection, id], |row| row.get(0));
            if let Some(number) = number.optional()? {
                self.words.delete(number)?;
                count += 1;
            }
        }
        Ok(count)
    }

    /// Deletes the collection and its documents.
    pub(super) fn remove_collection(&self) -> Result<(), Error> {
        let by_id = [self.collection];
        self.connection
            .execute("DELETE FROM document WHERE collection = ?1", by_id)?;
        self.connection
            .execute("DELETE FROM collection WHERE id = ?1", by_id)?;
        self.words.drop_table()
    }
}

fn read_usize(row: &Row<'_>, at: usize) -> rusqlite::Result<usize> {
    let number: u32 = row.get(at)?;
    Ok(number as usize)
}

pub(super) fn to_u32(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

fn vector_to_bytes(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|it| it.to_le_bytes()).collect()
}
