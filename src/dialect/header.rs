//! The tool's name between separators, then its arguments.

use super::{cursor::Cursor, marker};

/// Longest part of a header.
const MAX_PART: usize = 256;
const SEPARATORS: [&str; 6] = [
    "<|tool_call_argument_begin|>",
    "<|tool_sep|>",
    "[CALL_ID]",
    "[ARGS]",
    "<|tool_call:name|>",
    "<|tool_call:args|>",
];

const CHANNELS: [&str; 3] = ["analysis", "commentary", "final"];
/// Words beside channel and recipient.
const ROLES: [&str; 4] = ["assistant", "json", "code", "text"];

/// What stood before the arguments.
#[derive(Debug, Default)]
pub(super) struct Header<'a> {
    pub(super) name: &'a str,
    pub(super) id: Option<&'a str>,
    /// It was written the way of Kimi.
    pub(super) kimi: bool,
}

/// Reads up to the arguments. None when this is no header.
pub(super) fn header<'a>(cursor: &mut Cursor<'a>) -> Option<Header<'a>> {
    let mut found = Header::default();
    let mut before = None;
    loop {
        let part = part(cursor)?;
        match before {
            Some("[CALL_ID]") => found.id = Some(part),
            Some("[ARGS]" | "<|tool_call_argument_begin|>" | "<|tool_call:args|>") => (),
            Some("<|tool_call:name|>") => {
                found.id = Some(found.name).filter(|id| !id.is_empty());
                found.name = part;
            }
            Some("<|tool_sep|>") if found.name != "function" => (),
            _ => found.name = part,
        }
        let separator = SEPARATORS
            .iter()
            .find_map(|it| Some((*it, marker::length(it, *cursor)?)));
        let Some((separator, length)) = separator else {
            return Some(found);
        };
        found.kimi |= separator == SEPARATORS[0];
        *cursor = cursor.moved(length);
        before = Some(separator);
    }
}

/// A part of a header: a word, perhaps with space around it.
fn part<'a>(cursor: &mut Cursor<'a>) -> Option<&'a str> {
    cursor.skip_space();
    let word =
        cursor.take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':'));
    cursor.skip_space();
    (word.len() <= MAX_PART).then_some(word)
}

/// What a message that is addressed says about itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Address<'a> {
    pub(super) recipient: Option<&'a str>,
    pub(super) channel: Option<&'a str>,
    pub(super) length: usize,
}

/// Reads role, channel and recipient up to the body. None when there is none.
pub(super) fn address<'a>(cursor: Cursor<'a>) -> Option<Address<'a>> {
    let mut found = Address::default();
    let mut ahead = cursor;
    let mut channel = false;
    for _ in 0..16 {
        ahead.skip_space();
        if let Some(length) = marker::length("<|message|>", ahead) {
            found.length = ahead.at() + length - cursor.at();
            return Some(found);
        }
        if let Some(length) = marker::length("<|channel|>", ahead) {
            ahead = ahead.moved(length);
            channel = true;
            continue;
        }
        let other = ["<|start|>", "<|constrain|>"];
        if let Some(length) = other.iter().find_map(|it| marker::length(it, ahead)) {
            ahead = ahead.moved(length);
            continue;
        }
        let word = ahead.take_while(|c| c.is_alphanumeric() || "_-./:=".contains(c));
        if word.is_empty() || word.len() > MAX_PART {
            return None;
        }
        match word.strip_prefix("to=") {
            Some(recipient) => found.recipient = Some(recipient),
            None if channel && CHANNELS.contains(&word) => found.channel = Some(word),
            None if !channel && ROLES.contains(&word) => (),
            None => return None,
        }
        channel = false;
    }
    None
}
