//! The size limits of results, and how a larger result is cut.

use serde_json::{Value, json};

use super::EntryResult;
use maru_config::Config;

/// The size limits of a tool's result.
#[derive(Clone, Copy, Debug)]
pub struct ResultLimits {
    /// Bytes of JSON.
    pub max_bytes: usize,
    /// Characters of its text, of an image or of a structure.
    pub max_characters: Option<usize>,
}

impl ResultLimits {
    /// Limits the bytes only.
    pub fn from_max_bytes(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            max_characters: None,
        }
    }

    /// The result, cut if it is too large.
    pub(crate) fn apply(self, result: EntryResult) -> EntryResult {
        let result = limit_bytes(result, self.max_bytes);
        match self.max_characters {
            Some(limit) => limit_characters(result, limit),
            None => result,
        }
    }
}

impl From<&Config> for ResultLimits {
    fn from(config: &Config) -> Self {
        Self {
            max_bytes: config.limits.max_result_bytes,
            max_characters: config.mcp.security.max_tool_output_length,
        }
    }
}

/// Cuts a result to `limit` bytes of JSON, by the rules of [`limit_characters`].
fn limit_bytes(result: EntryResult, limit: usize) -> EntryResult {
    let size = result.json.len();
    if size <= limit {
        return result;
    }
    // Escaping at most doubles ordinary text; a control character becomes six bytes.
    let mut tried = [2, 16].into_iter().map(|share| {
        let shortened = truncate_content(&result, limit / share);
        (shortened.json.len() <= limit).then_some(shortened)
    });
    tried.find_map(|it| it).unwrap_or_else(|| {
        EntryResult::failure(&format!(
            "the result has {size} bytes, more than the {limit} allowed; ask for less"
        ))
    })
}

/// Cuts a result to `limit` characters. Text is truncated, with a note that says how much is
/// missing. Images and structures cannot be truncated, so they are removed, and the result
/// becomes an error.
fn limit_characters(result: EntryResult, limit: usize) -> EntryResult {
    // No text has more characters than its JSON has bytes.
    if result.json.len() <= limit {
        return result;
    }
    truncate_content(&result, limit)
}

fn truncate_content(result: &EntryResult, limit: usize) -> EntryResult {
    let Ok(Value::Object(mut members)) = serde_json::from_str(&result.json) else {
        return EntryResult::failure("the result is not a JSON object");
    };
    let mut budget = TruncationBudget {
        remaining_characters: limit,
        skipped_texts: 0,
        omitted: Vec::new(),
    };
    let content = match members.remove("content") {
        Some(Value::Array(content)) => content,
        _ => Vec::new(),
    };
    let mut content: Vec<Value> = content
        .into_iter()
        .filter_map(|it| budget.fit_content(it))
        .collect();
    let structure = members.get("structuredContent");
    let size = structure.map_or(0, |it| it.to_string().chars().count());
    if size > limit {
        members.shift_remove("structuredContent");
        budget
            .omitted
            .push(format!("structure of {size} characters"));
    }
    if budget.skipped_texts > 0 {
        let note = format!("[cut: {} more texts; ask for less]", budget.skipped_texts);
        content.push(json!({"type": "text", "text": note}));
    }
    if !budget.omitted.is_empty() {
        let count = budget.omitted.len();
        budget.omitted.truncate(3);
        let named = budget.omitted.join(", ");
        let note = format!(
            "[left out: {named} ({count} in all); at most {limit} characters are allowed, so ask for less]"
        );
        content.push(json!({"type": "text", "text": note}));
        members.insert("isError".to_owned(), true.into());
    }
    members.insert("content".to_owned(), content.into());
    let cut = EntryResult::from(Value::Object(members));
    if result.is_error() {
        // A result that was an error keeps its status.
        EntryResult {
            status: result.status,
            ..cut
        }
    } else {
        cut
    }
}

/// What is left of the limit while a result is cut, and what had to go.
struct TruncationBudget {
    /// Characters that may still be used.
    remaining_characters: usize,
    skipped_texts: usize,
    /// Parts that did not fit and cannot be truncated.
    omitted: Vec<String>,
}

