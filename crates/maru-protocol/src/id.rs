//! JSON-RPC request ids: a string or an integer, as MCP allows.

use serde::Serialize;

use super::members::{RawJson, parse_json_string};

const MAX_ID_BYTES: usize = 256;

/// The id of a request, or a progress token, which has the same form.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(untagged)]
pub enum RpcId {
    /// An integer.
    Number(i64),
    /// A string of at most 256 bytes.
    Text(Box<str>),
}

impl RpcId {
    /// Parses an id; `None` if it is neither an integer nor a string of at most 256
    /// bytes.
    pub fn parse(raw: RawJson<'_>) -> Option<Self> {
        if raw.len() > MAX_ID_BYTES + 2 {
            return None;
        }
        if raw.starts_with('"') {
            parse_json_string(raw).map(|text| Self::Text(text.into()))
        } else {
            serde_json::from_str(raw).ok().map(Self::Number)
        }
    }
}

impl From<&str> for RpcId {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<RpcId> {
        RpcId::parse(text)
    }

    #[test]
    fn short_strings_and_integers_are_ids() {
        assert_eq!(parse("7"), Some(RpcId::Number(7)));
        assert_eq!(parse("-1"), Some(RpcId::Number(-1)));
        assert_eq!(parse("\"a\\u0062\""), Some(RpcId::from("ab")));
        for other in [
            "null",
            "true",
            "1.5",
            "1e3",
            "[1]",
            "{}",
            "99999999999999999999",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
        assert_eq!(parse(&format!("\"{}\"", "a".repeat(257))), None);
    }
}
