//! The lexer: splits source text into tokens.

use super::{
    error::{Result, syntax_error},
    literal::{self, Literal},
};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ExpressionToken<'s> {
    /// Byte offset in the whole source.
    pub(super) at: u32,
    pub(super) kind: ExpressionTokenKind<'s>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ExpressionTokenKind<'s> {
    Name(&'s str),
    Literal(Literal),
    /// An f-string that is not parsed yet.
    FString(FStringToken<'s>),
    Operator(&'static str),
    /// The end of a statement.
    Newline,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct FStringToken<'s> {
    pub(super) body: &'s str,
    /// The offset of `body` in the whole source.
    pub(super) at: u32,
    pub(super) is_raw: bool,
}

/// Operators, longer ones first.
const OPERATORS: [&str; 46] = [
    "**=", "//=", "<<=", ">>=", "...", "**", "//", "<<", ">>", "<=", ">=", "==", "!=", "->", ":=",
    "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "@=", "+", "-", "*", "/", "%", "@", "&", "|",
    "^", "~", "<", ">", "(", ")", "[", "]", "{", "}", ",", ":", ".", "=",
];

/// Splits `source`, which starts at offset `base` of the whole source, into tokens.
pub(super) fn tokenize(source: &str, base: u32) -> Result<Vec<ExpressionToken<'_>>> {
    let mut lexer = ExpressionLexer {
        source,
        base,
        at: 0,
        brackets: 0,
    };
    let mut found = Vec::new();
    loop {
        let token = lexer.next_token()?;
        let end = token.kind == ExpressionTokenKind::End;
        found.push(token);
        if end {
            return Ok(found);
        }
    }
}

struct ExpressionLexer<'s> {
    source: &'s str,
    base: u32,
    at: usize,
    brackets: u32,
}

impl<'s> ExpressionLexer<'s> {
    fn next_token(&mut self) -> Result<ExpressionToken<'s>> {
        self.skip_blank();
        let at = self.base + self.at as u32;
        let sort = self.lex_token().map_err(|it| it.at(at))?;
        Ok(ExpressionToken { at, kind: sort })
    }

    fn rest(&self) -> &'s str {
        &self.source[self.at..]
    }

    fn skip_blank(&mut self) {
        loop {
            let rest = self.rest();
            let blank = match rest.bytes().next() {
                Some(b' ' | b'\t' | b'\r') => 1,
                Some(b'\n') if self.brackets > 0 => 1,
                Some(b'\\') if rest.starts_with("\\\n") => 2,
                Some(b'\\') if rest.starts_with("\\\r\n") => 3,
                Some(b'#') => rest.find('\n').unwrap_or(rest.len()),
                _ => return,
            };
            self.at += blank;
        }
    }

    fn lex_token(&mut self) -> Result<ExpressionTokenKind<'s>> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else {
            return Ok(ExpressionTokenKind::End);
        };
        if first == '\n' || first == ';' {
            self.at += 1;
            return Ok(ExpressionTokenKind::Newline);
        }
        let dot_digit = first == '.' && rest[1..].starts_with(|c: char| c.is_ascii_digit());
        if first.is_ascii_digit() || dot_digit {
            return self.lex_number();
        }
        if let Some(opening) = literal::parse_string_opening(rest) {
            return self.lex_string(opening);
        }
        if is_name_start(first) {
            let end = rest.find(|c| !is_name_part(c)).unwrap_or(rest.len());
            self.at += end;
            return Ok(ExpressionTokenKind::Name(&rest[..end]));
        }
        self.lex_operator(first)
    }

    fn lex_number(&mut self) -> Result<ExpressionTokenKind<'s>> {
        let (literal, length) = literal::parse_number(self.rest())?;
        self.at += length;
        if self.rest().starts_with(is_name_start) {
            return Err(syntax_error("invalid decimal literal"));
        }
        Ok(ExpressionTokenKind::Literal(literal))
    }

    fn lex_string(&mut self, opening: literal::StringOpening) -> Result<ExpressionTokenKind<'s>> {
        let start = self.at + opening.length;
        let length = literal::find_closing_quote(&self.source[start..], opening.quote)?;
        let body = &self.source[start..start + length];
        self.at = start + length + opening.quote.len();
        if opening.is_fstring {
            return Ok(ExpressionTokenKind::FString(FStringToken {
                body,
                at: self.base + start as u32,
                is_raw: opening.is_raw,
            }));
        }
        let text = if opening.is_raw {
            body.to_owned()
        } else {
            literal::unescape(body)?
        };
        Ok(ExpressionTokenKind::Literal(Literal::Text(text)))
    }

    fn lex_operator(&mut self, first: char) -> Result<ExpressionTokenKind<'s>> {
        let rest = self.rest();
        let Some(found) = OPERATORS.iter().find(|it| rest.starts_with(**it)) else {
            return Err(unexpected_character_error(first));
        };
        match *found {
            "(" | "[" | "{" => self.brackets += 1,
            ")" | "]" | "}" => self.brackets = self.brackets.saturating_sub(1),
            _ => (),
        }
        self.at += found.len();
        Ok(ExpressionTokenKind::Operator(found))
    }
}

fn unexpected_character_error(found: char) -> super::error::UnlocatedError {
    match found {
        '!' | '?' | '$' | '`' => syntax_error(format!("invalid syntax: '{found}'")),
        '\\' => syntax_error("unexpected character after line continuation character"),
        _ if found.is_alphabetic() => syntax_error(format!(
            "'{found}' (U+{:04X}) cannot be in a name; names are of ASCII letters, Hangul, kana or Chinese characters",
            found as u32
        )),
        _ => syntax_error(format!("invalid character U+{:04X}", found as u32)),
    }
}

/// Whether `c` may start a name. Letters that Unicode normalisation would change are not
/// allowed, so that a name is what it looks like.
pub(super) fn is_name_start(c: char) -> bool {
    c.is_ascii_alphabetic()
        || c == '_'
        || matches!(c, '가'..='힣' | '一'..='鿿' | 'ぁ'..='ゖ' | 'ァ'..='ヺ')
}

pub(super) fn is_name_part(c: char) -> bool {
    is_name_start(c) || c.is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use crate::testing::check_texts;

    #[test]
    fn numbers_and_strings_are_read_as_in_python() {
        check_texts(&[
            ("1_000 + 23", "1023"),
            ("1_000 + 1e3", "2000.0"),
            (".5 + 5.", "5.5"),
            ("'\\x41\\u00e9'", "Aé"),
            ("r'\\n' + \"it's\"", "\\nit's"),
            ("'a' 'b' \"c\"", "abc"),
            ("1 + 1  # a comment", "2"),
        ]);
    }
}
