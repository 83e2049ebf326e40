//! Strict validation of JSON from outside: UTF-8, bounded depth, no duplicate members.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize,
    de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor},
};
use serde_json::Value;
use thiserror::Error;

use super::{RpcError, code};

/// Maximum nesting depth of a message.
pub const MAX_JSON_DEPTH: usize = 64;
/// The bytes of a member in addition to its value: its name, its hash and its index.
const MEMBER_BYTES: usize = size_of::<String>() + 3 * size_of::<usize>();
/// The least bytes of an allocation, such as that of a short string.
const ALLOCATION_BYTES: usize = 32;
/// The capacity with which lists and objects begin.
const MIN_CAPACITY: usize = 4;
/// How much of a member's name an error message quotes.
const MAX_SHOWN_NAME_CHARS: usize = 60;

/// The text is not JSON that maru accepts.
#[derive(Debug, Error)]
#[error("invalid JSON: {0}")]
pub struct InvalidJson(String);

impl From<InvalidJson> for RpcError {
    fn from(error: InvalidJson) -> Self {
        Self::from(&error)
    }
}

impl From<&InvalidJson> for RpcError {
    fn from(error: &InvalidJson) -> Self {
        Self::new(code::PARSE_ERROR, error.to_string())
    }
}

/// Checks that `bytes` are one JSON value that every JSON parser reads alike, and
/// returns them as text.
pub fn validate_json(bytes: &[u8]) -> Result<&str, InvalidJson> {
    measure_json(bytes).map(|(text, _)| text)
}

/// Like [`validate_json`], but also returns about how many bytes a [`Value`] of it takes
/// beside the text of its strings: for `[[0],[0]]` ninety times its own.
pub fn measure_json(bytes: &[u8]) -> Result<(&str, usize), InvalidJson> {
    let text = std::str::from_utf8(bytes).map_err(|_| InvalidJson("it is not UTF-8".to_owned()))?;
    let mut reader = serde_json::Deserializer::from_str(text);
    let visitor = StrictJsonVisitor {
        remaining_depth: MAX_JSON_DEPTH,
    };
    let heap_bytes = visitor
        .deserialize(&mut reader)
        .and_then(|heap_bytes| reader.end().map(|()| heap_bytes))
        .map_err(|error| InvalidJson(error.to_string()))?;
    Ok((text, heap_bytes))
}

/// Bytes from outside after [`validate_json`]. Owned, so that large ones can be validated on
/// another thread.
#[derive(Debug)]
pub struct CheckedJson<B> {
    bytes: B,
    error: Option<InvalidJson>,
}

impl<B: AsRef<[u8]>> CheckedJson<B> {
    /// Validates `bytes`.
    pub fn new(bytes: B) -> Self {
        let error = validate_json(bytes.as_ref()).err();
        Self { bytes, error }
    }

    /// Returns the text if it is valid.
    pub fn text(&self) -> Result<&str, &InvalidJson> {
        match &self.error {
            Some(error) => Err(error),
            None => Ok(std::str::from_utf8(self.bytes()).expect("validated as UTF-8")),
        }
    }

    /// Returns the bytes, valid or not.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

/// Visits a JSON value without keeping it, and returns what a [`Value`] of it allocates.
#[derive(Clone, Copy)]
struct StrictJsonVisitor {
    remaining_depth: usize,
}

impl StrictJsonVisitor {
    fn descend<E: de::Error>(self) -> Result<Self, E> {
        match self.remaining_depth.checked_sub(1) {
            Some(remaining_depth) => Ok(Self { remaining_depth }),
            None => Err(E::custom(format_args!(
                "nested deeper than {MAX_JSON_DEPTH}"
            ))),
        }
    }
}

impl<'de> DeserializeSeed<'de> for StrictJsonVisitor {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<usize, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictJsonVisitor {
    type Value = usize;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_bool<E>(self, _: bool) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_i64<E>(self, _: i64) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_u64<E>(self, _: u64) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_f64<E>(self, _: f64) -> Result<usize, E> {
        Ok(0)
    }

    fn visit_str<E>(self, _: &str) -> Result<usize, E> {
        Ok(ALLOCATION_BYTES)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<usize, A::Error> {
        let inner = self.descend()?;
        let (mut count, mut heap_bytes) = (0, 0);
        while let Some(item_bytes) = items.next_element_seed(inner)? {
            count += 1;
            heap_bytes += item_bytes;
        }
        Ok(heap_bytes + capacity(count) * size_of::<Value>())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<usize, A::Error> {
        let inner = self.descend()?;
        let mut names: Vec<Cow<'de, str>> = Vec::new();
        let mut heap_bytes = 0;
        while let Some(MemberName(name)) = members.next_key()? {
            names.push(name);
            heap_bytes += ALLOCATION_BYTES + members.next_value_seed(inner)?;
        }
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            None => Ok(heap_bytes + capacity(names.len()) * (size_of::<Value>() + MEMBER_BYTES)),
            Some(pair) => {
                let name: String = pair[0].chars().take(MAX_SHOWN_NAME_CHARS).collect();
                Err(de::Error::custom(format_args!("duplicate member {name:?}")))
            }
        }
    }
}

/// How many elements a growing list of `count` allocates.
fn capacity(count: usize) -> usize {
    match count {
        0 => 0,
        count => count.next_power_of_two().max(MIN_CAPACITY),
    }
}

/// A member name, borrowed from the input unless it has escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct MemberName<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    fn is_valid(text: &str) -> bool {
        validate_json(text.as_bytes()).is_ok()
    }

    #[test]
    fn short_lists_and_objects_take_much_more_than_their_text() {
        let measured = |text: &str| measure_json(text.as_bytes()).unwrap().1;
        let text = "x".repeat(1 << 20);
        assert!(measured(&format!("{{\"a\":\"{text}\"}}")) < 1 << 10);
        for short in ["[0],", "{\"a\":0},"] {
            let count = 10_000;
            let list = format!("[{}0]", short.repeat(count));
            let least = count * MIN_CAPACITY * size_of::<Value>();
            assert!((least..3 * least).contains(&measured(&list)), "{short}");
        }
    }

    #[test]
    fn ordinary_values_are_valid() {
        for text in [
            "1",
            "\"a\"",
            "[]",
            "{\"a\":{\"a\":1},\"b\":[{\"a\":1}]}",
            " null ",
        ] {
            assert!(is_valid(text), "{text}");
        }
    }

    #[test]
    fn json_that_parsers_read_differently_is_rejected() {
        for text in [
            "",
            "{\"a\":1,\"a\":2}",
            "{\"a\":1,\"\\u0061\":2}",
            "\u{feff}{}",
            "{} x",
            "{\"a\":\"\\ud800\"}",
            "1e400",
            "{\"a\":1,}",
            "{\"a\":1 \"b\":2}",
            "[1,]",
            "[01]",
            "[-]",
            "[1}",
            "[\"a\nb\"]",
            "[nul]",
        ] {
            assert!(!is_valid(text), "{text}");
        }
        assert!(validate_json(b"\"\xff\"").is_err());
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(is_valid(&nested(MAX_JSON_DEPTH)));
        assert!(!is_valid(&nested(MAX_JSON_DEPTH + 1)));
        assert!(!is_valid(&nested(50_000)));
    }
}
