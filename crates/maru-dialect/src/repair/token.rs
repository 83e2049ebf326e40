//! Parses what separates values, and values that are one word.

use super::{JsonRepair, LenientJsonParser, PayloadError, is_space};
use crate::json::JsonValue;

/// Longest comment.
const MAX_COMMENT_BYTES: usize = 4096;

/// Steps over space, comments and line breaks written as `\n`.
pub(super) fn skip_trivia(parser: &mut LenientJsonParser<'_>) {
    loop {
        let space = parser.cursor.take_while(is_space);
        if space.chars().any(|c| !c.is_ascii_whitespace()) {
            parser.record_repair(JsonRepair::Separator);
        }
        let Some(next) = parser.cursor.peek() else {
            return;
        };
        if !comment(parser, next) {
            return;
        }
    }
}

fn comment(parser: &mut LenientJsonParser<'_>, next: char) -> bool {
    match next {
        '#' => line(parser),
        '/' if parser.cursor.starts_with("//") => line(parser),
        '/' if parser.cursor.starts_with("/*") => {
            match parser.cursor.find_within("*/", MAX_COMMENT_BYTES) {
                Some(end) => parser.cursor.seek(end + 2),
                None => return false,
            }
        }
        '\\' if parser.cursor.starts_with("\\n") || parser.cursor.starts_with("\\t") => {
            parser.cursor.seek(parser.cursor.position() + 2);
            parser.record_repair(JsonRepair::EscapeSequence);
            return true;
        }
        _ => return false,
    }
    parser.record_repair(JsonRepair::Comment);
    true
}

fn line(parser: &mut LenientJsonParser<'_>) {
    parser.cursor.take_while(|c| c != '\n');
}

/// A key: quoted, or a bare word up to the colon.
pub(super) fn key(parser: &mut LenientJsonParser<'_>) -> Result<String, PayloadError> {
    let next = parser.cursor.peek().ok_or(PayloadError::UnexpectedEnd)?;
    if super::string::closing_quote(next).is_some() {
        return super::string::parse_string(parser, true);
    }
    let word = parser.cursor.take_while(|c| {
        !matches!(
            c,
            ':' | '：' | '=' | ',' | '{' | '}' | '[' | ']' | '<' | '\n'
        )
    });
    if parser.cursor.peek().is_none() {
        return Err(PayloadError::UnexpectedEnd);
    }
    parser.record_repair(JsonRepair::Quote);
    let word = word.trim().trim_end_matches(['"', '\'']);
    if word.is_empty() {
        Err(PayloadError::Malformed)
    } else {
        Ok(word.to_owned())
    }
}

/// A number, a literal, or text that lost its quotes.
pub(super) fn word(parser: &mut LenientJsonParser<'_>) -> Result<JsonValue, PayloadError> {
    let word = parser
        .cursor
        .take_while(|c| c.is_alphanumeric() || matches!(c, '+' | '-' | '.' | '_' | '$'));
    // Digits at the end of what is open may be the first of more.
    let ended = parser.cursor.peek().is_some() || parser.open_containers.is_empty();
    if at_word_end(parser) {
        if let Some(value) = literal(parser, word) {
            return Ok(value);
        }
        if ended && let Some(value) = number(parser, word) {
            return Ok(value);
        }
    }
    if !ended {
        return Err(PayloadError::UnexpectedEnd);
    }
    parse_unquoted(parser, word)
}

fn at_word_end(parser: &LenientJsonParser<'_>) -> bool {
    let mut ahead = parser.cursor;
    ahead.take_while(|c| c != '\n' && is_space(c));
    match ahead.peek() {
        None => true,
        Some(c) => {
            matches!(
                c,
                ',' | '}'
                    | ']'
                    | ')'
                    | ':'
                    | ';'
                    | '\n'
                    | '，'
                    | '｝'
                    | '］'
                    | '#'
                    | '<'
                    | '`'
                    | '\\'
            ) || ahead.starts_with("//")
                || ahead.starts_with("/*")
                || parser.is_at_stop_marker()
        }
    }
}

fn literal(parser: &mut LenientJsonParser<'_>, word: &str) -> Option<JsonValue> {
    let value = match word {
        "true" => return Some(JsonValue::Bool(true)),
        "false" => return Some(JsonValue::Bool(false)),
        "null" => return Some(JsonValue::Null),
        "True" | "TRUE" => JsonValue::Bool(true),
        "False" | "FALSE" => JsonValue::Bool(false),
        "None" | "NULL" | "Null" | "nil" | "undefined" | "NaN" | "nan" | "Infinity"
        | "-Infinity" => JsonValue::Null,
        _ => return None,
    };
    parser.record_repair(JsonRepair::Literal);
    Some(value)
}

fn number(parser: &mut LenientJsonParser<'_>, word: &str) -> Option<JsonValue> {
    if is_number(word) {
        return Some(JsonValue::Number(word.to_owned()));
    }
    let digits = repair_number(word)?;
    parser.record_repair(JsonRepair::Number);
    Some(JsonValue::Number(digits))
}

/// Text without quotes: up to what can follow a value.
fn parse_unquoted(
    parser: &mut LenientJsonParser<'_>,
    start: &str,
) -> Result<JsonValue, PayloadError> {
    let from = parser.cursor.position() - start.len();
    parser
        .cursor
        .take_while(|c| !matches!(c, ',' | '}' | ']' | '\n' | '{' | '[' | '<' | '，'));
    let end = parser.cursor.position();
    if parser.cursor.peek().is_none() && !parser.open_containers.is_empty() {
        return Err(PayloadError::UnexpectedEnd);
    }
    let text = parser.cursor.slice(from, end).trim();
    let text = text.trim_end_matches(['"', '\'']);
    if text.is_empty() || parser.open_containers.is_empty() {
        return Err(PayloadError::Malformed);
    }
    parser.record_repair(JsonRepair::Quote);
    Ok(JsonValue::String(text.to_owned()))
}

/// Whether `word` is a number of JSON.
pub(crate) fn is_number(word: &str) -> bool {
    let rest = word.strip_prefix('-').unwrap_or(word);
    let whole = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    if whole == 0 || (whole > 1 && rest.starts_with('0')) {
        return false;
    }
    let rest = match rest[whole..].strip_prefix('.') {
        None => &rest[whole..],
        Some(fraction) => {
            let left = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
            if left.len() == fraction.len() {
                return false;
            }
            left
        }
    };
    let Some(exponent) = rest.strip_prefix(['e', 'E']) else {
        return rest.is_empty();
    };
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit())
}

/// The number of JSON that `word` means, where it is one in another form.
pub(crate) fn repair_number(word: &str) -> Option<String> {
    let (sign, digits) = match word.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", word.strip_prefix('+').unwrap_or(word)),
    };
    if let Some(hex) = digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        let value = u128::from_str_radix(hex, 16).ok()?;
        return Some(format!("{sign}{value}"));
    }
    if !digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return None;
    }
    let mut plain = digits.replace('_', "");
    if plain.starts_with('.') {
        plain.insert(0, '0');
    }
    let plain = plain.strip_suffix('.').unwrap_or(&plain);
    let trimmed = plain.trim_start_matches('0');
    let plain = if trimmed.starts_with(|c: char| c.is_ascii_digit()) {
        trimmed.to_owned()
    } else {
        format!("0{trimmed}")
    };
    let number = format!("{sign}{plain}");
    is_number(&number).then_some(number)
}
