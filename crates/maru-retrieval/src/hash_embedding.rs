//! The built-in embedding model: hashed words, character n-grams and glossary groups. It
//! must stay the same in every version, because vectors are stored.

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

/// Returns a vector of length one, or zeros if `text` has no word.
pub(super) fn embed(glossary: &Glossary, text: &str) -> Vec<f32> {
    let mut vector = vec![0.0; DIMENSION];
    for (hash, weight) in features(glossary, text) {
        let sign = if hash >> 63 == 0 { -1.0 } else { 1.0 };
        // A repeated word does not count twice.
        vector[(hash % 1024) as usize] += sign * weight.sqrt();
    }
    normalise(&mut vector);
    vector
}

/// Scales `vector` to length one; zeros stay zeros.
pub(super) fn normalise(vector: &mut [f32]) {
    let length = vector.iter().map(|it| it * it).sum::<f32>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|it| *it /= length);
    }
}

/// Returns the weight of each feature, in a fixed order so that sums are equal to the
/// last bit.
fn features(glossary: &Glossary, text: &str) -> BTreeMap<u64, f32> {
    let mut features = BTreeMap::new();
    let mut add = |kind: u8, text: &str, weight: f32| {
        *features.entry(hash(kind, text)).or_default() += weight;
    };
    let terms = glossary.extract_terms(text);
    for word in &terms.words {
        add(b'w', word, WORD_WEIGHT);
    }
    for concept in &terms.concepts {
        add(b'c', &concept.to_string(), CONCEPT_WEIGHT);
    }
    for run in split_runs(text) {
        for ngram in ngrams(&run) {
            add(b'g', &ngram, NGRAM_WEIGHT);
        }
    }
    features
}

/// Returns n-grams: two and three syllables, or three letters including the edges of a
/// word.
fn ngrams(run: &TextRun) -> Vec<String> {
    let windows = |letters: &[char], length: usize| -> Vec<String> {
        letters.windows(length).map(String::from_iter).collect()
    };
    match run {
        TextRun::Dense(syllables) => [windows(syllables, 2), windows(syllables, 3)].concat(),
        TextRun::Word(parts) => {
            let edged = parts.iter().map(|part| format!("<{part}>"));
            edged
                .flat_map(|part| windows(&part.chars().collect::<Vec<_>>(), 3))
                .collect()
        }
    }
}

/// FNV-1a with a final mix, so that low and high bits depend on every byte.
pub(super) fn hash(kind: u8, text: &str) -> u64 {
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
    fn similar_texts_have_similar_vectors() {
        assert!((similarity("주문 날짜", "주문 날짜") - 1.0).abs() < 1e-5);
        assert!(similarity("주문날짜", "주문 날짜") > 0.5);
        assert!(similarity("직원 월급", "employee salary") > 0.3);
        assert!(similarity("직원 월급", "web log referrer").abs() < 0.2);
        assert!(similarity("", "주문").abs() < f32::EPSILON);
    }

    #[test]
    fn stored_vectors_stay_comparable() {
        // A change here would invalidate every index that was written before.
        assert_eq!(hash(b'w', "salary"), 4_058_679_242_957_628_724);
    }
}
