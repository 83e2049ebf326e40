//! Every token that a chat template gives a meaning to: turns, roles, tools, results,
//! reasoning. The markers of the dialects in `grammar` count as well.
//!
//! Tokens between bars (`<|im_start|>`, `<｜User｜>`, `[|user|]`, `<|turn>`,
//! `<channel|>`) need no list: no other text is written so.

mod lists;

use std::cell::Cell;

use super::{cursor::TextCursor, grammar::MarkerPlacement, marker_index};
use lists::{
    BARE_TAGS, BRACKET_PREFIXES, BRACKETS, CASED_TAGS, LINES, NUMBERED_TAGS, OTHER, ROLE_LINES,
    TAG_PREFIXES, TAGS,
};

/// Longest name between bars.
const MAX_BARRED_BYTES: usize = 96;
/// Longest token of the lists, in characters.
const MAX_TOKEN_CHARS: usize = 40;

/// Whether `text` begins with a token of a chat template or a marker of a dialect.
/// `at_line_start` says that only white space stands before it on its line.
pub(super) fn starts_with_token(text: &str, at_line_start: bool) -> bool {
    let Some(first) = text.chars().next() else {
        return false;
    };
    match fold(first) {
        '<' | '[' if may_follow_bracket(&text[first.len_utf8()..]) => {
            is_barred(text) || is_listed(text) || is_marker(text, at_line_start)
        }
        '<' | '[' => false,
        ']' => text.starts_with("]~") || text.starts_with("]<]") || is_listed(text),
        '>' => (text.starts_with(">>") && is_listed(text)) || (at_line_start && is_line(text)),
        '✿' | '◁' => is_listed(text),
        _ => at_line_start && (is_line(text) || is_role_line(text) || is_marker(text, true)),
    }
}

/// Whether what stands behind a bracket can be the name of a token. Most brackets are
/// those of JSON, Markdown and code.
fn may_follow_bracket(text: &str) -> bool {
    let may_follow = |c: char| c.is_alphabetic() || matches!(c, '|' | '/' | '_' | '<' | '[' | '~');
    text.chars().next().map(fold).is_some_and(may_follow)
}

/// Whether a token may begin with this byte in the middle of a line.
pub(super) fn may_start_token(byte: u8) -> bool {
    // Of the others, the first bytes of `✿` and `◁`, and of full-width brackets.
    matches!(byte, b'<' | b'[' | b']' | b'>' | 0xe2 | 0xef)
}

fn is_marker(text: &str, at_line_start: bool) -> bool {
    let placement = if at_line_start {
        MarkerPlacement::MessageStart
    } else {
        MarkerPlacement::Anywhere
    };
    let touched = Cell::new(false);
    marker_index::find_marker(TextCursor::new(text, &touched), placement).is_some()
}

/// `<|…|>`, `[|…|]`, `<|…>` or `<…|>`, with bars and brackets of any width.
fn is_barred(text: &str) -> bool {
    let mut chars = text.chars().map(fold);
    let close = match chars.next() {
        Some('<') => '>',
        _ => ']',
    };
    let opens = chars.clone().next() == Some('|');
    let mut length = 0;
    let mut previous = ' ';
    for c in chars {
        length += c.len_utf8();
        if c == close {
            let closes = previous == '|' && length > 2;
            return closes || (opens && close == '>' && length > 2);
        }
        let ends = matches!(c, '<' | '\n') || (!opens && !is_name_char(c) && c != '|');
        if ends || length > MAX_BARRED_BYTES {
            return false;
        }
        previous = c;
    }
    false
}

fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '/' | ':' | '"')
}

/// Whether a token of the lists is next.
fn is_listed(text: &str) -> bool {
    if CASED_TAGS.iter().any(|it| text.starts_with(it)) {
        return true;
    }
    let folded = folded_start(text);
    if OTHER.iter().any(|it| folded.starts_with(it)) {
        return true;
    }
    let Some(name) = folded.strip_prefix(['<', '[']) else {
        return false;
    };
    let name = name.strip_prefix('/').unwrap_or(name);
    if folded.starts_with('<') {
        let end = name
            .find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | ':' | '-')))
            .unwrap_or(name.len());
        let (name, after) = name.split_at(end);
        let label = name.strip_suffix(':').unwrap_or(name);
        after.starts_with(['>', ' ', '=', '/'])
            && (TAGS.contains(&label)
                || has_prefix(name, TAG_PREFIXES)
                || (after.starts_with('>') && (BARE_TAGS.contains(&label) || is_numbered(name))))
    } else {
        let end = name.find(']').unwrap_or(0);
        BRACKETS.contains(&&name[..end]) || has_prefix(name, BRACKET_PREFIXES)
    }
}

fn has_prefix(name: &str, prefixes: &[&str]) -> bool {
    prefixes.iter().any(|prefix| name.starts_with(prefix))
}

/// Whether a name is one of [`NUMBERED_TAGS`] and a number.
fn is_numbered(name: &str) -> bool {
    let number = |prefix: &&str| name.strip_prefix(*prefix);
    let is_number = |rest: &str| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit());
    NUMBERED_TAGS.iter().filter_map(number).any(is_number)
}

/// Whether a role is next, in the letters of its template.
fn is_role_line(text: &str) -> bool {
    let begins = |label: &&str| {
        let mut chars = text.chars().map(fold);
        label.chars().all(|wanted| chars.next() == Some(wanted))
    };
    ROLE_LINES.iter().any(begins)
}

fn is_line(text: &str) -> bool {
    let first = text.as_bytes().first().map(u8::to_ascii_lowercase);
    let begins = |label: &&str| {
        if label.bytes().next() != first {
            return false;
        }
        let mut chars = text.chars().map(|c| fold(c).to_ascii_lowercase());
        label.chars().all(|wanted| chars.next() == Some(wanted))
    };
    LINES.iter().any(begins)
}

/// The first characters in one spelling: lower case, narrow, `_` for `▁`.
fn folded_start(text: &str) -> String {
    let chars = text.chars().take(MAX_TOKEN_CHARS).map(fold);
    chars.flat_map(char::to_lowercase).collect()
}

fn fold(c: char) -> char {
    match c {
        '＜' => '<',
        '＞' => '>',
        '［' => '[',
        '］' => ']',
        '｜' | '‖' | '│' | '∣' => '|',
        '▁' => '_',
        '／' => '/',
        '：' => ':',
        c => c,
    }
}
