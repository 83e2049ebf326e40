//! Splits JSON objects into members without parsing the values.

use std::{borrow::Cow, iter};

/// The text of a JSON value.
pub type RawJson<'a> = &'a str;

/// Iterates over the members of an object in text that
/// [`validate_json`](super::validate_json) accepted. Returns `None` if the text is not
/// an object. On other text the members are unspecified, but the iterator ends.
pub fn object_members(text: &str) -> Option<ObjectMembers<'_>> {
    let rest = text.trim_ascii_start().strip_prefix('{')?;
    Some(ObjectMembers { rest })
}

/// Removes the members with these names from an object in validated text; the others
/// keep their spelling.
pub fn remove_members<'a>(text: &'a str, names: &[&str]) -> Cow<'a, str> {
    let Some(members) = collect_members(text) else {
        return Cow::Borrowed(text);
    };
    if members.iter().any(|it| names.contains(&&*it.name)) {
        Cow::Owned(write_object_without(members, names))
    } else {
        Cow::Borrowed(text)
    }
}

/// Collects the members of an object in validated text, for [`write_object_without`].
pub fn collect_members(text: &str) -> Option<Vec<ObjectMember<'_>>> {
    let mut members = object_members(text)?;
    Some(iter::from_fn(|| members.next_member()).collect())
}

/// Writes an object of `members` except those with these names.
pub fn write_object_without<'a>(
    members: impl IntoIterator<Item = ObjectMember<'a>>,
    names: &[&str],
) -> String {
    let mut out = String::with_capacity(256);
    for member in members {
        if !names.contains(&&*member.name) {
            out.push(if out.is_empty() { '{' } else { ',' });
            out.push_str(member.raw_name);
            out.push(':');
            out.push_str(member.value);
        }
    }
    out.push_str(if out.is_empty() { "{}" } else { "}" });
    out
}

/// Parses a JSON string, borrowed from the input unless it has escapes.
pub fn parse_json_string(raw: RawJson<'_>) -> Option<Cow<'_, str>> {
    let inner = raw.strip_prefix('"')?.strip_suffix('"')?;
    match memchr::memchr(b'\\', inner.as_bytes()) {
        None => Some(Cow::Borrowed(inner)),
        Some(_) => serde_json::from_str(raw).ok().map(Cow::Owned),
    }
}

/// Iterator over the members of an object.
#[derive(Debug)]
pub struct ObjectMembers<'a> {
    rest: &'a str,
}

/// A member of a JSON object.
#[derive(Debug)]
pub struct ObjectMember<'a> {
    /// The name, unescaped.
    pub name: Cow<'a, str>,
    /// The name as it is written in the JSON text, with quotes.
    raw_name: &'a str,
    /// The value as raw JSON.
    pub value: RawJson<'a>,
}

impl<'a> ObjectMembers<'a> {
    fn next_member(&mut self) -> Option<ObjectMember<'a>> {
        let rest = self.rest.trim_ascii_start();
        let rest = rest.strip_prefix(',').unwrap_or(rest).trim_ascii_start();
        let end = string_end(rest.as_bytes())?;
        let (raw_name, rest) = rest.split_at_checked(end.at)?;
        let name = if end.has_escapes {
            parse_json_string(raw_name)?
        } else {
            Cow::Borrowed(raw_name.get(1..end.at - 1)?)
        };
        let rest = rest.trim_ascii_start().strip_prefix(':')?;
        let rest = rest.trim_ascii_start();
        let (value, rest) = rest.split_at_checked(value_end(rest.as_bytes()))?;
        self.rest = rest;
        Some(ObjectMember {
            name,
            raw_name,
            value: value.trim_ascii_end(),
        })
    }
}

impl<'a> Iterator for ObjectMembers<'a> {
    type Item = (Cow<'a, str>, RawJson<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        self.next_member().map(|it| (it.name, it.value))
    }
}

/// Where a JSON string ends, and whether it has escapes.
struct StringEnd {
    at: usize,
    has_escapes: bool,
}

/// Finds the end of the JSON string that `bytes` start with.
fn string_end(bytes: &[u8]) -> Option<StringEnd> {
    let mut at = usize::from(*bytes.first()? == b'"');
    let mut has_escapes = false;
    while at > 0 {
        at += memchr::memchr2(b'"', b'\\', bytes.get(at..)?)?;
        if bytes.get(at) == Some(&b'"') {
            let at = at + 1;
            return Some(StringEnd { at, has_escapes });
        }
        has_escapes = true;
        at += 2;
    }
    None
}

/// Finds the end of the JSON value that `bytes` start with: a comma or closing bracket
/// that does not belong to it.
fn value_end(bytes: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => {
                let inside = bytes.get(at..).and_then(string_end);
                at += inside.map_or(bytes.len() - at, |end| end.at);
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' | b',' if depth == 0 => return at,
            b'}' | b']' => depth -= 1,
            _ => (),
        }
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value};

    use super::*;

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[a-z가-힣\"\\\\{}\\[\\],:\n ]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 20, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec(("[a-z\"\\\\/:,}가]{0,4}", inner), 0..4)
                    .prop_map(|it| Value::Object(it.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn members_are_those_that_serde_json_finds(
            object in prop::collection::vec(("[a-z\"\\\\/:,}가]{0,4}", value()), 0..5),
            pretty in any::<bool>(),
        ) {
            let object: Map<String, Value> = object.into_iter().collect();
            let text = if pretty {
                serde_json::to_string_pretty(&object).unwrap()
            } else {
                serde_json::to_string(&object).unwrap()
            };
            let found: Map<String, Value> = object_members(&text)
                .unwrap()
                .map(|(name, raw)| (name.into_owned(), serde_json::from_str(raw).unwrap()))
                .collect();
            prop_assert_eq!(found, object);
        }

        #[test]
        fn removed_members_are_gone_and_the_others_stay(
            object in prop::collection::vec(("[a-d\"]{1,2}", value()), 0..5),
        ) {
            let mut object: Map<String, Value> = object.into_iter().collect();
            let text = serde_json::to_string_pretty(&object).unwrap();
            let cut = remove_members(&text, &["a", "b"]);
            object.shift_remove("a");
            object.shift_remove("b");
            prop_assert_eq!(serde_json::from_str::<Map<String, Value>>(&cut).unwrap(), object);
        }

        #[test]
        fn invalid_text_does_not_panic(text in "[\\PC\"\\\\{}\\[\\],: \n]{0,40}") {
            if let Some(members) = object_members(&text) {
                prop_assert!(members.count() <= text.len());
            }
        }
    }
}
