//! Where documents are kept and found.

use std::{collections::HashSet, path::Path, sync::Arc, time::Duration};

use rusqlite::ErrorCode;
use tokio::time::{self, Instant};

use super::{
    Chroma, Collection, Document, Embedder, Error, NewDocument,
    chroma::Server,
    document::{Entry, distinct},
    embedded::Embedded,
    turns::{blocking, reading, writing},
};

/// How many documents are written at once.
const BATCH: usize = 256;
/// More documents than this are not found for one query.
const MOST: usize = 10_000;
/// How long another program may be about to open a new file.
const BUSY: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(10);

/// Collections of documents. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Index {
    kind: Kind,
    embedder: Embedder,
}

#[derive(Clone, Debug)]
enum Kind {
    Embedded(Arc<Embedded>, Ranking),
    Chroma(Arc<Server>),
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

impl Index {
    /// Documents in an SQLite file, which is made if there is none. Another
    /// process may use it at the same time. Good for some 200,000 documents.
    pub async fn embedded(path: &Path, embedder: Embedder) -> Result<Self, Error> {
        let deadline = Instant::now() + BUSY;
        let embedded = loop {
            let path = path.to_owned();
            match blocking(move || Embedded::open(path)).await {
                // SQLite does not wait by itself while another switches to WAL.
                Err(Error::File(error)) if is_busy(&error) && Instant::now() < deadline => {
                    time::sleep(AGAIN).await;
                }
                done => break done?,
            }
        };
        Ok(Self {
            kind: Kind::Embedded(Arc::new(embedded), Ranking::default()),
            embedder,
        })
    }

    /// Documents in a ChromaDB server, which is not reached before it is needed.
    pub fn chroma(settings: &Chroma, embedder: Embedder) -> Result<Self, Error> {
        Ok(Self {
            kind: Kind::Chroma(Arc::new(Server::open(settings)?)),
            embedder,
        })
    }

    /// The same documents in another order. ChromaDB orders by vectors always.
    #[must_use]
    pub fn ranked_by(mut self, ranking: Ranking) -> Self {
        if let Kind::Embedded(_, kept) = &mut self.kind {
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
    ) -> Result<Vec<Vec<Document>>, Error> {
        check_name(collection)?;
        if queries.is_empty() || n == 0 {
            return Ok(vec![Vec::new(); queries.len()]);
        }
        let n = n.min(MOST);
        let vectors = self.embedder.embed(queries).await?;
        match &self.kind {
            Kind::Embedded(embedded, ranking) => {
                let asked = queries.iter().cloned().zip(vectors).collect();
                let how = (n, *ranking);
                self.search_embedded(embedded, collection, asked, how).await
            }
            Kind::Chroma(server) => {
                let model = self.embedder.model();
                server.search(collection, model, &vectors, n).await
            }
        }
    }

    /// Adds documents, or puts them in the place of those with the same id;
    /// how many different ones there were. What is added is on disk. After an
    /// error some may have been added; adding all again does no harm.
    pub async fn add(&self, collection: &str, documents: &[NewDocument]) -> Result<usize, Error> {
        check_name(collection)?;
        let distinct = distinct(documents);
        for batch in distinct.chunks(BATCH) {
            let entries = self.entries(batch).await?;
            match &self.kind {
                Kind::Embedded(embedded, _) => {
                    let (name, embedder) = (collection.to_owned(), self.embedder.clone());
                    writing(embedded, move |it| it.add(&name, &embedder, &entries)).await?;
                }
                Kind::Chroma(server) => {
                    server
                        .add(collection, self.embedder.model(), entries)
                        .await?;
                }
            }
        }
        Ok(distinct.len())
    }

    /// Which of `ids` the collection has; none if there is no such collection.
    pub async fn has(&self, collection: &str, ids: &[String]) -> Result<HashSet<String>, Error> {
        check_name(collection)?;
        match &self.kind {
            Kind::Embedded(embedded, _) => {
                let (name, ids) = (collection.to_owned(), ids.to_vec());
                reading(embedded, move |it| it.has(&name, &ids)).await
            }
            Kind::Chroma(server) => server.has(collection, ids).await,
        }
    }

    /// All collections, by name.
    pub async fn collections(&self) -> Result<Vec<Collection>, Error> {
        let mut found = match &self.kind {
            Kind::Embedded(embedded, _) => reading(embedded, Embedded::collections).await?,
            Kind::Chroma(server) => server.collections().await?,
        };
        found.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    /// Removes a collection and its documents; whether there was one.
    pub async fn remove(&self, collection: &str) -> Result<bool, Error> {
        check_name(collection)?;
        match &self.kind {
            Kind::Embedded(embedded, _) => {
                let name = collection.to_owned();
                writing(embedded, move |it| it.remove(&name)).await
            }
            Kind::Chroma(server) => server.remove(collection).await,
        }
    }

    /// Removes documents; how many there were.
    pub async fn remove_documents(&self, collection: &str, ids: &[String]) -> Result<usize, Error> {
        check_name(collection)?;
        match &self.kind {
            Kind::Embedded(embedded, _) => {
                let (name, ids) = (collection.to_owned(), ids.to_vec());
                writing(embedded, move |it| it.remove_documents(&name, &ids)).await
            }
            Kind::Chroma(server) => server.remove_documents(collection, ids).await,
        }
    }

    async fn search_embedded(
        &self,
        embedded: &Arc<Embedded>,
        collection: &str,
        queries: Vec<(String, Vec<f32>)>,
        how: (usize, Ranking),
    ) -> Result<Vec<Vec<Document>>, Error> {
        let queries = Arc::new(queries);
        for _attempt in 0..2 {
            let (name, embedder) = (collection.to_owned(), self.embedder.clone());
            let asked = Arc::clone(&queries);
            let search = move |it: &Embedded| it.search(&name, &embedder, &asked, how);
            if let Some(found) = reading(embedded, search).await? {
                return Ok(found);
            }
            let (name, embedder) = (collection.to_owned(), self.embedder.clone());
            writing(embedded, move |it| it.reread(&name, &embedder)).await?;
        }
        Err(Error::Glossary(collection.to_owned()))
    }

    async fn entries(&self, batch: &[(String, &NewDocument)]) -> Result<Vec<Entry>, Error> {
        let texts: Vec<String> = batch.iter().map(|(_, it)| it.text.clone()).collect();
        let vectors = self.embedder.embed(&texts).await?;
        let entries = batch.iter().zip(texts).zip(vectors);
        let entries = entries.map(|(((id, document), text), vector)| Entry {
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

fn check_name(name: &str) -> Result<(), Error> {
    let length = name.chars().count();
    match (1..=512).contains(&length) && !name.chars().any(char::is_control) {
        true => Ok(()),
        false => Err(Error::Name),
    }
}
