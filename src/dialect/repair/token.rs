//! What stands between values, and values that are one word.

use super::{Flaw, Parser, Repair, is_space};
use crate::dialect::json::Json;

/// Longest comment.
const MAX_COMMENT: usize = 4096;

impl Parser<'_> {
    /// Steps over space, comments and line breaks written as `\n`.
    pub(in crate::dialect) fn skip(&mut self) {
        loop {
            let space = self.cursor.take_while(is_space);
            if space.chars().any(|c| !c.is_ascii_whitespace()) {
                self.note(Repair::Separator);
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
            '/' if self.cursor.starts("//") => self.line(),
            '/' if self.cursor.starts("/*") => match self.cursor.find_within("*/", MAX_COMMENT) {
                Some(end) => self.cursor.jump(end + 2),
                None => return false,
            },
            '\\' if self.cursor.starts("\\n") || self.cursor.starts("\\t") => {
                self.cursor.jump(self.cursor.at() + 2);
                self.note(Repair::Escape);
                return true;
            }
            _ => return false,
        }
        self.note(Repair::Comment);
        true
    }

    fn line(&mut self) {
        self.cursor.take_while(|c| c != '\n');
    }

    /// A key: quoted, or a bare word up to the colon.
    pub(super) fn key(&mut self) -> Result<String, Flaw> {
        let next = self.cursor.peek().ok_or(Flaw::Cut)?;
        if super::string::closing(next).is_some() {
            return self.string(true);
        }
        let word = self.cursor.take_while(|c| {
            !matches!(
                c,
                ':' | '：' | '=' | ',' | '{' | '}' | '[' | ']' | '<' | '\n'
            )
        });
        if self.cursor.peek().is_none() {
            return Err(Flaw::Cut);
        }
        self.note(Repair::Quote);
        let word = word.trim().trim_end_matches(['"', '\'']);
        match word.is_empty() {
            true => Err(Flaw::Wrong),
            false => Ok(word.to_owned()),
        }
    }

    /// A number, a literal, or text that lost its quotes.
    pub(super) fn word(&mut self) -> Result<Json, Flaw> {
        let word = self
            .cursor
            .take_while(|c| c.is_alphanumeric() || matches!(c, '+' | '-' | '.' | '_' | '$'));
        // Digits at the end of what is open may be the first of more.
        let ended = self.cursor.peek().is_some() || self.open.is_empty();
        if self.at_word_end() {
            if let Some(value) = self.literal(word) {
                return Ok(value);
            }
            if ended && let Some(value) = self.number(word) {
                return Ok(value);
            }
        }
        if !ended {
            return Err(Flaw::Cut);
        }
        self.bare(word)
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
                ) || ahead.starts("//")
                    || ahead.starts("/*")
                    || self.at_stop()
            }
        }
    }

    fn literal(&mut self, word: &str) -> Option<Json> {
        let value = match word {
            "true" => return Some(Json::Bool(true)),
            "false" => return Some(Json::Bool(false)),
            "null" => return Some(Json::Null),
            "True" | "TRUE" => Json::Bool(true),
            "False" | "FALSE" => Json::Bool(false),
            "None" | "NULL" | "Null" | "nil" | "undefined" | "NaN" | "nan" | "Infinity"
            | "-Infinity" => Json::Null,
            _ => return None,
        };
        self.note(Repair::Literal);
        Some(value)
    }

    fn number(&mut self, word: &str) -> Option<Json> {
        if is_number(word) {
            return Some(Json::Number(word.to_owned()));
        }
        let digits = mended_number(word)?;
        self.note(Repair::Number);
        Some(Json::Number(digits))
    }

    /// Text without quotes: up to what can follow a value.
    fn bare(&mut self, start: &str) -> Result<Json, Flaw> {
        let from = self.cursor.at() - start.len();
        self.cursor
            .take_while(|c| !matches!(c, ',' | '}' | ']' | '\n' | '{' | '[' | '<' | '，'));
        let end = self.cursor.at();
        if self.cursor.peek().is_none() && !self.open.is_empty() {
            return Err(Flaw::Cut);
        }
        let text = self.cursor.slice(from, end).trim();
        let text = text.trim_end_matches(['"', '\'']);
        if text.is_empty() || self.open.is_empty() {
            return Err(Flaw::Wrong);
        }
        self.note(Repair::Quote);
        Ok(Json::String(text.to_owned()))
    }
}

/// Whether `word` is a number of JSON.
pub(in crate::dialect) fn is_number(word: &str) -> bool {
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
pub(in crate::dialect) fn mended_number(word: &str) -> Option<String> {
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
    let plain = match trimmed.starts_with(|c: char| c.is_ascii_digit()) {
        true => trimmed.to_owned(),
        false => format!("0{trimmed}"),
    };
    let number = format!("{sign}{plain}");
    is_number(&number).then_some(number)
}
