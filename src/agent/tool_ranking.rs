//! Ranks tools by relevance, for runs with more tools than fit.

use std::collections::HashMap;

use maru_retrieval::Embedder;

use super::toolbox::{AgentTool, Toolbox};

/// Ranks differ little behind the first few.
const RANK_FUSION_K: f32 = 60.0;

/// The positions in the toolbox of the tools nearest to `text`, nearest first; only
/// those that are allowed.
pub(super) async fn rank_tools(
    toolbox: &Toolbox,
    embedder: &Embedder,
    text: &str,
    is_allowed: impl Fn(&AgentTool) -> bool,
) -> Vec<usize> {
    let lexical = Embedder::builtin();
    let search_texts = || {
        toolbox
            .tools
            .iter()
            .map(AgentTool::search_text)
            .collect::<Vec<_>>()
    };
    let vectors = toolbox
        .vectors
        .get_or_try_init(|| async { lexical.embed(&search_texts()).await })
        .await;
    let mut ranks: HashMap<usize, f32> = HashMap::new();
    if let (Ok(tools), Ok(query)) = (vectors, lexical.embed(&[text.to_owned()]).await) {
        add_ranks(&mut ranks, tools, &query);
    }
    if !embedder.is_lexical() {
        let mut texts = search_texts();
        texts.push(text.to_owned());
        // Words alone must do when the endpoint does not answer.
        if let Ok(mut vectors) = embedder.embed(&texts).await {
            let query = vectors.split_off(toolbox.tools.len());
            add_ranks(&mut ranks, &vectors, &query);
        }
    }
    let mut found: Vec<(usize, f32)> = ranks
        .into_iter()
        .filter(|(at, _)| toolbox.tools.get(*at).is_some_and(&is_allowed))
        .collect();
    found.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    found.into_iter().map(|(at, _)| at).collect()
}

/// Adds the ranks by one kind of vectors to those by others.
fn add_ranks(ranks: &mut HashMap<usize, f32>, tools: &[Vec<f32>], query: &[Vec<f32>]) {
    let Some(query) = query.first() else {
        return;
    };
    let mut likeness: Vec<(usize, f32)> = tools
        .iter()
        .map(|it| cosine(it, query))
        .enumerate()
        .collect();
    likeness.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    for (rank, (at, _)) in (0_u16..).zip(likeness) {
        *ranks.entry(at).or_default() += 1.0 / (RANK_FUSION_K + f32::from(rank));
    }
}

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot: f32 = a.iter().zip(b).map(|(a, b)| a * b).sum();
    let length = |it: &[f32]| it.iter().map(|it| it * it).sum::<f32>().sqrt();
    dot / (length(a) * length(b)).max(f32::MIN_POSITIVE)
}
