//! Text from outside made harmless before a model reads it.

use std::{borrow::Cow, cell::Cell};

use super::{cursor::Cursor, index, table::Place};

/// Puts a zero-width space into every marker and control token of `text`, so
/// that a tool's result cannot pose as a call, a thought or a turn. Nothing
/// else is changed, and nothing at all if there is none.
pub fn neutralise(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut copied = 0;
    let mut at = 0;
    let mut line = true;
    while let Some(c) = text[at..].chars().next() {
        let marked = is_marker(&text[at..], line);
        line = c == '\n' || (line && matches!(c, ' ' | '\t'));
        at += c.len_utf8();
        if marked {
            out.push_str(&text[copied..at]);
            out.push('\u{200b}');
            copied = at;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// Whether `text` begins with a marker.
fn is_marker(text: &str, line: bool) -> bool {
    let Some(first) = text.as_bytes().first() else {
        return false;
    };
    if !line && !index::SPECIAL[*first as usize] {
        return false;
    }
    let place = if line {
        Place::Message
    } else {
        Place::Anywhere
    };
    let touched = Cell::new(false);
    index::find(Cursor::new(text, &touched), place).is_some()
}
