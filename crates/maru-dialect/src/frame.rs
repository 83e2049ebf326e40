//! Parses the body of a frame into events.

use super::{
    DialectEvent,
    cursor::TextCursor,
    frame_context::{FrameContext, FrameResult},
    gemma_calls,
    grammar::{FrameBody, FrameSyntax},
    header,
    json::{JsonObject, JsonValue},
    json_calls::{CandidateOutcome, MatchedCall},
    marker, python_calls,
    repair::{self, JsonRepair, LenientJsonParser, PayloadError},
    tag, tag_calls,
    tool_set::{ToolSet, ToolSignature},
};

/// Parses the frame that `context` begins with.
pub(super) fn parse_frame(
    frame: &FrameSyntax,
    opener: usize,
    context: FrameContext<'_>,
) -> FrameResult {
    parse_body(frame, context.start, opener, context)
}

/// Parses a frame inside the one that `context` begins with.
pub(super) fn parse_nested_frame(
    frame: &FrameSyntax,
    start: TextCursor<'_>,
    opener: usize,
    context: FrameContext<'_>,
) -> FrameResult {
    let context = FrameContext {
        dialect: frame.dialect,
        closers: frame.closers,
        ..context
    };
    parse_body(frame, start, opener, context)
}

fn parse_body(
    frame: &FrameSyntax,
    start: TextCursor<'_>,
    opener: usize,
    context: FrameContext<'_>,
) -> FrameResult {
    let mut body = start;
    if !frame.body_includes_opener {
        body = body.advanced_by(opener);
    }
    let Some(shape) = detect_body(frame, body) else {
        return FrameResult::NotAFrame;
    };
    match shape {
        FrameBody::Json => parse_json_body(body, context),
        FrameBody::Python => parse_python_body(body, context),
        FrameBody::Script => parse_script_body(body, context),
        FrameBody::Tags => {
            let dialect = match context.dialect {
                "hermes" => "qwen3_xml",
                other => other,
            };
            parse_tag_body(body, FrameContext { dialect, ..context })
        }
        FrameBody::KeyValueTags => parse_key_value_body(body, context),
        FrameBody::Header => parse_header_body(body, context),
        FrameBody::Gemma => parse_gemma_body(body, context),
        FrameBody::ReactAction => super::line_calls::parse_react_action(body, context),
        FrameBody::QwenAgent => super::line_calls::parse_qwen_agent(body, context),
    }
}

/// Which of the frame's bodies begins here.
fn detect_body(frame: &FrameSyntax, body: TextCursor<'_>) -> Option<FrameBody> {
    let allowed = |wanted: FrameBody| frame.bodies.contains(&wanted).then_some(wanted);
    if let [
        only @ (FrameBody::ReactAction
        | FrameBody::QwenAgent
        | FrameBody::Gemma
        | FrameBody::Script),
    ] = frame.bodies
    {
        return Some(*only);
    }
    let mut ahead = body;
    ahead.skip_space();
    match ahead.peek()? {
        '[' if frame.bodies.contains(&FrameBody::Python) => {
            let mut inside = ahead.advanced_by(1);
            inside.skip_space();
            match inside.peek()? {
                '{' | ']' | '[' => allowed(FrameBody::Json),
                _ => python_calls::peek_call_name(inside).and(allowed(FrameBody::Python)),
            }
        }
        '`' if allowed(FrameBody::Python).is_some()
            && (ahead.starts_with("```py") || ahead.starts_with("```\n")) =>
        {
            Some(FrameBody::Python)
        }
        '{' | '"' | '`' | '\'' | '\\' => allowed(FrameBody::Json).or(allowed(FrameBody::Header)),
        '[' if allowed(FrameBody::Json).is_some() => Some(FrameBody::Json),
        '<' | ']' if tag::parse_tag(ahead).is_some() && allowed(FrameBody::Tags).is_some() => {
            Some(FrameBody::Tags)
        }
        _ if python_calls::peek_call_name(ahead).is_some()
            && allowed(FrameBody::Python).is_some() =>
        {
            Some(FrameBody::Python)
        }
        _ => allowed(FrameBody::Header).or(allowed(FrameBody::KeyValueTags)),
    }
}

