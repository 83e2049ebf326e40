//! Words that mean the same, in Korean and English. Pure.

use std::collections::HashMap;

use sha2::{Digest as _, Sha256};

use super::text_runs::{TextRun, split_runs};

const BUILTIN_GROUPS: &str = include_str!("glossary.txt");

/// Groups of words that mean the same. Texts are found by any word of a group
/// that is in them, whatever particle a Korean word ends with.
#[derive(Clone, Debug)]
pub struct Glossary {
    groups: HashMap<String, Vec<usize>>,
    /// Of the words that are looked for inside others, in characters.
    longest_word: usize,
    group_count: usize,
    digest: String,
}

/// What a text is found by.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SearchTerms {
    /// Words, their singular, and pairs of syllables.
    pub(super) words: Vec<String>,
    /// Groups of the glossary.
    pub(super) concepts: Vec<usize>,
}

impl Default for Glossary {
    /// General words of databases.
    fn default() -> Self {
        let none = Self {
            groups: HashMap::new(),
            longest_word: 0,
            group_count: 0,
            digest: String::new(),
        };
        none.with_groups(BUILTIN_GROUPS)
    }
}

impl Glossary {
    /// These groups and those of `text`: one a line, words between blanks; `#`
    /// begins a comment.
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
        let whole = format!("{}\n{}", self.digest, words.join(" "));
        self.digest = hex(&Sha256::digest(whole)[..8]);
    }

    /// Differs between glossaries that read texts differently.
    pub(super) fn digest(&self) -> &str {
        &self.digest
    }

    /// What `text` is found by.
    pub(super) fn extract_terms(&self, text: &str) -> SearchTerms {
        let mut words = SearchTerms::default();
        for run in split_runs(text) {
            match run {
                TextRun::Dense(syllables) => self.extract_from_syllables(&syllables, &mut words),
                TextRun::Word(parts) => self.extract_from_identifier(&parts, &mut words),
            }
        }
        words
    }

    fn extract_from_syllables(&self, syllables: &[char], words: &mut SearchTerms) {
        let pairs = syllables.windows(2.min(syllables.len()));
        words.words.extend(pairs.map(String::from_iter));
        let mut rest = syllables;
        while !rest.is_empty() {
            let length = match self.longest_prefix(rest) {
                Some((length, groups)) => {
                    words.concepts.extend(groups);
                    length
                }
                None => 1,
            };
            rest = &rest[length..];
        }
    }

    /// The longest word that `rest` begins with, and its groups. One syllable is
    /// a word at the end only: too many words have it inside.
    fn longest_prefix(&self, rest: &[char]) -> Option<(usize, &[usize])> {
        let lengths = (1..=self.longest_word.min(rest.len())).rev();
        let mut allowed = lengths.filter(|length| *length > 1 || rest.len() == 1);
        allowed.find_map(|length| {
            let word = String::from_iter(&rest[..length]);
            Some((length, self.groups.get(&word)?.as_slice()))
        })
    }

    fn extract_from_identifier(&self, parts: &[String], words: &mut SearchTerms) {
        if parts.len() > 1 {
            self.add_concepts_of(&parts.join("_"), words);
        }
        for part in parts {
            let singular = singular(part);
            let _ = self.add_concepts_of(part, words)
                || singular.is_some_and(|it| self.add_concepts_of(it, words))
                || part
                    .strip_suffix("es")
                    .is_some_and(|it| self.add_concepts_of(it, words));
            words.words.push(part.clone());
            words.words.extend(singular.map(str::to_owned));
        }
    }

    /// Adds the groups of `word`; whether it has any.
    fn add_concepts_of(&self, word: &str, words: &mut SearchTerms) -> bool {
        let groups = self.groups.get(word);
        words.concepts.extend(groups.into_iter().flatten());
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

    fn meets(glossary: &Glossary, one: &str, other: &str) -> bool {
        let other = glossary.extract_terms(other).concepts;
        glossary
            .extract_terms(one)
            .concepts
            .iter()
            .any(|it| other.contains(it))
    }

    #[test]
    fn words_of_one_group_meet_in_both_languages() {
        let glossary = Glossary::default();
        assert!(meets(&glossary, "월급이나", "employees.salary"));
        assert!(meets(&glossary, "products", "제품을"));
        assert!(meets(&glossary, "unitPrice", "단가"));
        assert!(meets(&glossary, "입사일", "hire_date"));
        assert!(!meets(&glossary, "증명서", "username"));
        assert!(!meets(&glossary, "온도", "humidity"));
    }

    #[test]
    fn users_add_groups_of_their_own() {
        let builtin = Glossary::default();
        let more = builtin
            .clone()
            .with_groups("# ours\nreflow 리플로우 리플로\nalone\n");
        assert!(!meets(&builtin, "리플로우로", "reflow_temp 1"));
        assert!(meets(&more, "리플로우로", "reflow_x"));
        assert_eq!(more.group_count, builtin.group_count + 1);
        assert_ne!(more.digest(), builtin.digest());
        assert_eq!(Glossary::default().digest(), builtin.digest());
    }

    #[test]
    fn syllables_are_read_in_pairs_and_names_in_parts() {
        let words = Glossary::default().extract_terms("user_ids 한글날 값");
        let plain: Vec<&str> = words.words.iter().map(String::as_str).collect();
        assert_eq!(plain, ["user", "ids", "한글", "글날", "값"]);
        assert_eq!(
            Glossary::default().extract_terms(""),
            SearchTerms::default()
        );
    }
}
