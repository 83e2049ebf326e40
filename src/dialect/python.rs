//! Calls written as python.

use super::{
    cursor::Cursor,
    json::{Json, Object},
    repair::{Flaw, Open, Parser, Repair},
    shape::single,
    tools::Tool,
};

/// Most calls read from one place.
const MAX_CALLS: usize = 256;

/// One call as written.
pub(super) struct Written {
    pub(super) name: String,
    keywords: Object,
    positional: Vec<Json>,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Written {
    pub(super) fn new(name: &str, keywords: Object, positional: Vec<Json>) -> Self {
        Self {
            name: name.to_owned(),
            keywords,
            positional,
            start: 0,
            end: 0,
        }
    }

    /// The arguments, with those given by place under their names.
    pub(super) fn arguments(self, tool: &Tool) -> Option<Object> {
        let mut arguments = Object::new();
        match self.positional.as_slice() {
            [] => (),
            [Json::Object(members)] if self.keywords.is_empty() => return Some(members.clone()),
            [value] if self.keywords.is_empty() && single(value, tool).is_some() => {
                return single(value, tool);
            }
            values => {
                let names = tool.schema.properties.iter().map(|(name, _)| name.clone());
                arguments.extend(names.zip(values.iter().cloned()));
                if arguments.len() < values.len() {
                    return None;
                }
            }
        }
        arguments.extend(self.keywords);
        Some(arguments)
    }
}

/// Reads calls up to where something else follows: a list of calls, calls on
/// lines, each perhaps printed or assigned.
pub(super) fn calls(parser: &mut Parser<'_>) -> Result<Vec<Written>, Flaw> {
    parser.skip();
    let list = parser.cursor.eat("[");
    let mut found = Vec::new();
    loop {
        parser.skip();
        match parser.cursor.peek() {
            Some(']') if list => {
                parser.cursor.bump();
                return Ok(found);
            }
            Some(',' | ';') if !found.is_empty() => drop(parser.cursor.bump()),
            Some(c) if is_name(c) && !parser.at_stop() && found.len() < MAX_CALLS => {
                found.push(statement(parser)?);
            }
            Some(_) if list && !parser.at_stop() => return Err(Flaw::Wrong),
            _ if list => {
                parser.note(Repair::Closer);
                return Ok(found);
            }
            _ => return Ok(found),
        }
    }
}

/// Whether a python call begins here; its name.
pub(super) fn name_ahead<'a>(cursor: Cursor<'a>) -> Option<&'a str> {
    let mut ahead = cursor;
    let name = ahead.take_while(is_name);
    (name.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && name.len() < 128
        && ahead.peek() == Some('('))
    .then_some(name)
}

pub(super) fn is_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '/')
}

/// A call, with `print(…)` or `x = …` around it taken away.
fn statement(parser: &mut Parser<'_>) -> Result<Written, Flaw> {
    let mut ahead = parser.cursor;
    let name = ahead.take_while(is_name);
    if name == "print" && ahead.eat("(") {
        ahead.skip_space();
        parser.cursor = ahead;
        let written = call(parser)?;
        parser.skip();
        return match parser.cursor.eat(")") {
            true => Ok(written),
            false => Err(Flaw::Wrong),
        };
    }
    ahead.take_while(|c| c == ' ');
    if ahead.eat("=") {
        ahead.take_while(|c| c == ' ');
        if name_ahead(ahead).is_some() {
            parser.cursor = ahead;
        }
    }
    call(parser)
}

fn call(parser: &mut Parser<'_>) -> Result<Written, Flaw> {
    let start = parser.cursor.at();
    let name = parser.cursor.take_while(is_name);
    let name = name.strip_suffix(".call").unwrap_or(name).to_owned();
    match parser.cursor.peek() {
        Some('(') => (),
        Some(_) => return Err(Flaw::Wrong),
        None => return Err(Flaw::Cut),
    }
    let (keywords, positional) = parser.nested(Open::Call, inside)?;
    Ok(Written {
        name,
        keywords,
        positional,
        start,
        end: parser.cursor.at(),
    })
}

/// What stands between the parentheses, and the closing one; `]` serves too.
pub(super) fn inside(parser: &mut Parser<'_>) -> Result<(Object, Vec<Json>), Flaw> {
    let mut keywords = Object::new();
    let mut positional = Vec::new();
    loop {
        parser.skip();
        match parser.cursor.peek().ok_or(Flaw::Cut)? {
            ')' | ']' => {
                parser.cursor.bump();
                return Ok((keywords, positional));
            }
            ',' => drop(parser.cursor.bump()),
            '*' => drop(parser.cursor.take_while(|c| c == '*')),
            _ => match keyword(&mut parser.cursor) {
                Some(key) => {
                    let value = value(parser)?;
                    keywords.push((key, value));
                }
                None => positional.push(value(parser)?),
            },
        }
    }
}

fn keyword(cursor: &mut Cursor<'_>) -> Option<String> {
    let mut ahead = *cursor;
    let key = ahead.take_while(|c| c.is_alphanumeric() || c == '_');
    ahead.take_while(|c| c == ' ');
    if key.is_empty() || !ahead.eat("=") || ahead.peek() == Some('=') {
        return None;
    }
    *cursor = ahead;
    Some(key.to_owned())
}

fn value(parser: &mut Parser<'_>) -> Result<Json, Flaw> {
    parser.skip();
    let mut ahead = parser.cursor;
    let prefix = ahead.take_while(|c| matches!(c, 'r' | 'R' | 'f' | 'F' | 'b' | 'B' | 'u' | 'U'));
    if (1..=2).contains(&prefix.len()) && matches!(ahead.peek(), Some('"' | '\'')) {
        parser.cursor = ahead;
    }
    parser.value()
}
