//! JSON bodies of ChromaDB's API.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::{CollectionInfo, Error, FoundDocument, document::IndexedDocument};

/// The metadata key under which maru stores the embedding model of a collection.
const MODEL_METADATA_KEY: &str = "maru_model";

/// A collection as the server describes it.
#[derive(Debug, Deserialize)]
pub(super) struct ChromaCollection {
    pub(super) id: String,
    name: String,
    pub(super) dimension: Option<usize>,
    metadata: Option<Map<String, Value>>,
    #[serde(default)]
    configuration_json: Value,
}

/// The response to a query.
#[derive(Debug, Deserialize)]
pub(super) struct ChromaQueryResponse {
    ids: Vec<Vec<String>>,
    documents: ListPerQuery<String>,
    metadatas: ListPerQuery<Map<String, Value>>,
    distances: ListPerQuery<f32>,
}

/// An optional value for each query and document.
type ListPerQuery<T> = Option<Vec<Vec<Option<T>>>>;

#[derive(Debug, Deserialize)]
pub(super) struct ChromaIdsResponse {
    pub(super) ids: Vec<String>,
}

/// Body of a request that creates a collection unless it exists.
pub(super) fn create_collection_body(name: &str, model: &str) -> Value {
    json!({
        "name": name,
        "get_or_create": true,
        "configuration": {"hnsw": {"space": "cosine"}},
        "metadata": {MODEL_METADATA_KEY: model},
    })
}

/// Body of a request that inserts or replaces documents.
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

/// Turns lists and objects into JSON strings: ChromaDB accepts only strings, numbers and
/// booleans.
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
    /// Fails if the collection declares another embedding model or dimension.
    pub(super) fn check_compatible(
        &self,
        name: &str,
        model: &str,
        dimension: usize,
    ) -> Result<(), Error> {
        let same_model = self.model().is_none_or(|it| it == model);
        if same_model && self.dimension.is_none_or(|it| it == dimension) {
            return Ok(());
        }
        let stored_model = self.model().unwrap_or("an unnamed model");
        let stored = match self.dimension {
            Some(dimension) => format!("{stored_model} ({dimension} dimensions)"),
            None => stored_model.to_owned(),
        };
        Err(Error::IncompatibleVectors {
            collection: name.to_owned(),
            stored,
            current: format!("{model} ({dimension} dimensions)"),
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

    /// Converts a distance to a similarity of at most one.
    fn score(&self, distance: f32) -> f32 {
        match self.configuration_json["hnsw"]["space"].as_str() {
            Some("cosine" | "ip") => 1.0 - distance,
            _ => 1.0 / (1.0 + distance.max(0.0)),
        }
    }
}

impl ChromaQueryResponse {
    /// Returns the documents of each query; absent values are empty.
    pub(super) fn into_documents(self, collection: &ChromaCollection) -> Vec<Vec<FoundDocument>> {
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
                score: collection.score(distances.next().flatten().unwrap_or(1.0)),
            });
            found.collect()
        });
        rows.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collection(extra: &Value) -> ChromaCollection {
        let mut collection = json!({"id": "1", "name": "a", "dimension": 2, "metadata": null});
        collection
            .as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        serde_json::from_value(collection).unwrap()
    }

    #[test]
    fn documents_may_be_null() {
        let response = json!({"ids": [["a", "b"], []], "documents": [["x", null], []],
            "metadatas": [[null, {"k": 1}], []], "distances": [[0.25, 1.0], []]});
        let found: ChromaQueryResponse = serde_json::from_value(response).unwrap();
        let cosine = collection(&json!({"configuration_json": {"hnsw": {"space": "cosine"}}}));
        let rows = found.into_documents(&cosine);
        assert_eq!(rows[0][0].text.as_deref(), Some("x"));
        assert!((rows[0][0].score - 0.75).abs() < 1e-6);
        assert_eq!(rows[0][1].text, None);
        assert_eq!(rows[0][1].metadata["k"], 1);
        assert!(rows[1].is_empty());
    }

    #[test]
    fn only_declared_properties_are_compared() {
        let ours = collection(&json!({"metadata": {MODEL_METADATA_KEY: "m"}}));
        assert!(ours.check_compatible("a", "m", 2).is_ok());
        assert!(ours.check_compatible("a", "other", 2).is_err());
        assert!(ours.check_compatible("a", "m", 3).is_err());
        let theirs = collection(&json!({}));
        assert!(theirs.check_compatible("a", "any", 2).is_ok());
        let error = theirs
            .check_compatible("a", "any", 3)
            .unwrap_err()
            .to_string();
        assert!(error.contains("an unnamed model (2 dimensions)"), "{error}");
        assert!(
            collection(&json!({"dimension": null}))
                .check_compatible("a", "m", 9)
                .is_ok()
        );
    }

    #[test]
    fn nested_metadata_becomes_json_strings() {
        let nested = json!({"a": 1, "b": [1], "c": {"d": null}});
        let flat = flatten_metadata(nested.as_object().unwrap().clone());
        let expected = json!({"a": 1, "b": "[1]", "c": "{\"d\":null}"});
        assert_eq!(Value::from(flat.unwrap()), expected);
        assert_eq!(flatten_metadata(Map::new()), None);
    }
}
