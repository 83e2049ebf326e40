//! Embeddings from an OpenAI-compatible `/v1/embeddings` endpoint.

use std::{ops::Range, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use maru_http::{AddressPolicy, ClientTls, JsonService, ServiceRequest};
use maru_runtime::SecretString;
use serde::{Deserialize, Deserializer, de};
use serde_json::{Value, json};

use super::{EmbeddedTexts, Error, authorize};

const MAX_BATCH_TEXTS: usize = 64;
const MAX_BATCH_BYTES: usize = 1 << 20;
const MAX_CONCURRENT_BATCHES: usize = 4;

/// Settings of an embedding endpoint.
#[derive(Clone, Debug)]
pub struct EmbeddingEndpoint {
    /// The full URL, such as `http://localhost:8080/v1/embeddings`.
    pub url: String,
    /// The model name.
    pub model: String,
    /// The API key, sent as a bearer token.
    pub key: Option<SecretString>,
    /// The timeout of one batch of texts, retries included.
    pub timeout: Duration,
    /// The rules for outgoing connections.
    pub policy: AddressPolicy,
    /// The TLS settings.
    pub tls: ClientTls,
}

/// A client of an embedding endpoint.
#[derive(Debug)]
pub(super) struct EndpointEmbedder {
    service: JsonService,
    model: String,
}

impl EndpointEmbedder {
    pub(super) fn open(settings: &EmbeddingEndpoint) -> Result<Self, Error> {
        let target = authorize(&settings.url, &settings.policy)?;
        let mut service = JsonService::new(target, settings.tls.clone(), settings.timeout);
        if let Some(key) = &settings.key {
            let bearer = SecretString::from(format!("Bearer {}", key.reveal()));
            service = service.with_header("authorization", &bearer)?;
        }
        Ok(Self {
            service,
            model: settings.model.clone(),
        })
    }

    pub(super) fn model(&self) -> &str {
        &self.model
    }

    /// Returns a vector for each text, all of one dimension.
    pub(super) async fn embed(&self, texts: &[String]) -> Result<EmbeddedTexts, Error> {
        let batches = split_batches(texts).into_iter();
        let requests = batches.map(|batch| self.embed_batch(&texts[batch]));
        let batches: Vec<EmbeddedTexts> = stream::iter(requests)
            .buffered(MAX_CONCURRENT_BATCHES)
            .try_collect()
            .await?;
        let tokens = batches
            .iter()
            .fold(0_u64, |sum, it| sum.saturating_add(it.tokens));
        let vectors: Vec<Vec<f32>> = batches.into_iter().flat_map(|it| it.vectors).collect();
        let length = vectors.first().map_or(0, Vec::len);
        if vectors.iter().all(|it| it.len() == length) {
            Ok(EmbeddedTexts { vectors, tokens })
        } else {
            Err(self
                .service
                .invalid_response(&self.build_request(&[]), "vectors of different lengths")
                .into())
        }
    }

    /// Host and port of the endpoint.
    pub(super) fn authority(&self) -> String {
        self.service.target().authority()
    }

    async fn embed_batch(&self, texts: &[String]) -> Result<EmbeddedTexts, Error> {
        let request = self.build_request(texts);
        let response: EmbeddingResponse = self.service.send_for_json(&request).await?;
        let usage = response.usage.as_ref();
        let tokens =
            usage.and_then(|it| it["prompt_tokens"].as_u64().or(it["total_tokens"].as_u64()));
        let vectors = response
            .into_vectors(texts.len())
            .map_err(|what| self.service.invalid_response(&request, what))?;
        Ok(EmbeddedTexts {
            vectors,
            tokens: tokens.unwrap_or(0),
        })
    }

    fn build_request(&self, texts: &[String]) -> ServiceRequest {
        let body = json!({"input": texts, "model": self.model});
        ServiceRequest::post("", body.to_string())
    }
}

/// Splits `texts` into ranges that fit into one request.
fn split_batches(texts: &[String]) -> Vec<Range<usize>> {
    let mut batches: Vec<Range<usize>> = Vec::new();
    let mut bytes = 0;
    for (at, text) in texts.iter().enumerate() {
        match batches.last_mut() {
            Some(batch)
                if batch.len() < MAX_BATCH_TEXTS && bytes + text.len() <= MAX_BATCH_BYTES =>
            {
                batch.end = at + 1;
                bytes += text.len();
            }
            _ => {
                batches.push(at..at + 1);
                bytes = text.len();
            }
        }
    }
    batches
}

#[derive(Deserialize)]
struct EmbeddingResponse {
    data: Vec<EmbeddingItem>,
    usage: Option<Value>,
}

#[derive(Deserialize)]
struct EmbeddingItem {
    index: Option<usize>,
    #[serde(deserialize_with = "deserialize_vector")]
    embedding: Vec<f32>,
}

impl EmbeddingResponse {
    /// Returns the vectors in the order of the texts, or what is wrong with them.
    fn into_vectors(self, count: usize) -> Result<Vec<Vec<f32>>, String> {
        if self.data.len() != count {
            return Err(format!("{} vectors for {count} texts", self.data.len()));
        }
        let mut vectors = vec![Vec::new(); count];
        for (at, item) in self.data.into_iter().enumerate() {
            let slot = vectors.get_mut(item.index.unwrap_or(at));
            let slot = slot.filter(|it| it.is_empty());
            *slot.ok_or("a duplicate index, or one out of range")? = item.embedding;
        }
        let length = vectors.first().map_or(0, Vec::len);
        if vectors.iter().all(|it| it.len() == length && length > 0) {
            Ok(vectors)
        } else {
            Err("vectors of different lengths, or empty ones".to_owned())
        }
    }
}

/// Deserialises a list of numbers, or little-endian floats in base64.
fn deserialize_vector<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f32>, D::Error> {
    struct VectorVisitor;
    impl<'de> de::Visitor<'de> for VectorVisitor {
        type Value = Vec<f32>;

        fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            out.write_str("a vector")
        }

        fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Vec<f32>, A::Error> {
            let mut vector = Vec::new();
            while let Some(number) = list.next_element()? {
                vector.push(number);
            }
            Ok(vector)
        }

        fn visit_str<E: de::Error>(self, text: &str) -> Result<Vec<f32>, E> {
            let bytes = STANDARD.decode(text).map_err(E::custom)?;
            let (floats, rest) = bytes.as_chunks::<4>();
            match rest {
                [] => Ok(floats.iter().map(|it| f32::from_le_bytes(*it)).collect()),
                _ => Err(E::custom("truncated float")),
            }
        }
    }
    let vector = deserializer.deserialize_any(VectorVisitor)?;
    if vector.iter().all(|it| it.is_finite()) {
        Ok(vector)
    } else {
        Err(de::Error::custom("not finite"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(response: &str, count: usize, expected: Result<Vec<Vec<f32>>, &str>) {
        let read: Result<EmbeddingResponse, _> = serde_json::from_str(response);
        let found = read.map_err(|_| "form".to_owned());
        let found = found.and_then(|it| it.into_vectors(count));
        match (found, expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{response}"),
            (Err(found), Err(part)) => assert!(found.contains(part), "{response}: {found}"),
            (found, _) => panic!("{response}: {found:?}"),
        }
    }

    #[test]
    fn vectors_are_sorted_and_checked() {
        let two = Ok(vec![vec![1.0, 2.0], vec![3.0, 4.0]]);
        check(
            r#"{"data":[{"index":1,"embedding":[3,4]},{"index":0,"embedding":[1,2.0]}]}"#,
            2,
            two.clone(),
        );
        check(
            r#"{"data":[{"embedding":[1,2]},{"embedding":[3,4]}]}"#,
            2,
            two,
        );
        check(
            r#"{"data":[{"index":0,"embedding":"AACAPwAAAMA="}]}"#,
            1,
            Ok(vec![vec![1.0, -2.0]]),
        );
        check(r#"{"data":[{"embedding":[1]}]}"#, 2, Err("1 vectors for 2"));
        check(
            r#"{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[2]}]}"#,
            2,
            Err("duplicate index"),
        );
        check(
            r#"{"data":[{"index":7,"embedding":[1]}]}"#,
            1,
            Err("out of range"),
        );
        check(
            r#"{"data":[{"embedding":[1]},{"embedding":[1,2]}]}"#,
            2,
            Err("different lengths"),
        );
        check(r#"{"data":[{"embedding":[]}]}"#, 1, Err("empty"));
        check(r#"{"data":[{"embedding":[1e99]}]}"#, 1, Err("form"));
        check(r#"{"data":[{"embedding":"AACAfw=="}]}"#, 1, Err("form"));
        check(r#"{"data":[{"embedding":"AACA"}]}"#, 1, Err("form"));
        check(r#"{"error":"secret"}"#, 1, Err("form"));
    }

    #[test]
    fn batches_are_bounded_by_count_and_bytes() {
        let many = vec!["a".to_owned(); 130];
        assert_eq!(split_batches(&many), [0..64, 64..128, 128..130]);
        let long = vec!["a".repeat(600 << 10); 3];
        assert_eq!(split_batches(&long), [0..1, 1..2, 2..3]);
        assert!(split_batches(&[]).is_empty());
    }
}
