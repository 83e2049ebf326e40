//! Reciprocal rank fusion of two result lists.

use std::collections::HashMap;

/// The usual constant of reciprocal rank fusion.
const RRF_K: f32 = 60.0;
const VECTOR_WEIGHT: f32 = 1.0;
const WORD_WEIGHT: f32 = 2.0;

/// Returns the best `count` documents of both lists. The score is at most one, for a
/// document that leads every list that is not empty.
pub(super) fn fuse_rankings(by_vector: &[i64], by_word: &[i64], count: usize) -> Vec<(i64, f32)> {
    let mut scores: HashMap<i64, f32> = HashMap::new();
    let mut max_score = 0.0;
    for (list, weight) in [(by_vector, VECTOR_WEIGHT), (by_word, WORD_WEIGHT)] {
        if !list.is_empty() {
            max_score += weight / (RRF_K + 1.0);
        }
        for (rank, number) in (1_u16..).zip(list) {
            *scores.entry(*number).or_default() += weight / (RRF_K + f32::from(rank));
        }
    }
    let mut fused: Vec<(i64, f32)> = scores.into_iter().collect();
    fused.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    fused.truncate(count);
    fused.iter_mut().for_each(|(_, score)| *score /= max_score);
    fused
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(by_vector: &[i64], by_word: &[i64], expected: &[i64]) {
        let fused = fuse_rankings(by_vector, by_word, 3);
        let numbers: Vec<i64> = fused.iter().map(|(number, _)| *number).collect();
        assert_eq!(numbers, expected);
        assert!(fused.iter().all(|(_, score)| *score > 0.0 && *score <= 1.0));
    }

    #[test]
    fn full_text_has_twice_the_weight_of_vectors() {
        check(&[1, 2, 3], &[3, 4], &[3, 4, 1]);
        check(&[1, 2, 3, 4], &[], &[1, 2, 3]);
        check(&[], &[9], &[9]);
        check(&[], &[], &[]);
        assert!((fuse_rankings(&[5], &[5], 1)[0].1 - 1.0).abs() < 1e-6);
        assert!((fuse_rankings(&[5], &[], 1)[0].1 - 1.0).abs() < 1e-6);
    }
}
