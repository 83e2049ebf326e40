//! Parses calls written as Python.

use super::{
    cursor::TextCursor,
    json::{JsonObject, JsonValue},
    json_calls::single_argument,
    repair::{JsonRepair, LenientJsonParser, OpenContainer, PayloadError},
    tool_set::{ToolSet, ToolSignature},
};

/// Most calls read from one place.
const MAX_PYTHON_CALLS: usize = 256;

/// Longest name of a call.
const MAX_NAME_CHARS: usize = 128;

/// One call as written.
pub(super) struct PythonCall {
    pub(super) name: String,
    keywords: JsonObject,
    positional: Vec<JsonValue>,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl PythonCall {
    pub(super) fn new(name: &str, keywords: JsonObject, positional: Vec<JsonValue>) -> Self {
        Self {
            name: name.to_owned(),
            keywords,
            positional,
            start: 0,
            end: 0,
        }
    }

    /// Whether an argument is one of these variables.
    fn uses_any(&self, variables: &[&str]) -> bool {
        let named = self.keywords.iter().map(|(_, value)| value);
        let is_variable =
            |value: &JsonValue| value.as_str().is_some_and(|text| variables.contains(&text));
        named.chain(&self.positional).any(is_variable)
    }

    /// The arguments, with those given by place under their names.
    pub(super) fn into_arguments(self, tool: &ToolSignature) -> Option<JsonObject> {
        let mut arguments = JsonObject::new();
        match self.positional.as_slice() {
            [] => (),
            [JsonValue::Object(members)] if self.keywords.is_empty() => {
                return Some(members.clone());
            }
            [value] if self.keywords.is_empty() && single_argument(value, tool).is_some() => {
                return single_argument(value, tool);
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
pub(super) fn parse_calls(
    parser: &mut LenientJsonParser<'_>,
) -> Result<Vec<PythonCall>, PayloadError> {
    parser.skip_trivia();
    let list = parser.cursor.eat("[");
    let mut found = Vec::new();
    let mut variables = Vec::new();
    loop {
        parser.skip_trivia();
        match parser.cursor.peek() {
            Some(']') if list => {
                parser.cursor.bump();
                return Ok(found);
            }
            Some(',' | ';') if !found.is_empty() => drop(parser.cursor.bump()),
            Some(c)
                if is_name_char(c)
                    && !parser.is_at_stop_marker()
                    && found.len() < MAX_PYTHON_CALLS =>
            {
                match statement(parser, &mut variables)? {
                    // The value of a variable is unknown.
                    Some(call) if call.uses_any(&variables) => return Ok(found),
                    Some(call) => found.push(call),
                    None => (),
                }
            }
            Some(_) if list && !parser.is_at_stop_marker() => return Err(PayloadError::Malformed),
            _ if list => {
                parser.record_repair(JsonRepair::Closer);
                return Ok(found);
            }
            _ => return Ok(found),
        }
    }
}

/// Whether a python call begins here; its name.
pub(super) fn peek_call_name<'a>(cursor: TextCursor<'a>) -> Option<&'a str> {
    let mut ahead = cursor;
    let name = ahead.take_while(is_name_char);
    (name.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && name.len() < MAX_NAME_CHARS
        && ahead.peek() == Some('('))
    .then_some(name)
}

/// The first offered tool that `script` calls, wherever in it.
pub(super) fn find_called_tool<'a>(script: &str, tools: &'a ToolSet) -> Option<&'a ToolSignature> {
    script.match_indices('(').find_map(|(at, _)| {
        let before = script[..at].char_indices().rev().take(MAX_NAME_CHARS);
        let (start, _) = before.take_while(|(_, c)| is_name_char(*c)).last()?;
        tools.find(&script[start..at])
    })
}

pub(super) fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '.' | '-' | '/')
}

