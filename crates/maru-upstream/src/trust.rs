//! Pins the definition of a tool when it is first seen. Pure.
//!
//! A server that is trusted today may change the descriptions of its tools tomorrow, and
//! models read a description as instructions.

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

/// Only the digest of a longer definition is kept.
const MAX_STORED_DEFINITION_BYTES: usize = 64 << 10;
/// The most differences that are reported, and the length of each.
const MAX_REPORTED_DIFFERENCES: usize = 50;
const MAX_SHOWN_VALUE_CHARS: usize = 2000;

/// Whether a server may change its tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TrustPolicy {
    /// A changed tool is withheld until an admin accepts it.
    #[default]
    Pin,
    /// Changes are accepted automatically.
    Follow,
}

/// The accepted definition of a tool and its digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PinnedDefinition {
    pub(super) digest: [u8; 32],
    /// The definition as JSON, unless it is very long.
    pub(super) text: Option<String>,
}

impl TrustPolicy {
    /// Returns the name used in the store and the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pin => "pin",
            Self::Follow => "follow",
        }
    }

    /// Parses the name of a policy.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "pin" => Some(Self::Pin),
            "follow" => Some(Self::Follow),
            _ => None,
        }
    }
}

impl PinnedDefinition {
    /// Builds the definition of a listed entry; the order of members does not matter.
    pub(super) fn new(entry: &Value) -> Self {
        let text = sort_members(entry).to_string();
        Self {
            digest: Sha256::digest(text.as_bytes()).into(),
            text: Some(text).filter(|it| it.len() <= MAX_STORED_DEFINITION_BYTES),
        }
    }

    /// Returns the differences from `before`: the path, the old and the new value.
    pub(super) fn differences(&self, before: &Self) -> Value {
        let read = |it: &Self| serde_json::from_str::<Value>(it.text.as_ref()?).ok();
        let (Some(before), Some(now)) = (read(before), read(self)) else {
            return json!([{"at": "", "before": "too long to be shown", "now": "too long to be shown"}]);
        };
        let mut found = Vec::new();
        collect_differences("", Some(&before), Some(&now), &mut found);
        found.into()
    }
}

/// Sorts the members of all objects. The depth was checked before.
fn sort_members(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            let sorted = members
                .into_iter()
                .map(|(name, it)| (name.clone(), sort_members(it)));
            Value::Object(sorted.collect::<Map<_, _>>())
        }
        Value::Array(items) => items.iter().map(sort_members).collect(),
        other => other.clone(),
    }
}

fn collect_differences(
    at: &str,
    before: Option<&Value>,
    now: Option<&Value>,
    found: &mut Vec<Value>,
) {
    if before == now || found.len() >= MAX_REPORTED_DIFFERENCES {
        return;
    }
    if let (Some(Value::Object(old)), Some(Value::Object(new))) = (before, now) {
        let names = old
            .keys()
            .chain(new.keys().filter(|it| !old.contains_key(*it)));
        for name in names {
            collect_differences(&format!("{at}/{name}"), old.get(name), new.get(name), found);
        }
        return;
    }
    found.push(
        json!({"at": at, "before": before.map(shorten_value), "now": now.map(shorten_value)}),
    );
}

fn shorten_value(value: &Value) -> Value {
    let text = match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    if text.chars().count() > MAX_SHOWN_VALUE_CHARS {
        format!(
            "{}…",
            text.chars().take(MAX_SHOWN_VALUE_CHARS).collect::<String>()
        )
        .into()
    } else {
        value.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_does_not_matter_and_everything_else_does() {
        let one = PinnedDefinition::new(
            &json!({"description": "a", "inputSchema": {"type": "object", "x": 1}}),
        );
        let same = PinnedDefinition::new(
            &json!({"inputSchema": {"x": 1, "type": "object"}, "description": "a"}),
        );
        assert_eq!(one, same);
        let other = PinnedDefinition::new(
            &json!({"description": "b", "inputSchema": {"type": "object"}, "title": "T"}),
        );
        assert_ne!(one.digest, other.digest);
        let expected = json!([
            {"at": "/description", "before": "a", "now": "b"},
            {"at": "/inputSchema/x", "before": 1, "now": null},
            {"at": "/title", "before": null, "now": "T"},
        ]);
        assert_eq!(other.differences(&one), expected);
    }

    #[test]
    fn very_long_definition_is_known_by_its_digest() {
        let long = |c: &str| {
            PinnedDefinition::new(&json!({"description": c.repeat(MAX_STORED_DEFINITION_BYTES)}))
        };
        assert_ne!(long("a").digest, long("b").digest);
        assert_eq!(long("a").text, None);
        assert_eq!(
            long("a").differences(&long("b")).as_array().unwrap().len(),
            1
        );
    }
}
