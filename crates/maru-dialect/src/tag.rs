//! Parses one tag in any of the forms that dialects use.

use super::{cursor::TextCursor, marker, repair::HTML_ENTITIES};

/// Longest tag that is taken for one.
const MAX_TAG_BYTES: usize = 512;
/// What `MiniMax` M3 puts before every tag.
pub(super) const MINIMAX_TAG_PREFIX: &str = "]<]minimax[>[";

/// A tag as written, whatever its brackets.
#[derive(Debug)]
pub(super) struct MarkupTag<'a> {
    pub(super) closes: bool,
    /// The element, without prefix and suffix.
    pub(super) element: &'a str,
    /// What it is called: `⟨n⟩` of `<function=⟨n⟩>` or `<invoke name="⟨n⟩">`.
    pub(super) name: Option<String>,
    /// The name follows an equals sign right away.
    pub(super) has_equals_name: bool,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// What a tag is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TagClass {
    Call,
    Parameter,
    Key,
    Value,
    /// Holds calls, or means nothing.
    Wrapper,
    Other,
}

impl MarkupTag<'_> {
    pub(super) fn classify_element(&self) -> TagClass {
        let named_frame = matches!(
            self.element,
            "tool_call" | "function_call" | "tool" | "tool_use"
        );
        if named_frame && !self.closes && self.name.is_some() {
            return TagClass::Call;
        }
        class(self.element)
    }

    /// Whether it holds the name of a call as its text.
    pub(super) fn holds_tool_name(&self) -> bool {
        matches!(self.element, "tool_name" | "name" | "function_name")
    }

    /// Whether it holds all arguments of a call.
    pub(super) fn holds_arguments(&self) -> bool {
        matches!(
            self.element,
            "parameters" | "arguments" | "args" | "input" | "tool_input"
        )
    }

    pub(super) fn opens_class(&self, class: TagClass) -> bool {
        !self.closes && self.classify_element() == class
    }

    pub(super) fn closes_class(&self, class: TagClass) -> bool {
        self.closes && self.classify_element() == class
    }
}

fn class(element: &str) -> TagClass {
    match element {
        "function" | "invoke" | "call" => TagClass::Call,
        "parameter" | "param" | "argument" => TagClass::Parameter,
        "arg_key" => TagClass::Key,
        "arg_value" => TagClass::Value,
        "tool_call" | "tool_calls" | "function_call" | "function_calls" | "calls" | "tool"
        | "tools" | "tool_use" | "tool_sep" | "dots_function_call" | "parameters" => {
            TagClass::Wrapper
        }
        _ => TagClass::Other,
    }
}

/// The tag that is next, if one is.
pub(super) fn parse_tag(cursor: TextCursor<'_>) -> Option<MarkupTag<'_>> {
    let mut ahead = cursor;
    ahead.eat(MINIMAX_TAG_PREFIX);
    if ahead.peek()? != '<' {
        return None;
    }
    let read = barred(ahead, cursor.position()).or_else(|| angled(ahead, cursor.position()))?;
    (read.end - read.start <= MAX_TAG_BYTES).then_some(read)
}

/// `<|open|>call tool="…"<|sep|>` and `<|close|>call<|sep|>`.
fn barred(cursor: TextCursor<'_>, start: usize) -> Option<MarkupTag<'_>> {
    let (length, closes) = match marker::match_length("<|open|>", cursor) {
        Some(length) => (length, false),
        None => (marker::match_length("<|close|>", cursor)?, true),
    };
    let mut ahead = cursor.advanced_by(length);
    let element = ahead.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
    let name = attributes(&mut ahead).ok()?;
    let end = ahead.position() + marker::match_length("<|sep|>", ahead)?;
    Some(MarkupTag {
        closes,
        element,
        name,
        has_equals_name: false,
        start,
        end,
    })
}

fn angled(cursor: TextCursor<'_>, start: usize) -> Option<MarkupTag<'_>> {
    let mut ahead = cursor.advanced_by(1);
    let closes = ahead.eat("/");
    if let Some(length) = marker::match_length("|DSML|~", ahead) {
        ahead = ahead.advanced_by(length);
    }
    let element = ahead.take_while(|c| c.is_alphanumeric() || matches!(c, '_' | ':' | '-' | '.'));
    if element.is_empty() {
        return None;
    }
    let element = local(element);
    let equals = ahead.peek()? == '=' && !closes;
    let name = if equals {
        ahead.bump();
        let name = ahead.take_while(|c| !matches!(c, '>' | '<' | '\n'));
        Some(name.trim().trim_matches(['"', '\'']).to_owned())
    } else {
        attributes(&mut ahead).ok()?
    };
    // A closing tag may have lost its bracket.
    let lost = closes && class(element) != TagClass::Other && ahead.peek()? != '>';
    if !lost && !ahead.eat(">") {
        return None;
    }
    Some(MarkupTag {
        closes,
        element,
        name,
        has_equals_name: equals,
        start,
        end: ahead.position(),
    })
}

/// The element without `steptml:` or `longcat_` before it or `:opensource` behind it.
fn local(element: &str) -> &str {
    let element = element.strip_prefix("longcat_").unwrap_or(element);
    let Some((before, after)) = element.split_once(':') else {
        return element;
    };
    match class(before) {
        TagClass::Other => after,
        _ => before,
    }
}

/// The text is not a tag.
struct NotATag;

/// Steps over attributes; the one that names something, unescaped.
fn attributes(ahead: &mut TextCursor<'_>) -> Result<Option<String>, NotATag> {
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
            name = Some(unescape_entities(value));
        }
    }
}

fn unescape_entities(value: &str) -> String {
    let mut plain = value.to_owned();
    if plain.contains('&') {
        for (entity, c) in HTML_ENTITIES {
            plain = plain.replace(entity, c);
        }
    }
    plain
}
