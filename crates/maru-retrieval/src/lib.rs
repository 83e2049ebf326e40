//! Texts become vectors, and the documents nearest to a question are found.
//!
//! Vectors come from a built-in embedder, which knows words but no meaning, or
//! from an endpoint that speaks as OpenAI's does. Documents are kept in an
//! SQLite file of maru's own, or in a ChromaDB server.

#![forbid(unsafe_code)]

mod blocking;
mod chroma;
mod document;
mod embedded;
mod embedder;
mod endpoint;
mod glossary;
mod hash_embedding;
mod index;
mod json_lines;
mod json_service;
mod text_runs;
mod vector_set;

use thiserror::Error;

pub use chroma::ChromaEndpoint;
pub use document::{CollectionInfo, FoundDocument, NewDocument};
pub use embedder::Embedder;
pub use endpoint::EmbeddingEndpoint;
pub use glossary::Glossary;
pub use index::{DocumentIndex, Ranking};
pub use json_lines::JsonLinesReader;

/// Why there are no vectors or documents.
#[derive(Debug, Error)]
pub enum Error {
    /// A setting cannot be used.
    #[error("{0}")]
    InvalidSetting(&'static str),
    /// The service may not be reached, or cannot be.
    #[error("cannot ask {endpoint}")]
    Unreachable {
        /// Where, without its query.
        endpoint: String,
        /// What stood in the way.
        source: maru_http::Error,
    },
    /// The service refused, or failed more often than we ask again.
    #[error("{endpoint} answered {status}{}", .code.as_deref().map(|it| format!(" ({it})")).unwrap_or_default())]
    Status {
        /// Where, without its query.
        endpoint: String,
        /// The HTTP status.
        status: u16,
        /// The name that the service gives to the error.
        code: Option<String>,
    },
    /// The service did not answer in time.
    #[error("{endpoint} did not answer within {limit:?}")]
    Timeout {
        /// Where, without its query.
        endpoint: String,
        /// How long we waited.
        limit: std::time::Duration,
    },
    /// The answer is not what was asked for.
    #[error("{endpoint} sent {what}")]
    InvalidAnswer {
        /// Where, without its query.
        endpoint: String,
        /// What is wrong with it.
        what: String,
    },
    /// Vectors of two kinds cannot be compared.
    #[error(
        "the collection {collection:?} holds vectors of {kept}, and the embedder makes vectors of {given}; \
         use the embedder it was filled with, or fill a new collection"
    )]
    IncompatibleVectors {
        /// Its name.
        collection: String,
        /// Model and dimension in the collection.
        kept: String,
        /// Model and dimension of the embedder.
        given: String,
    },
    /// Nothing was added under this name.
    #[error("there is no collection {0:?}")]
    NoCollection(String),
    /// A collection cannot have this name.
    #[error("a collection's name has 1 to 512 characters, none of them a control character")]
    InvalidCollectionName,
    /// The index file failed.
    #[error("the index file failed")]
    IndexFile(#[from] rusqlite::Error),
    /// The index file was written by a newer maru.
    #[error("the index file has version {0}, which is newer than this maru")]
    NewerSchema(i64),
    /// Two processes use the file with different synonyms.
    #[error("another process reads the collection {0:?} with another glossary")]
    GlossaryConflict(String),
    /// A line of a file is no document.
    #[error("line {number}: {why}")]
    InvalidLine {
        /// Counted from one.
        number: usize,
        /// What is wrong with it.
        why: String,
    },
    /// The file with the documents cannot be read.
    #[error("line {number} cannot be read")]
    ReadLine {
        /// Counted from one.
        number: usize,
        /// What the system said.
        source: std::io::Error,
    },
    /// maru is shutting down.
    #[error("maru is stopping")]
    Stopping,
}
