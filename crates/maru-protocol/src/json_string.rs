//! Writes text as a JSON string.

/// Appends `value` to `out` as a JSON string, with its quotes.
pub fn push_json_string(out: &mut String, value: &str) {
    out.push_str(&to_json_string(value));
}

/// Appends `value` to `out` as a JSON string, with its quotes.
pub fn push_json_string_bytes(out: &mut Vec<u8>, value: &str) {
    serde_json::to_writer(out, value).expect("text is JSON and a Vec takes it");
}

/// Returns `value` as a JSON string, with its quotes.
pub fn to_json_string(value: &str) -> String {
    serde_json::to_string(value).expect("text is JSON")
}
