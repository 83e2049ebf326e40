//! f-strings, taken apart.

use super::{
    fault::{Result, syntax},
    literal::unescape,
    node::{Node, Piece, Shown},
    parser::Parser,
    token::{Sort, Template},
};

/// The pieces of an f-string that is `depth` deep in the source.
pub(super) fn pieces(template: Template<'_>, depth: u32) -> Result<Vec<Piece>> {
    let mut reader = Reader {
        body: template.body,
        base: template.at,
        raw: template.raw,
        at: 0,
        depth,
    };
    reader.pieces(false)
}

struct Reader<'s> {
    body: &'s str,
    base: u32,
    raw: bool,
    at: usize,
    depth: u32,
}

/// Where an expression in braces ends, and what of it is what.
struct Extent {
    end: usize,
    shows_source: bool,
}

impl<'s> Reader<'s> {
    fn rest(&self) -> &'s str {
        &self.body[self.at..]
    }

    fn here(&self) -> u32 {
        self.base + self.at as u32
    }

    /// Up to the end, or to the `}` that ends a format.
    fn pieces(&mut self, in_format: bool) -> Result<Vec<Piece>> {
        let mut found = Vec::new();
        while !self.rest().is_empty() {
            if in_format && self.rest().starts_with('}') {
                break;
            }
            if self.rest().starts_with('{') && (in_format || !self.rest().starts_with("{{")) {
                self.value(in_format, &mut found)?;
            } else {
                found.push(Piece::Text(self.text(in_format)?));
            }
        }
        Ok(found)
    }

    fn text(&mut self, in_format: bool) -> Result<String> {
        let at = self.here();
        let rest = self.rest();
        if !in_format && (rest.starts_with("{{") || rest.starts_with("}}")) {
            self.at += 2;
            return Ok(rest[..1].to_owned());
        }
        if rest.starts_with('}') {
            return Err(syntax("f-string: single '}' is not allowed").at(at));
        }
        let length = rest.find(['{', '}']).unwrap_or(rest.len());
        self.at += length;
        match self.raw {
            true => Ok(rest[..length].to_owned()),
            false => unescape(&rest[..length]).map_err(|it| it.at(at)),
        }
    }

    fn value(&mut self, in_format: bool, found: &mut Vec<Piece>) -> Result<()> {
        self.at += 1;
        let opened = self.here();
        let extent = extent(self.rest()).map_err(|it| it.at(opened))?;
        let source = &self.rest()[..extent.end];
        let value = self.expression(source)?;
        self.at += extent.end;
        if extent.shows_source {
            let length = self.rest().len() - self.rest()[1..].trim_start().len();
            let shown = format!("{source}{}", &self.rest()[..length]);
            self.at += length;
            found.push(Piece::Text(shown));
        }
        let conversion = self.conversion()?;
        let has_spec = self.rest().starts_with(':');
        let spec = self.spec(in_format)?;
        if !self.rest().starts_with('}') {
            return Err(syntax("f-string: expecting '}'").at(self.here()));
        }
        self.at += 1;
        let by_repr = extent.shows_source && conversion.is_none() && !has_spec;
        found.push(Piece::Value(Box::new(Shown {
            value,
            conversion: conversion.or(by_repr.then_some('r')),
            spec,
        })));
        Ok(())
    }

    fn expression(&self, source: &'s str) -> Result<Node> {
        let at = self.here();
        if source.trim().is_empty() {
            return Err(syntax("f-string: empty expression not allowed").at(at));
        }
        if source.contains('\\') {
            return Err(syntax("f-string expression part cannot include a backslash").at(at));
        }
        let mut parser = Parser::new(source, at, self.depth)?;
        let node = parser.down(Parser::expression)?;
        match parser.peek().sort {
            Sort::End => Ok(node),
            _ => Err(parser.unexpected("expected '}'")),
        }
    }

    fn conversion(&mut self) -> Result<Option<char>> {
        if !self.rest().starts_with('!') {
            return Ok(None);
        }
        let found = self.rest()[1..].chars().next();
        match found {
            Some('r' | 's' | 'a') => {
                self.at += 2;
                Ok(found)
            }
            _ => Err(syntax("f-string: expected '!r', '!s' or '!a'").at(self.here())),
        }
    }

    fn spec(&mut self, in_format: bool) -> Result<Vec<Piece>> {
        if !self.rest().starts_with(':') {
            return Ok(Vec::new());
        }
        if in_format {
            return Err(syntax("f-string: expressions nested too deeply").at(self.here()));
        }
        self.at += 1;
        self.pieces(true)
    }
}

/// Finds the end of the expression at the beginning of `rest`.
fn extent(rest: &str) -> Result<Extent> {
    let mut brackets = 0_u32;
    let mut quote: Option<char> = None;
    for (at, c) in rest.char_indices() {
        if let Some(open) = quote {
            quote = quote.filter(|_| c != open);
            continue;
        }
        match c {
            '\'' | '"' => quote = Some(c),
            '(' | '[' | '{' => brackets += 1,
            ')' | ']' | '}' if brackets > 0 => brackets -= 1,
            '}' | ':' if brackets == 0 => {
                return Ok(Extent {
                    end: at,
                    shows_source: false,
                });
            }
            '!' if brackets == 0 && !rest[at..].starts_with("!=") => {
                return Ok(Extent {
                    end: at,
                    shows_source: false,
                });
            }
            '=' if brackets == 0 && shows_source(rest, at) => {
                return Ok(Extent {
                    end: at,
                    shows_source: true,
                });
            }
            '#' => return Err(syntax("f-string expression part cannot include '#'")),
            _ => (),
        }
    }
    Err(syntax("f-string: expecting '}'"))
}

/// Whether the `=` at `at` is the one of `{value=}`.
fn shows_source(rest: &str, at: usize) -> bool {
    let before = rest[..at].ends_with(['=', '!', '<', '>', ':']);
    let after = rest[at + 1..].trim_start();
    !before && after.starts_with(['}', '!', ':']) && !after.starts_with("!=")
}
