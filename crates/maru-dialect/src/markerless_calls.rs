//! Parses calls without markers: JSON or Python, fenced or not, and tags named after
//! tools.

use super::{
    DialectEvent,
    cursor::TextCursor,
    frame::{parse_frame, parse_named_arguments, parse_python_body},
    frame_context::{FrameContext, FrameResult},
    grammar::{FRAMES, MarkerPlacement, MarkerRole},
    header,
    json::JsonValue,
    json_calls::{CandidateOutcome, MatchedCall},
    line_calls, marker_index,
    markerless_json::{
        JSON_FENCE_LANGUAGES, JsonContext, Payload, PayloadFollower, cursor_at, detect_follower,
        detect_payload, parse_json_calls, text_result,
    },
    python_calls,
    repair::LenientJsonParser,
    tag_calls,
};

/// How JSON begins that is written as a string.
pub(super) const QUOTED_JSON_STARTS: [&str; 2] = ["\"{", "'{"];
/// How python without a fence begins.
pub(super) const SCRIPT_STARTS: [&str; 3] = ["print(default_api.", "default_api.", "tool_code\n"];

/// Reads what begins like bare JSON or a python list.
pub(super) fn parse_bare(context: FrameContext<'_>) -> FrameResult {
    match detect_payload(context.start, context) {
        Some(_) if context.follows_example_words() => FrameResult::NotAFrame,
        Some(Payload::Json { name }) => parse_json_calls(
            context.start,
            JsonContext {
                fenced: false,
                name,
            },
            context,
        ),
        Some(Payload::Python) => parse_python_list(context),
        None => FrameResult::NotAFrame,
    }
}

/// Reads a message that is the JSON text of a call, written as a string.
pub(super) fn parse_quoted_json(context: FrameContext<'_>) -> FrameResult {
    let json_context = JsonContext {
        fenced: false,
        name: None,
    };
    parse_json_calls(context.start, json_context, context)
}

/// Reads python without a fence that is the end of a message: `print(…)`, or a call
/// with the prefix of the prompt.
pub(super) fn parse_script(context: FrameContext<'_>) -> FrameResult {
    let mut body = context.start;
    let announced = body.eat("tool_code\n");
    match parse_python_lines(body, context) {
        FrameResult::NotAFrame if announced => {
            parse_broken_script(body, context).unwrap_or(FrameResult::NotAFrame)
        }
        result => result,
    }
}

/// Reads what a line that begins with a tool's name goes on with: its arguments on
/// the next line (GLM-4), `[ARGS]` (Mistral, its first token removed), or a python
/// call that is the whole message of a prompted model. `is_first` says that nothing stands before it.
pub(super) fn parse_named_line(context: FrameContext<'_>, is_first: bool) -> FrameResult {
    let mut cursor = context.start;
    let name = cursor.take_while(python_calls::is_name_char);
    let Some(tool) = context.tools.find_exact(name) else {
        return FrameResult::NotAFrame;
    };
    if cursor.peek() == Some('(') && is_first && context.prompted {
        let context = FrameContext {
            dialect: "pythonic",
            ..context
        };
        return parse_python_lines(context.start, context);
    }
    if cursor.starts_with("[ARGS]") || cursor.starts_with("[CALL_ID]") {
        let mut header = context.start;
        let id = header::parse_call_header(&mut header).and_then(|it| it.id);
        let context = FrameContext {
            dialect: "mistral",
            explicit: true,
            ..context
        };
        return parse_named_arguments(header, name, id, context);
    }
    if !cursor.eat("\n") || cursor.peek() != Some('{') {
        return FrameResult::NotAFrame;
    }
    let mut parser = LenientJsonParser::new(cursor, &[]);
    let Ok(JsonValue::Object(members)) = parser.parse_value() else {
        return FrameResult::NotAFrame;
    };
    let known = members
        .iter()
        .all(|(key, _)| tool.schema.schema_for(key).is_some());
    if !known
        || !matches!(
            detect_follower(parser.cursor, false),
            PayloadFollower::EndOfMessage(_)
        )
    {
        return FrameResult::NotAFrame;
    }
    let end = parser.cursor.position();
    let outcome = CandidateOutcome::Call(MatchedCall::new(tool, members));
    let context = FrameContext {
        dialect: "glm",
        ..context
    };
    context.result_from_outcomes(vec![(outcome, context.raw_text(end))], &parser.repairs, end)
}

