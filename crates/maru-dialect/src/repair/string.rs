//! Strings, whatever their quotes.

use super::{JsonRepair, LenientJsonParser, OpenContainer, PayloadError};
use crate::{cursor::TextCursor, json::JsonValue};

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

impl LenientJsonParser<'_> {
    /// A string value; several joined by `+` or standing side by side are one.
    pub(super) fn parse_joined_strings(&mut self) -> Result<JsonValue, PayloadError> {
        let mut text = self.parse_string(false)?;
        loop {
            let mut ahead = self.cursor;
            ahead.skip_space();
            if !ahead.eat("+") {
                return Ok(JsonValue::String(text));
            }
            ahead.skip_space();
            if ahead.peek().and_then(closing_quote).is_none() {
                return Ok(JsonValue::String(text));
            }
            self.cursor = ahead;
            self.record_repair(JsonRepair::JoinedStrings);
            text.push_str(&self.parse_string(false)?);
        }
    }

    /// One quoted string; `key` says that a colon follows it.
    pub(super) fn parse_string(&mut self, key: bool) -> Result<String, PayloadError> {
        for triple in ["\"\"\"", "'''"] {
            if self.cursor.starts_with(triple) && !key && !self.strict {
                return self.triple(triple);
            }
        }
        let open = self.cursor.bump().ok_or(PayloadError::UnexpectedEnd)?;
        let close = closing_quote(open).unwrap_or(open);
        if open != '"' {
            self.record_repair(JsonRepair::Quote);
            if self.strict {
                return Err(PayloadError::Malformed);
            }
        }
        let mut text = String::new();
        loop {
            self.plain_run(&mut text);
            let c = self.cursor.bump().ok_or(PayloadError::UnexpectedEnd)?;
            if c == '\\' {
                self.escape(&mut text)?;
            } else if c == close || (c == '"' && matches!(close, '”' | '＂')) {
                if self.is_closing_quote(close, key) {
                    return Ok(text);
                }
                let lost = if key {
                    self.recover_missing_key_quote(&mut text)
                } else {
                    self.recover_missing_quote(c, &mut text)
                };
                if lost {
                    return Ok(text);
                }
                self.record_repair(JsonRepair::Quote);
                text.push(c);
            } else {
                if c < ' ' {
                    self.record_repair(JsonRepair::ControlCharacter);
                    if self.strict {
                        return Err(PayloadError::Malformed);
                    }
                }
                text.push(c);
            }
        }
    }

    /// Copies what is certainly text.
    fn plain_run(&mut self, text: &mut String) {
        let run = self.cursor.take_while(|c| {
            c >= ' ' && !matches!(c, '\\' | '"' | '\'' | '`' | '”' | '’' | '＂' | '」')
        });
        text.push_str(run);
    }

    fn triple(&mut self, quote: &str) -> Result<String, PayloadError> {
        self.record_repair(JsonRepair::Quote);
        self.cursor.eat(quote);
        let start = self.cursor.position();
        let end = self.cursor.find(quote).ok_or(PayloadError::UnexpectedEnd)?;
        self.cursor.seek(end + quote.len());
        Ok(self.cursor.slice(start, end).to_owned())
    }

    /// Whether the quote just read ends the string, by what follows it.
    fn is_closing_quote(&self, close: char, key: bool) -> bool {
        if self.strict {
            return true;
        }
        let mut ahead = self.cursor;
        ahead.skip_space();
        let Some(next) = ahead.peek() else {
            return true;
        };
        if key {
            return matches!(next, ':' | '=' | '：');
        }
        match next {
            '}' | ']' | ')' | '｝' | '］' | ';' => true,
            ',' | '，' => self.comma_ends_string(ahead.advanced_by(next.len_utf8())),
            ':' => self.is_in_list() && self.is_in_object(),
            '+' => {
                let mut after = ahead.advanced_by(1);
                after.skip_space();
                after.peek().and_then(closing_quote).is_some()
            }
            '/' => ahead.starts_with("//") || ahead.starts_with("/*"),
            '#' => ahead.position() > self.cursor.position(),
            '\\' => ahead.starts_with("\\n"),
            '.' => ahead.starts_with("..."),
            _ if closing_quote(next).is_some() && !ahead.starts_with("```") => {
                self.is_in_list() || is_key_next(ahead.advanced_by(next.len_utf8()), Some(close))
            }
            _ => {
                let line = self
                    .cursor
                    .slice(self.cursor.position(), ahead.position())
                    .contains('\n');
                let stop = Self::new(ahead, self.stop_markers);
                stop.is_at_stop_marker() || (line && !self.is_in_list() && is_key_next(ahead, None))
            }
        }
    }

    fn is_in_list(&self) -> bool {
        matches!(
            self.open_containers.last(),
            Some(OpenContainer::Array | OpenContainer::Call)
        )
    }

    /// Whether a comma after a quote separates values, rather than words.
    fn comma_ends_string(&self, after: TextCursor<'_>) -> bool {
        let mut ahead = after;
        ahead.skip_space();
        let Some(next) = ahead.peek() else {
            return true;
        };
        match next {
            '}' | ']' | ')' | '/' | '#' | ',' | '\\' | '.' | '，' | '…' => true,
            _ if self.open_containers.is_empty() => true,
            _ if self.is_in_list() => {
                closing_quote(next).is_some()
                    || matches!(next, '{' | '[' | '(' | '-' | '0'..='9')
                    || ["true", "false", "null", "True", "False", "None"]
                        .iter()
                        .any(|word| ahead.starts_with(word))
                    || (self.open_containers.last() == Some(&OpenContainer::Call)
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
    fn recover_missing_quote(&mut self, quote: char, text: &mut String) -> bool {
        let kept = text.trim_end();
        let Some(value) = kept.strip_suffix(',') else {
            return false;
        };
        if self.is_in_list() || !is_key_next(self.cursor, Some(quote)) {
            return false;
        }
        text.truncate(value.trim_end().len());
        self.record_repair(JsonRepair::Quote);
        self.cursor.seek(self.cursor.position() - quote.len_utf8());
        true
    }

    /// A key whose closing quote was forgotten: the quote just read opens its
    /// value. Ends the key before the colon between them.
    fn recover_missing_key_quote(&mut self, text: &mut String) -> bool {
        let Some(key) = text.trim_end().strip_suffix(':') else {
            return false;
        };
        let back = text.len() - key.len() + 1;
        text.truncate(key.len());
        self.record_repair(JsonRepair::Quote);
        self.cursor.seek(self.cursor.position() - back);
        true
    }

    fn escape(&mut self, text: &mut String) -> Result<(), PayloadError> {
        let c = self.cursor.bump().ok_or(PayloadError::UnexpectedEnd)?;
        match c {
            '"' | '\\' | '/' => text.push(c),
            'n' => text.push('\n'),
            't' => text.push('\t'),
            'r' => text.push('\r'),
            'b' => text.push('\u{8}'),
            'f' => text.push('\u{c}'),
            'u' => self.unicode(text),
            'x' => self.hex(text),
            '\'' | '`' => {
                self.record_repair(JsonRepair::EscapeSequence);
                text.push(c);
            }
            // A line continued: the break is not part of the text.
            '\n' => self.record_repair(JsonRepair::EscapeSequence),
            // `\d` and its like: the writer wanted the backslash.
            _ => {
                self.record_repair(JsonRepair::EscapeSequence);
                text.push('\\');
                text.push(c);
            }
        }
        Ok(())
    }

    fn unicode(&mut self, text: &mut String) {
        let Some(first) = hex_digits(&mut self.cursor, 4) else {
            self.record_repair(JsonRepair::EscapeSequence);
            text.push_str("\\u");
            return;
        };
        let mut ahead = self.cursor;
        if (0xd800..0xdc00).contains(&first)
            && ahead.eat("\\u")
            && let Some(second @ 0xdc00..0xe000) = hex_digits(&mut ahead, 4)
        {
            self.cursor = ahead;
            let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
            text.extend(char::from_u32(code));
            return;
        }
        if char::from_u32(first).is_none() {
            self.record_repair(JsonRepair::EscapeSequence);
        }
        text.push(char::from_u32(first).unwrap_or('\u{fffd}'));
    }

    fn hex(&mut self, text: &mut String) {
        self.record_repair(JsonRepair::EscapeSequence);
        match hex_digits(&mut self.cursor, 2).and_then(char::from_u32) {
            Some(c) => text.push(c),
            None => text.push_str("\\x"),
        }
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
            Some('\n' | '{' | '}' | ',') => return false,
            Some(_) => (),
        }
    }
    false
}
