//! Reads JSON files with comments and trailing commas, as editors write them.

use std::{fs, io::Read as _, path::Path};

use anyhow::{Context as _, Result};
use serde_json::Value;

/// Reads a file; `-` is stdin.
pub(super) fn read_file(path: &Path) -> Result<Value> {
    let bytes = read_bytes(path)?;
    parse(&bytes).with_context(|| format!("{} is not valid", path.display()))
}

/// Reads the bytes of a file; `-` is stdin.
pub(in super::super) fn read_bytes(path: &Path) -> Result<Vec<u8>> {
    let bytes = if path == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        fs::read(path)
    };
    bytes.with_context(|| format!("cannot read {}", path.display()))
}

/// Parses JSON with comments and trailing commas, as strictly as JSON without them.
pub(in super::super) fn parse(bytes: &[u8]) -> Result<Value> {
    let without_bom = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let plain = to_json(without_bom);
    let text = maru_protocol::validate_json(&plain)?;
    Ok(serde_json::from_str(text)?)
}

/// Replaces comments and trailing commas by spaces, so that lines and columns stay.
fn to_json(text: &[u8]) -> Vec<u8> {
    let mut out = text.to_vec();
    let mut last_comma = None;
    let mut at = 0;
    while at < text.len() {
        let end = match &text[at..] {
            [b'"', ..] => string_end(text, at),
            [b'/', b'/', ..] => find(text, at, b"\n"),
            [b'/', b'*', ..] => (find(text, at + 2, b"*/") + 2).min(text.len()),
            _ => at + 1,
        };
        match text[at] {
            b'/' if end > at + 1 => {
                for byte in &mut out[at..end] {
                    if *byte != b'\n' {
                        *byte = b' ';
                    }
                }
            }
            b',' => last_comma = Some(at),
            b'}' | b']' => {
                if let Some(comma) = last_comma.take() {
                    out[comma] = b' ';
                }
            }
            byte if byte.is_ascii_whitespace() => (),
            _ => last_comma = None,
        }
        at = end;
    }
    out
}

/// The position behind a string that begins at `start`.
fn string_end(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < text.len() {
        match text[at] {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

/// The position of `needle` from `start`, or the end.
fn find(text: &[u8], start: usize, needle: &[u8]) -> usize {
    let rest = text.get(start..).unwrap_or_default();
    let found = rest.windows(needle.len()).position(|it| it == needle);
    found.map_or(text.len(), |it| start + it)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn comments_and_trailing_commas_are_read() {
        let text = b"\xef\xbb\xbf// one\n{ /* two */ \"a\": \"// \\\" , }\", // three\n \"b\": [1, 2, /* x */ ], }";
        let expected = json!({"a": "// \" , }", "b": [1, 2]});
        assert_eq!(parse(text).unwrap(), expected);
        for plain in ["{}", "[]", "\"a,\"", "{\"a\":[{},[]]}"] {
            let value: Value = serde_json::from_str(plain).unwrap();
            assert_eq!(parse(plain.as_bytes()).unwrap(), value);
        }
    }

    #[test]
    fn everything_else_is_as_strict_as_json() {
        for text in [
            "{\"a\":1,\"a\":2}",
            "{a:1}",
            "[1,,2]",
            "[,]x",
            "/",
            "/*",
            "\"",
            "[1 2]",
            "{'a':1}",
        ] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
