//! Vectors of tools, kept by the digest of what is embedded: a tool that did not change is
//! not embedded again.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use maru_retrieval::{Embedder, cosine_similarity};
use maru_runtime::tasks::Tasks;
use sha2::{Digest as _, Sha256};
use tokio::time::{self, Instant};
use tracing::warn;

use crate::entry::CatalogEntry;

/// How long a search waits for the vectors of new tools. They are made in the background,
/// and later searches use them.
const TOOLS_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a search waits for the vector of its question.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long searches go without vectors after the endpoint failed.
const RETRY_DELAY: Duration = Duration::from_secs(30);
/// Tools that are embedded in one request.
const BATCH_TOOLS: usize = 64;
const MAX_KEPT_VECTORS: usize = 20_000;
const MAX_DESCRIPTION_CHARS: usize = 1000;

type TextDigest = [u8; 32];

/// The vectors of the tools, by the digest of their texts.
#[derive(Debug)]
pub(super) struct ToolVectors {
    embedder: Embedder,
    tasks: Tasks,
    kept: Mutex<HashMap<TextDigest, Arc<[f32]>>>,
    /// One at a time embeds tools.
    embedding: tokio::sync::Mutex<()>,
    failed_at: Mutex<Option<Instant>>,
}

impl ToolVectors {
    pub(super) fn new(embedder: Embedder, tasks: Tasks) -> Self {
        Self {
            embedder,
            tasks,
            kept: Mutex::default(),
            embedding: tokio::sync::Mutex::default(),
            failed_at: Mutex::default(),
        }
    }

    /// How similar each tool is to `query`; `None` if the endpoint does not answer in time.
    pub(super) async fn similarities(
        self: &Arc<Self>,
        tools: &[Arc<CatalogEntry>],
        query: &str,
    ) -> Option<Vec<f32>> {
        if self.has_failed_lately() {
            return None;
        }
        let texts: Vec<String> = tools.iter().map(|it| embedded_text(it)).collect();
        let digests: Vec<TextDigest> = texts.iter().map(|it| text_digest(it)).collect();
        if self.find_all(&digests).is_none() {
            self.embed_tools(texts, digests.clone()).await?;
        }
        let vectors = self.find_all(&digests)?;
        let asked = [query.to_owned()];
        let query = time::timeout(QUERY_TIMEOUT, self.embedder.embed(&asked)).await;
        let query = match query {
            Ok(Ok(vectors)) => vectors.into_iter().next()?,
            Ok(Err(error)) => return self.record_failure(&error.to_string()),
            Err(_) => return self.record_failure("the endpoint took too long"),
        };
        let similarities = vectors.iter().map(|it| cosine_similarity(it, &query));
        Some(similarities.collect())
    }

    fn find_all(&self, digests: &[TextDigest]) -> Option<Vec<Arc<[f32]>>> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        digests.iter().map(|it| kept.get(it).cloned()).collect()
    }

    /// Embeds what is new in the background, and waits for it; `None` if it takes too long.
    async fn embed_tools(
        self: &Arc<Self>,
        texts: Vec<String>,
        digests: Vec<TextDigest>,
    ) -> Option<()> {
        let (this, stop) = (Arc::clone(self), self.tasks.stop_token());
        let (done, finished) = tokio::sync::oneshot::channel();
        self.tasks.spawn(async move {
            tokio::select! {
                () = this.embed_missing(&texts, &digests) => (),
                () = stop.cancelled() => (),
            }
            // The search may have stopped waiting.
            let _ = done.send(());
        });
        time::timeout(TOOLS_TIMEOUT, finished).await.ok()?.ok()
    }

    async fn embed_missing(&self, texts: &[String], digests: &[TextDigest]) {
        let _embedding = self.embedding.lock().await;
        let missing: Vec<usize> = {
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            let all = 0..texts.len();
            all.filter(|at| !kept.contains_key(&digests[*at])).collect()
        };
        for batch in missing.chunks(BATCH_TOOLS) {
            if self.has_failed_lately() {
                return;
            }
            let batch_texts: Vec<String> = batch.iter().map(|at| texts[*at].clone()).collect();
            match self.embedder.embed(&batch_texts).await {
                Ok(vectors) => self.keep(batch.iter().map(|at| digests[*at]).zip(vectors)),
                Err(error) => {
                    self.record_failure::<()>(&error.to_string());
                    return;
                }
            }
        }
        self.forget_others(digests);
    }

    fn keep(&self, vectors: impl Iterator<Item = (TextDigest, Vec<f32>)>) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(vectors.map(|(digest, vector)| (digest, vector.into())));
    }

    /// Forgets tools that are gone, once there are many vectors.
    fn forget_others(&self, digests: &[TextDigest]) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() > MAX_KEPT_VECTORS {
            let current: HashSet<&TextDigest> = digests.iter().collect();
            kept.retain(|digest, _| current.contains(digest));
        }
    }

    fn has_failed_lately(&self) -> bool {
        let failed_at = self.failed_at.lock();
        let failed_at = *failed_at.unwrap_or_else(PoisonError::into_inner);
        failed_at.is_some_and(|it| it.elapsed() < RETRY_DELAY)
    }

    /// Notes that the endpoint failed; searches do without it for a while.
    fn record_failure<T>(&self, reason: &str) -> Option<T> {
        let mut failed_at = self
            .failed_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *failed_at = Some(Instant::now());
        warn!("tools are ranked by words alone for {RETRY_DELAY:?}: {reason}");
        None
    }
}

/// What of a tool is embedded. Models know sentences: names of servers and parameters make
/// the vectors worse.
fn embedded_text(tool: &CatalogEntry) -> String {
    let listing = tool.listing();
    let description = listing["description"].as_str().unwrap_or_default();
    let description: String = description.chars().take(MAX_DESCRIPTION_CHARS).collect();
    let mut name = String::new();
    let mut was_lower = false;
    for c in tool.key().chars() {
        if was_lower && c.is_uppercase() {
            name.push(' ');
        }
        was_lower = c.is_lowercase() || c.is_numeric();
        name.push(if c.is_alphanumeric() { c } else { ' ' });
    }
    format!("{name}: {description}")
}

fn text_digest(text: &str) -> TextDigest {
    Sha256::digest(text).into()
}
