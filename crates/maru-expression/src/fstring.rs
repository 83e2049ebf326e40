//! Parser of f-strings.

use super::{
    ast::{ExpressionNode, FStringPart, ReplacementField},
    error::{Result, syntax_error},
    lexer::{ExpressionTokenKind, FStringToken},
    literal::unescape,
    parse_expression::parse_expression,
    token_cursor::TokenCursor,
};

/// Parses an f-string at nesting depth `depth`.
pub(super) fn parse_fstring_parts(
    template: FStringToken<'_>,
    depth: u32,
) -> Result<Vec<FStringPart>> {
    let mut reader = FStringParser {
        body: template.body,
        base: template.at,
        raw: template.is_raw,
        at: 0,
        depth,
    };
    reader.parse_parts(false)
}

struct FStringParser<'s> {
    body: &'s str,
    base: u32,
    raw: bool,
    at: usize,
    depth: u32,
}

/// The extent of an expression in braces, with its conversion and format.
struct ReplacementExtent {
    end: usize,
    shows_source: bool,
}

impl<'s> FStringParser<'s> {
    fn rest(&self) -> &'s str {
        &self.body[self.at..]
    }

    fn source_offset(&self) -> u32 {
        self.base + self.at as u32
    }

    /// Parses up to the end, or up to the `}` that closes a format specification.
    fn parse_parts(&mut self, in_format: bool) -> Result<Vec<FStringPart>> {
        let mut found = Vec::new();
        while !self.rest().is_empty() {
            if in_format && self.rest().starts_with('}') {
                break;
            }
            if self.rest().starts_with('{') && (in_format || !self.rest().starts_with("{{")) {
                self.parse_replacement_field(in_format, &mut found)?;
            } else {
                found.push(FStringPart::Text(self.parse_text(in_format)?));
            }
        }
        Ok(found)
    }

    fn parse_text(&mut self, in_format: bool) -> Result<String> {
        let at = self.source_offset();
        let rest = self.rest();
        if !in_format && (rest.starts_with("{{") || rest.starts_with("}}")) {
            self.at += 2;
            return Ok(rest[..1].to_owned());
        }
        if rest.starts_with('}') {
            return Err(syntax_error("f-string: single '}' is not allowed").at(at));
        }
        let length = rest.find(['{', '}']).unwrap_or(rest.len());
        self.at += length;
        if self.raw {
            Ok(rest[..length].to_owned())
        } else {
            unescape(&rest[..length]).map_err(|it| it.at(at))
        }
    }

    fn parse_replacement_field(
        &mut self,
        in_format: bool,
        found: &mut Vec<FStringPart>,
    ) -> Result<()> {
        self.at += 1;
        let opened = self.source_offset();
        let extent = find_extent(self.rest()).map_err(|it| it.at(opened))?;
        let source = &self.rest()[..extent.end];
        let value = self.parse_expression(source)?;
        self.at += extent.end;
        if extent.shows_source {
            let length = self.rest().len() - self.rest()[1..].trim_start().len();
            let text = format!("{source}{}", &self.rest()[..length]);
            self.at += length;
            found.push(FStringPart::Text(text));
        }
        let conversion = self.parse_conversion()?;
        let has_spec = self.rest().starts_with(':');
        let spec = self.parse_format_spec(in_format)?;
        if !self.rest().starts_with('}') {
            return Err(syntax_error("f-string: expecting '}'").at(self.source_offset()));
        }
        self.at += 1;
        let by_repr = extent.shows_source && conversion.is_none() && !has_spec;
        found.push(FStringPart::Field(Box::new(ReplacementField {
            value,
            conversion: conversion.or(by_repr.then_some('r')),
            spec,
        })));
        Ok(())
    }

    fn parse_expression(&self, source: &'s str) -> Result<ExpressionNode> {
        let at = self.source_offset();
        if source.trim().is_empty() {
            return Err(syntax_error("f-string: empty expression not allowed").at(at));
        }
        if source.contains('\\') {
            return Err(syntax_error("f-string expression part cannot include a backslash").at(at));
        }
        let mut tokens = TokenCursor::new(source, at, self.depth)?;
        let node = tokens.parse_nested(parse_expression)?;
        match tokens.peek().kind {
            ExpressionTokenKind::End => Ok(node),
            _ => Err(tokens.unexpected_token_error("expected '}'")),
        }
    }

    fn parse_conversion(&mut self) -> Result<Option<char>> {
        if !self.rest().starts_with('!') {
            return Ok(None);
        }
        let found = self.rest()[1..].chars().next();
        match found {
            Some('r' | 's' | 'a') => {
                self.at += 2;
                Ok(found)
            }
            _ => {
                Err(syntax_error("f-string: expected '!r', '!s' or '!a'").at(self.source_offset()))
            }
        }
    }

    fn parse_format_spec(&mut self, in_format: bool) -> Result<Vec<FStringPart>> {
        if !self.rest().starts_with(':') {
            return Ok(Vec::new());
        }
        if in_format {
            return Err(
                syntax_error("f-string: expressions nested too deeply").at(self.source_offset())
            );
        }
        self.at += 1;
        self.parse_parts(true)
    }
}

/// Finds the end of the expression that `rest` starts with.
fn find_extent(rest: &str) -> Result<ReplacementExtent> {
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
                return Ok(ReplacementExtent {
                    end: at,
                    shows_source: false,
                });
            }
            '!' if brackets == 0 && !rest[at..].starts_with("!=") => {
                return Ok(ReplacementExtent {
                    end: at,
                    shows_source: false,
                });
            }
            '=' if brackets == 0 && shows_source(rest, at) => {
                return Ok(ReplacementExtent {
                    end: at,
                    shows_source: true,
                });
            }
            '#' => return Err(syntax_error("f-string expression part cannot include '#'")),
            _ => (),
        }
    }
    Err(syntax_error("f-string: expecting '}'"))
}

/// Whether the `=` at `at` is that of `{value=}`.
fn shows_source(rest: &str, at: usize) -> bool {
    let before = rest[..at].ends_with(['=', '!', '<', '>', ':']);
    let after = rest[at + 1..].trim_start();
    !before && after.starts_with(['}', '!', ':']) && !after.starts_with("!=")
}
