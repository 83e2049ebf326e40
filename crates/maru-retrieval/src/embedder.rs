//! What makes vectors.

use std::sync::Arc;

use super::{
    EmbeddingEndpoint, Error, Glossary, blocking::run_blocking, endpoint::EndpointEmbedder,
    hash_embedding,
};

/// Makes vectors out of texts. Cheap to clone.
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

impl Embedder {
    /// Needs nothing and no network. It is lexical: it knows words, their
    /// pieces, and the synonyms of its glossary. It does not understand what a
    /// text means.
    pub fn builtin() -> Self {
        Self {
            kind: EmbedderKind::Builtin,
            glossary: Arc::default(),
        }
    }

    /// Asks an endpoint, which is not reached before the first text.
    pub fn endpoint(settings: &EmbeddingEndpoint) -> Result<Self, Error> {
        Ok(Self {
            kind: EmbedderKind::Endpoint(Arc::new(EndpointEmbedder::open(settings)?)),
            glossary: Arc::default(),
        })
    }

    /// The same with other synonyms. An embedded index reads its texts again
    /// when it sees them; what is in ChromaDB has to be added again.
    #[must_use]
    pub fn with_glossary(self, glossary: Glossary) -> Self {
        Self {
            glossary: Arc::new(glossary),
            ..self
        }
    }

    /// A vector for each text, in their order and all of one length.
    pub async fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, Error> {
        match &self.kind {
            EmbedderKind::Endpoint(remote) => remote.embed(texts).await,
            // A few take less time than finding a thread that may block.
            EmbedderKind::Builtin if texts.iter().map(String::len).sum::<usize>() < 4096 => {
                Ok(self.embed_lexically(texts))
            }
            EmbedderKind::Builtin => {
                let (this, texts) = (self.clone(), texts.to_vec());
                run_blocking(move || Ok(this.embed_lexically(&texts))).await
            }
        }
    }

    /// The name of the model: vectors of different models cannot be compared.
    pub fn model(&self) -> &str {
        match &self.kind {
            EmbedderKind::Builtin => hash_embedding::MODEL_NAME,
            EmbedderKind::Endpoint(remote) => remote.model(),
        }
    }

    /// Whether it only knows words. Such an embedder is not to be called
    /// semantic.
    pub fn is_lexical(&self) -> bool {
        matches!(self.kind, EmbedderKind::Builtin)
    }

    pub(super) fn glossary(&self) -> &Glossary {
        &self.glossary
    }

    /// Vectors that are made here, without asking anybody.
    pub(super) fn embed_lexically(&self, texts: &[String]) -> Vec<Vec<f32>> {
        let vectors = texts
            .iter()
            .map(|it| hash_embedding::embed(&self.glossary, it));
        vectors.collect()
    }
}