/// JSON values up to the closer, or to where something else follows.
pub(super) fn parse_json_body(body: TextCursor<'_>, context: FrameContext<'_>) -> FrameResult {
    let mut parser = LenientJsonParser::new(body, context.closers);
    parser.skip_trivia();
    parser.skip_fence();
    match parser.cursor.peek() {
        Some('{' | '[' | '"' | '\'') | None => (),
        Some(_) => return FrameResult::NotAFrame,
    }
    if repair::unescape_payload(parser.cursor.rest()).is_some() {
        return parse_escaped_body(parser.cursor, context);
    }
    match parse_json_values(&mut parser) {
        _ if body.needs_more_text() => FrameResult::NotAFrame,
        Ok(values) => {
            let repairs = std::mem::take(&mut parser.repairs);
            context.result_from_values(&values, &repairs, frame_end(parser.cursor, context.closers))
        }
        Err(error) => retry_with_closing_quote(body, context)
            .unwrap_or_else(|| context.unreadable_frame(parser.cursor, error)),
    }
}

/// Values that follow each other; stops where none can follow.
pub(super) fn parse_json_values(
    parser: &mut LenientJsonParser<'_>,
) -> Result<Vec<JsonValue>, PayloadError> {
    let mut found = Vec::new();
    loop {
        found.push(parser.parse_value()?);
        parser.skip_spare_closers();
        let mut ahead = parser.cursor;
        ahead.skip_space();
        while matches!(ahead.peek(), Some(',' | ';')) {
            ahead.bump();
            ahead.skip_space();
        }
        if ahead.eat("```") {
            parser.cursor = ahead;
            parser.record_repair(JsonRepair::SurroundingText);
            return Ok(found);
        }
        let stops = LenientJsonParser::new(ahead, &[]).is_at_stop_marker();
        match ahead.peek() {
            Some('{') if !stops => parser.cursor = ahead,
            Some(_)
                if !parser
                    .cursor
                    .slice(parser.cursor.position(), ahead.position())
                    .contains(',') =>
            {
                return Ok(found);
            }
            _ => {
                parser.cursor = ahead;
                return Ok(found);
            }
        }
    }
}

/// Where the frame ends: behind its closer, if that is next.
pub(super) fn frame_end(cursor: TextCursor<'_>, closers: &[&str]) -> usize {
    let mut ahead = cursor;
    loop {
        ahead.skip_space();
        if !matches!(ahead.peek(), Some('}' | ']' | ')')) || closers.is_empty() {
            break;
        }
        ahead.bump();
    }
    let length = closers
        .iter()
        .find_map(|it| marker::match_length(it, ahead));
    length.map_or(cursor.position(), |length| ahead.position() + length)
}

/// A payload that was escaped as a whole, up to the closer or the end.
fn parse_escaped_body(body: TextCursor<'_>, context: FrameContext<'_>) -> FrameResult {
    let closer = context.find_closer(body);
    let (text, end) = closer.unwrap_or_else(|| (body.end_of_input(), body.end_of_input()));
    let text = body.slice(body.position(), text);
    match repair::parse_lenient(text) {
        Ok((value, repairs)) => context.result_from_values(&[value], &repairs, end),
        Err(error) => context.unreadable_frame(body, error),
    }
}

/// JSON that ends inside a string although its frame is closed: the quote was
/// forgotten.
fn retry_with_closing_quote(
    body: TextCursor<'_>,
    context: FrameContext<'_>,
) -> Option<FrameResult> {
    let (at, end) = context.find_closer(body)?;
    let text = body.slice(body.position(), at).trim();
    let kept = text.trim_end_matches(['}', ']', ' ', '\n', '\t']);
    let repaired = format!("{kept}\"{}", &text[kept.len()..]);
    let (value, mut repairs) = repair::parse_lenient(&repaired).ok()?;
    repairs.push(JsonRepair::Quote);
    repairs.dedup();
    Some(context.result_from_values(&[value], &repairs, end))
}

/// Python calls up to the closer, or to where something else follows.
pub(super) fn parse_python_body(body: TextCursor<'_>, context: FrameContext<'_>) -> FrameResult {
    let mut parser = LenientJsonParser::new(body, context.closers);
    parser.skip_trivia();
    parser.skip_fence();
    let written = match python_calls::parse_calls(&mut parser) {
        Ok(written) if !written.is_empty() => written,
        Ok(_) => return FrameResult::NotAFrame,
        Err(error) => return context.unreadable_frame(parser.cursor, error),
    };
    if parser.repairs.contains(&JsonRepair::SurroundingText) {
        parser.skip_trivia();
        parser.cursor.eat("```");
    }
    let end = frame_end(parser.cursor, context.closers);
    let repairs = parser.repairs;
    let read = |call: python_calls::PythonCall| {
        let text = body.slice(call.start, call.end).to_owned();
        let name = call.name.clone();
        let outcome = match context.tools.find(&name) {
            None => CandidateOutcome::UnknownTool(name),
            Some(tool) => match call.into_arguments(tool) {
                Some(arguments) => CandidateOutcome::Call(MatchedCall::new(tool, arguments)),
                None => {
                    let form = tool.schema.arguments_form();
                    let reason = format!("{name} has more values than parameters; it takes {form}");
                    CandidateOutcome::invalid_call_of(tool, reason)
                }
            },
        };
        (outcome, text)
    };
    // Python's syntax, where it differs from JSON, is not an error here.
    let python = [
        JsonRepair::SurroundingText,
        JsonRepair::Comment,
        JsonRepair::Quote,
        JsonRepair::Literal,
        JsonRepair::Tuple,
        JsonRepair::EscapeSequence,
    ];
    let repairs: Vec<JsonRepair> = repairs
        .into_iter()
        .filter(|it| !python.contains(it))
        .collect();
    context.result_from_outcomes(written.into_iter().map(read).collect(), &repairs, end)
}

