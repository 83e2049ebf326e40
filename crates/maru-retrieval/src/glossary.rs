//! Synonyms in Korean and English.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};

use super::text_runs::{TextRun, split_runs};

const BUILTIN_GROUPS: &str = include_str!("glossary.txt");

/// Groups of synonyms. A text is found by any word of a group that it contains, whatever
/// particle a Korean word ends with.
#[derive(Clone, Debug)]
pub struct Glossary {
    groups: HashMap<String, Vec<usize>>,
    /// Length of the longest word, in characters.
    longest_word: usize,
    group_count: usize,
    digest: String,
}

/// The terms by which a text is found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SearchTerms {
    /// Words, their singular forms, and pairs of syllables.
    pub(super) words: Vec<String>,
    /// Numbers of glossary groups.
    pub(super) concepts: Vec<usize>,
}

impl Default for Glossary {
    /// Returns the built-in groups: common words in database schemas.
    fn default() -> Self {
        let empty = Self {
            groups: HashMap::new(),
            longest_word: 0,
            group_count: 0,
            digest: String::new(),
        };
        empty.with_groups(BUILTIN_GROUPS)
    }
}

impl Glossary {
    /// Adds the groups in `text`: one per line, separated by spaces; `#` starts a
    /// comment.
    #[must_use]
    pub fn with_groups(mut self, text: &str) -> Self {
        for line in text.lines() {
            let line = line.split('#').next().unwrap_or_default().to_lowercase();
            let words: Vec<&str> = line.split_whitespace().collect();
            if words.len() > 1 {
                self.add_group(&words);
            }
        }
        self
    }

    fn add_group(&mut self, words: &[&str]) {
        for word in words {
            let groups = self.groups.entry((*word).to_owned()).or_default();
            groups.push(self.group_count);
            self.longest_word = self.longest_word.max(word.chars().count());
        }
        self.group_count += 1;
        let input = format!("{}\n{}", self.digest, words.join(" "));
        self.digest = hex(&Sha256::digest(input)[..8]);
    }

    /// Returns a digest that identifies the glossary.
    pub(super) fn digest(&self) -> &str {
        &self.digest
    }

    /// Extracts the terms of `text`.
    pub(super) fn extract_terms(&self, text: &str) -> SearchTerms {
        let mut terms = SearchTerms::default();
        for run in split_runs(text) {
            match run {
                TextRun::Dense(syllables) => self.extract_from_syllables(&syllables, &mut terms),
                TextRun::Word(parts) => self.extract_from_identifier(&parts, &mut terms),
            }
        }
        terms
    }

    fn extract_from_syllables(&self, syllables: &[char], terms: &mut SearchTerms) {
        let pairs = syllables.windows(2.min(syllables.len()));
        terms.words.extend(pairs.map(String::from_iter));
        let mut rest = syllables;
        while !rest.is_empty() {
            let length = match self.longest_prefix(rest) {
                Some((length, groups)) => {
                    terms.concepts.extend(groups);
                    length
                }
                None => 1,
            };
            rest = &rest[length..];
        }
    }

    /// Finds the longest word that `rest` starts with, and its groups. A single syllable
    /// counts only at the end, because too many words contain it.
    fn longest_prefix(&self, rest: &[char]) -> Option<(usize, &[usize])> {
        let lengths = (1..=self.longest_word.min(rest.len())).rev();
        let mut allowed = lengths.filter(|length| *length > 1 || rest.len() == 1);
        allowed.find_map(|length| {
            let word = String::from_iter(&rest[..length]);
            Some((length, self.groups.get(&word)?.as_slice()))
        })
    }

    fn extract_from_identifier(&self, parts: &[String], terms: &mut SearchTerms) {
        if parts.len() > 1 {
            self.add_concepts_of(&parts.join("_"), terms);
        }
        for part in parts {
            let singular = singular(part);
            let _ = self.add_concepts_of(part, terms)
                || singular.is_some_and(|it| self.add_concepts_of(it, terms))
                || part
                    .strip_suffix("es")
                    .is_some_and(|it| self.add_concepts_of(it, terms));
            terms.words.push(part.clone());
            terms.words.extend(singular.map(str::to_owned));
        }
    }

    /// Adds the groups of `word`; false if it has none.
    fn add_concepts_of(&self, word: &str, terms: &mut SearchTerms) -> bool {
        let groups = self.groups.get(word);
        terms.concepts.extend(groups.into_iter().flatten());
        groups.is_some()
    }
}

fn singular(word: &str) -> Option<&str> {
    word.strip_suffix('s').filter(|it| it.len() > 2)
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share_a_group(glossary: &Glossary, one: &str, other: &str) -> bool {
        let other = glossary.extract_terms(other).concepts;
        glossary
            .extract_terms(one)
            .concepts
            .iter()
            .any(|it| other.contains(it))
    }

    #[test]
    fn synonyms_match_in_both_languages() {
        let glossary = Glossary::default();
        assert!(share_a_group(&glossary, "월급이나", "employees.salary"));
        assert!(share_a_group(&glossary, "products", "제품을"));
        assert!(share_a_group(&glossary, "unitPrice", "단가"));
        assert!(share_a_group(&glossary, "입사일", "hire_date"));
        assert!(!share_a_group(&glossary, "증명서", "username"));
        assert!(!share_a_group(&glossary, "온도", "humidity"));
    }

    #[test]
    fn custom_groups_extend_the_builtin_ones() {
        let builtin = Glossary::default();
        let more = builtin
            .clone()
            .with_groups("# ours\nreflow 리플로우 리플로\nalone\n");
        assert!(!share_a_group(&builtin, "리플로우로", "reflow_temp 1"));
        assert!(share_a_group(&more, "리플로우로", "reflow_x"));
        assert_eq!(more.group_count, builtin.group_count + 1);
        assert_ne!(more.digest(), builtin.digest());
        assert_eq!(Glossary::default().digest(), builtin.digest());
    }

    #[test]
    fn syllables_become_pairs_and_identifiers_become_parts() {
        let terms = Glossary::default().extract_terms("user_ids 한글날 값");
        let plain: Vec<&str> = terms.words.iter().map(String::as_str).collect();
        assert_eq!(plain, ["user", "ids", "한글", "글날", "값"]);
        assert_eq!(
            Glossary::default().extract_terms(""),
            SearchTerms::default()
        );
    }
}
