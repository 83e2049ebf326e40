//! Token counts of a response.

use serde_json::{Map, Value, json};

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

    /// The same counts with those of cached tokens and of reasoning, unless they are 0.
    #[must_use]
    pub(super) fn with_details(mut self, cached: u64, reasoning: u64) -> Self {
        let details = [
            ("prompt_tokens_details", "cached_tokens", cached),
            ("completion_tokens_details", "reasoning_tokens", reasoning),
        ];
        for (details, name, count) in details {
            if count > 0 {
                self.0.insert(details.to_owned(), json!({name: count}));
            }
        }
        self
    }

    /// Tokens of the prompt, cached ones included.
    pub fn input(&self) -> u64 {
        self.count("prompt_tokens")
    }

    /// Tokens of the response, reasoning included.
    pub fn output(&self) -> u64 {
        self.count("completion_tokens")
    }

    /// Tokens of the prompt that came from the backend's cache.
    pub fn cached(&self) -> u64 {
        let details = self.details("prompt_tokens_details", "cached_tokens");
        details.max(self.count("prompt_cache_hit_tokens"))
    }

    /// Tokens of reasoning.
    pub fn reasoning(&self) -> u64 {
        self.details("completion_tokens_details", "reasoning_tokens")
    }

    fn details(&self, details: &str, name: &str) -> u64 {
        self.0
            .get(details)
            .and_then(Value::as_object)
            .map_or(0, |it| count_of(it, name))
    }

    /// A count, or 0. Some backends write it as `1520.0`.
    pub fn count(&self, name: &str) -> u64 {
        count_of(&self.0, name)
    }

    /// All tokens: the total or the sum of its parts, whichever is larger. A backend that
    /// reports a small total must not get around a limit.
    pub fn total(&self) -> u64 {
        let parts = self.input().saturating_add(self.output());
        self.count("total_tokens").max(parts)
    }
}

fn count_of(counts: &Map<String, Value>, name: &str) -> u64 {
    let Some(count) = counts.get(name) else {
        return 0;
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the cast saturates, and a negative count is 0"
    )]
    let from_float = || count.as_f64().map(|it| it as u64);
    count.as_u64().or_else(from_float).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_is_the_largest_that_a_backend_reports() {
        let total = |counts: Value| TokenUsage(counts.as_object().unwrap().clone()).total();
        assert_eq!(total(json!({})), 0);
        assert_eq!(total(json!({"total_tokens": 7})), 7);
        let parts = json!({"total_tokens": 1, "prompt_tokens": 100, "completion_tokens": 20.0});
        assert_eq!(total(parts), 120);
        let lie = json!({"prompt_tokens": u64::MAX, "completion_tokens": u64::MAX});
        assert_eq!(total(lie), u64::MAX);
        assert_eq!(total(json!({"total_tokens": -5, "prompt_tokens": "x"})), 0);
    }
}
