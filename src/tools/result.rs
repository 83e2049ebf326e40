//! Results of tools: making them, bounding them, and reading them as text.

use std::sync::LazyLock;

use maru_protocol::{push_json_string, to_json_string};
use memchr::memmem::Finder;
use serde::Serialize;
use serde_json::{Value, json};

use crate::config::Config;

/// How large the result of a tool may be.
#[derive(Clone, Copy, Debug)]
pub struct ResultLimits {
    /// Bytes of JSON.
    pub max_bytes: usize,
    /// Characters of its text, of an image or of a structure.
    pub max_characters: Option<usize>,
}

impl ResultLimits {
    /// Only bytes are bounded.
    pub fn from_max_bytes(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            max_characters: None,
        }
    }

    pub(super) fn apply(self, result: String) -> String {
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

/// A result with `value` as structured content and as text.
pub fn structured(value: &impl Serialize) -> String {
    write_structured(value, false)
}

/// A failed call: `{"success": false, "error": why}`.
pub fn failure(why: &str) -> String {
    write_structured(&json!({"success": false, "error": why}), true)
}

/// A tool whose server could not be asked.
pub fn server_unavailable(server: &str, why: &str) -> String {
    failure(&format!("server {server} {NO_ANSWER_PHRASE} {why}"))
}

/// Whether a failed result says that its server could not be asked.
pub(super) fn is_server_unavailable(result: &str, server: &str) -> bool {
    let head = result.get(..result.len().min(400)).unwrap_or(result);
    head.contains(&format!("server {server} {NO_ANSWER_PHRASE} "))
}

const NO_ANSWER_PHRASE: &str = "did not answer:";

/// Whether a result says that its tool failed.
pub(super) fn is_error(result: &str) -> bool {
    static FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new("\"isError\""));
    let mut found = FINDER.find_iter(result.as_bytes());
    found.any(|at| {
        let after = result[at + "\"isError\"".len()..].trim_start();
        let value = after.strip_prefix(':').unwrap_or_default().trim_start();
        value.starts_with("true")
    })
}

/// Written by hand: the value is serialised once and escaped once.
fn write_structured(value: &impl Serialize, is_error: bool) -> String {
    let raw = serde_json::to_string(value).expect("our own values are JSON");
    let mut text = String::with_capacity(raw.len() * 3 + 128);
    text.push_str("{\"content\":[{\"type\":\"text\",\"text\":");
    push_json_string(&mut text, &raw);
    text.push_str("}],\"structuredContent\":");
    text.push_str(&raw);
    text.push_str(if is_error {
        ",\"isError\":true}"
    } else {
        ",\"isError\":false}"
    });
    text
}

/// A result with this text and this structure, which is JSON already.
pub fn text_and_structure(text: &str, structure: &str, is_error: bool) -> String {
    let text = to_json_string(text);
    format!(
        "{{\"content\":[{{\"type\":\"text\",\"text\":{text}}}],\"structuredContent\":{structure},\"isError\":{is_error}}}"
    )
}

/// A result with this text, and this JSON in a structure as `result`; twice the
/// same is too much of something large.
pub fn text_and_value(text: &str, json: &str) -> String {
    /// What is larger comes as text alone.
    const MAX_STRUCTURED_BYTES: usize = 256 << 10;
    if json.len() > MAX_STRUCTURED_BYTES {
        text_only(text, false)
    } else {
        text_and_structure(text, &format!("{{\"result\":{json}}}"), false)
    }
}

/// A result that is only text.
pub fn text_only(text: &str, is_error: bool) -> String {
    let text = to_json_string(text);
    format!("{{\"content\":[{{\"type\":\"text\",\"text\":{text}}}],\"isError\":{is_error}}}")
}

/// Cuts a result to `limit` bytes of JSON, by the rules of [`shorten`].
pub fn limit_bytes(result: String, limit: usize) -> String {
    if result.len() <= limit {
        return result;
    }
    let size = result.len();
    // Escapes double most text at worst, and make six bytes of a control character.
    let mut tried = [2, 16].into_iter().map(|share| {
        let shortened = truncate_content(&result, limit / share);
        (shortened.len() <= limit).then_some(shortened)
    });
    tried.find_map(|it| it).unwrap_or_else(|| {
        failure(&format!(
            "the result has {size} bytes, more than the {limit} allowed; ask for less"
        ))
    })
}

/// Cuts a result to `limit` characters: text is kept as far as it goes, with a note
/// of how much is missing. Half an image or half a structure is none, so they are
/// left out as a whole, which is an error.
pub fn limit_characters(result: String, limit: usize) -> String {
    // No text has more characters than its JSON has bytes.
    if result.len() <= limit {
        return result;
    }
    truncate_content(&result, limit)
}

