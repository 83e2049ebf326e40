//! Results of tools: making them, bounding them, and reading them as text.

use std::{mem, sync::LazyLock};

use memchr::memmem::Finder;
use serde::Serialize;
use serde_json::{Value, json};

/// A result with `value` as structured content and as text.
pub fn structured(value: &impl Serialize) -> String {
    with_structure(value, false)
}

/// A failed call: `{"success": false, "error": why}`.
pub fn failure(why: &str) -> String {
    with_structure(&json!({"success": false, "error": why}), true)
}

/// A tool whose server could not be asked.
pub fn unanswered(server: &str, why: &str) -> String {
    failure(&format!("server {server} {UNANSWERED} {why}"))
}

/// Whether a failed result says that its server could not be asked.
pub(super) fn is_unanswered(result: &str, server: &str) -> bool {
    let head = result.get(..result.len().min(400)).unwrap_or(result);
    head.contains(&format!("server {server} {UNANSWERED} "))
}

const UNANSWERED: &str = "did not answer:";

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
fn with_structure(value: &impl Serialize, is_error: bool) -> String {
    let raw = serde_json::to_string(value).expect("our own values are JSON");
    let mut text = String::with_capacity(raw.len() * 3 + 128);
    text.push_str("{\"content\":[{\"type\":\"text\",\"text\":\"");
    push_escaped(&mut text, &raw);
    text.push_str("\"}],\"structuredContent\":");
    text.push_str(&raw);
    text.push_str(match is_error {
        true => ",\"isError\":true}",
        false => ",\"isError\":false}",
    });
    text
}

/// A result with this text and this structure, which is JSON already.
pub fn written(text: &str, structure: &str, is_error: bool) -> String {
    let text = quoted(text);
    format!(
        "{{\"content\":[{{\"type\":\"text\",\"text\":{text}}}],\"structuredContent\":{structure},\"isError\":{is_error}}}"
    )
}

/// A text as JSON. May be long: no [`Value`] is made of it.
fn quoted(text: &str) -> String {
    if text.bytes().any(|it| it < b' ') {
        return serde_json::to_string(text).expect("a text is JSON");
    }
    let mut quoted = String::with_capacity(text.len() + text.len() / 4 + 2);
    quoted.push('"');
    push_escaped(&mut quoted, text);
    quoted.push('"');
    quoted
}

/// A result with this text, and this JSON in a structure as `result`; twice the
/// same is too much of something large.
pub fn value(text: &str, json: &str) -> String {
    /// What is larger comes as text alone.
    const MAX_STRUCTURE: usize = 256 << 10;
    match json.len() > MAX_STRUCTURE {
        true => text_only(text, false),
        false => written(text, &format!("{{\"result\":{json}}}"), false),
    }
}

/// A result that is only text.
pub fn text_only(text: &str, is_error: bool) -> String {
    let text = quoted(text);
    format!("{{\"content\":[{{\"type\":\"text\",\"text\":{text}}}],\"isError\":{is_error}}}")
}

/// Appends JSON as the inside of a string. It has no control characters, so
/// quotes and backslashes are all there is to escape. They are so many that
/// searching for them takes longer than looking at every byte.
fn push_escaped(text: &mut String, json: &str) {
    let mut bytes = mem::take(text).into_bytes();
    bytes.reserve(json.len() + json.len() / 4);
    for byte in json.bytes() {
        if matches!(byte, b'"' | b'\\') {
            bytes.push(b'\\');
        }
        bytes.push(byte);
    }
    *text = String::from_utf8(bytes).expect("what was text is, with backslashes in it");
}

/// Cuts a result to `limit` bytes: text is kept as far as it goes, with a note
/// of how much is missing. Half a structure is none, so that becomes an error.
pub fn cap(result: String, limit: usize) -> String {
    if result.len() <= limit {
        return result;
    }
    if result.contains("\"structuredContent\":") {
        let size = result.len();
        return failure(&format!(
            "the result has {size} bytes, more than the {limit} allowed; ask for less"
        ));
    }
    let (text, is_error) = read(&result);
    // Escapes double most text at worst, and make six of a control character.
    let [large, small] = [2, 7].map(|share| cut(&text, limit / share, is_error));
    if large.len() <= limit { large } else { small }
}

fn cut(text: &str, at: usize, is_error: bool) -> String {
    let kept = floor_char_boundary(text, at);
    let note = format!(
        "{}\n[cut: {} of {} bytes shown; ask for less]",
        &text[..kept],
        kept,
        text.len()
    );
    text_only(&note, is_error)
}

/// A result as text for readers that know nothing else, and whether it is an error.
pub fn read(result: &str) -> (String, bool) {
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
pub fn read_short(result: &str, limit: usize) -> (String, bool) {
    let (mut text, is_error) = read(result);
    if let Some((end, _)) = text.char_indices().nth(limit) {
        let all = text.chars().count();
        text.truncate(end);
        text.push_str(&format!(
            "\n[cut: {limit} of {all} characters shown; ask for less]"
        ));
    }
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

fn floor_char_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
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
    fn every_text_is_quoted_as_a_library_would() {
        for text in ["", "가 \"나\" \\ /", "{\"a\":\"b\\\"c\"}", "a\n\u{1}\u{7f}"] {
            assert_eq!(quoted(text), serde_json::to_string(text).unwrap());
        }
    }

    #[test]
    fn long_result_is_cut_on_a_character_with_a_note() {
        let long = json!({"content": [{"type": "text", "text": "가나다".repeat(2000)}]});
        let cut = cap(long.to_string(), 4096);
        assert!(cut.len() <= 4096);
        let (text, is_error) = read(&cut);
        assert!(
            text.contains("[cut: 2046 of 18000 bytes shown"),
            "{}",
            &text[text.len() - 60..]
        );
        assert!(!is_error);
    }

    #[test]
    fn reader_of_text_is_told_how_much_is_missing() {
        let long = json!({"content": [{"type": "text", "text": "가".repeat(30)}]});
        let (text, _) = read_short(&long.to_string(), 10);
        let expected = format!(
            "{}\n[cut: 10 of 30 characters shown; ask for less]",
            "가".repeat(10)
        );
        assert_eq!(text, expected);
        assert_eq!(read_short(&long.to_string(), 30).0, "가".repeat(30));
    }

    #[test]
    fn structure_is_never_cut_in_half() {
        let cut = cap(structured(&"x".repeat(4000)), 4096);
        let (text, is_error) = read(&cut);
        assert!(is_error && text.contains("ask for less"), "{text}");
    }

    #[test]
    fn content_of_every_kind_has_a_text() {
        let result = json!({"content": [
            {"type": "text", "text": "a"},
            {"type": "image", "mimeType": "image/png", "data": ""},
            {"type": "resource", "resource": {"uri": "x://y"}},
        ]});
        assert_eq!(
            read(&result.to_string()).0,
            "a\n[Image: image/png]\n[Resource: x://y]"
        );
    }
}
