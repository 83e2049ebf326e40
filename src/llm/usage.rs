//! Token counts of a response.

use serde_json::{Map, Value};

/// Token counts, as the backend reports them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TokenUsage(pub Map<String, Value>);

impl TokenUsage {
    /// The counts that every client reads.
    pub(super) fn from_counts(prompt: u64, completion: u64, total: u64) -> Self {
        let mut counts = Map::new();
        counts.insert("prompt_tokens".to_owned(), prompt.into());
        counts.insert("completion_tokens".to_owned(), completion.into());
        counts.insert("total_tokens".to_owned(), total.into());
        Self(counts)
    }

    /// A count, or 0.
    pub fn count(&self, name: &str) -> u64 {
        self.0.get(name).and_then(Value::as_u64).unwrap_or(0)
    }

    /// All tokens: the total, or the sum of its parts.
    pub fn total(&self) -> u64 {
        let parts = || {
            self.count("prompt_tokens")
                .saturating_add(self.count("completion_tokens"))
        };
        let total = self.0.get("total_tokens").and_then(Value::as_u64);
        total.unwrap_or_else(parts)
    }
}