/// A call, with `print(…)` or `x = …` around it taken away. None for a line that
/// calls no tool: an import, or a printed value.
fn statement<'a>(
    parser: &mut LenientJsonParser<'a>,
    variables: &mut Vec<&'a str>,
) -> Result<Option<PythonCall>, PayloadError> {
    let mut ahead = parser.cursor;
    let name = ahead.take_while(is_name_char);
    if name == "print" && ahead.eat("(") {
        ahead.skip_space();
        if peek_call_name(ahead).is_none_or(|name| name == "str" || name == "len") {
            skip_line(parser);
            return Ok(None);
        }
        parser.cursor = ahead;
        let written = call(parser)?;
        parser.skip_trivia();
        return if parser.cursor.eat(")") {
            Ok(Some(written))
        } else {
            Err(PayloadError::Malformed)
        };
    }
    ahead.take_while(|c| c == ' ');
    if matches!(name, "import" | "from") && ahead.peek().is_some_and(is_name_char) {
        skip_line(parser);
        return Ok(None);
    }
    if ahead.eat("=") {
        ahead.take_while(|c| c == ' ');
        if peek_call_name(ahead).is_some() {
            parser.cursor = ahead;
            let written = call(parser)?;
            variables.push(name);
            return Ok(Some(written));
        }
    }
    call(parser).map(Some)
}

fn skip_line(parser: &mut LenientJsonParser<'_>) {
    parser.cursor.take_while(|c| c != '\n');
}

fn call(parser: &mut LenientJsonParser<'_>) -> Result<PythonCall, PayloadError> {
    let start = parser.cursor.position();
    let name = parser.cursor.take_while(is_name_char);
    let name = name.strip_suffix(".call").unwrap_or(name).to_owned();
    match parser.cursor.peek() {
        Some('(') => (),
        Some(_) => return Err(PayloadError::Malformed),
        None => return Err(PayloadError::UnexpectedEnd),
    }
    let (keywords, positional) = parser.parse_nested(OpenContainer::Call, parse_call_arguments)?;
    Ok(PythonCall {
        name,
        keywords,
        positional,
        start,
        end: parser.cursor.position(),
    })
}

/// What stands between the parentheses, and the closing one; `]` serves too.
pub(super) fn parse_call_arguments(
    parser: &mut LenientJsonParser<'_>,
) -> Result<(JsonObject, Vec<JsonValue>), PayloadError> {
    let mut keywords = JsonObject::new();
    let mut positional = Vec::new();
    loop {
        parser.skip_trivia();
        match parser.cursor.peek().ok_or(PayloadError::UnexpectedEnd)? {
            ')' | ']' => {
                parser.cursor.bump();
                return Ok((keywords, positional));
            }
            ',' => drop(parser.cursor.bump()),
            '*' => drop(parser.cursor.take_while(|c| c == '*')),
            _ => match keyword(&mut parser.cursor) {
                Some(key) => {
                    let value = parse_argument(parser)?;
                    keywords.push((key, value));
                }
                None => positional.push(parse_argument(parser)?),
            },
        }
    }
}

fn keyword(cursor: &mut TextCursor<'_>) -> Option<String> {
    let mut ahead = *cursor;
    let key = ahead.take_while(|c| c.is_alphanumeric() || c == '_');
    ahead.take_while(|c| c == ' ');
    if key.is_empty() || !ahead.eat("=") || ahead.peek() == Some('=') {
        return None;
    }
    *cursor = ahead;
    Some(key.to_owned())
}

fn parse_argument(parser: &mut LenientJsonParser<'_>) -> Result<JsonValue, PayloadError> {
    parser.skip_trivia();
    let mut ahead = parser.cursor;
    let prefix = ahead.take_while(|c| matches!(c, 'r' | 'R' | 'f' | 'F' | 'b' | 'B' | 'u' | 'U'));
    if (1..=2).contains(&prefix.len()) && matches!(ahead.peek(), Some('"' | '\'')) {
        parser.cursor = ahead;
    }
    // The result of another call is unknown.
    if peek_call_name(parser.cursor).is_some() {
        return Err(PayloadError::Malformed);
    }
    parser.parse_value()
}
