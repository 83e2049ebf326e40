//! JSON as models write it, made strict. One pass; what is valid is not touched.

mod string;
mod token;

pub(super) use token::{is_number, mended_number};

use std::{cell::Cell, fmt};

use super::{
    cursor::{Cursor, is_space},
    json::{Json, Object, unique},
    marker,
};

/// How deep values may nest.
pub(super) const MAX_DEPTH: usize = 128;

/// One kind of defect that was mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repair {
    /// A comma was missing, doubled, leading or trailing.
    Comma,
    /// Quotes were missing, of another kind, or not escaped inside a string.
    Quote,
    /// A raw control character stood in a string.
    Control,
    /// A backslash sequence that JSON does not know.
    Escape,
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
    Joined,
    /// A tuple in place of an array.
    Tuple,
    /// HTML entities.
    Entity,
    /// The whole payload was escaped once more than it should be.
    Escaped,
    /// A fence or prose around the payload.
    Around,
}

/// Why a text is no JSON, even with good will.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    /// It ends inside a string, number or key.
    #[error("the JSON ends too early")]
    Cut,
    /// It is something else.
    #[error("this is not JSON")]
    Wrong,
    /// It nests too deep.
    #[error("the JSON nests deeper than {MAX_DEPTH} levels")]
    Deep,
}

/// Reads `text` as one JSON value, mending what is broken.
///
/// Returns strict JSON and the repairs that were needed: none, exactly when
/// the text was strict already. The digits of numbers are kept.
///
/// # Errors
///
/// When the text ends inside a string, number or key, nests too deep, or holds
/// no JSON.
pub fn repair(text: &str) -> Result<(String, Vec<Repair>), Flaw> {
    let (value, repairs) = parse(text)?;
    Ok((value.write(), repairs))
}

/// Reads `text` as one value, with prose or a fence around it at most.
pub(super) fn parse(text: &str) -> Result<(Json, Vec<Repair>), Flaw> {
    let touched = Cell::new(false);
    if let Some((plain, repair)) = unwrapped(text) {
        let mut parser = Parser::new(Cursor::new(&plain, &touched), &[]);
        parser.note(repair);
        let value = parser.whole()?;
        return Ok((value, parser.repairs));
    }
    let mut parser = Parser::new(Cursor::new(text, &touched), &[]);
    let first = parser.whole();
    let Err(flaw) = first else {
        return first.map(|value| (value, parser.repairs));
    };
    let Some(start) = text.find(['{', '[']).filter(|at| *at > 0) else {
        return Err(flaw);
    };
    let mut parser = Parser::new(Cursor::new(&text[start..], &touched), &[]);
    parser.note(Repair::Around);
    let value = parser.value()?;
    Ok((value, parser.repairs))
}

/// Whether `text` is strict JSON; then the value.
pub(super) fn strict(text: &str) -> Option<Json> {
    let touched = Cell::new(false);
    let mut parser = Parser::new(Cursor::new(text, &touched), &[]);
    let value = parser.whole().ok()?;
    parser.repairs.is_empty().then_some(value)
}

/// A payload that was escaped as a whole, with that undone.
pub(super) fn unwrapped(text: &str) -> Option<(String, Repair)> {
    let inner = text.trim_start_matches(|c| is_space(c) || matches!(c, '{' | '['));
    if inner.len() == text.trim_start().len() {
        return None;
    }
    if inner.starts_with("\\\"") {
        return Some((unescaped(text), Repair::Escaped));
    }
    if !inner.starts_with("&quot;") && !inner.starts_with("&#34;") {
        return None;
    }
    let mut plain = text.to_owned();
    for (entity, c) in ENTITIES {
        plain = plain.replace(entity, c);
    }
    Some((plain, Repair::Entity))
}

/// `&amp;` comes last, so that nothing is undone twice.
pub(super) const ENTITIES: [(&str, &str); 7] = [
    ("&quot;", "\""),
    ("&#34;", "\""),
    ("&#39;", "'"),
    ("&apos;", "'"),
    ("&lt;", "<"),
    ("&gt;", ">"),
    ("&amp;", "&"),
];