/// Reads a fence: of a dialect, or around a call. `is_first` says that nothing
/// stands before it.
pub(super) fn parse_fence(context: FrameContext<'_>, is_first: bool) -> FrameResult {
    let mut body = context.start;
    body.take_while(|c| c == '`');
    let info = body.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    body.take_while(|c| c == ' ' || c == '\r');
    if body.peek() == Some('\n') || matches!(info, "json" | "tool_code") {
        let info = info.to_ascii_lowercase();
        return match info.as_str() {
            "tool_code" => parse_tool_code_fence(body, context),
            "tool" => line_calls::parse_tool_block(
                body,
                FrameContext {
                    dialect: "codeblock_tool",
                    explicit: true,
                    ..context
                },
            ),
            info if JSON_FENCE_LANGUAGES.contains(&info)
                || (is_first && matches!(info, "python" | "py")) =>
            {
                parse_json_fence(body, context, is_first)
            }
            _ => FrameResult::NotAFrame,
        };
    }
    FrameResult::NotAFrame
}

/// Reads a tag named after a tool.
pub(super) fn parse_tool_tag(context: FrameContext<'_>) -> FrameResult {
    let mut body = context.start.advanced_by(1);
    let name = body.take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'));
    let Some(tool) = context.tools.find_exact(name).filter(|_| body.eat(">")) else {
        return FrameResult::NotAFrame;
    };
    let mut tag_parser = tag_calls::TagCallParser {
        cursor: body,
        tools: context.tools,
        is_frame_opener: context.is_frame_opener,
    };
    let Ok(arguments) = tag_parser.parse_tool_parameters(tool) else {
        return text_result(context, tag_parser.cursor.position());
    };
    let mut after = tag_parser.cursor;
    after.skip_space();
    let closed = after.eat("</") && after.eat(name) && after.eat(">");
    let ended = after.peek().is_none() && !arguments.is_empty();
    if !closed && !ended {
        return text_result(context, tag_parser.cursor.position());
    }
    let outcome = CandidateOutcome::Call(MatchedCall::new(tool, arguments));
    let end = if closed {
        after.position()
    } else {
        tag_parser.cursor.position()
    };
    context.result_from_outcomes(vec![(outcome, context.raw_text(end))], &[], end)
}

fn parse_python_list(context: FrameContext<'_>) -> FrameResult {
    match parse_python_body(context.start, context) {
        FrameResult::Parsed { end, events } => {
            let after = cursor_at(context, end);
            let good = events.iter().all(|it| matches!(it, DialectEvent::Call(_)));
            match detect_follower(after, false) {
                PayloadFollower::EndOfMessage(_) if good => FrameResult::Parsed { end, events },
                _ => text_result(context, end),
            }
        }
        FrameResult::NotAFrame => FrameResult::NotAFrame,
    }
}

/// Python calls on lines that are the end of the message.
fn parse_python_lines(body: TextCursor<'_>, context: FrameContext<'_>) -> FrameResult {
    match parse_python_body(body, context) {
        FrameResult::Parsed { end, events } => {
            let good = events.iter().all(|it| matches!(it, DialectEvent::Call(_)));
            match detect_follower(cursor_at(context, end), false) {
                PayloadFollower::EndOfMessage(_) if good => FrameResult::Parsed { end, events },
                _ => FrameResult::NotAFrame,
            }
        }
        FrameResult::NotAFrame => FrameResult::NotAFrame,
    }
}

/// Fence `tool_code`: python calls, or JSON.
fn parse_tool_code_fence(body: TextCursor<'_>, context: FrameContext<'_>) -> FrameResult {
    let mut inside = body;
    inside.skip_space();
    if inside.eat("[") {
        inside.skip_space();
    }
    if inside.peek() == Some('{') {
        return parse_json_fence(body, context, false);
    }
    let context = FrameContext {
        dialect: "tool_code",
        explicit: true,
        closers: &["```"],
        ..context
    };
    match parse_python_body(body, context) {
        FrameResult::Parsed { end, mut events }
            if events.iter().any(|it| matches!(it, DialectEvent::Call(_))) =>
        {
            // Functions of python beside calls of tools, such as `len(…)`.
            events.retain(|it| match it {
                DialectEvent::Call(_) => true,
                DialectEvent::InvalidCall(invalid) => {
                    let name = invalid.name.as_deref().filter(|_| context.prompted);
                    name.is_some_and(|name| context.tools.find(name).is_some())
                }
                _ => false,
            });
            FrameResult::Parsed { end, events }
        }
        FrameResult::Parsed { end, events } if context.prompted && names_unknown_tool(&events) => {
            FrameResult::Parsed { end, events }
        }
        FrameResult::Parsed { end, .. } => {
            parse_broken_script(body, context).unwrap_or_else(|| text_result(context, end))
        }
        FrameResult::NotAFrame => {
            parse_broken_script(body, context).unwrap_or(FrameResult::NotAFrame)
        }
    }
}