fn truncate_content(result: &str, limit: usize) -> String {
    let Ok(Value::Object(mut members)) = serde_json::from_str(result) else {
        return failure("the result is not a JSON object");
    };
    let mut room = TruncationBudget {
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
        .filter_map(|it| room.fit_content(it))
        .collect();
    let structure = members.get("structuredContent");
    let size = structure.map_or(0, |it| it.to_string().chars().count());
    if size > limit {
        members.shift_remove("structuredContent");
        room.omitted.push(format!("structure of {size} characters"));
    }
    if room.skipped_texts > 0 {
        let note = format!("[cut: {} more texts; ask for less]", room.skipped_texts);
        content.push(json!({"type": "text", "text": note}));
    }
    if !room.omitted.is_empty() {
        let count = room.omitted.len();
        room.omitted.truncate(3);
        let named = room.omitted.join(", ");
        let note = format!(
            "[left out: {named} ({count} in all); at most {limit} characters are allowed, so ask for less]"
        );
        content.push(json!({"type": "text", "text": note}));
        members.insert("isError".to_owned(), true.into());
    }
    members.insert("content".to_owned(), content.into());
    Value::Object(members).to_string()
}

/// The room that a result has.
struct TruncationBudget {
    /// Characters.
    remaining_characters: usize,
    skipped_texts: usize,
    /// What did not fit and cannot be cut.
    omitted: Vec<String>,
}

impl TruncationBudget {
    /// As much of a part of the content as fits.
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

/// Cuts a text to `limit` characters, the note of how much is missing included;
/// false if it fits.
fn truncate_text(text: &mut String, limit: usize) -> bool {
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

/// A result as text for readers that know nothing else, and whether it is an error.
pub fn to_text(result: &str) -> (String, bool) {
    let value: Value = serde_json::from_str(result).unwrap_or_default();
    let parts: Vec<String> = value["content"]
        .as_array()
        .map_or(&[][..], Vec::as_slice)
        .iter()
        .map(content_text)
        .collect();
    let is_error = value["isError"] == true;
    if parts.is_empty() && !value["structuredContent"].is_null() {
        return (value["structuredContent"].to_string(), is_error);
    }
    (parts.join("\n"), is_error)
}

/// The same for a reader of at most `limit` characters, with a note of how much
/// is missing.
pub fn to_text_within(result: &str, limit: usize) -> (String, bool) {
    let (mut text, is_error) = to_text(result);
    truncate_text(&mut text, limit);
    (text, is_error)
}

fn content_text(content: &Value) -> String {
    let member = |name: &str| content[name].as_str().unwrap_or("unknown");
    match content["type"].as_str() {
        Some("text") => content["text"].as_str().unwrap_or_default().to_owned(),
        Some("image") => format!("[Image: {}]", member("mimeType")),
        Some("audio") => format!("[Audio: {}]", member("mimeType")),
        Some("resource_link") => format!("[Resource: {}]", member("uri")),
        Some("resource") => {
            let resource = &content["resource"];
            let uri = resource["uri"].as_str().unwrap_or("unknown");
            format!("[Resource: {uri}]")
        }
        _ => content.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structure_and_text_say_the_same() {
        let value = json!({"success": true, "result": ["가", "a\"\\\n\u{1}"]});
        let result: Value = serde_json::from_str(&structured(&value)).unwrap();
        let text: Value =
            serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
        assert_eq!(text, result["structuredContent"]);
        assert_eq!(result["isError"], false);
    }

    #[test]
    fn long_result_is_cut_on_a_character_with_a_note() {
        let long = json!({"content": [{"type": "text", "text": "가나다".repeat(2000)}]});
        let cut = limit_bytes(long.to_string(), 4096);
        assert!(cut.len() <= 4096);
        let (text, is_error) = to_text(&cut);
        assert!(
            text.contains("[cut: 206 of 6000 characters shown"),
            "{}",
            &text[text.len() - 60..]
        );
        assert!(!is_error);
    }

    #[test]
    fn reader_of_text_is_told_how_much_is_missing() {
        let long = json!({"content": [{"type": "text", "text": "가".repeat(300)}]});
        let (text, _) = to_text_within(&long.to_string(), 100);
        let expected = format!(
            "{}\n[cut: 51 of 300 characters shown; ask for less]",
            "가".repeat(51)
        );
        assert_eq!(text, expected);
        assert_eq!(text.chars().count(), 99);
        assert_eq!(to_text_within(&long.to_string(), 300).0, "가".repeat(300));
    }

    #[test]
    fn structure_is_never_cut_in_half() {
        let cut = limit_bytes(structured(&"x".repeat(4000)), 4096);
        let (text, is_error) = to_text(&cut);
        assert!(is_error && text.contains("ask for less"), "{text}");
    }

    #[test]
    fn image_that_does_not_fit_is_an_error() {
        let image = json!({"type": "image", "mimeType": "image/png", "data": "A".repeat(900)});
        let result = json!({"content": [{"type": "text", "text": "a plot"}, image]}).to_string();
        assert_eq!(limit_characters(result.clone(), 1000), result);
        let short: Value = serde_json::from_str(&limit_characters(result, 500)).unwrap();
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
        let short: Value =
            serde_json::from_str(&limit_characters(result.to_string(), 500)).unwrap();
        assert_eq!(short["structuredContent"], json!({"rows": [1, 2]}));
        assert_eq!(short.get("isError"), None);
        assert_eq!(
            short["content"][1]["text"],
            "[cut: 1 more texts; ask for less]"
        );
        let long = structured(&"x".repeat(900));
        let short: Value = serde_json::from_str(&limit_characters(long, 500)).unwrap();
        assert_eq!(short.get("structuredContent"), None);
        assert_eq!(short["isError"], true);
    }

    #[test]
    fn content_of_every_kind_has_a_text() {
        let result = json!({"content": [
            {"type": "text", "text": "a"},
            {"type": "image", "mimeType": "image/png", "data": ""},
            {"type": "resource", "resource": {"uri": "x://y"}},
        ]});
        assert_eq!(
            to_text(&result.to_string()).0,
            "a\n[Image: image/png]\n[Resource: x://y]"
        );
    }
}
