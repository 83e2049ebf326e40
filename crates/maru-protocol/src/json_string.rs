//! Text as a JSON string: the one place that escapes.

/// How control characters are written, by their code.
const CONTROL_ESCAPES: [&str; 32] = [
    "\\u0000", "\\u0001", "\\u0002", "\\u0003", "\\u0004", "\\u0005", "\\u0006", "\\u0007", "\\b",
    "\\t", "\\n", "\\u000b", "\\f", "\\r", "\\u000e", "\\u000f", "\\u0010", "\\u0011", "\\u0012",
    "\\u0013", "\\u0014", "\\u0015", "\\u0016", "\\u0017", "\\u0018", "\\u0019", "\\u001a",
    "\\u001b", "\\u001c", "\\u001d", "\\u001e", "\\u001f",
];

/// Appends `value` to `out` as a JSON string, with its quotes.
pub fn push_json_string(out: &mut String, value: &str) {
    out.reserve(value.len() + 2);
    for_each_part(value, |part| out.push_str(part));
}

/// Appends `value` to bytes as a JSON string, with its quotes.
pub fn push_json_string_bytes(out: &mut Vec<u8>, value: &str) {
    out.reserve(value.len() + 2);
    for_each_part(value, |part| out.extend_from_slice(part.as_bytes()));
}

/// `value` as a JSON string, with its quotes.
pub fn to_json_string(value: &str) -> String {
    let mut text = String::with_capacity(value.len() + value.len() / 8 + 2);
    push_json_string(&mut text, value);
    text
}

/// Gives the parts of the JSON string to `push`, in order.
fn for_each_part(value: &str, mut push: impl FnMut(&str)) {
    push("\"");
    let mut written = 0;
    for (at, byte) in value.bytes().enumerate() {
        if let Some(escape) = escape_of(byte) {
            push(&value[written..at]);
            push(escape);
            written = at + 1;
        }
    }
    push(&value[written..]);
    push("\"");
}

fn escape_of(byte: u8) -> Option<&'static str> {
    match byte {
        b'"' => Some("\\\""),
        b'\\' => Some("\\\\"),
        _ => CONTROL_ESCAPES.get(usize::from(byte)).copied(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_character_is_written_as_serde_json_writes_it() {
        for code in (0..0x2100_u32).filter_map(char::from_u32) {
            let text = format!("a{code}b");
            assert_eq!(to_json_string(&text), serde_json::to_string(&text).unwrap());
        }
    }

    proptest! {
        #[test]
        fn text_and_bytes_get_the_same(text in any::<String>(), before in "[a-z]{0,3}") {
            let expected = before.clone() + &serde_json::to_string(&text).unwrap();
            let mut written = before.clone();
            push_json_string(&mut written, &text);
            prop_assert_eq!(&written, &expected);
            let mut bytes = before.into_bytes();
            push_json_string_bytes(&mut bytes, &text);
            prop_assert_eq!(bytes, expected.into_bytes());
        }
    }
}
