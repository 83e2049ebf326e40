//! Finds tools by what they do, for the agent, MCP clients, the console and the command
//! line.

mod tool_vectors;

use std::{sync::Arc, time::Duration};

use maru_retrieval::{Embedder, ToolDescription, ToolIndex, ToolTerms, fuse_scores};
use maru_runtime::tasks::{Tasks, run_blocking};
use serde_json::Value;
use tokio::{sync::watch, time};

use super::{entry::CatalogEntry, snapshot::CatalogSnapshot};
use tool_vectors::ToolVectors;

/// From this size on, an index is built on a blocking thread: it takes milliseconds.
const LARGE_CATALOG_TOOLS: usize = 200;

/// How long to wait for further changes of the catalog before it is indexed.
const INDEX_DELAY: Duration = Duration::from_millis(50);

/// Ranks the tools of a catalog.
#[derive(Debug)]
pub struct ToolSearch {
    /// Absent without an embedding model that knows meanings.
    vectors: Option<Arc<ToolVectors>>,
}

/// A tool and how well it fits a question.
#[derive(Clone, Debug)]
pub struct RankedTool {
    /// The tool.
    pub entry: Arc<CatalogEntry>,
    /// Higher is better.
    pub score: f32,
    /// Whether anything says that it fits: a word of the question or a vector.
    pub is_match: bool,
}

impl ToolSearch {
    /// Ranks by words, and by the vectors of `embedder` if it knows more than words.
    pub fn new(embedder: Embedder, tasks: Tasks) -> Self {
        let is_semantic = !embedder.is_lexical();
        Self {
            vectors: is_semantic.then(|| Arc::new(ToolVectors::new(embedder, tasks))),
        }
    }

    /// Builds the index of each snapshot when it is published, so that no search waits for
    /// it. Ends with the hub.
    pub async fn index_snapshots(mut catalog: watch::Receiver<Arc<CatalogSnapshot>>) {
        loop {
            let snapshot = Arc::clone(&catalog.borrow_and_update());
            let index = move || {
                snapshot.tool_index();
            };
            if run_blocking(index).await.is_none() {
                return;
            }
            if catalog.changed().await.is_err() {
                return;
            }
            // Servers publish together at start.
            time::sleep(INDEX_DELAY).await;
        }
    }

    /// Ranks the allowed tools of `snapshot`, the best first.
    pub async fn rank(
        &self,
        snapshot: &Arc<CatalogSnapshot>,
        query: &str,
        is_allowed: impl Fn(&CatalogEntry) -> bool,
    ) -> Vec<RankedTool> {
        let words = word_scores(snapshot, query).await;
        let entries = snapshot.all_tools();
        let similarities = match &self.vectors {
            Some(vectors) => vectors.similarities(entries, query).await,
            None => None,
        };
        let has_vectors = similarities.is_some();
        let scores = match similarities {
            Some(similarities) => fuse_scores(&words, &similarities),
            None => words.clone(),
        };
        let tools = entries.iter().zip(scores.into_iter().zip(words));
        let mut ranked: Vec<RankedTool> = tools
            .filter(|(entry, _)| is_allowed(entry))
            .map(|(entry, (score, by_words))| RankedTool {
                entry: Arc::clone(entry),
                score,
                is_match: has_vectors || by_words > 0.0,
            })
            .collect();
        // Equal scores keep the order of the names.
        ranked.sort_by(|one, other| other.score.total_cmp(&one.score));
        ranked
    }
}

async fn word_scores(snapshot: &Arc<CatalogSnapshot>, query: &str) -> Vec<f32> {
    if snapshot.has_tool_index() || snapshot.all_tools().len() < LARGE_CATALOG_TOOLS {
        return snapshot.tool_index().score(query);
    }
    let (snapshot, query) = (Arc::clone(snapshot), query.to_owned());
    let scores = run_blocking(move || snapshot.tool_index().score(&query)).await;
    scores.unwrap_or_default()
}

/// The index of `entries`, in their order.
pub(super) fn build_index(entries: &[Arc<CatalogEntry>]) -> ToolIndex {
    ToolIndex::build(entries.iter().map(|it| it.search_terms()))
}

/// The terms of a tool as it is listed.
pub(super) fn listing_terms(server: &str, name: &str, listing: &Value) -> ToolTerms {
    let text = |value: &'_ Value| value.as_str().unwrap_or_default().to_owned();
    let properties = listing["inputSchema"]["properties"].as_object();
    let parameters: Vec<(&str, String)> = properties
        .into_iter()
        .flatten()
        .take(MAX_INDEXED_PARAMETERS)
        .map(|(name, schema)| (name.as_str(), text(&schema["description"])))
        .collect();
    let (title, description) = (text(&listing["title"]), text(&listing["description"]));
    ToolTerms::of_tool(&ToolDescription {
        name,
        title: &title,
        description: &description,
        parameters: parameters
            .iter()
            .map(|(name, it)| (*name, it.as_str()))
            .collect(),
        server,
    })
}

/// Bounds the work for a server's tool.
const MAX_INDEXED_PARAMETERS: usize = 100;

/// About how many tokens a text costs: four plain letters, or one of any other
/// script.
pub fn estimate_tokens(text: &str) -> usize {
    let plain = text.bytes().filter(u8::is_ascii).count();
    let other = text.chars().filter(|it| !it.is_ascii()).count();
    plain / 4 + other + 1
}