/// Python of a prompted model that names an offered tool and is more or less than calls:
/// an invalid call, up to the closer or the end. None when it names none.
fn parse_broken_script(body: TextCursor<'_>, context: FrameContext<'_>) -> Option<FrameResult> {
    if !context.prompted {
        return None;
    }
    let (script_end, end) = match context.find_closer(body) {
        Some(closer) => closer,
        None => (body.end_of_input(), body.end_of_input()),
    };
    let script = body.slice(body.position(), script_end);
    let tool = python_calls::find_called_tool(script, context.tools)?;
    let reason = format!(
        "this code cannot be run; write only calls such as {}(name=value), each complete and \
         with plain values",
        tool.name
    );
    Some(context.invalid_call_result(end, tool, reason))
}

fn names_unknown_tool(events: &[DialectEvent]) -> bool {
    let named =
        |it: &DialectEvent| matches!(it, DialectEvent::InvalidCall(it) if it.name.is_some());
    events.iter().any(named)
}

fn parse_json_fence(
    body: TextCursor<'_>,
    context: FrameContext<'_>,
    is_first: bool,
) -> FrameResult {
    let mut inside = body;
    inside.skip_space();
    match inside.peek() {
        Some('{' | '[') => match detect_payload(inside, context) {
            Some(Payload::Json { name }) if !context.follows_example_words() => {
                parse_fenced_json(inside, name, context)
            }
            _ => FrameResult::NotAFrame,
        },
        Some('"' | '\'') if is_quoted_json(inside) && !context.follows_example_words() => {
            parse_fenced_json(inside, None, context)
        }
        Some('<') if is_first => parse_fenced_frame(inside, context),
        _ => FrameResult::NotAFrame,
    }
}

/// Whether a string begins that holds JSON.
pub(super) fn is_quoted_json(cursor: TextCursor<'_>) -> bool {
    QUOTED_JSON_STARTS.iter().any(|it| cursor.starts_with(it))
}

fn parse_fenced_json(
    inside: TextCursor<'_>,
    name: Option<&str>,
    context: FrameContext<'_>,
) -> FrameResult {
    let json_context = JsonContext { fenced: true, name };
    let FrameResult::Parsed { end, events } = parse_json_calls(inside, json_context, context)
    else {
        return FrameResult::NotAFrame;
    };
    let shown = |event: &DialectEvent| matches!(event, DialectEvent::Text(text) if *text == context.raw_text(end));
    if events.iter().any(shown) {
        FrameResult::NotAFrame
    } else {
        FrameResult::Parsed { end, events }
    }
}

/// A frame with markers in a fence that is the whole message.
fn parse_fenced_frame(inside: TextCursor<'_>, context: FrameContext<'_>) -> FrameResult {
    let Some(hit) = marker_index::find_marker(inside, MarkerPlacement::LineStart) else {
        return FrameResult::NotAFrame;
    };
    let MarkerRole::FrameOpener(row) = hit.role else {
        return FrameResult::NotAFrame;
    };
    let frame = &FRAMES[row];
    let inner = FrameContext {
        start: inside,
        dialect: frame.dialect,
        closers: frame.closers,
        explicit: true,
        ..context
    };
    let FrameResult::Parsed { end, events } = parse_frame(frame, hit.length, inner) else {
        return FrameResult::NotAFrame;
    };
    let mut after = cursor_at(context, end);
    after.skip_space();
    let closed = after.eat("```");
    after.skip_space();
    let good = events.iter().all(|it| matches!(it, DialectEvent::Call(_)));
    if closed && after.peek().is_none() && good {
        FrameResult::Parsed {
            end: after.position(),
            events,
        }
    } else {
        FrameResult::NotAFrame
    }
}