/// Python between tags that other text uses, too: calls of offered tools and
/// nothing else, closed.
fn parse_script_body(body: TextCursor<'_>, context: FrameContext<'_>) -> FrameResult {
    let is_call = |it: &DialectEvent| matches!(it, DialectEvent::Call(_));
    match parse_python_body(body, context) {
        FrameResult::Parsed { end, events }
            if events.iter().all(is_call)
                && context.find_closer(body).is_some_and(|it| it.1 == end) =>
        {
            FrameResult::Parsed { end, events }
        }
        _ => FrameResult::NotAFrame,
    }
}

/// Tags up to the closer, or to where something else follows.
pub(super) fn parse_tag_body(body: TextCursor<'_>, context: FrameContext<'_>) -> FrameResult {
    let mut tag_parser = tag_calls::TagCallParser {
        cursor: body,
        tools: context.tools,
        is_frame_opener: context.is_frame_opener,
    };
    let written = match tag_parser.parse_calls() {
        _ if body.needs_more_text() => return FrameResult::NotAFrame,
        Ok(written) => written,
        Err(error) if tag_parser.cursor.position() - body.position() > 1024 => {
            return context.unreadable_frame(tag_parser.cursor, error);
        }
        Err(PayloadError::Malformed) => return FrameResult::NotAFrame,
        Err(error) => return context.unreadable_frame(tag_parser.cursor, error),
    };
    let mut repairs = Vec::new();
    let read = |call: tag_calls::TagCall| {
        let text = body.slice(call.start, call.end).to_owned();
        repairs.extend(call.repairs);
        let outcome = match context.tools.find(&call.name) {
            None => CandidateOutcome::UnknownTool(call.name),
            Some(tool) => CandidateOutcome::Call(MatchedCall::new(tool, call.arguments)),
        };
        (outcome, text)
    };
    let found = written.into_iter().map(read).collect();
    context.result_from_outcomes(
        found,
        &repairs,
        frame_end(tag_parser.cursor, context.closers),
    )
}

/// The name first: then keys and values as tags, or JSON.
fn parse_key_value_body(body: TextCursor<'_>, context: FrameContext<'_>) -> FrameResult {
    let mut cursor = body;
    cursor.skip_space();
    let name = cursor.take_while(|c| c.is_alphanumeric() || "_-./:".contains(c));
    cursor.skip_space();
    if name.is_empty() || name.len() > 256 || !matches!(cursor.peek(), Some('<' | '{') | None) {
        return FrameResult::NotAFrame;
    }
    if cursor.peek() == Some('{') {
        return parse_named_arguments(cursor, name, None, context);
    }
    if cursor.peek().is_some() && tag::parse_tag(cursor).is_none() {
        return FrameResult::NotAFrame;
    }
    let (tool, first) = match context.tools.find(name) {
        Some(tool) => (Some(tool), None),
        None => split_glued_name(name, cursor, context.tools),
    };
    let mut tag_parser = tag_calls::TagCallParser {
        cursor,
        tools: context.tools,
        is_frame_opener: context.is_frame_opener,
    };
    let mut found = JsonObject::new();
    let read = match first {
        Some(key) => tag_parser.parse_key_value(key, tool, &mut found),
        None => Ok(()),
    };
    if let Err(error) = read.and_then(|()| tag_parser.parse_key_values(tool, &mut found)) {
        return context.unreadable_frame(tag_parser.cursor, error);
    }
    let end = frame_end(tag_parser.cursor, context.closers);
    if end == tag_parser.cursor.position() && found.is_empty() && tag_parser.cursor.peek().is_some()
    {
        return FrameResult::NotAFrame;
    }
    let outcome = match tool {
        Some(tool) => CandidateOutcome::Call(MatchedCall::new(tool, found)),
        None => CandidateOutcome::UnknownTool(name.to_owned()),
    };
    let dialect = match context.dialect {
        "hermes" => "glm",
        other => other,
    };
    let context = FrameContext { dialect, ..context };
    context.result_from_outcomes(vec![(outcome, context.raw_text(end))], &[], end)
}

