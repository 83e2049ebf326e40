//! Request ids: a string or an integer, as MCP allows.

use serde::Serialize;

use super::members::{Raw, read_text};

const MAX_BYTES: usize = 256;

/// The id of a request; also the form of a progress token.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(untagged)]
pub enum Id {
    /// An integer.
    Number(i64),
    /// A string of at most 256 bytes.
    Text(Box<str>),
}

impl Id {
    /// Reads an id; `None` if it is anything but a short string or an integer.
    pub fn read(raw: Raw<'_>) -> Option<Self> {
        if raw.len() > MAX_BYTES + 2 {
            return None;
        }
        match raw.starts_with('"') {
            true => read_text(raw).map(|text| Self::Text(text.into())),
            false => serde_json::from_str(raw).ok().map(Self::Number),
        }
    }
}

impl From<&str> for Id {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Id> {
        Id::read(text)
    }

    #[test]
    fn short_strings_and_integers_are_ids() {
        assert_eq!(read("7"), Some(Id::Number(7)));
        assert_eq!(read("-1"), Some(Id::Number(-1)));
        assert_eq!(read("\"a\\u0062\""), Some(Id::from("ab")));
        for other in [
            "null",
            "true",
            "1.5",
            "1e3",
            "[1]",
            "{}",
            "99999999999999999999",
        ] {
            assert_eq!(read(other), None, "{other}");
        }
        assert_eq!(read(&format!("\"{}\"", "a".repeat(257))), None);
    }
}
