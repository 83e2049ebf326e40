//! Parses JSON as models write it and repairs it to strict JSON, in one pass. Valid
//! JSON is not changed.

mod string;
mod token;

pub(super) use string::is_certain_key;
pub(super) use token::{is_number, repair_number};

use std::{cell::Cell, fmt};

use super::{
    cursor::{TextCursor, is_space},
    json::{JsonObject, JsonValue, dedup_keys, keep_first_of_same_keys},
    marker,
};

/// How deep values may nest.
pub(super) const MAX_DEPTH: usize = 128;

/// One kind of defect that was repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JsonRepair {
    /// A comma was missing, doubled, leading or trailing.
    Comma,
    /// Quotes were missing, of another kind, or not escaped inside a string.
    Quote,
    /// A raw control character stood in a string.
    ControlCharacter,
    /// A backslash sequence that JSON does not know.
    EscapeSequence,
    /// `True`, `None`, `undefined`, `NaN` and the like.
    Literal,
    /// A number in a form that JSON does not know.
    Number,
    /// Comments, or dots in place of more.
    Comment,
    /// Braces or brackets were missing, doubled, extra or mixed up.
    Closer,
    /// `=` or `=>` in place of a colon, full-width punctuation, odd spaces.
    Separator,
    /// Strings joined by `+` or by standing side by side.
    JoinedStrings,
    /// A tuple in place of an array.
    Tuple,
    /// HTML entities.
    Entity,
    /// The whole payload was escaped once more than it should be.
    EscapedPayload,
    /// A fence or prose around the payload.
    SurroundingText,
}

/// Why text cannot be parsed as JSON, even with repairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// It ends inside a string, number or key.
    #[error("the JSON ends too early")]
    UnexpectedEnd,
    /// It is something else.
    #[error("this is not JSON")]
    Malformed,
    /// It nests too deep.
    #[error("the JSON nests deeper than {MAX_DEPTH} levels")]
    TooDeep,
}

/// Reads `text` as one JSON value, repairing what is broken.
///
/// Returns strict JSON and the repairs that were needed: none, exactly when
/// the text was strict already. The digits of numbers are kept.
///
/// # Errors
///
/// When the text ends inside a string, number or key, nests too deep, or holds
/// no JSON.
pub fn repair_json(text: &str) -> Result<(String, Vec<JsonRepair>), PayloadError> {
    let (value, repairs) = parse_lenient(text)?;
    Ok((value.to_strict_json(), repairs))
}

/// Reads `text` as one value, with prose or a fence around it at most.
pub(super) fn parse_lenient(text: &str) -> Result<(JsonValue, Vec<JsonRepair>), PayloadError> {
    let touched = Cell::new(false);
    if let Some((plain, repair)) = unescape_payload(text) {
        let mut parser = LenientJsonParser::new(TextCursor::new(&plain, &touched), &[]);
        parser.record_repair(repair);
        let value = parser.parse_document()?;
        return Ok((value, parser.repairs));
    }
    let mut parser = LenientJsonParser::new(TextCursor::new(text, &touched), &[]);
    let first = parser.parse_document();
    let Err(error) = first else {
        return first.map(|value| (value, parser.repairs));
    };
    let Some(start) = text.find(['{', '[']).filter(|at| *at > 0) else {
        return Err(error);
    };
    let mut parser = LenientJsonParser::new(TextCursor::new(&text[start..], &touched), &[]);
    parser.record_repair(JsonRepair::SurroundingText);
    let value = parser.parse_value()?;
    Ok((value, parser.repairs))
}

/// Whether `text` is strict JSON; then the value.
pub(super) fn parse_strict(text: &str) -> Option<JsonValue> {
    let touched = Cell::new(false);
    let mut parser = LenientJsonParser::new(TextCursor::new(text, &touched), &[]);
    let value = parser.parse_document().ok()?;
    parser.repairs.is_empty().then_some(value)
}