/// A name with the first key run into it, whose opening tag was lost.
fn split_glued_name<'a>(
    word: &str,
    cursor: TextCursor<'_>,
    tools: &'a ToolSet,
) -> (Option<&'a ToolSignature>, Option<String>) {
    let closes_key = tag::parse_tag(cursor).is_some_and(|it| it.closes_class(tag::TagClass::Key));
    let parts = closes_key.then(|| tools.split_glued_key(word)).flatten();
    match parts {
        Some((tool, key)) => (Some(tool), Some(key.to_owned())),
        None => (None, None),
    }
}

/// A name between separators, then its arguments.
fn parse_header_body(body: TextCursor<'_>, context: FrameContext<'_>) -> FrameResult {
    let mut cursor = body;
    let Some(header) = header::parse_call_header(&mut cursor) else {
        return FrameResult::NotAFrame;
    };
    let dialect = match (context.dialect, header.is_kimi) {
        ("deepseek_v3", true) => "kimi_k2",
        (other, _) => other,
    };
    let context = FrameContext { dialect, ..context };
    if dialect == "functionary" && context.tools.find(header.name).is_none() {
        return FrameResult::NotAFrame;
    }
    let id = header.id.or(Some(header.name).filter(|_| header.is_kimi));
    if cursor.peek() == Some('<')
        && tag::parse_tag(cursor).is_some_and(|it| it.opens_class(tag::TagClass::Call))
    {
        return parse_tag_body(
            cursor,
            FrameContext {
                dialect: "step3",
                ..context
            },
        );
    }
    match cursor.peek() {
        Some('{' | '`') | None => parse_named_arguments(cursor, header.name, id, context),
        _ if frame_end(cursor, context.closers) > cursor.position() => {
            parse_named_arguments(cursor, header.name, id, context)
        }
        _ => FrameResult::NotAFrame,
    }
}

/// The arguments of the tool called `name`, as JSON or left out.
pub(super) fn parse_named_arguments(
    cursor: TextCursor<'_>,
    name: &str,
    id: Option<&str>,
    context: FrameContext<'_>,
) -> FrameResult {
    let mut parser = LenientJsonParser::new(cursor, context.closers);
    parser.skip_trivia();
    parser.skip_fence();
    let value = match parser.cursor.peek() {
        Some('{' | '[' | '"') => match parser.parse_value() {
            Ok(value) => value,
            Err(error) => return context.unreadable_frame(parser.cursor, error),
        },
        Some(_) if frame_end(parser.cursor, context.closers) > parser.cursor.position() => {
            JsonValue::Null
        }
        Some(_) => return context.unreadable_frame(parser.cursor, PayloadError::Malformed),
        None => return context.unreadable_frame(parser.cursor, PayloadError::UnexpectedEnd),
    };
    parser.skip_spare_closers();
    parser.skip_trivia();
    parser.cursor.eat("```");
    let end = frame_end(parser.cursor, context.closers);
    let mut repairs: Vec<JsonRepair> = parser.repairs;
    repairs.retain(|it| *it != JsonRepair::SurroundingText);
    let mut outcome = context.resolve_call(name, &value, &mut repairs);
    if let CandidateOutcome::Call(call) = &mut outcome {
        call.id = id.map(str::to_owned);
    }
    context.result_from_outcomes(vec![(outcome, context.raw_text(end))], &repairs, end)
}

fn parse_gemma_body(body: TextCursor<'_>, context: FrameContext<'_>) -> FrameResult {
    let mut tag_parser = gemma_calls::GemmaCallParser {
        cursor: body,
        closers: context.closers,
    };
    let (name, arguments) = match tag_parser.parse_call(context.tools) {
        Ok(read) => read,
        Err(PayloadError::Malformed) if tag_parser.cursor.position() - body.position() < 256 => {
            return FrameResult::NotAFrame;
        }
        Err(error) => return context.unreadable_frame(tag_parser.cursor, error),
    };
    let end = frame_end(tag_parser.cursor, context.closers);
    let outcome = match context.tools.find(&name) {
        Some(tool) => CandidateOutcome::Call(MatchedCall::new(tool, arguments)),
        None => CandidateOutcome::UnknownTool(name),
    };
    context.result_from_outcomes(vec![(outcome, context.raw_text(end))], &[], end)
}
