//! What ChromaDB says and hears. Pure.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::{CollectionInfo, Error, FoundDocument, document::IndexedDocument};

/// Where a collection of ours says what made its vectors.
const MODEL_METADATA_KEY: &str = "maru_model";

/// What the server says of a collection.
#[derive(Debug, Deserialize)]
pub(super) struct ChromaCollection {
    pub(super) id: String,
    name: String,
    pub(super) dimension: Option<usize>,
    metadata: Option<Map<String, Value>>,
    #[serde(default)]
    configuration_json: Value,
}

/// The answer to a query.
#[derive(Debug, Deserialize)]
pub(super) struct ChromaQueryResponse {
    ids: Vec<Vec<String>>,
    documents: ListPerQuery<String>,
    metadatas: ListPerQuery<Map<String, Value>>,
    distances: ListPerQuery<f32>,
}

/// For each query and document something, if there is.
type ListPerQuery<T> = Option<Vec<Vec<Option<T>>>>;

#[derive(Debug, Deserialize)]
pub(super) struct ChromaIdsResponse {
    pub(super) ids: Vec<String>,
}

/// Asks for a collection.
pub(super) fn create_collection_body(name: &str, model: &str) -> Value {
    json!({
        "name": name,
        "get_or_create": true,
        "configuration": {"hnsw": {"space": "cosine"}},
        "metadata": {MODEL_METADATA_KEY: model},
    })
}

/// Adds documents, or puts them in the place of those with their ids.
pub(super) fn upsert_body(entries: Vec<IndexedDocument>) -> Value {
    let (mut ids, mut vectors, mut texts, mut metadatas) = (vec![], vec![], vec![], vec![]);
    for entry in entries {
        ids.push(entry.id);
        vectors.push(entry.vector);
        texts.push(entry.text);
        metadatas.push(flatten_metadata(entry.metadata));
    }
    json!({"ids": ids, "embeddings": vectors, "documents": texts, "metadatas": metadatas})
}

/// ChromaDB takes texts, numbers and truths; the rest becomes JSON in a text.
fn flatten_metadata(metadata: Map<String, Value>) -> Option<Map<String, Value>> {
    if metadata.is_empty() {
        return None;
    }
    let flat = metadata.into_iter().map(|(name, value)| {
        let value = match value {
            value @ (Value::Array(_) | Value::Object(_)) => Value::String(value.to_string()),
            value => value,
        };
        (name, value)
    });
    Some(flat.collect())
}

impl ChromaCollection {
    /// Refuses vectors that cannot be compared with those of the collection, as
    /// far as it says what they are.
    pub(super) fn check_compatible(
        &self,
        name: &str,
        model: &str,
        dimension: usize,
    ) -> Result<(), Error> {
        let is_model = self.model().is_none_or(|it| it == model);
        if is_model && self.dimension.is_none_or(|it| it == dimension) {
            return Ok(());
        }
        let kept_model = self.model().unwrap_or("an unnamed model");
        let kept = match self.dimension {
            Some(dimension) => format!("{kept_model} ({dimension} numbers)"),
            None => kept_model.to_owned(),
        };
        Err(Error::IncompatibleVectors {
            collection: name.to_owned(),
            kept,
            given: format!("{model} ({dimension} numbers)"),
        })
    }

    pub(super) fn into_collection(self, count: usize) -> CollectionInfo {
        CollectionInfo {
            model: self.model().map(str::to_owned),
            name: self.name,
            count,
            dimension: self.dimension,
        }
    }

    fn model(&self) -> Option<&str> {
        self.metadata.as_ref()?.get(MODEL_METADATA_KEY)?.as_str()
    }

    /// Up to one; more is more similar.
    fn score(&self, distance: f32) -> f32 {
        match self.configuration_json["hnsw"]["space"].as_str() {
            Some("cosine" | "ip") => 1.0 - distance,
            _ => 1.0 / (1.0 + distance.max(0.0)),
        }
    }
}

impl ChromaQueryResponse {
    /// The documents of each query. What is not there is left out, or empty.
    pub(super) fn into_documents(self, known: &ChromaCollection) -> Vec<Vec<FoundDocument>> {
        let mut texts = self.documents.unwrap_or_default().into_iter();
        let mut metadatas = self.metadatas.unwrap_or_default().into_iter();
        let mut distances = self.distances.unwrap_or_default().into_iter();
        let rows = self.ids.into_iter().map(|ids| {
            let mut texts = texts.next().unwrap_or_default().into_iter();
            let mut metadatas = metadatas.next().unwrap_or_default().into_iter();
            let mut distances = distances.next().unwrap_or_default().into_iter();
            let found = ids.into_iter().map(|id| FoundDocument {
                id,
                text: texts.next().flatten(),
                metadata: metadatas.next().flatten().unwrap_or_default(),
                score: known.score(distances.next().flatten().unwrap_or(1.0)),
            });
            found.collect()
        });
        rows.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(extra: &Value) -> ChromaCollection {
        let mut known = json!({"id": "1", "name": "a", "dimension": 2, "metadata": null});
        known
            .as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        serde_json::from_value(known).unwrap()
    }

    #[test]
    fn documents_may_be_null() {
        let answer = json!({"ids": [["a", "b"], []], "documents": [["x", null], []],
            "metadatas": [[null, {"k": 1}], []], "distances": [[0.25, 1.0], []]});
        let found: ChromaQueryResponse = serde_json::from_value(answer).unwrap();
        let cosine = known(&json!({"configuration_json": {"hnsw": {"space": "cosine"}}}));
        let rows = found.into_documents(&cosine);
        assert_eq!(rows[0][0].text.as_deref(), Some("x"));
        assert!((rows[0][0].score - 0.75).abs() < 1e-6);
        assert_eq!(rows[0][1].text, None);
        assert_eq!(rows[0][1].metadata["k"], 1);
        assert!(rows[1].is_empty());
    }

    #[test]
    fn only_what_a_collection_says_is_compared() {
        let ours = known(&json!({"metadata": {MODEL_METADATA_KEY: "m"}}));
        assert!(ours.check_compatible("a", "m", 2).is_ok());
        assert!(ours.check_compatible("a", "other", 2).is_err());
        assert!(ours.check_compatible("a", "m", 3).is_err());
        let theirs = known(&json!({}));
        assert!(theirs.check_compatible("a", "any", 2).is_ok());
        let error = theirs
            .check_compatible("a", "any", 3)
            .unwrap_err()
            .to_string();
        assert!(error.contains("an unnamed model (2 numbers)"), "{error}");
        assert!(
            known(&json!({"dimension": null}))
                .check_compatible("a", "m", 9)
                .is_ok()
        );
    }

    #[test]
    fn metadata_is_made_flat() {
        let nested = json!({"a": 1, "b": [1], "c": {"d": null}});
        let flat = flatten_metadata(nested.as_object().unwrap().clone());
        let expected = json!({"a": 1, "b": "[1]", "c": "{\"d\":null}"});
        assert_eq!(Value::from(flat.unwrap()), expected);
        assert_eq!(flatten_metadata(Map::new()), None);
    }
}
