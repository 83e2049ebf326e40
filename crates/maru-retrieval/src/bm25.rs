//! BM25 over weighted terms. A document's part of the score is computed when the index is
//! built, so that a search only adds numbers.

/// How much a repeated term counts.
const K1: f32 = 1.2;
/// How much the length of a document counts.
const B: f32 = 0.75;

/// The terms of a text: a hash and a weight each, sorted, every hash once.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TermWeights(Vec<(u64, f32)>);

/// An inverted index.
#[derive(Debug, Default)]
pub(super) struct Bm25Index {
    /// Sorted.
    terms: Vec<u64>,
    /// Where the postings of each term end.
    ends: Vec<u32>,
    postings: Vec<TermPosting>,
}

/// What one term adds to the score of one document.
#[derive(Clone, Copy, Debug)]
struct TermPosting {
    document: u32,
    score: f32,
}

impl FromIterator<(u64, f32)> for TermWeights {
    fn from_iter<T: IntoIterator<Item = (u64, f32)>>(terms: T) -> Self {
        let mut terms: Vec<(u64, f32)> = terms.into_iter().collect();
        terms.sort_unstable_by_key(|(term, _)| *term);
        terms.dedup_by(|later, first| {
            let is_same = later.0 == first.0;
            if is_same {
                first.1 += later.1;
            }
            is_same
        });
        Self(terms)
    }
}

impl TermWeights {
    fn total(&self) -> f32 {
        self.0.iter().map(|(_, weight)| weight).sum()
    }
}

impl Bm25Index {
    /// Builds the index; documents are numbered in their order.
    #[expect(clippy::cast_precision_loss, reason = "counts are small")]
    pub(super) fn build<'a>(documents: impl Iterator<Item = &'a TermWeights> + Clone) -> Self {
        let lengths: Vec<f32> = documents.clone().map(TermWeights::total).collect();
        let count = lengths.len() as f32;
        let average = (lengths.iter().sum::<f32>() / count.max(1.0)).max(f32::MIN_POSITIVE);
        let size = documents.clone().map(|it| it.0.len()).sum();
        let mut all: Vec<(u64, TermPosting)> = Vec::with_capacity(size);
        for ((number, document), length) in (0_u32..).zip(documents).zip(&lengths) {
            let norm = K1 * (1.0 - B + B * length / average);
            all.extend(document.0.iter().map(|(term, weight)| {
                let score = weight * (K1 + 1.0) / (weight + norm);
                let document = number;
                (*term, TermPosting { document, score })
            }));
        }
        all.sort_unstable_by_key(|(term, posting)| (*term, posting.document));
        let mut index = Self {
            postings: Vec::with_capacity(all.len()),
            ..Self::default()
        };
        for group in all.chunk_by(|one, other| one.0 == other.0) {
            let found = group.len() as f32;
            let rarity = (1.0 + (count - found + 0.5) / (found + 0.5)).ln();
            index.terms.push(group[0].0);
            index
                .postings
                .extend(group.iter().map(|(_, it)| TermPosting {
                    score: it.score * rarity,
                    ..*it
                }));
            index
                .ends
                .push(u32::try_from(index.postings.len()).unwrap_or(u32::MAX));
        }
        index
    }

    /// Adds the score of each document for `query` to `scores`.
    pub(super) fn add_scores(&self, query: &TermWeights, scores: &mut [f32]) {
        for (term, weight) in &query.0 {
            let Ok(at) = self.terms.binary_search(term) else {
                continue;
            };
            let start = at.checked_sub(1).map_or(0, |it| self.ends[it]);
            for posting in &self.postings[start as usize..self.ends[at] as usize] {
                scores[posting.document as usize] += weight * posting.score;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(documents: &[&[u64]], query: &[u64]) -> Vec<f32> {
        let weigh = |terms: &&[u64]| terms.iter().map(|it| (*it, 1.0)).collect();
        let documents: Vec<TermWeights> = documents.iter().map(weigh).collect();
        let index = Bm25Index::build(documents.iter());
        let mut scores = vec![0.0; documents.len()];
        index.add_scores(&weigh(&query), &mut scores);
        scores
    }

    #[test]
    fn rare_terms_and_short_documents_score_higher() {
        let rare = scores(&[&[1, 2], &[1, 3], &[1, 4]], &[1, 2]);
        assert!(rare[0] > rare[1] && rare[1] > 0.0, "{rare:?}");
        assert!((rare[1] - rare[2]).abs() < f32::EPSILON);
        let short = scores(&[&[1], &[1, 2, 3, 4, 5]], &[1]);
        assert!(short[0] > short[1], "{short:?}");
        let repeated = scores(&[&[1, 1, 2], &[1, 2, 3]], &[1]);
        assert!(repeated[0] > repeated[1], "{repeated:?}");
    }

    #[test]
    fn scores_are_those_of_the_formula() {
        let found = scores(&[&[1, 2], &[2, 3]], &[1]);
        // ln(1 + 1.5 / 1.5) times 2.2 / 2.2.
        assert!((found[0] - 2_f32.ln()).abs() < 1e-6, "{found:?}");
        assert!(found[1].abs() < f32::EPSILON);
        assert!(scores(&[], &[1]).is_empty());
        assert_eq!(scores(&[&[1]], &[9]), [0.0]);
    }
}
