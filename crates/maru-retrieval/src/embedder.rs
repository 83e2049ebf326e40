//! Embedding models, built in or behind an endpoint.

use std::sync::Arc;

use super::{
    EmbeddingEndpoint, Error, Glossary, blocking::run_blocking, endpoint::EndpointEmbedder,
    hash_embedding,
};

/// An embedding model. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Embedder {
    kind: EmbedderKind,
    glossary: Arc<Glossary>,
}

#[derive(Clone, Debug)]
enum EmbedderKind {
    Builtin,
    Endpoint(Arc<EndpointEmbedder>),
}

/// Vectors of texts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EmbeddedTexts {
    /// One for each text, all of one dimension.
    pub vectors: Vec<Vec<f32>>,
    /// Tokens of the texts, as the endpoint reports them; the built-in model has none.
    pub tokens: u64,
}

impl Embedder {
    /// Returns the built-in model, which needs no network. It is lexical: it knows words,
    /// n-grams and the synonyms of its glossary, but not the meaning of a text.
    pub fn builtin() -> Self {
        Self {
            kind: EmbedderKind::Builtin,
            glossary: Arc::default(),
        }
    }

    /// Uses an embedding endpoint; the connection is opened at the first request.
    pub fn endpoint(settings: &EmbeddingEndpoint) -> Result<Self, Error> {
        Ok(Self {
            kind: EmbedderKind::Endpoint(Arc::new(EndpointEmbedder::open(settings)?)),
            glossary: Arc::default(),
        })
    }

    /// Replaces the glossary. An embedded index reindexes its texts when it notices;
    /// documents in ChromaDB must be added again.
    #[must_use]
    pub fn with_glossary(self, glossary: Glossary) -> Self {
        Self {
            glossary: Arc::new(glossary),
            ..self
        }
    }

    /// Returns a vector for each text, all of one dimension.
    pub async fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, Error> {
        Ok(self.embed_counted(texts).await?.vectors)
    }

    /// Returns a vector for each text, and how many tokens they had.
    pub async fn embed_counted(&self, texts: &[String]) -> Result<EmbeddedTexts, Error> {
        match &self.kind {
            EmbedderKind::Endpoint(remote) => remote.embed(texts).await,
            EmbedderKind::Builtin => {
                let vectors = self.embed_with_builtin(texts).await?;
                Ok(EmbeddedTexts { vectors, tokens: 0 })
            }
        }
    }

    async fn embed_with_builtin(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, Error> {
        match texts {
            // Short texts take less time than handing them to a blocking thread.
            short if short.iter().map(String::len).sum::<usize>() < 4096 => {
                Ok(self.embed_lexically(texts))
            }
            _ => {
                let (this, texts) = (self.clone(), texts.to_vec());
                run_blocking(move || Ok(this.embed_lexically(&texts))).await
            }
        }
    }

    /// Returns the name of the model; vectors of different models cannot be compared.
    pub fn model(&self) -> &str {
        match &self.kind {
            EmbedderKind::Builtin => hash_embedding::MODEL_NAME,
            EmbedderKind::Endpoint(remote) => remote.model(),
        }
    }

    /// Host and port of the endpoint; `maru` for the built-in model.
    pub fn authority(&self) -> String {
        match &self.kind {
            EmbedderKind::Builtin => "maru".to_owned(),
            EmbedderKind::Endpoint(remote) => remote.authority(),
        }
    }

    /// Whether the model only knows words, so that its results are not semantic.
    pub fn is_lexical(&self) -> bool {
        matches!(self.kind, EmbedderKind::Builtin)
    }

    pub(super) fn glossary(&self) -> &Glossary {
        &self.glossary
    }

    /// Embeds texts with the built-in model.
    pub(super) fn embed_lexically(&self, texts: &[String]) -> Vec<Vec<f32>> {
        let vectors = texts
            .iter()
            .map(|it| hash_embedding::embed(&self.glossary, it));
        vectors.collect()
    }
}
