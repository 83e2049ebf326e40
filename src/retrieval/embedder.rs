//! What makes vectors.

use std::sync::Arc;

use super::{Endpoint, Error, Glossary, endpoint::Remote, hashed, turns::blocking};

/// Makes vectors out of texts. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Embedder {
    kind: Kind,
    glossary: Arc<Glossary>,
}

#[derive(Clone, Debug)]
enum Kind {
    Builtin,
    Endpoint(Arc<Remote>),
}

impl Embedder {
    /// Needs nothing and no network. It is lexical: it knows words, their
    /// pieces, and the synonyms of its glossary. It does not understand what a
    /// text means.
    pub fn builtin() -> Self {
        Self {
            kind: Kind::Builtin,
            glossary: Arc::default(),
        }
    }

    /// Asks an endpoint, which is not reached before the first text.
    pub fn endpoint(settings: &Endpoint) -> Result<Self, Error> {
        Ok(Self {
            kind: Kind::Endpoint(Arc::new(Remote::open(settings)?)),
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
            Kind::Endpoint(remote) => remote.embed(texts).await,
            // A few take less time than finding a thread that may block.
            Kind::Builtin if texts.iter().map(String::len).sum::<usize>() < 4096 => {
                Ok(self.hash(texts))
            }
            Kind::Builtin => {
                let (this, texts) = (self.clone(), texts.to_vec());
                blocking(move || Ok(this.hash(&texts))).await
            }
        }
    }

    /// The name of the model: vectors of different models cannot be compared.
    pub fn model(&self) -> &str {
        match &self.kind {
            Kind::Builtin => hashed::MODEL,
            Kind::Endpoint(remote) => remote.model(),
        }
    }

    /// Whether it only knows words. Such an embedder is not to be called
    /// semantic.
    pub fn is_lexical(&self) -> bool {
        matches!(self.kind, Kind::Builtin)
    }

    pub(super) fn glossary(&self) -> &Glossary {
        &self.glossary
    }

    /// Vectors that are made here, without asking anybody.
    pub(super) fn hash(&self, texts: &[String]) -> Vec<Vec<f32>> {
        let vectors = texts.iter().map(|it| hashed::embed(&self.glossary, it));
        vectors.collect()
    }
}