impl TruncationBudget {
    /// Truncates a content item to the budget; `None` if it is left out.
    fn fit_content(&mut self, mut part: Value) -> Option<Value> {
        let inside = match part.get_mut("resource") {
            Some(resource) => resource,
            None => &mut part,
        };
        if let Some(Value::String(text)) = inside.get_mut("text") {
            if self.remaining_characters == 0 {
                self.skipped_texts += 1;
                return None;
            }
            self.truncate_text_part(text);
            return Some(part);
        }
        let size = part.to_string().chars().count();
        if size <= self.remaining_characters {
            self.remaining_characters -= size;
            return Some(part);
        }
        let kind = part["type"].as_str().unwrap_or("part").to_owned();
        let kind: String = kind.chars().take(20).collect();
        self.omitted.push(format!("{kind} of {size} characters"));
        None
    }

    fn truncate_text_part(&mut self, text: &mut String) {
        let size = text.chars().count();
        self.remaining_characters = if truncate_text(text, self.remaining_characters) {
            0
        } else {
            self.remaining_characters - size
        };
    }
}

/// Truncates a text to `limit` characters, including a note of how much is missing; returns
/// false if it fits.
pub(super) fn truncate_text(text: &mut String, limit: usize) -> bool {
    let all = text.chars().count();
    if all <= limit {
        return false;
    }
    let note = |shown| format!("\n[cut: {shown} of {all} characters shown; ask for less]");
    let shown = limit.saturating_sub(note(limit).len());
    let end = text.char_indices().nth(shown).map_or(text.len(), |it| it.0);
    text.truncate(end);
    text.push_str(&note(shown));
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value_within(result: EntryResult, limit: usize) -> Value {
        serde_json::from_str(limit_characters(result, limit).as_json()).unwrap()
    }

    #[test]
    fn long_result_is_cut_on_a_character_with_a_note() {
        let long = json!({"content": [{"type": "text", "text": "가나다".repeat(2000)}]});
        let cut = limit_bytes(long.into(), 4096);
        assert!(cut.json.len() <= 4096);
        let text = cut.to_text();
        assert!(
            text.contains("[cut: 206 of 6000 characters shown"),
            "{}",
            &text[text.len() - 60..]
        );
        assert!(!cut.is_error());
    }

    #[test]
    fn structure_is_never_cut_in_half() {
        let cut = limit_bytes(EntryResult::structured(&"x".repeat(4000)), 4096);
        let text = cut.to_text();
        assert!(cut.is_error() && text.contains("ask for less"), "{text}");
    }

    #[test]
    fn image_that_does_not_fit_is_an_error() {
        let image = json!({"type": "image", "mimeType": "image/png", "data": "A".repeat(900)});
        let result =
            EntryResult::from(json!({"content": [{"type": "text", "text": "a plot"}, image]}));
        let whole = limit_characters(result.clone(), 1000);
        assert_eq!(whole.as_json(), result.as_json());
        let short = value_within(result, 500);
        assert_eq!(short["isError"], true);
        assert_eq!(short["content"][0]["text"], "a plot");
        let note = short["content"][1]["text"].as_str().unwrap();
        assert!(note.starts_with("[left out: image of 9"), "{note}");
        assert_eq!(short["content"].as_array().unwrap().len(), 2);
    }

    #[test]
    fn structure_that_fits_stays_whole_beside_cut_text() {
        let result = json!({
            "content": [{"type": "text", "text": "x".repeat(900)}, {"type": "text", "text": "y"}],
            "structuredContent": {"rows": [1, 2]},
        });
        let short = value_within(result.into(), 500);
        assert_eq!(short["structuredContent"], json!({"rows": [1, 2]}));
        assert_eq!(short.get("isError"), None);
        assert_eq!(
            short["content"][1]["text"],
            "[cut: 1 more texts; ask for less]"
        );
        let short = value_within(EntryResult::structured(&"x".repeat(900)), 500);
        assert_eq!(short.get("structuredContent"), None);
        assert_eq!(short["isError"], true);
    }
}
