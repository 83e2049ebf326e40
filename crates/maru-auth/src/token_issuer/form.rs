//! Forms and queries (`application/x-www-form-urlencoded`). Pure.

use std::collections::BTreeMap;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// Longer forms are refused.
const MAX_FORM_BYTES: usize = 16 << 10;
/// What a form leaves unescaped.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The fields of a form or query, each at most once.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct FormFields(BTreeMap<String, String>);

impl FormFields {
    /// Parses a form; `None` if it is too long, is not UTF-8, or has a field twice, which
    /// two readers could understand differently.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_FORM_BYTES {
            return None;
        }
        let mut fields = BTreeMap::new();
        for pair in text.split('&').filter(|it| !it.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            if fields.insert(decode(name)?, decode(value)?).is_some() {
                return None;
            }
        }
        Some(Self(fields))
    }

    /// Returns a field that is not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        let value = self.0.get(name).map(String::as_str);
        value.filter(|it| !it.is_empty())
    }

    /// Returns the rest of the names of all fields that begin with `prefix`.
    pub fn names_after(&self, prefix: &str) -> Vec<String> {
        let names = self.0.keys().filter_map(|it| it.strip_prefix(prefix));
        names.map(str::to_owned).collect()
    }
}

/// Escapes a value for a form or a query.
pub fn encode_value(value: &str) -> String {
    utf8_percent_encode(value, UNRESERVED).to_string()
}

fn decode(text: &str) -> Option<String> {
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8().ok()?;
    Some(decoded.into_owned())
}

/// Shows the names only: values may be secrets.
impl std::fmt::Debug for FormFields {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_set().entries(self.0.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_decoded_and_occur_once() {
        let fields = FormFields::parse("a=x+y%26%ED%95%9C&b&server.one=on").unwrap();
        assert_eq!(fields.get("a"), Some("x y&한"));
        assert_eq!(fields.get("b"), None);
        assert_eq!(fields.names_after("server."), ["one"]);
        assert_eq!(encode_value("x y&한~"), "x%20y%26%ED%95%9C~");
        for refused in ["a=1&a=2", "a=1&%61=2", "a=%ff", &"x".repeat(20_000)] {
            assert_eq!(FormFields::parse(refused), None);
        }
    }
}
