//! A JSON value that keeps the digits of numbers and the order of keys.

use std::{collections::HashSet, fmt::Write as _};

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum JsonValue {
    Null,
    Bool(bool),
    /// The digits as written; always a valid JSON number.
    Number(String),
    String(String),
    Array(Vec<Self>),
    Object(JsonObject),
}

/// The members of an object, in order, every key once.
pub(super) type JsonObject = Vec<(String, JsonValue)>;

impl JsonValue {
    pub(super) fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The value as strict JSON.
    pub(super) fn to_strict_json(&self) -> String {
        let mut out = String::new();
        self.write_to(&mut out);
        out
    }

    fn write_to(&self, out: &mut String) {
        match self {
            Self::Null => out.push_str("null"),
            Self::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Self::Number(digits) => out.push_str(digits),
            Self::String(text) => quote(text, out),
            Self::Array(items) => write_array(items, out),
            Self::Object(members) => write_object(members, out),
        }
    }
}

/// The member called `key`.
pub(super) fn get_member<'a>(members: &'a JsonObject, key: &str) -> Option<&'a JsonValue> {
    let member = members.iter().find(|(name, _)| name == key);
    member.map(|(_, value)| value)
}

/// The members as a strict JSON object.
pub(super) fn write_object(members: &JsonObject, out: &mut String) {
    out.push('{');
    for (at, (key, value)) in members.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        quote(key, out);
        out.push(':');
        value.write_to(out);
    }
    out.push('}');
}

/// Keeps the last of members with the same key, at the place of the last.
pub(super) fn dedup_keys(members: &mut JsonObject) {
    let mut seen = HashSet::with_capacity(members.len());
    let keep: Vec<bool> = members
        .iter()
        .rev()
        .map(|(key, _)| seen.insert(key.as_str()))
        .collect();
    let mut keep = keep.into_iter().rev();
    members.retain(|_| keep.next().unwrap_or(true));
}

/// Keeps the first of members with the same key. Where quotes are missing, a word of a
/// text may look like the key of its member.
pub(super) fn keep_first_of_same_keys(members: &mut JsonObject) {
    let mut seen = HashSet::with_capacity(members.len());
    let keep: Vec<bool> = members
        .iter()
        .map(|(key, _)| seen.insert(key.as_str()))
        .collect();
    let mut keep = keep.into_iter();
    members.retain(|_| keep.next().unwrap_or(true));
}

fn write_array(items: &[JsonValue], out: &mut String) {
    out.push('[');
    for (at, item) in items.iter().enumerate() {
        if at > 0 {
            out.push(',');
        }
        item.write_to(out);
    }
    out.push(']');
}

/// The text as a string of strict JSON.
pub(super) fn quote(text: &str, out: &mut String) {
    out.push('"');
    escape_into(text, out);
    out.push('"');
}

/// The text as the inside of a string of strict JSON.
pub(super) fn escape_into(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' => write!(out, "\\u{:04x}", u32::from(c)).expect("a string takes it"),
            c => out.push(c),
        }
    }
}
