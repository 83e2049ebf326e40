//! Hiding what looks like a secret in JSON, also in JSON that was cut and in
//! JSON inside a text.

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

/// `text` with every value that looks like a secret replaced by `***`.
pub fn masked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('"') {
        let escaped = rest[..at].ends_with('\\');
        let (before, string) = rest.split_at(at + 1);
        out.push_str(&without_known(before));
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
                    false => out.push_str(&without_known(content)),
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
    out.push_str(&without_known(rest));
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
    let plain: String = name
        .chars()
        .filter(|c| c.is_ascii_alphanumeric())
        .map(|c| c.to_ascii_lowercase())
        .collect();
    NAMES.iter().any(|it| plain.contains(it)) && !HARMLESS.iter().any(|it| plain.contains(it))
}

/// `text` without secrets that are known by how they begin.
fn without_known(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((at, prefix)) = first_known(rest) {
        let start = at + prefix.len();
        let tail = &rest[start..];
        let end = tail
            .find(|c: char| !c.is_ascii_alphanumeric() && !"-_.~+/=".contains(c))
            .unwrap_or(tail.len());
        out.push_str(&rest[..start]);
        // Short ones are words.
        out.push_str(if end >= 12 { MASK } else { &tail[..end] });
        rest = &tail[end..];
    }
    out.push_str(rest);
    out
}

fn first_known(text: &str) -> Option<(usize, &'static str)> {
    let found = PREFIXES.iter().filter_map(|it| Some((text.find(it)?, *it)));
    found.min_by_key(|(at, _)| *at)
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
