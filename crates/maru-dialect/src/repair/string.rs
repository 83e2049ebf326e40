//! Parses strings with quotes of any kind.

use super::{JsonRepair, LenientJsonParser, OpenContainer, PayloadError};
use crate::{
    cursor::{TextCursor, is_space},
    json::JsonValue,
};

/// How far ahead a doubtful quote is judged.
const MAX_KEY_LOOKAHEAD_BYTES: usize = 96;

/// What closes a string opened by `quote`.
pub(super) fn closing_quote(quote: char) -> Option<char> {
    Some(match quote {
        '"' | '\'' | '`' | '＂' => quote,
        '“' | '”' | '„' => '”',
        '‘' | '’' => '’',
        '「' => '」',
        _ => return None,
    })
}

/// A string value; several joined by `+` or standing side by side are one.
pub(super) fn parse_joined_strings(
    parser: &mut LenientJsonParser<'_>,
) -> Result<JsonValue, PayloadError> {
    let mut text = parse_string(parser, false)?;
    loop {
        let mut ahead = parser.cursor;
        ahead.skip_space();
        if !ahead.eat("+") {
            return Ok(JsonValue::String(text));
        }
        ahead.skip_space();
        if ahead.peek().and_then(closing_quote).is_none() {
            return Ok(JsonValue::String(text));
        }
        parser.cursor = ahead;
        parser.record_repair(JsonRepair::JoinedStrings);
        text.push_str(&parse_string(parser, false)?);
    }
}

/// One quoted string; `key` says that a colon follows it.
pub(super) fn parse_string(
    parser: &mut LenientJsonParser<'_>,
    key: bool,
) -> Result<String, PayloadError> {
    for triple in ["\"\"\"", "'''"] {
        if parser.cursor.starts_with(triple) && !key && !parser.strict {
            return parse_triple_quoted(parser, triple);
        }
    }
    let open = parser.cursor.bump().ok_or(PayloadError::UnexpectedEnd)?;
    let close = closing_quote(open).unwrap_or(open);
    if open != '"' {
        parser.record_repair(JsonRepair::Quote);
        if parser.strict {
            return Err(PayloadError::Malformed);
        }
    }
    let mut text = String::new();
    loop {
        plain_run(parser, &mut text);
        let c = parser.cursor.bump().ok_or(PayloadError::UnexpectedEnd)?;
        if c == '\\' {
            escape(parser, &mut text)?;
        } else if c == close || (c == '"' && matches!(close, '”' | '＂')) {
            if is_closing_quote(parser, close, key) {
                return Ok(text);
            }
            let lost = if key {
                recover_missing_key_quote(parser, &mut text)
            } else {
                recover_missing_quote(parser, c, &mut text)
            };
            if lost {
                return Ok(text);
            }
            parser.record_repair(JsonRepair::Quote);
            text.push(c);
        } else {
            if c < ' ' {
                parser.record_repair(JsonRepair::ControlCharacter);
                if parser.strict {
                    return Err(PayloadError::Malformed);
                }
            }
            text.push(c);
        }
    }
}

/// Copies what is certainly text.
fn plain_run(parser: &mut LenientJsonParser<'_>, text: &mut String) {
    let run = parser.cursor.take_while(|c| {
        c >= ' ' && !matches!(c, '\\' | '"' | '\'' | '`' | '”' | '’' | '＂' | '」')
    });
    text.push_str(run);
}

fn parse_triple_quoted(
    parser: &mut LenientJsonParser<'_>,
    quote: &str,
) -> Result<String, PayloadError> {
    parser.record_repair(JsonRepair::Quote);
    parser.cursor.eat(quote);
    let start = parser.cursor.position();
    let end = parser
        .cursor
        .find(quote)
        .ok_or(PayloadError::UnexpectedEnd)?;
    parser.cursor.seek(end + quote.len());
    Ok(parser.cursor.slice(start, end).to_owned())
}