fn unescaped(text: &str) -> String {
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

impl fmt::Display for Repair {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Comma => "comma",
            Self::Quote => "quote",
            Self::Control => "control character",
            Self::Escape => "escape",
            Self::Literal => "literal",
            Self::Number => "number",
            Self::Comment => "comment",
            Self::Closer => "closer",
            Self::Separator => "separator",
            Self::Joined => "joined strings",
            Self::Tuple => "tuple",
            Self::Entity => "entity",
            Self::Escaped => "escaped payload",
            Self::Around => "fence or prose",
        })
    }
}

/// A value that is being read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Open {
    Object,
    Array,
    /// The parentheses of a python call.
    Call,
}

/// Reads values from a cursor and notes what it had to mend.
pub(super) struct Parser<'a> {
    pub(super) cursor: Cursor<'a>,
    pub(super) repairs: Vec<Repair>,
    /// Markers that end the payload wherever a token could stand.
    stops: &'a [&'static str],
    /// What is open, innermost last.
    open: Vec<Open>,
    /// Nothing is mended: the first defect ends the attempt.
    strict: bool,
}

impl<'a> Parser<'a> {
    pub(super) fn new(cursor: Cursor<'a>, stops: &'a [&'static str]) -> Self {
        Self {
            cursor,
            repairs: Vec::new(),
            stops,
            open: Vec::new(),
            strict: false,
        }
    }

    pub(super) fn note(&mut self, repair: Repair) {
        if !self.repairs.contains(&repair) {
            self.repairs.push(repair);
        }
    }

    /// One value with nothing but space, fences and spare closers around it.
    fn whole(&mut self) -> Result<Json, Flaw> {
        self.skip();
        self.fence();
        let value = self.value()?;
        self.spare_closers();
        self.skip();
        self.fence();
        match self.cursor.peek() {
            None => Ok(value),
            Some(_) => Err(Flaw::Wrong),
        }
    }

    /// Steps over a fence line or a closing fence.
    pub(super) fn fence(&mut self) {
        if self.cursor.eat("```") {
            self.note(Repair::Around);
            self.cursor
                .take_while(|c| c.is_ascii_alphanumeric() || c == '_');
            self.skip();
        }
    }

    /// Steps over closers that nothing opened.
    pub(super) fn spare_closers(&mut self) {
        let mut ahead = self.cursor;
        loop {
            ahead.skip_space();
            if !matches!(ahead.peek(), Some('}' | ']')) {
                return;
            }
            ahead.bump();
            self.cursor = ahead;
            self.note(Repair::Closer);
        }
    }

    /// The next value.
    pub(super) fn value(&mut self) -> Result<Json, Flaw> {
        self.skip();
        if self.open.len() >= MAX_DEPTH {
            return Err(Flaw::Deep);
        }
        if self.strict && !self.repairs.is_empty() {
            return Err(Flaw::Wrong);
        }
        let first = !self.strict && matches!(self.open.last(), None | Some(Open::Call));
        if let Some(value) = first.then(|| self.strictly()).flatten() {
            return Ok(value);
        }
        match self.cursor.peek().ok_or(Flaw::Cut)? {
            '{' | '｛' => self.nested(Open::Object, Self::object),
            '[' | '［' => self.nested(Open::Array, Self::array),
            '(' => {
                self.note(Repair::Tuple);
                self.nested(Open::Array, Self::array)
            }
            _ if self.at_stop() => Err(Flaw::Wrong),
            c if string::closing(c).is_some() => self.strings(),
            _ => self.word(),
        }
    }

    /// The next value, if it is strict JSON: what parses is never mended.
    fn strictly(&mut self) -> Option<Json> {
        let mut strict = Self::new(self.cursor, self.stops);
        strict.strict = true;
        let value = strict.value().ok().filter(|_| strict.repairs.is_empty())?;
        if self.open.is_empty() {
            self.cursor = strict.cursor;
            return Some(value);
        }
        let after = strict.cursor;
        strict.skip();
        let ends = matches!(strict.cursor.peek(), Some(',' | ')' | ']'));
        ends.then(|| {
            self.cursor = after;
            value
        })
    }

    /// Reads the inside of something that opens here.
    pub(super) fn nested<T>(
        &mut self,
        open: Open,
        read: fn(&mut Self) -> Result<T, Flaw>,
    ) -> Result<T, Flaw> {
        if matches!(self.cursor.bump(), Some('｛' | '［')) {
            self.note(Repair::Separator);
        }
        self.open.push(open);
        let value = read(self);
        self.open.pop();
        value
    }

    fn array(&mut self) -> Result<Json, Flaw> {
        let mut items = Vec::new();
        loop {
            self.commas();
            if self.close()? {
                return Ok(Json::Array(items));
            }
            let before = self.cursor;
            items.push(self.value()?);
            self.skip();
            if self.cursor.peek() == Some(':') && self.is_in_object() {
                // That was the next key: the closing bracket was forgotten.
                items.pop();
                self.cursor = before;
                self.note(Repair::Closer);
                return Ok(Json::Array(items));
            }
            if self.separator()? {
                return Ok(Json::Array(items));
            }
        }
    }

    fn object(&mut self) -> Result<Json, Flaw> {
        let doubled = self.doubled_brace();
        let mut members = Object::new();
        loop {
            self.commas();
            if self.close()? {
                break;
            }
            let key = self.key()?;
            self.colon()?;
            let value = self.value()?;
            members.push((key, value));
            if self.separator()? {
                break;
            }
        }
        if doubled {
            self.skip();
            self.cursor.eat("}");
        }
        unique(&mut members);
        Ok(Json::Object(members))
    }

    fn doubled_brace(&mut self) -> bool {
        self.skip();
        let doubled = self.cursor.eat("{");
        if doubled {
            self.note(Repair::Closer);
        }
        doubled
    }

    /// Steps over commas where none belongs.
    fn commas(&mut self) {
        loop {
            self.skip();
            match self.cursor.peek() {
                Some(',' | '，') => self.note(Repair::Comma),
                Some('.') if self.cursor.starts("...") => self.note(Repair::Comment),
                Some('…') => self.note(Repair::Comment),
                _ => return,
            }
            self.cursor
                .take_while(|c| matches!(c, '.' | '…' | ',' | '，'));
        }
    }

    /// Whether the innermost value ends here. Steps over its closer.
    fn close(&mut self) -> Result<bool, Flaw> {
        let array = self.open.last() == Some(&Open::Array);
        let Some(next) = self.cursor.peek() else {
            return Err(Flaw::Cut);
        };
        let fits = match next {
            '}' | '｝' => !array,
            ']' | '］' | ')' => array,
            _ if self.at_stop() => {
                self.note(Repair::Closer);
                return Ok(true);
            }
            _ => return Ok(false),
        };
        if !fits {
            self.note(Repair::Closer);
            // It closes something further out: that one takes it.
            let outer = &self.open[..self.open.len() - 1];
            let wanted = if array { Open::Object } else { Open::Array };
            if outer.contains(&wanted) {
                return Ok(true);
            }
        }
        self.cursor.bump();
        Ok(true)
    }

    /// Steps over what stands between two members; whether nothing follows.
    fn separator(&mut self) -> Result<bool, Flaw> {
        self.skip();
        let Some(next) = self.cursor.peek() else {
            // Nothing but closers is missing, so nothing is.
            self.note(Repair::Closer);
            return Ok(true);
        };
        match next {
            ',' => {
                self.cursor.bump();
                let mut ahead = self.cursor;
                ahead.take_while(is_space);
                match ahead.peek() {
                    None => return Err(Flaw::Cut),
                    Some(',' | '}' | ']' | ')') => self.note(Repair::Comma),
                    Some(_) => (),
                }
            }
            '，' | '、' | ';' => {
                self.cursor.bump();
                self.note(Repair::Separator);
            }
            '}' | ']' | ')' | '｝' | '］' => (),
            _ if self.at_stop() => (),
            _ => self.note(Repair::Comma),
        }
        Ok(false)
    }

    /// Whether an object is open around what is being read.
    fn is_in_object(&self) -> bool {
        self.open.contains(&Open::Object)
    }

    fn colon(&mut self) -> Result<(), Flaw> {
        self.skip();
        match self.cursor.peek().ok_or(Flaw::Cut)? {
            ':' => {
                self.cursor.bump();
                return Ok(());
            }
            '：' => drop(self.cursor.bump()),
            '=' => {
                self.cursor.bump();
                self.cursor.eat(">");
            }
            _ => return Err(Flaw::Wrong),
        }
        self.note(Repair::Separator);
        Ok(())
    }

    /// Whether the payload is over here: a marker, a fence.
    pub(super) fn at_stop(&self) -> bool {
        self.cursor.starts("```")
            || self
                .stops
                .iter()
                .any(|stop| marker::length(stop, self.cursor).is_some())
    }
}