/// A payload that was escaped as a whole, with that undone.
pub(super) fn unescape_payload(text: &str) -> Option<(String, JsonRepair)> {
    let inner = text.trim_start_matches(|c| is_space(c) || matches!(c, '{' | '['));
    if inner.len() == text.trim_start().len() {
        return None;
    }
    if inner.starts_with("\\\"") {
        return Some((unescape_backslashes(text), JsonRepair::EscapedPayload));
    }
    if !inner.starts_with("&quot;") && !inner.starts_with("&#34;") {
        return None;
    }
    let mut plain = text.to_owned();
    for (entity, c) in HTML_ENTITIES {
        plain = plain.replace(entity, c);
    }
    Some((plain, JsonRepair::Entity))
}

/// How long a payload is that was escaped as a whole: up to where its brackets are
/// closed.
pub(super) fn escaped_payload_length(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut position = 0;
    while let Some(c) = text[position..].chars().next() {
        let rest = &text[position..];
        let quote = ["\\\"", "&quot;", "&#34;"];
        if let Some(quote) = quote.iter().find(|it| rest.starts_with(**it)) {
            in_string = !in_string;
            position += quote.len();
            continue;
        }
        if rest.starts_with("```") && !in_string {
            return Some(position);
        }
        position += c.len_utf8();
        match c {
            // An escape inside the escaped text.
            '\\' if rest.starts_with("\\\\") => {
                position += rest[2..].chars().next()?.len_utf8() + 1;
            }
            '{' | '[' if !in_string => depth += 1,
            '}' | ']' if !in_string => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(position);
                }
            }
            _ => (),
        }
    }
    None
}

/// `&amp;` comes last, so that nothing is undone twice.
pub(super) const HTML_ENTITIES: [(&str, &str); 7] = [
    ("&quot;", "\""),
    ("&#34;", "\""),
    ("&#39;", "'"),
    ("&apos;", "'"),
    ("&lt;", "<"),
    ("&gt;", ">"),
    ("&amp;", "&"),
];

fn unescape_backslashes(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, chars.as_str().chars().next()) {
            ('\\', Some(next @ ('"' | '\\' | '/'))) => {
                plain.push(next);
                chars.next();
            }
            ('\\', Some('n')) => {
                plain.push('\n');
                chars.next();
            }
            _ => plain.push(c),
        }
    }
    plain
}

impl fmt::Display for JsonRepair {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Comma => "comma",
            Self::Quote => "quote",
            Self::ControlCharacter => "control character",
            Self::EscapeSequence => "escape",
            Self::Literal => "literal",
            Self::Number => "number",
            Self::Comment => "comment",
            Self::Closer => "closer",
            Self::Separator => "separator",
            Self::JoinedStrings => "joined strings",
            Self::Tuple => "tuple",
            Self::Entity => "entity",
            Self::EscapedPayload => "escaped payload",
            Self::SurroundingText => "fence or prose",
        })
    }
}

/// A value that is being read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenContainer {
    Object,
    Array,
    /// The parentheses of a python call.
    Call,
}

/// Reads values from a cursor and notes what it had to repair.
pub(super) struct LenientJsonParser<'a> {
    pub(super) cursor: TextCursor<'a>,
    pub(super) repairs: Vec<JsonRepair>,
    /// Markers that end the payload wherever a token could stand.
    stop_markers: &'a [&'static str],
    /// What is open, innermost last.
    open_containers: Vec<OpenContainer>,
    /// Nothing is repaired: the first defect ends the attempt.
    strict: bool,
}