/// Whether the quote just read ends the string, by what follows it.
fn is_closing_quote(parser: &LenientJsonParser<'_>, close: char, key: bool) -> bool {
    if parser.strict {
        return true;
    }
    let mut ahead = parser.cursor;
    ahead.skip_space();
    let Some(next) = ahead.peek() else {
        return true;
    };
    if key {
        return matches!(next, ':' | '=' | '：');
    }
    match next {
        '}' | ']' | ')' => closers_end_string(parser, ahead),
        '｝' | '］' | ';' => true,
        ',' | '，' => comma_ends_string(parser, ahead.advanced_by(next.len_utf8())),
        ':' => is_in_list(parser) && parser.is_in_object(),
        '+' => {
            let mut after = ahead.advanced_by(1);
            after.skip_space();
            after.peek().and_then(closing_quote).is_some()
        }
        '/' => ahead.starts_with("//") || ahead.starts_with("/*"),
        '#' => ahead.position() > parser.cursor.position(),
        '\\' => ahead.starts_with("\\n"),
        '.' => ahead.starts_with("..."),
        _ if closing_quote(next).is_some() && !ahead.starts_with("```") => {
            is_in_list(parser) || is_key_next(ahead.advanced_by(next.len_utf8()), Some(close))
        }
        _ => {
            let line = parser
                .cursor
                .slice(parser.cursor.position(), ahead.position())
                .contains('\n');
            let stop = LenientJsonParser::new(ahead, parser.stop_markers);
            stop.is_at_stop_marker() || (line && !is_in_list(parser) && is_key_next(ahead, None))
        }
    }
}

/// Whether closers after a quote are those of the JSON, rather than of code in the text:
/// `"print("a")"`, `"{"a": "b"}"`.
fn closers_end_string(parser: &LenientJsonParser<'_>, closers: TextCursor<'_>) -> bool {
    let mut ahead = closers;
    let mut count = 0;
    while let Some(c) = ahead.peek().filter(|c| is_space(*c) || is_closer(*c)) {
        count += usize::from(is_closer(c));
        ahead.bump();
    }
    let Some(next) = ahead.peek() else {
        return true;
    };
    if LenientJsonParser::new(ahead, parser.stop_markers).is_at_stop_marker() {
        return true;
    }
    if closing_quote(next).is_some() && !ahead.starts_with("```") {
        let mut after = ahead.advanced_by(next.len_utf8());
        if is_key_next(after, Some(next)) {
            return true;
        }
        after.skip_space();
        return !after.peek().is_some_and(is_closer);
    }
    let has_parenthesis =
        is_in_list(parser) || parser.open_containers.contains(&OpenContainer::Call);
    if closers.peek() == Some(')') && !has_parenthesis {
        return false;
    }
    count >= parser.open_containers.len() || !matches!(next, ';' | '.' | '(' | '+')
}

fn is_closer(c: char) -> bool {
    matches!(c, '}' | ']' | ')')
}

fn is_in_list(parser: &LenientJsonParser<'_>) -> bool {
    matches!(
        parser.open_containers.last(),
        Some(OpenContainer::Array | OpenContainer::Call)
    )
}

/// Whether a comma after a quote separates values, rather than words.
fn comma_ends_string(parser: &LenientJsonParser<'_>, after: TextCursor<'_>) -> bool {
    let mut ahead = after;
    ahead.skip_space();
    let Some(next) = ahead.peek() else {
        return true;
    };
    match next {
        '}' | ']' | ')' | '/' | '#' | ',' | '\\' | '.' | '，' | '…' => true,
        _ if parser.open_containers.is_empty() => true,
        _ if is_in_list(parser) => {
            closing_quote(next).is_some()
                || matches!(next, '{' | '[' | '(' | '-' | '0'..='9')
                || ["true", "false", "null", "True", "False", "None"]
                    .iter()
                    .any(|word| ahead.starts_with(word))
                || (parser.open_containers.last() == Some(&OpenContainer::Call)
                    && is_key_next(ahead, None))
        }
        _ if closing_quote(next).is_some() => {
            is_key_next(ahead.advanced_by(next.len_utf8()), closing_quote(next))
        }
        _ => is_key_next(ahead, None),
    }
}

/// A string whose closing quote was forgotten: the quote just read opens
/// the next key. Ends the string before the comma between them.
fn recover_missing_quote(
    parser: &mut LenientJsonParser<'_>,
    quote: char,
    text: &mut String,
) -> bool {
    let kept = text.trim_end();
    let Some(value) = kept.strip_suffix(',') else {
        return false;
    };
    if is_in_list(parser) || !is_key_next(parser.cursor, Some(quote)) {
        return false;
    }
    text.truncate(value.trim_end().len());
    parser.record_repair(JsonRepair::Quote);
    parser
        .cursor
        .seek(parser.cursor.position() - quote.len_utf8());
    true
}

