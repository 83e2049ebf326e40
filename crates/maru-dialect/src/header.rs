//! Parses the header before the arguments of a call: the name of its tool, an id.

use super::{cursor::TextCursor, marker};

/// Longest part of a header.
const MAX_HEADER_PART_BYTES: usize = 256;
const HEADER_SEPARATORS: [&str; 7] = [
    "<|tool_call_argument_begin|>",
    "<|tool_sep|>",
    "[CALL_ID]",
    "[ARGS]",
    "<|tool_call:name|>",
    "<|tool_call:args|>",
    "<|content|>",
];

const HARMONY_CHANNELS: [&str; 3] = ["analysis", "commentary", "final"];
/// Words beside channel and recipient.
const IGNORED_HEADER_WORDS: [&str; 4] = ["assistant", "json", "code", "text"];

/// What stood before the arguments.
#[derive(Debug, Default)]
pub(super) struct CallHeader<'a> {
    pub(super) name: &'a str,
    pub(super) id: Option<&'a str>,
    /// It was written the way of Kimi.
    pub(super) is_kimi: bool,
}

/// Parses up to the arguments. `None` if this is not a header.
pub(super) fn parse_call_header<'a>(cursor: &mut TextCursor<'a>) -> Option<CallHeader<'a>> {
    let mut found = CallHeader::default();
    let mut before = None;
    loop {
        let part = part(cursor)?;
        match before {
            Some("[CALL_ID]") => found.id = Some(part),
            Some(
                "[ARGS]" | "<|tool_call_argument_begin|>" | "<|tool_call:args|>" | "<|content|>",
            ) => (),
            Some("<|tool_call:name|>") => {
                found.id = Some(found.name).filter(|id| !id.is_empty());
                found.name = part;
            }
            Some("<|tool_sep|>") if found.name != "function" => (),
            _ => found.name = part,
        }
        let separator = HEADER_SEPARATORS
            .iter()
            .find_map(|it| Some((*it, marker::match_length(it, *cursor)?)));
        let Some((separator, length)) = separator else {
            return Some(found);
        };
        found.is_kimi |= separator == HEADER_SEPARATORS[0];
        *cursor = cursor.advanced_by(length);
        before = Some(separator);
    }
}

/// A part of a header: a word, perhaps with space around it.
fn part<'a>(cursor: &mut TextCursor<'a>) -> Option<&'a str> {
    cursor.skip_space();
    let word =
        cursor.take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':'));
    cursor.skip_space();
    (word.len() <= MAX_HEADER_PART_BYTES).then_some(word)
}

/// What a message that is addressed says about itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MessageHeader<'a> {
    pub(super) recipient: Option<&'a str>,
    pub(super) channel: Option<&'a str>,
    pub(super) length: usize,
}

/// Parses role, channel and recipient up to the body. `None` if the text has no body.
pub(super) fn parse_message_header<'a>(cursor: TextCursor<'a>) -> Option<MessageHeader<'a>> {
    let mut found = MessageHeader::default();
    let mut ahead = cursor;
    let mut channel = false;
    for _ in 0..16 {
        ahead.skip_space();
        if let Some(length) = marker::match_length("<|message|>", ahead) {
            found.length = ahead.position() + length - cursor.position();
            return Some(found);
        }
        if let Some(length) = marker::match_length("<|channel|>", ahead) {
            ahead = ahead.advanced_by(length);
            channel = true;
            continue;
        }
        let other = ["<|start|>", "<|constrain|>"];
        if let Some(length) = other.iter().find_map(|it| marker::match_length(it, ahead)) {
            ahead = ahead.advanced_by(length);
            continue;
        }
        let word = ahead.take_while(|c| c.is_alphanumeric() || "_-./:=".contains(c));
        if word.is_empty() || word.len() > MAX_HEADER_PART_BYTES {
            return None;
        }
        match word.strip_prefix("to=") {
            Some(recipient) => found.recipient = Some(recipient),
            None if channel && HARMONY_CHANNELS.contains(&word) => found.channel = Some(word),
            None if !channel && IGNORED_HEADER_WORDS.contains(&word) => (),
            None => return None,
        }
        channel = false;
    }
    None
}
