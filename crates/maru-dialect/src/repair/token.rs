//! What stands between values, and values that are one word.

use super::{JsonRepair, LenientJsonParser, PayloadError, is_space};
use crate::json::JsonValue;

/// Longest comment.
const MAX_COMMENT_BYTES: usize = 4096;

impl LenientJsonParser<'_> {
    /// Steps over space, comments and line breaks written as `\n`.
    pub(crate) fn skip_trivia(&mut self) {
        loop {
            let space = self.cursor.take_while(is_space);
            if space.chars().any(|c| !c.is_ascii_whitespace()) {
                self.record_repair(JsonRepair::Separator);
            }
            let Some(next) = self.cursor.peek() else {
                return;
            };
            if !self.comment(next) {
                return;
            }
        }
    }

    fn comment(&mut self, next: char) -> bool {
        match next {
            '#' => self.line(),
            '/' if self.cursor.starts_with("//") => self.line(),
            '/' if self.cursor.starts_with("/*") => {
                match self.cursor.find_within("*/", MAX_COMMENT_BYTES) {
                    Some(end) => self.cursor.seek(end + 2),
                    None => return false,
                }
            }
            '\\' if self.cursor.starts_with("\\n") || self.cursor.starts_with("\\t") => {
                self.cursor.seek(self.cursor.position() + 2);
                self.record_repair(JsonRepair::EscapeSequence);
                return true;
            }
            _ => return false,
        }
        self.record_repair(JsonRepair::Comment);
        true
    }

    fn line(&mut self) {
        self.cursor.take_while(|c| c != '\n');
    }

    /// A key: quoted, or a bare word up to the colon.
    pub(super) fn key(&mut self) -> Result<String, PayloadError> {
        let next = self.cursor.peek().ok_or(PayloadError::UnexpectedEnd)?;
        if super::string::closing_quote(next).is_some() {
            return self.parse_string(true);
        }
        let word = self.cursor.take_while(|c| {
            !matches!(
                c,
                ':' | '：' | '=' | ',' | '{' | '}' | '[' | ']' | '<' | '\n'
            )
        });
        if self.cursor.peek().is_none() {
            return Err(PayloadError::UnexpectedEnd);
        }
        self.record_repair(JsonRepair::Quote);
        let word = word.trim().trim_end_matches(['"', '\'']);
        if word.is_empty() {
            Err(PayloadError::Malformed)
        } else {
            Ok(word.to_owned())
        }
    }

    /// A number, a literal, or text that lost its quotes.
    pub(super) fn word(&mut self) -> Result<JsonValue, PayloadError> {
        let word = self
            .cursor
            .take_while(|c| c.is_alphanumeric() || matches!(c, '+' | '-' | '.' | '_' | '$'));
        // Digits at the end of what is open may be the first of more.
        let ended = self.cursor.peek().is_some() || self.open_containers.is_empty();
        if self.at_word_end() {
            if let Some(value) = self.literal(word) {
                return Ok(value);
            }
            if ended && let Some(value) = self.number(word) {
                return Ok(value);
            }
        }
        if !ended {
            return Err(PayloadError::UnexpectedEnd);
        }
        self.parse_unquoted(word)
    }

    fn at_word_end(&self) -> bool {
        let mut ahead = self.cursor;
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
                    || self.is_at_stop_marker()
            }
        }
    }

    fn literal(&mut self, word: &str) -> Option<JsonValue> {
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
        self.record_repair(JsonRepair::Literal);
        Some(value)
    }

    fn number(&mut self, word: &str) -> Option<JsonValue> {
        if is_number(word) {
            return Some(JsonValue::Number(word.to_owned()));
        }
        let digits = repair_number(word)?;
        self.record_repair(JsonRepair::Number);
        Some(JsonValue::Number(digits))
    }

    /// Text without quotes: up to what can follow a value.
    fn parse_unquoted(&mut self, start: &str) -> Result<JsonValue, PayloadError> {
        let from = self.cursor.position() - start.len();
        self.cursor
            .take_while(|c| !matches!(c, ',' | '}' | ']' | '\n' | '{' | '[' | '<' | '，'));
        let end = self.cursor.position();
        if self.cursor.peek().is_none() && !self.open_containers.is_empty() {
            return Err(PayloadError::UnexpectedEnd);
        }
        let text = self.cursor.slice(from, end).trim();
        let text = text.trim_end_matches(['"', '\'']);
        if text.is_empty() || self.open_containers.is_empty() {
            return Err(PayloadError::Malformed);
        }
        self.record_repair(JsonRepair::Quote);
        Ok(JsonValue::String(text.to_owned()))
    }
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
