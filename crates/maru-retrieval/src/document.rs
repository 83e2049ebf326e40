//! Documents to add, documents found, and information on collections.

use std::collections::HashMap;

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::glossary::hex;

/// A document to add.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewDocument {
    /// The id in the collection; a digest of the text if absent.
    pub id: Option<String>,
    /// The text that is searched.
    pub text: String,
    /// Metadata that is returned with search results.
    pub metadata: Map<String, Value>,
}

/// A search result.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundDocument {
    /// The id in the collection.
    pub id: String,
    /// The text. Only documents that other programs added to ChromaDB may have none.
    pub text: Option<String>,
    /// The metadata that it was added with.
    pub metadata: Map<String, Value>,
    /// The similarity, at most one. Scores of different queries are not comparable.
    pub score: f32,
}

/// Name, size and embedding model of a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectionInfo {
    /// The name.
    pub name: String,
    /// The number of documents.
    pub count: usize,
    /// The embedding model; absent if another program created the collection.
    pub model: Option<String>,
    /// The dimension of the vectors; absent if the collection is empty.
    pub dimension: Option<usize>,
}

impl NewDocument {
    /// Creates a document without id and metadata.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }

    /// Returns the id, or a digest of the text if there is none.
    pub fn id_or_digest(&self) -> String {
        self.id
            .clone()
            .unwrap_or_else(|| hex(&Sha256::digest(&self.text)[..16]))
    }
}

/// A document with its id and vector.
#[derive(Debug)]
pub(super) struct IndexedDocument {
    pub(super) id: String,
    pub(super) text: String,
    pub(super) metadata: Map<String, Value>,
    pub(super) vector: Vec<f32>,
}

/// Removes duplicate ids; the last document of an id wins.
pub(super) fn deduplicate(documents: &[NewDocument]) -> Vec<(String, &NewDocument)> {
    let mut positions: HashMap<String, usize> = HashMap::new();
    let mut distinct: Vec<(String, &NewDocument)> = Vec::with_capacity(documents.len());
    for document in documents {
        let id = document.id_or_digest();
        match positions.get(&id) {
            Some(at) => distinct[*at].1 = document,
            None => {
                positions.insert(id.clone(), distinct.len());
                distinct.push((id, document));
            }
        }
    }
    distinct
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_share_an_id_and_the_last_document_of_an_id_wins() {
        let named = |text: &str| NewDocument {
            id: Some("a".to_owned()),
            ..NewDocument::from_text(text)
        };
        let all = [
            NewDocument::from_text("주문"),
            named("1"),
            NewDocument::from_text("주문"),
            named("2"),
        ];
        let distinct = deduplicate(&all);
        let texts: Vec<&str> = distinct.iter().map(|(_, it)| it.text.as_str()).collect();
        assert_eq!(texts, ["주문", "2"]);
        assert_eq!(distinct[0].0.len(), 32);
    }
}
