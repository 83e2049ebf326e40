//! Source text → tokens.

use super::{
    fault::{Result, syntax},
    literal::{self, Literal},
};

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token<'s> {
    /// Byte offset in the whole source.
    pub(super) at: u32,
    pub(super) sort: Sort<'s>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Sort<'s> {
    Name(&'s str),
    Literal(Literal),
    /// An f-string, still to be taken apart.
    Template(Template<'s>),
    Operator(&'static str),
    /// The end of a statement.
    Newline,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Template<'s> {
    pub(super) body: &'s str,
    /// Where `body` begins in the whole source.
    pub(super) at: u32,
    pub(super) raw: bool,
}

/// Longer ones first.
const OPERATORS: [&str; 46] = [
    "**=", "//=", "<<=", ">>=", "...", "**", "//", "<<", ">>", "<=", ">=", "==", "!=", "->", ":=",
    "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "@=", "+", "-", "*", "/", "%", "@", "&", "|",
    "^", "~", "<", ">", "(", ")", "[", "]", "{", "}", ",", ":", ".", "=",
];

/// All tokens of `source`, which begins at `base` of the whole.
pub(super) fn tokens(source: &str, base: u32) -> Result<Vec<Token<'_>>> {
    let mut lexer = Lexer {
        source,
        base,
        at: 0,
        brackets: 0,
    };
    let mut found = Vec::new();
    loop {
        let token = lexer.next()?;
        let end = token.sort == Sort::End;
        found.push(token);
        if end {
            return Ok(found);
        }
    }
}

struct Lexer<'s> {
    source: &'s str,
    base: u32,
    at: usize,
    brackets: u32,
}

impl<'s> Lexer<'s> {
    fn next(&mut self) -> Result<Token<'s>> {
        self.skip_blank();
        let at = self.base + self.at as u32;
        let sort = self.sort().map_err(|it| it.at(at))?;
        Ok(Token { at, sort })
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

    fn sort(&mut self) -> Result<Sort<'s>> {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else {
            return Ok(Sort::End);
        };
        if first == '\n' || first == ';' {
            self.at += 1;
            return Ok(Sort::Newline);
        }
        let dot_digit = first == '.' && rest[1..].starts_with(|c: char| c.is_ascii_digit());
        if first.is_ascii_digit() || dot_digit {
            return self.number();
        }
        if let Some(opening) = literal::opening(rest) {
            return self.quoted(opening);
        }
        if is_name_start(first) {
            let end = rest.find(|c| !is_name_part(c)).unwrap_or(rest.len());
            self.at += end;
            return Ok(Sort::Name(&rest[..end]));
        }
        self.operator(first)
    }

    fn number(&mut self) -> Result<Sort<'s>> {
        let (literal, length) = literal::number(self.rest())?;
        self.at += length;
        if self.rest().starts_with(is_name_start) {
            return Err(syntax("invalid decimal literal"));
        }
        Ok(Sort::Literal(literal))
    }

    fn quoted(&mut self, opening: literal::Opening) -> Result<Sort<'s>> {
        let start = self.at + opening.length;
        let length = literal::closing(&self.source[start..], opening.quote)?;
        let body = &self.source[start..start + length];
        self.at = start + length + opening.quote.len();
        if opening.template {
            return Ok(Sort::Template(Template {
                body,
                at: self.base + start as u32,
                raw: opening.raw,
            }));
        }
        let text = match opening.raw {
            true => body.to_owned(),
            false => literal::unescape(body)?,
        };
        Ok(Sort::Literal(Literal::Text(text)))
    }

    fn operator(&mut self, first: char) -> Result<Sort<'s>> {
        let rest = self.rest();
        let Some(found) = OPERATORS.iter().find(|it| rest.starts_with(**it)) else {
            return Err(unexpected(first));
        };
        match *found {
            "(" | "[" | "{" => self.brackets += 1,
            ")" | "]" | "}" => self.brackets = self.brackets.saturating_sub(1),
            _ => (),
        }
        self.at += found.len();
        Ok(Sort::Operator(found))
    }
}

fn unexpected(found: char) -> super::fault::Trouble {
    match found {
        '!' | '?' | '$' | '`' => syntax(format!("invalid syntax: '{found}'")),
        '\\' => syntax("unexpected character after line continuation character"),
        _ if found.is_alphabetic() => syntax(format!(
            "'{found}' (U+{:04X}) cannot be in a name; names are of ASCII letters, Hangul, kana or Chinese characters",
            found as u32
        )),
        _ => syntax(format!("invalid character U+{:04X}", found as u32)),
    }
}

/// Letters that no normalisation turns into others, so that what is read is
/// what is seen.
pub(super) fn is_name_start(c: char) -> bool {
    c.is_ascii_alphabetic()
        || c == '_'
        || matches!(c, '가'..='힣' | '一'..='鿿' | 'ぁ'..='ゖ' | 'ァ'..='ヺ')
}

pub(super) fn is_name_part(c: char) -> bool {
    is_name_start(c) || c.is_ascii_digit()
}
