//! Strings, whatever their quotes.

use super::{Flaw, Open, Parser, Repair};
use crate::dialect::{cursor::Cursor, json::Json};

/// How far ahead a doubtful quote is judged.
const LOOK_AHEAD: usize = 96;

/// What closes a string opened by `quote`.
pub(super) fn closing(quote: char) -> Option<char> {
    Some(match quote {
        '"' | '\'' | '`' | '＂' => quote,
        '“' | '”' | '„' => '”',
        '‘' | '’' => '’',
        '「' => '」',
        _ => return None,
    })
}

impl Parser<'_> {
    /// A string value; several joined by `+` or standing side by side are one.
    pub(super) fn strings(&mut self) -> Result<Json, Flaw> {
        let mut text = self.string(false)?;
        loop {
            let mut ahead = self.cursor;
            ahead.skip_space();
            if !ahead.eat("+") {
                return Ok(Json::String(text));
            }
            ahead.skip_space();
            if ahead.peek().and_then(closing).is_none() {
                return Ok(Json::String(text));
            }
            self.cursor = ahead;
            self.note(Repair::Joined);
            text.push_str(&self.string(false)?);
        }
    }

    /// One quoted string; `key` says that a colon follows it.
    pub(super) fn string(&mut self, key: bool) -> Result<String, Flaw> {
        for triple in ["\"\"\"", "'''"] {
            if self.cursor.starts(triple) && !key && !self.strict {
                return self.triple(triple);
            }
        }
        let open = self.cursor.bump().ok_or(Flaw::Cut)?;
        let close = closing(open).unwrap_or(open);
        if open != '"' {
            self.note(Repair::Quote);
            if self.strict {
                return Err(Flaw::Wrong);
            }
        }
        let mut text = String::new();
        loop {
            self.plain_run(&mut text);
            let c = self.cursor.bump().ok_or(Flaw::Cut)?;
            if c == '\\' {
                self.escape(&mut text)?;
            } else if c == close || (c == '"' && matches!(close, '”' | '＂')) {
                if self.closes(close, key) {
                    return Ok(text);
                }
                let lost = match key {
                    true => self.lost_key_quote(&mut text),
                    false => self.lost_quote(&mut text),
                };
                if lost {
                    return Ok(text);
                }
                self.note(Repair::Quote);
                text.push(c);
            } else {
                if c < ' ' {
                    self.note(Repair::Control);
                    if self.strict {
                        return Err(Flaw::Wrong);
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

    fn triple(&mut self, quote: &str) -> Result<String, Flaw> {
        self.note(Repair::Quote);
        self.cursor.eat(quote);
        let start = self.cursor.at();
        let end = self.cursor.find(quote).ok_or(Flaw::Cut)?;
        self.cursor.jump(end + quote.len());
        Ok(self.cursor.slice(start, end).to_owned())
    }

    /// Whether the quote just read ends the string, by what follows it.
    fn closes(&self, close: char, key: bool) -> bool {
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
            ',' | '，' => self.comma_ends(ahead.moved(next.len_utf8())),
            ':' => self.is_array() && self.is_in_object(),
            '+' => {
                let mut after = ahead.moved(1);
                after.skip_space();
                after.peek().and_then(closing).is_some()
            }
            '/' => ahead.starts("//") || ahead.starts("/*"),
            '#' => ahead.at() > self.cursor.at(),
            '\\' => ahead.starts("\\n"),
            '.' => ahead.starts("..."),
            _ if closing(next).is_some() && !ahead.starts("```") => {
                self.is_array() || key_ahead(ahead.moved(next.len_utf8()), Some(close))
            }
            _ => {
                let line = self
                    .cursor
                    .slice(self.cursor.at(), ahead.at())
                    .contains('\n');
                let stop = Self::new(ahead, self.stops);
                stop.at_stop() || (line && !self.is_array() && key_ahead(ahead, None))
            }
        }
    }

    fn is_array(&self) -> bool {
        matches!(self.open.last(), Some(Open::Array | Open::Call))
    }

    /// Whether a comma after a quote separates values, rather than words.
    fn comma_ends(&self, after: Cursor<'_>) -> bool {
        let mut ahead = after;
        ahead.skip_space();
        let Some(next) = ahead.peek() else {
            return true;
        };
        match next {
            '}' | ']' | ')' | '/' | '#' | ',' | '\\' | '.' | '，' | '…' => true,
            _ if self.open.is_empty() => true,
            _ if self.is_array() => {
                closing(next).is_some()
                    || matches!(next, '{' | '[' | '(' | '-' | '0'..='9')
                    || ["true", "false", "null", "True", "False", "None"]
                        .iter()
                        .any(|word| ahead.starts(word))
                    || (self.open.last() == Some(&Open::Call) && key_ahead(ahead, None))
            }
            _ if closing(next).is_some() => key_ahead(ahead.moved(next.len_utf8()), closing(next)),
            _ => key_ahead(ahead, None),
        }
    }

    /// A string whose closing quote was forgotten: the quote just read opens
    /// the next key. Ends the string before the comma between them.
    fn lost_quote(&mut self, text: &mut String) -> bool {
        let kept = text.trim_end();
        let Some(value) = kept.strip_suffix(',') else {
            return false;
        };
        if self.is_array() || !key_ahead(self.cursor, Some('"')) {
            return false;
        }
        text.truncate(value.trim_end().len());
        self.note(Repair::Quote);
        self.cursor.jump(self.cursor.at() - 1);
        true
    }

    /// A key whose closing quote was forgotten: the quote just read opens its
    /// value. Ends the key before the colon between them.
    fn lost_key_quote(&mut self, text: &mut String) -> bool {
        let Some(key) = text.trim_end().strip_suffix(':') else {
            return false;
        };
        let back = text.len() - key.len() + 1;
        text.truncate(key.len());
        self.note(Repair::Quote);
        self.cursor.jump(self.cursor.at() - back);
        true
    }

    fn escape(&mut self, text: &mut String) -> Result<(), Flaw> {
        let c = self.cursor.bump().ok_or(Flaw::Cut)?;
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
                self.note(Repair::Escape);
                text.push(c);
            }
            // A line continued: the break is not part of the text.
            '\n' => self.note(Repair::Escape),
            // `\d` and its like: the writer wanted the backslash.
            _ => {
                self.note(Repair::Escape);
                text.push('\\');
                text.push(c);
            }
        }
        Ok(())
    }

    fn unicode(&mut self, text: &mut String) {
        let Some(first) = hex_digits(&mut self.cursor, 4) else {
            self.note(Repair::Escape);
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
            self.note(Repair::Escape);
        }
        text.push(char::from_u32(first).unwrap_or('\u{fffd}'));
    }

    fn hex(&mut self, text: &mut String) {
        self.note(Repair::Escape);
        match hex_digits(&mut self.cursor, 2).and_then(char::from_u32) {
            Some(c) => text.push(c),
            None => text.push_str("\\x"),
        }
    }
}

fn hex_digits(cursor: &mut Cursor<'_>, count: usize) -> Option<u32> {
    let mut ahead = *cursor;
    let mut value = 0;
    for _ in 0..count {
        value = value * 16 + ahead.bump()?.to_digit(16)?;
    }
    *cursor = ahead;
    Some(value)
}

/// Whether a key and its colon follow; `quote` closes the key, if it has one.
fn key_ahead(from: Cursor<'_>, quote: Option<char>) -> bool {
    let mut ahead = from;
    while ahead.at() - from.at() < LOOK_AHEAD {
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