impl<'a> LenientJsonParser<'a> {
    pub(super) fn new(cursor: TextCursor<'a>, stop_markers: &'a [&'static str]) -> Self {
        Self {
            cursor,
            repairs: Vec::new(),
            stop_markers,
            open_containers: Vec::new(),
            strict: false,
        }
    }

    pub(super) fn record_repair(&mut self, repair: JsonRepair) {
        if !self.repairs.contains(&repair) {
            self.repairs.push(repair);
        }
    }

    /// One value with nothing but space, fences and spare closers around it.
    fn parse_document(&mut self) -> Result<JsonValue, PayloadError> {
        self.skip_trivia();
        self.skip_fence();
        let value = self.parse_value()?;
        self.skip_spare_closers();
        self.skip_trivia();
        self.skip_fence();
        match self.cursor.peek() {
            None => Ok(value),
            Some(_) => Err(PayloadError::Malformed),
        }
    }

    /// Steps over space, comments and line breaks written as `\n`.
    pub(super) fn skip_trivia(&mut self) {
        token::skip_trivia(self);
    }

    /// Steps over a fence line or a closing fence.
    pub(super) fn skip_fence(&mut self) {
        if self.cursor.eat("```") {
            self.record_repair(JsonRepair::SurroundingText);
            self.cursor
                .take_while(|c| c.is_ascii_alphanumeric() || c == '_');
            self.skip_trivia();
        }
    }

    /// Steps over closers that nothing opened.
    pub(super) fn skip_spare_closers(&mut self) {
        let mut ahead = self.cursor;
        loop {
            ahead.skip_space();
            if !matches!(ahead.peek(), Some('}' | ']')) {
                return;
            }
            ahead.bump();
            self.cursor = ahead;
            self.record_repair(JsonRepair::Closer);
        }
    }

    /// The next value.
    pub(super) fn parse_value(&mut self) -> Result<JsonValue, PayloadError> {
        self.skip_trivia();
        if self.open_containers.len() >= MAX_DEPTH {
            return Err(PayloadError::TooDeep);
        }
        if self.strict && !self.repairs.is_empty() {
            return Err(PayloadError::Malformed);
        }
        let first = !self.strict
            && matches!(
                self.open_containers.last(),
                None | Some(OpenContainer::Call)
            );
        if let Some(value) = first.then(|| self.try_parse_strict()).flatten() {
            return Ok(value);
        }
        if self.cursor.needs_more_text() {
            return Err(PayloadError::UnexpectedEnd);
        }
        match self.cursor.peek().ok_or(PayloadError::UnexpectedEnd)? {
            '{' | '｛' => self.parse_nested(OpenContainer::Object, Self::object),
            '[' | '［' => self.parse_nested(OpenContainer::Array, Self::array),
            '(' => {
                self.record_repair(JsonRepair::Tuple);
                self.parse_nested(OpenContainer::Array, Self::array)
            }
            _ if self.is_at_stop_marker() => Err(PayloadError::Malformed),
            c if string::closing_quote(c).is_some() => string::parse_joined_strings(self),
            _ => token::word(self),
        }
    }

    /// The next value, if it is strict JSON: what parses is never repaired.
    fn try_parse_strict(&mut self) -> Option<JsonValue> {
        let mut strict = Self::new(self.cursor, self.stop_markers);
        strict.strict = true;
        let value = strict
            .parse_value()
            .ok()
            .filter(|_| strict.repairs.is_empty())?;
        if self.open_containers.is_empty() {
            self.cursor = strict.cursor;
            return Some(value);
        }
        let after = strict.cursor;
        strict.skip_trivia();
        let ends = matches!(strict.cursor.peek(), Some(',' | ')' | ']'));
        ends.then(|| {
            self.cursor = after;
            value
        })
    }

    /// Reads the inside of something that opens here.
    pub(super) fn parse_nested<T>(
        &mut self,
        open: OpenContainer,
        read: fn(&mut Self) -> Result<T, PayloadError>,
    ) -> Result<T, PayloadError> {
        if matches!(self.cursor.bump(), Some('｛' | '［')) {
            self.record_repair(JsonRepair::Separator);
        }
        self.open_containers.push(open);
        let value = read(self);
        self.open_containers.pop();
        value
    }

    fn array(&mut self) -> Result<JsonValue, PayloadError> {
        let mut items = Vec::new();
        loop {
            self.commas();
            if self.skip_closer()? {
                return Ok(JsonValue::Array(items));
            }
            let before = self.cursor;
            items.push(self.parse_value()?);
            self.skip_trivia();
            if self.cursor.peek() == Some(':') && self.is_in_object() {
                // That was the next key: the closing bracket was forgotten.
                items.pop();
                self.cursor = before;
                self.record_repair(JsonRepair::Closer);
                return Ok(JsonValue::Array(items));
            }
            if self.skip_separator()? {
                return Ok(JsonValue::Array(items));
            }
        }
    }

    fn object(&mut self) -> Result<JsonValue, PayloadError> {
        let doubled = self.doubled_brace();
        let mut members = JsonObject::new();
        loop {
            self.commas();
            if self.skip_closer()? {
                break;
            }
            let key = token::key(self)?;
            self.colon()?;
            let value = self.parse_value()?;
            members.push((key, value));
            if self.skip_separator()? {
                break;
            }
        }
        if doubled {
            self.skip_trivia();
            self.cursor.eat("}");
        }
        if self.repairs.is_empty() {
            dedup_keys(&mut members);
        } else {
            keep_first_of_same_keys(&mut members);
        }
        Ok(JsonValue::Object(members))
    }

    fn doubled_brace(&mut self) -> bool {
        self.skip_trivia();
        let doubled = self.cursor.eat("{");
        if doubled {
            self.record_repair(JsonRepair::Closer);
        }
        doubled
    }

    /// Steps over commas where none belongs.
    fn commas(&mut self) {
        loop {
            self.skip_trivia();
            match self.cursor.peek() {
                Some(',' | '，') => self.record_repair(JsonRepair::Comma),
                Some('.') if self.cursor.starts_with("...") => {
                    self.record_repair(JsonRepair::Comment);
                }
                Some('…') => self.record_repair(JsonRepair::Comment),
                _ => return,
            }
            self.cursor
                .take_while(|c| matches!(c, '.' | '…' | ',' | '，'));
        }
    }

    /// Whether the innermost value ends here. Steps over its closer.
    fn skip_closer(&mut self) -> Result<bool, PayloadError> {
        let array = self.open_containers.last() == Some(&OpenContainer::Array);
        let Some(next) = self.cursor.peek() else {
            return Err(PayloadError::UnexpectedEnd);
        };
        let fits = match next {
            '}' | '｝' => !array,
            ']' | '］' | ')' => array,
            _ if self.is_at_stop_marker() => {
                self.record_repair(JsonRepair::Closer);
                return Ok(true);
            }
            _ => return Ok(false),
        };
        if !fits {
            self.record_repair(JsonRepair::Closer);
            // It closes an outer container, which consumes it.
            let outer = &self.open_containers[..self.open_containers.len() - 1];
            let wanted = if array {
                OpenContainer::Object
            } else {
                OpenContainer::Array
            };
            if outer.contains(&wanted) {
                return Ok(true);
            }
        }
        self.cursor.bump();
        Ok(true)
    }

    /// Steps over what stands between two members; whether nothing follows.
    fn skip_separator(&mut self) -> Result<bool, PayloadError> {
        self.skip_trivia();
        let Some(next) = self.cursor.peek() else {
            // Nothing but closers is missing, so nothing is.
            self.record_repair(JsonRepair::Closer);
            return Ok(true);
        };
        match next {
            ',' => {
                self.cursor.bump();
                let mut ahead = self.cursor;
                ahead.take_while(is_space);
                match ahead.peek() {
                    None => return Err(PayloadError::UnexpectedEnd),
                    Some(',' | '}' | ']' | ')') => self.record_repair(JsonRepair::Comma),
                    Some(_) => (),
                }
            }
            '，' | '、' | ';' => {
                self.cursor.bump();
                self.record_repair(JsonRepair::Separator);
            }
            '}' | ']' | ')' | '｝' | '］' => (),
            _ if self.is_at_stop_marker() => (),
            _ => self.record_repair(JsonRepair::Comma),
        }
        Ok(false)
    }

    /// Whether an object is open around what is being read.
    fn is_in_object(&self) -> bool {
        self.open_containers.contains(&OpenContainer::Object)
    }

    fn colon(&mut self) -> Result<(), PayloadError> {
        self.skip_trivia();
        match self.cursor.peek().ok_or(PayloadError::UnexpectedEnd)? {
            ':' => {
                self.cursor.bump();
                return Ok(());
            }
            '：' => drop(self.cursor.bump()),
            '=' => {
                self.cursor.bump();
                self.cursor.eat(">");
            }
            _ => return Err(PayloadError::Malformed),
        }
        self.record_repair(JsonRepair::Separator);
        Ok(())
    }

    /// Whether the payload is over here: a marker, a fence.
    pub(super) fn is_at_stop_marker(&self) -> bool {
        self.cursor.starts_with("```")
            || self
                .stop_markers
                .iter()
                .any(|stop| marker::match_length(stop, self.cursor).is_some())
    }
}
