//! Documents as they come and go.

use std::collections::HashMap;

use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::glossary::hex;

/// A document to add.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NewDocument {
    /// Its name in the collection; a digest of the text if there is none.
    pub id: Option<String>,
    /// What is searched and found.
    pub text: String,
    /// What is handed back with it.
    pub metadata: Map<String, Value>,
}

/// A document that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundDocument {
    /// Its name in the collection.
    pub id: String,
    /// Its text. Only what others put into ChromaDB may have none.
    pub text: Option<String>,
    /// What was added with it.
    pub metadata: Map<String, Value>,
    /// Up to one; more is more similar. Compares the answers to one query only.
    pub score: f32,
}

/// What is known of a collection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectionInfo {
    /// Its name.
    pub name: String,
    /// How many documents it has.
    pub count: usize,
    /// What made its vectors; a collection of others may not say.
    pub model: Option<String>,
    /// The length of its vectors; nothing was added yet if there is none.
    pub dimension: Option<usize>,
}

impl NewDocument {
    /// A document that is only a text.
    pub fn from_text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            ..Self::default()
        }
    }

    /// The given id, or the one that follows from the text.
    pub fn id_or_digest(&self) -> String {
        self.id
            .clone()
            .unwrap_or_else(|| hex(&Sha256::digest(&self.text)[..16]))
    }
}

/// What is kept of a document.
#[derive(Debug)]
pub(super) struct IndexedDocument {
    pub(super) id: String,
    pub(super) text: String,
    pub(super) metadata: Map<String, Value>,
    pub(super) vector: Vec<f32>,
}

/// Every id once, with the document that was given last for it.
pub(super) fn deduplicate(documents: &[NewDocument]) -> Vec<(String, &NewDocument)> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut distinct: Vec<(String, &NewDocument)> = Vec::with_capacity(documents.len());
    for document in documents {
        let id = document.id_or_digest();
        match places.get(&id) {
            Some(at) => distinct[*at].1 = document,
            None => {
                places.insert(id.clone(), distinct.len());
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
    fn the_same_text_has_the_same_id_and_the_last_of_an_id_counts() {
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
