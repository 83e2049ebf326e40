//! The terms by which a tool is found.

use std::{collections::HashSet, sync::LazyLock};

use rust_stemmers::{Algorithm, Stemmer};

use super::{
    Glossary,
    bm25::TermWeights,
    hash_embedding::hash,
    text_runs::{TextRun, split_runs},
};

/// Words of questions that say nothing about a tool.
static STOP_WORDS: LazyLock<HashSet<&str>> =
    LazyLock::new(|| include_str!("stop_words.txt").split_whitespace().collect());
/// Synonyms of questions and tools, in Korean and English.
static TOOL_GLOSSARY: LazyLock<Glossary> =
    LazyLock::new(|| Glossary::default().with_groups(include_str!("tool_glossary.txt")));

const NAME_WEIGHT: f32 = 2.0;
const TITLE_WEIGHT: f32 = 1.0;
const DESCRIPTION_WEIGHT: f32 = 1.0;
const PARAMETER_WEIGHT: f32 = 0.5;
const SERVER_WEIGHT: f32 = 0.5;
const CONCEPT_WEIGHT: f32 = 0.5;
/// Bounds the work for a text from outside.
const MAX_TEXT_CHARS: usize = 4000;
/// Longer words are no words.
const MAX_WORD_CHARS: usize = 40;

/// What is known of a tool.
#[derive(Clone, Debug, Default)]
pub struct ToolDescription<'a> {
    /// Its name on its own server.
    pub name: &'a str,
    /// Its title for people.
    pub title: &'a str,
    /// What it does.
    pub description: &'a str,
    /// Names and descriptions of its parameters.
    pub parameters: Vec<(&'a str, &'a str)>,
    /// The name of its server.
    pub server: &'a str,
}

/// The terms of a tool or of a question.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ToolTerms {
    /// Stems, pairs of syllables and glossary groups.
    pub(super) words: TermWeights,
    /// Three and four letters of each word.
    pub(super) ngrams: TermWeights,
}

#[derive(Default)]
struct TermCollector {
    words: Vec<(u64, f32)>,
    ngrams: Vec<(u64, f32)>,
}

impl ToolTerms {
    /// Extracts the terms of a tool.
    pub fn of_tool(tool: &ToolDescription<'_>) -> Self {
        let mut terms = TermCollector::default();
        terms.add_text(tool.name, NAME_WEIGHT);
        terms.add_text(tool.title, TITLE_WEIGHT);
        terms.add_text(tool.description, DESCRIPTION_WEIGHT);
        for (name, description) in &tool.parameters {
            terms.add_text(name, PARAMETER_WEIGHT);
            terms.add_text(description, PARAMETER_WEIGHT);
        }
        terms.add_text(tool.server, SERVER_WEIGHT);
        Self {
            words: terms.words.into_iter().collect(),
            ngrams: terms.ngrams.into_iter().collect(),
        }
    }

    /// Extracts the terms of a question. A word counts once, and its n-grams together as
    /// much as one word.
    pub(super) fn of_query(query: &str) -> Self {
        let mut seen = HashSet::new();
        let mut terms = TermCollector::default();
        let mut ngrams = Vec::new();
        for word in content_words(query) {
            let mut found = TermCollector::default();
            found.add_word(&word, 1.0);
            if !found
                .words
                .first()
                .is_some_and(|(term, _)| seen.insert(*term))
            {
                continue;
            }
            terms.words.extend(found.words);
            #[expect(clippy::cast_precision_loss, reason = "a word has few n-grams")]
            let share = 1.0 / found.ngrams.len().max(1) as f32;
            ngrams.extend(found.ngrams.into_iter().map(|(term, _)| (term, share)));
        }
        terms.add_concepts(truncate(query), 1.0);
        Self {
            words: terms.words.into_iter().collect(),
            ngrams: ngrams.into_iter().collect(),
        }
    }
}

impl TermCollector {
    fn add_text(&mut self, text: &str, weight: f32) {
        let text = truncate(text);
        for word in content_words(text) {
            self.add_word(&word, weight);
        }
        self.add_concepts(text, weight);
    }

    fn add_word(&mut self, word: &QueryWord, weight: f32) {
        match word {
            QueryWord::Plain(word) => {
                let stem = stem(word);
                self.words.push((hash(b's', &stem), weight));
                // The glossary knows plurals of its words, but not `searching`.
                if stem != *word && TOOL_GLOSSARY.extract_terms(word).concepts.is_empty() {
                    self.add_concepts(&stem, weight);
                }
                let edged = format!("<{word}>");
                let mut bounds: Vec<usize> = edged.char_indices().map(|(at, _)| at).collect();
                bounds.push(edged.len());
                for length in [3, 4] {
                    let windows = bounds.windows(length + 1);
                    let grams = windows.map(|it| &edged[it[0]..it[length]]);
                    self.ngrams.extend(grams.map(|it| (hash(b'g', it), weight)));
                }
            }
            QueryWord::Syllables(syllables) => {
                let pairs = syllables.windows(2.min(syllables.len()));
                let pairs = pairs.map(|it| (hash(b'p', &String::from_iter(it)), weight));
                self.words.extend(pairs);
            }
        }
    }

    fn add_concepts(&mut self, text: &str, weight: f32) {
        let concepts = TOOL_GLOSSARY.extract_terms(text).concepts;
        let concepts = concepts.into_iter().map(|it| hash(b'c', &it.to_string()));
        let weight = weight * CONCEPT_WEIGHT;
        self.words.extend(concepts.map(|it| (it, weight)));
    }
}

enum QueryWord {
    Plain(String),
    Syllables(Vec<char>),
}

/// The words of a text that say something.
fn content_words(text: &str) -> impl Iterator<Item = QueryWord> {
    let runs = split_runs(truncate(text)).into_iter();
    runs.flat_map(|run| match run {
        TextRun::Dense(syllables) => {
            let is_stop = STOP_WORDS.contains(String::from_iter(&syllables).as_str());
            let word = (!is_stop).then_some(QueryWord::Syllables(syllables));
            word.into_iter().collect::<Vec<_>>()
        }
        TextRun::Word(parts) => {
            let parts = parts.into_iter();
            let parts = parts.filter(|it| !STOP_WORDS.contains(it.as_str()));
            parts
                .map(|it| QueryWord::Plain(it.chars().take(MAX_WORD_CHARS).collect()))
                .collect()
        }
    })
}

fn stem(word: &str) -> String {
    let stemmer = Stemmer::create(Algorithm::English);
    stemmer.stem(word).into_owned()
}

fn truncate(text: &str) -> &str {
    let end = text.char_indices().nth(MAX_TEXT_CHARS);
    end.map_or(text, |(at, _)| &text[..at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_a_word_share_their_stem_and_stop_words_are_left_out() {
        let words = |text: &str| ToolTerms::of_query(text).words;
        assert_eq!(words("searching reefs"), words("search reef"));
        assert_eq!(words("please tell me the weather"), words("weather"));
        assert_eq!(words("reef reef"), words("reef"));
        assert_eq!(ToolTerms::of_query("  ?"), ToolTerms::default());
    }

    #[test]
    fn long_texts_are_bounded() {
        let long = "word ".repeat(100_000) + &"x".repeat(100_000);
        let tool = ToolDescription {
            description: &long,
            ..ToolDescription::default()
        };
        assert!(ToolTerms::of_tool(&tool) != ToolTerms::default());
    }
}