/// A key whose closing quote was forgotten: the quote just read opens its
/// value. Ends the key before the colon between them.
fn recover_missing_key_quote(parser: &mut LenientJsonParser<'_>, text: &mut String) -> bool {
    let Some(key) = text.trim_end().strip_suffix(':') else {
        return false;
    };
    let back = text.len() - key.len() + 1;
    text.truncate(key.len());
    parser.record_repair(JsonRepair::Quote);
    parser.cursor.seek(parser.cursor.position() - back);
    true
}

fn escape(parser: &mut LenientJsonParser<'_>, text: &mut String) -> Result<(), PayloadError> {
    let c = parser.cursor.bump().ok_or(PayloadError::UnexpectedEnd)?;
    match c {
        '"' | '\\' | '/' => text.push(c),
        'n' => text.push('\n'),
        't' => text.push('\t'),
        'r' => text.push('\r'),
        'b' => text.push('\u{8}'),
        'f' => text.push('\u{c}'),
        'u' => unicode(parser, text),
        'x' => hex(parser, text),
        '\'' | '`' => {
            parser.record_repair(JsonRepair::EscapeSequence);
            text.push(c);
        }
        // A line continued: the break is not part of the text.
        '\n' => parser.record_repair(JsonRepair::EscapeSequence),
        // `\d` and its like: the writer wanted the backslash.
        _ => {
            parser.record_repair(JsonRepair::EscapeSequence);
            text.push('\\');
            text.push(c);
        }
    }
    Ok(())
}

fn unicode(parser: &mut LenientJsonParser<'_>, text: &mut String) {
    let Some(first) = hex_digits(&mut parser.cursor, 4) else {
        parser.record_repair(JsonRepair::EscapeSequence);
        text.push_str("\\u");
        return;
    };
    let mut ahead = parser.cursor;
    if (0xd800..0xdc00).contains(&first)
        && ahead.eat("\\u")
        && let Some(second @ 0xdc00..0xe000) = hex_digits(&mut ahead, 4)
    {
        parser.cursor = ahead;
        let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
        text.extend(char::from_u32(code));
        return;
    }
    if char::from_u32(first).is_none() {
        parser.record_repair(JsonRepair::EscapeSequence);
    }
    text.push(char::from_u32(first).unwrap_or('\u{fffd}'));
}

fn hex(parser: &mut LenientJsonParser<'_>, text: &mut String) {
    parser.record_repair(JsonRepair::EscapeSequence);
    match hex_digits(&mut parser.cursor, 2).and_then(char::from_u32) {
        Some(c) => text.push(c),
        None => text.push_str("\\x"),
    }
}

fn hex_digits(cursor: &mut TextCursor<'_>, count: usize) -> Option<u32> {
    let mut ahead = *cursor;
    let mut value = 0;
    for _ in 0..count {
        value = value * 16 + ahead.bump()?.to_digit(16)?;
    }
    *cursor = ahead;
    Some(value)
}

/// Whether a key and its colon follow; `quote` closes the key, if it has one.
fn is_key_next(from: TextCursor<'_>, quote: Option<char>) -> bool {
    let mut ahead = from;
    while ahead.position() - from.position() < MAX_KEY_LOOKAHEAD_BYTES {
        match ahead.bump() {
            None => return true,
            Some(c) if Some(c) == quote => {
                ahead.skip_space();
                return matches!(ahead.peek(), None | Some(':' | '=' | '：'));
            }
            Some(':' | '=' | '：') if quote.is_none() => return true,
            Some(c)
                if quote.is_none()
                    && !(c.is_alphanumeric() || matches!(c, '_' | '-' | '"' | '\'' | ' ')) =>
            {
                return false;
            }
            Some(c) if !may_stand_in_key(c) => return false,
            Some(_) => (),
        }
    }
    false
}

/// Whether a doubtful key may contain `c`.
fn may_stand_in_key(c: char) -> bool {
    !matches!(c, '\n' | '{' | '}' | ',')
}

/// Whether `key` counts as a key wherever it stands, whatever is broken around it.
pub(crate) fn is_certain_key(key: &str) -> bool {
    key.len() < MAX_KEY_LOOKAHEAD_BYTES && key.chars().all(may_stand_in_key)
}
