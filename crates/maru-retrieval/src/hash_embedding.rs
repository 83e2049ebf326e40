//! The built-in embedding: hashed words, pieces of words and groups of the
//! glossary. Pure, and the same in every process, because vectors are kept.

use std::collections::BTreeMap;

use super::{
    Glossary,
    text_runs::{TextRun, split_runs},
};

pub(super) const MODEL_NAME: &str = "builtin-hash-1024";
pub(super) const DIMENSION: usize = 1024;

const WORD_WEIGHT: f32 = 1.0;
const NGRAM_WEIGHT: f32 = 0.3;
const CONCEPT_WEIGHT: f32 = 1.5;

/// A vector of length one, or of zeros when there is no word in `text`.
pub(super) fn embed(glossary: &Glossary, text: &str) -> Vec<f32> {
    let mut vector = vec![0.0; DIMENSION];
    for (hash, weight) in features(glossary, text) {
        let sign = if hash >> 63 == 0 { -1.0 } else { 1.0 };
        // Said twice does not count twice.
        vector[(hash % 1024) as usize] += sign * weight.sqrt();
    }
    normalise(&mut vector);
    vector
}

/// Brings `vector` to length one; zeros stay zeros.
pub(super) fn normalise(vector: &mut [f32]) {
    let length = vector.iter().map(|it| it * it).sum::<f32>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|it| *it /= length);
    }
}

/// In an order of their own, so that sums are the same to the last bit.
fn features(glossary: &Glossary, text: &str) -> BTreeMap<u64, f32> {
    let mut found = BTreeMap::new();
    let mut add = |kind: u8, text: &str, weight: f32| {
        *found.entry(hash(kind, text)).or_default() += weight;
    };
    let words = glossary.extract_terms(text);
    for word in &words.words {
        add(b'w', word, WORD_WEIGHT);
    }
    for concept in &words.concepts {
        add(b'c', &concept.to_string(), CONCEPT_WEIGHT);
    }
    for run in split_runs(text) {
        for piece in ngrams(&run) {
            add(b'g', &piece, NGRAM_WEIGHT);
        }
    }
    found
}

/// Two and three syllables, or three letters, the edges of a word included.
fn ngrams(run: &TextRun) -> Vec<String> {
    let cut = |letters: &[char], length: usize| -> Vec<String> {
        letters.windows(length).map(String::from_iter).collect()
    };
    match run {
        TextRun::Dense(syllables) => [cut(syllables, 2), cut(syllables, 3)].concat(),
        TextRun::Word(parts) => {
            let edged = parts.iter().map(|part| format!("<{part}>"));
            edged
                .flat_map(|part| cut(&part.chars().collect::<Vec<_>>(), 3))
                .collect()
        }
    }
}

/// FNV-1a, stirred so that low and high bits both depend on every byte.
fn hash(kind: u8, text: &str) -> u64 {
    let bytes = std::iter::once(kind).chain(text.bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let hash = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ (hash >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn similarity(one: &str, other: &str) -> f32 {
        let glossary = Glossary::default();
        let [one, other] = [one, other].map(|text| embed(&glossary, text));
        one.iter().zip(&other).map(|(x, y)| x * y).sum()
    }

    #[test]
    fn alike_texts_are_nearer() {
        assert!((similarity("주문 날짜", "주문 날짜") - 1.0).abs() < 1e-5);
        assert!(similarity("주문날짜", "주문 날짜") > 0.5);
        assert!(similarity("직원 월급", "employee salary") > 0.3);
        assert!(similarity("직원 월급", "web log referrer").abs() < 0.2);
        assert!(similarity("", "주문").abs() < f32::EPSILON);
    }

    #[test]
    fn a_kept_vector_stays_comparable() {
        // A change here makes every index that was written before wrong.
        assert_eq!(hash(b'w', "salary"), 4_058_679_242_957_628_724);
    }
}
