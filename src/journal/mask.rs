//! Hiding what looks like a secret in JSON, also in JSON that was cut and in
//! JSON inside a text.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;

/// Stands for a secret.
const MASK: &str = "***";

/// Parts of names whose values are hidden.
const NAMES: [&str; 11] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "authorization",
    "credential",
    "privatekey",
    "accesskey",
    "cookie",
];
/// Names that have one of these are not meant.
const HARMLESS: [&str; 5] = ["tokens", "count", "limit", "tokenizer", "tokentype"];
/// Beginnings of secrets that are known as such wherever they stand.
const PREFIXES: [&str; 11] = [
    "Bearer ",
    "sk-",
    "ghp_",
    "gho_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "AKIA",
    "maru_",
    "eyJhbGciOi",
];

static SECRET: LazyLock<AhoCorasick> = LazyLock::new(|| any_of(&NAMES));
static KNOWN: LazyLock<AhoCorasick> = LazyLock::new(|| any_of(&PREFIXES));

/// Finds all of them in one walk.
fn any_of(words: &[&str]) -> AhoCorasick {
    AhoCorasick::new(words).expect("few short words")
}

/// `text` with every value that looks like a secret replaced by `***`.
pub fn masked(text: &str) -> String {
    // Most texts have nothing to hide.
    if !SECRET.is_match(&plain(text)) && !KNOWN.is_match(text) {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('"') {
        let escaped = rest[..at].ends_with('\\');
        let (before, string) = rest.split_at(at + 1);
        push_unknown(&mut out, before);
        let end = close(string, escaped);
        let (content, after) = string.split_at(end);
        rest = after;
        match value_of(content, after, escaped) {
            Some(value) => {
                out.push_str(content);
                out.push_str(&after[..value.start]);
                out.push_str(MASK);
                rest = &after[value.end..];
            }
            None => {
                // JSON inside a text has its quotes escaped.
                match content.contains("\\\"") {
                    true => out.push_str(&masked(content)),
                    false => push_unknown(&mut out, content),
                }
                // The closing quote belongs to this string.
                let quote = rest.len().min(if escaped { 2 } else { 1 });
                let quote = if rest.is_char_boundary(quote) {
                    quote
                } else {
                    0
                };
                out.push_str(&rest[..quote]);
                rest = &rest[quote..];
            }
        }
    }
    push_unknown(&mut out, rest);
    out
}

/// Where the string that begins here ends: before its quote.
fn close(string: &str, escaped: bool) -> usize {
    let bytes = string.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match (bytes[at], bytes.get(at + 1)) {
            (b'\\', Some(b'"')) if escaped => return at,
            (b'\\', Some(_)) => at += 2,
            (b'"', _) => return at,
            _ => at += 1,
        }
    }
    string.len()
}

/// If `name` is a member whose value is to be hidden: where in `after` that is.
fn value_of(name: &str, after: &str, escaped: bool) -> Option<std::ops::Range<usize>> {
    if !is_secret_name(name) {
        return None;
    }
    let quote = if escaped { "\\\"" } else { "\"" };
    let colon = after.strip_prefix(quote)?.trim_start().strip_prefix(':')?;
    let value = colon.trim_start();
    let start = after.len() - value.len();
    if let Some(string) = value.strip_prefix(quote) {
        let start = start + quote.len();
        return Some(start..start + close(string, escaped));
    }
    if value.starts_with(['{', '[', 'n', 't', 'f']) {
        return None;
    }
    let end = value
        .find([',', '}', ']', '\n', ' '])
        .unwrap_or(value.len());
    Some(start..start + end)
}

fn is_secret_name(name: &str) -> bool {
    if name.len() > 100 {
        return false;
    }
    let plain = plain(name);
    SECRET.is_match(&plain) && !HARMLESS.iter().any(|it| plain.contains(it))
}

/// Letters and digits alone, however they are spelt.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for byte in text.bytes().filter(u8::is_ascii_alphanumeric) {
        plain.push(byte.to_ascii_lowercase().into());
    }
    plain
}

/// Appends `text` without secrets that are known by how they begin.
fn push_unknown(out: &mut String, mut text: &str) {
    while let Some(known) = KNOWN.find(text) {
        let start = known.end();
        let tail = &text[start..];
        let end = tail
            .find(|c: char| !c.is_ascii_alphanumeric() && !"-_.~+/=".contains(c))
            .unwrap_or(tail.len());
        out.push_str(&text[..start]);
        // Short ones are words.
        out.push_str(if end >= 12 { MASK } else { &tail[..end] });
        text = &tail[end..];
    }
    out.push_str(text);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        assert_eq!(masked(text), expected);
    }

    #[test]
    fn values_of_telling_names_are_hidden() {
        check(
            r#"{"password":"p","user":"u"}"#,
            r#"{"password":"***","user":"u"}"#,
        );
        check(
            r#"{"api_key" : 12345, "n": 1}"#,
            r#"{"api_key" : ***, "n": 1}"#,
        );
        check(
            r#"{"a":{"X-Auth-Token":"a\"b"}}"#,
            r#"{"a":{"X-Auth-Token":"***"}}"#,
        );
        check(
            r#"{"token":null,"max_tokens":5}"#,
            r#"{"token":null,"max_tokens":5}"#,
        );
    }

    #[test]
    fn json_inside_a_text_and_json_that_was_cut_are_read_too() {
        check(
            r#"{"text":"{\"secret\":\"s3\",\"a\":\"b\"}"}"#,
            r#"{"text":"{\"secret\":\"***\",\"a\":\"b\"}"}"#,
        );
        check(r#"{"password":"hunter"#, r#"{"password":"***"#);
        check(
            r#"{"text":"{\"token\":\"hun"#,
            r#"{"text":"{\"token\":\"***"#,
        );
    }

    #[test]
    fn known_secrets_are_hidden_wherever_they_stand() {
        check(
            r#"["Authorization: Bearer abcdefghijklmnop"]"#,
            r#"["Authorization: Bearer ***"]"#,
        );
        check("key ghp_0123456789abcdefXYZ.", "key ghp_***");
        check("a task-force, desk-top", "a task-force, desk-top");
    }

    #[test]
    fn every_prefix_begins_a_secret() {
        for prefix in PREFIXES {
            let text = format!("가 {prefix}0123456789abcdef 나");
            check(&text, &format!("가 {prefix}*** 나"));
        }
    }

    #[test]
    fn anything_can_be_masked() {
        for text in [
            "",
            "\"",
            "\\\"",
            "\"token\":",
            "\"token\":\"",
            "가\"나\\",
            "\"\\",
        ] {
            masked(text);
        }
    }
}
