//! Text from outside made harmless before a model reads it.

use std::{borrow::Cow, cell::Cell};

use super::{cursor::TextCursor, grammar::MarkerPlacement, marker_index};

/// Puts a zero-width space into every marker and control token of `text`, so
/// that a tool's result cannot pose as a call, a thought or a turn. Nothing
/// else is changed, and nothing at all if there is none.
pub fn escape_markers(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut copied = 0;
    let mut at = 0;
    let mut line = true;
    while let Some(c) = text[at..].chars().next() {
        let marked = starts_with_marker(&text[at..], line);
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
fn starts_with_marker(text: &str, line: bool) -> bool {
    let Some(first) = text.as_bytes().first() else {
        return false;
    };
    if !line && !marker_index::MARKER_FIRST_BYTES[*first as usize] {
        return false;
    }
    let place = if line {
        MarkerPlacement::MessageStart
    } else {
        MarkerPlacement::Anywhere
    };
    let touched = Cell::new(false);
    marker_index::find_marker(TextCursor::new(text, &touched), place).is_some()
}
