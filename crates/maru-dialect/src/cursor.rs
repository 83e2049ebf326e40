//! A cursor over text that may still grow.

use std::cell::Cell;

/// A position in text of which only the beginning may have arrived.
///
/// Every attempt to read past the end is recorded in `touched`. A decision taken
/// without one holds for every continuation of the text, which makes the events
/// independent of how the input was split into chunks.
#[derive(Clone, Copy)]
pub(super) struct TextCursor<'a> {
    text: &'a str,
    position: usize,
    touched: &'a Cell<bool>,
    /// The text will not grow.
    is_final: bool,
    /// Whoever reads takes no decision that was taken at the end of the text.
    waits_for_more: bool,
}

impl<'a> TextCursor<'a> {
    pub(super) fn new(text: &'a str, touched: &'a Cell<bool>) -> Self {
        Self {
            text,
            position: 0,
            touched,
            is_final: false,
            waits_for_more: false,
        }
    }

    /// The same text, of which `waits` says that more is waited for once its end is read.
    pub(super) fn waiting_for_more(self, waits: bool) -> Self {
        Self {
            waits_for_more: waits,
            ..self
        }
    }

    /// Whether the end was read and more is waited for: then the result is thrown away,
    /// whatever it is, and what it still costs can be saved.
    pub(super) fn needs_more_text(&self) -> bool {
        self.waits_for_more && self.touched.get()
    }

    fn note_end_reached(&self) {
        if !self.is_final {
            self.touched.set(true);
        }
    }

    pub(super) fn position(&self) -> usize {
        self.position
    }

    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.position..]
    }

    /// What lies between two places.
    pub(super) fn slice(&self, from: usize, to: usize) -> &'a str {
        &self.text[from..to]
    }

    pub(super) fn seek(&mut self, to: usize) {
        self.position = to;
    }

    pub(super) fn advanced_by(mut self, by: usize) -> Self {
        self.position += by;
        self
    }

    /// The same text, ending at `to` for good.
    pub(super) fn truncated_at(self, to: usize) -> Self {
        Self {
            text: &self.text[..to],
            is_final: true,
            ..self
        }
    }

    pub(super) fn peek(&self) -> Option<char> {
        let next = self.rest().chars().next();
        if next.is_none() {
            self.note_end_reached();
        }
        next
    }

    pub(super) fn bump(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.position += next.len_utf8();
        Some(next)
    }

    /// Steps over `wanted` if it is next.
    pub(super) fn eat(&mut self, wanted: &str) -> bool {
        let found = self.starts_with(wanted);
        if found {
            self.position += wanted.len();
        }
        found
    }

    /// Whether `wanted` is next.
    pub(super) fn starts_with(&self, wanted: &str) -> bool {
        let rest = self.rest().as_bytes();
        if rest.len() < wanted.len() && wanted.as_bytes().starts_with(rest) {
            self.note_end_reached();
        }
        rest.starts_with(wanted.as_bytes())
    }

    /// Where `needle` comes next, if within `limit` bytes.
    pub(super) fn find_within(&self, needle: &str, limit: usize) -> Option<usize> {
        let rest = self.rest().as_bytes();
        let near = &rest[..limit.min(rest.len())];
        let found = memchr::memmem::find(near, needle.as_bytes());
        if found.is_none() && near.len() == rest.len() {
            self.note_end_reached();
        }
        found.map(|by| self.position + by)
    }

    /// Where `needle` comes next.
    pub(super) fn find(&self, needle: &str) -> Option<usize> {
        let found = memchr::memmem::find(self.rest().as_bytes(), needle.as_bytes());
        if found.is_none() {
            self.note_end_reached();
        }
        found.map(|by| self.position + by)
    }

    /// The end of the text, for parsers that consume all of it.
    pub(super) fn end_of_input(&self) -> usize {
        self.note_end_reached();
        self.text.len()
    }

    /// Steps over characters that satisfy `wanted`; returns them.
    pub(super) fn take_while(&mut self, wanted: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let length = rest.find(|c| !wanted(c)).unwrap_or_else(|| {
            self.note_end_reached();
            rest.len()
        });
        self.position += length;
        &rest[..length]
    }

    pub(super) fn skip_space(&mut self) {
        self.take_while(is_space);
    }
}

/// White space, and the characters that look like it or like nothing.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}')
}
