//! Makes text from outside harmless before a model reads it.

use std::borrow::Cow;

use super::{
    cursor::is_space,
    template_tokens::{may_start_token, starts_with_token},
};

/// Puts a zero-width space into every token of a chat template and every marker of a
/// dialect in `text`, so that a tool's result cannot pose as a call, a result, a
/// thought or a turn. All other text is returned as it is, without a copy if there is
/// no such token.
pub fn escape_markers(text: &str) -> Cow<'_, str> {
    let mut out = String::new();
    let mut copied = 0;
    let mut position = 0;
    let mut at_line_start = true;
    while position < text.len() {
        if !at_line_start {
            let interesting = |byte: &u8| may_start_token(*byte) || may_start_line(*byte);
            let rest = &text.as_bytes()[position..];
            position += rest.iter().position(interesting).unwrap_or(rest.len());
        }
        let Some(c) = text[position..].chars().next() else {
            break;
        };
        let is_token = starts_with_token(&text[position..], at_line_start);
        at_line_start = is_line_break(c) || (at_line_start && is_space(c));
        position += c.len_utf8();
        if is_token {
            out.push_str(&text[copied..position]);
            out.push('\u{200b}');
            copied = position;
        }
    }
    if copied == 0 {
        return Cow::Borrowed(text);
    }
    out.push_str(&text[copied..]);
    Cow::Owned(out)
}

/// Whether a line break may begin with this byte; of some, it is the first of two or three.
fn may_start_line(byte: u8) -> bool {
    matches!(byte, b'\n' | b'\r' | 0x0b | 0x0c | 0xc2 | 0xe2)
}

fn is_line_break(c: char) -> bool {
    matches!(
        c,
        '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}'
    )
}
