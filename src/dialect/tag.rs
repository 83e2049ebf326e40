//! One tag, in any of the forms that dialects give it.

use super::{cursor::Cursor, marker, repair::ENTITIES};

/// Longest tag that is taken for one.
const MAX_TAG: usize = 512;
/// What `MiniMax` M3 puts before every tag.
pub(super) const MINIMAX: &str = "]<]minimax[>[";

/// A tag as written, whatever its brackets.
#[derive(Debug)]
pub(super) struct Tag<'a> {
    pub(super) closes: bool,
    /// The element, without prefix and suffix.
    pub(super) element: &'a str,
    /// What it is called: `⟨n⟩` of `<function=⟨n⟩>` or `<invoke name="⟨n⟩">`.
    pub(super) name: Option<String>,
    /// The name follows an equals sign right away.
    pub(super) equals: bool,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// What a tag is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    Call,
    Parameter,
    Key,
    Value,
    /// Holds calls, or means nothing.
    Wrapper,
    Other,
}

impl Tag<'_> {
    pub(super) fn class(&self) -> Class {
        class(self.element)
    }

    pub(super) fn opens(&self, class: Class) -> bool {
        !self.closes && self.class() == class
    }

    pub(super) fn shuts(&self, class: Class) -> bool {
        self.closes && self.class() == class
    }
}

fn class(element: &str) -> Class {
    match element {
        "function" | "invoke" | "call" => Class::Call,
        "parameter" | "param" | "argument" => Class::Parameter,
        "arg_key" => Class::Key,
        "arg_value" => Class::Value,
        "tool_call" | "tool_calls" | "function_calls" | "calls" | "tools" | "tool_sep"
        | "dots_function_call" | "parameters" => Class::Wrapper,
        _ => Class::Other,
    }
}

/// The tag that is next, if one is.
pub(super) fn tag(cursor: Cursor<'_>) -> Option<Tag<'_>> {
    let mut ahead = cursor;
    ahead.eat(MINIMAX);
    if ahead.peek()? != '<' {
        return None;
    }
    let read = barred(ahead, cursor.at()).or_else(|| angled(ahead, cursor.at()))?;
    (read.end - read.start <= MAX_TAG).then_some(read)
}

/// `<|open|>call tool="…"<|sep|>` and `<|close|>call<|sep|>`.
fn barred(cursor: Cursor<'_>, start: usize) -> Option<Tag<'_>> {
    let (length, closes) = match marker::length("<|open|>", cursor) {
        Some(length) => (length, false),
        None => (marker::length("<|close|>", cursor)?, true),
    };
    let mut ahead = cursor.moved(length);
    let element = ahead.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
    let name = attributes(&mut ahead).ok()?;
    let end = ahead.at() + marker::length("<|sep|>", ahead)?;
    Some(Tag {
        closes,
        element,
        name,
        equals: false,
        start,
        end,
    })
}

fn angled(cursor: Cursor<'_>, start: usize) -> Option<Tag<'_>> {
    let mut ahead = cursor.moved(1);
    let closes = ahead.eat("/");
    if let Some(length) = marker::length("|DSML|~", ahead) {
        ahead = ahead.moved(length);
    }
    let element = ahead.take_while(|c| c.is_alphanumeric() || matches!(c, '_' | ':' | '-' | '.'));
    if element.is_empty() {
        return None;
    }
    let element = local(element);
    let equals = ahead.peek()? == '=' && !closes;
    let name = match equals {
        true => {
            ahead.bump();
            let name = ahead.take_while(|c| !matches!(c, '>' | '<' | '\n'));
            Some(name.trim().trim_matches(['"', '\'']).to_owned())
        }
        false => attributes(&mut ahead).ok()?,
    };
    // A closing tag may have lost its bracket.
    let lost = closes && class(element) != Class::Other && ahead.peek()? != '>';
    if !lost && !ahead.eat(">") {
        return None;
    }
    Some(Tag {
        closes,
        element,
        name,
        equals,
        start,
        end: ahead.at(),
    })
}

/// The element without `steptml:` before it or `:opensource` behind it.
fn local(element: &str) -> &str {
    let Some((before, after)) = element.split_once(':') else {
        return element;
    };
    match class(before) {
        Class::Other => after,
        _ => before,
    }
}

/// What was read is no tag.
struct NotATag;

/// Steps over attributes; the one that names something, unescaped.
fn attributes(ahead: &mut Cursor<'_>) -> Result<Option<String>, NotATag> {
    let mut name = None;
    loop {
        ahead.take_while(|c| c == ' ' || c == '\t');
        let key = ahead.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
        if key.is_empty() {
            return Ok(name);
        }
        if !ahead.eat("=") {
            return Err(NotATag);
        }
        let value = match ahead.peek().ok_or(NotATag)? {
            quote @ ('"' | '\'') => {
                ahead.bump();
                let value = ahead.take_while(|c| c != quote && c != '\n');
                ahead.bump().ok_or(NotATag)?;
                value
            }
            _ => ahead.take_while(|c| !matches!(c, ' ' | '>' | '<' | '\n')),
        };
        if matches!(key, "name" | "tool" | "key") {
            name = Some(plain(value));
        }
    }
}

fn plain(value: &str) -> String {
    let mut plain = value.to_owned();
    if plain.contains('&') {
        for (entity, c) in ENTITIES {
            plain = plain.replace(entity, c);
        }
    }
    plain
}
