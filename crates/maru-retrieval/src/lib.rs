//! Embeddings and similarity search over collections of documents.
//!
//! - [`Embedder`] turns texts into vectors: with a built-in lexical model, or over an
//!   OpenAI-compatible [`EmbeddingEndpoint`].
//! - [`DocumentIndex`] stores documents and searches them: in an SQLite file (vectors and
//!   full text, fused by [`Ranking`]), or in a ChromaDB server ([`ChromaEndpoint`]).
//! - [`Glossary`] lists synonyms in Korean and English, for both vectors and full text.
//! - [`ToolIndex`] ranks tools by a question.
//! - [`JsonLinesReader`] reads documents from a JSON Lines file.
//!
//! ```ignore
//! let index = DocumentIndex::embedded(path, Embedder::builtin()).await?;
//! index.add("notes", &[NewDocument::from_text("연차 휴가 규정")]).await?;
//! let found = index.search("notes", &["vacation".to_owned()], 5).await?;
//! ```
//!
//! Test with `cargo nextest run -p maru-retrieval`, and with servers on loopback by
//! `cargo nextest run -p maru --test it retrieval`.

#![forbid(unsafe_code)]

mod blocking;
mod bm25;
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
mod tool_ranking;
mod tool_terms;
mod vector_set;

use maru_http::{AddressPolicy, AllowedUrl, json_service};
use thiserror::Error;

pub use chroma::ChromaEndpoint;
pub use document::{CollectionInfo, FoundDocument, NewDocument};
pub use embedder::{EmbeddedTexts, Embedder};
pub use endpoint::EmbeddingEndpoint;
pub use glossary::Glossary;
pub use index::{DocumentIndex, Ranking};
pub use json_lines::JsonLinesReader;
pub use tool_ranking::{ToolIndex, cosine_similarity, fuse_scores};
pub use tool_terms::{ToolDescription, ToolTerms};

/// Why texts could not be embedded, or documents not stored or found.
#[derive(Debug, Error)]
pub enum Error {
    /// A setting is invalid.
    #[error("{0}")]
    InvalidSetting(&'static str),
    /// The request to the embedding endpoint or ChromaDB failed.
    #[error(transparent)]
    Service(#[from] json_service::Error),
    /// The collection was filled with another embedding model.
    #[error(
        "the collection {collection:?} contains vectors of {stored}, but the embedder is {current}; \
         use the embedder it was filled with, or fill a new collection"
    )]
    IncompatibleVectors {
        /// The name of the collection.
        collection: String,
        /// Model and dimension of the collection.
        stored: String,
        /// Model and dimension of the embedder.
        current: String,
    },
    /// The collection does not exist.
    #[error("there is no collection {0:?}")]
    NoCollection(String),
    /// The name of a collection is invalid.
    #[error("a collection's name has 1 to 512 characters, none of them a control character")]
    InvalidCollectionName,
    /// SQLite reported an error.
    #[error("the index file could not be read or written")]
    IndexFile(#[from] rusqlite::Error),
    /// A newer maru has written the index file.
    #[error("the index file has version {0}, which is newer than this maru")]
    NewerSchema(i64),
    /// Two processes use the file with different glossaries.
    #[error("another process indexes the collection {0:?} with another glossary")]
    GlossaryConflict(String),
    /// A line of a JSON Lines file is not a document.
    #[error("line {number}: {reason}")]
    InvalidLine {
        /// The line number, from one.
        number: usize,
        /// Why it is not a document.
        reason: String,
    },
    /// Reading a JSON Lines file failed.
    #[error("line {number} cannot be read")]
    ReadLine {
        /// The line number, from one.
        number: usize,
        /// The I/O error.
        source: std::io::Error,
    },
    /// maru is shutting down.
    #[error("maru is stopping")]
    Stopping,
}

/// Parses the URL of a service from the settings.
fn authorize(url: &str, policy: &AddressPolicy) -> Result<AllowedUrl, Error> {
    let refused = |source| json_service::Error::Unreachable {
        // The query may contain a secret.
        endpoint: url.split('?').next().unwrap_or_default().to_owned(),
        source,
    };
    Ok(policy.authorize_configured(url).map_err(refused)?)
}
