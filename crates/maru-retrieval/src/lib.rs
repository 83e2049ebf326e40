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
mod text_runs;
mod vector_set;

use maru_http::{AddressPolicy, AllowedUrl, json_service};
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
    /// The embedding endpoint or ChromaDB may not be reached, or gave no usable answer.
    #[error(transparent)]
    Service(#[from] json_service::Error),
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

/// The place of a service that the settings name.
fn authorize(url: &str, policy: &AddressPolicy) -> Result<AllowedUrl, Error> {
    let refused = |source| json_service::Error::Unreachable {
        // The query may hold a secret.
        endpoint: url.split('?').next().unwrap_or_default().to_owned(),
        source,
    };
    Ok(policy.authorize_configured(url).map_err(refused)?)
}
