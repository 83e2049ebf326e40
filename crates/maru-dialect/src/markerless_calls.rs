//! Parses calls without markers: JSON or Python, fenced or not, and tags named after
//! tools.

use super::{
    DialectEvent,
    cursor::{TextCursor, is_space},
    frame::{parse_frame, parse_json_values, parse_named_arguments, parse_python_body},
    frame_context::{FrameContext, FrameResult},
    grammar::{FRAMES, HALLUCINATED_RESULT_MARKERS, MarkerPlacement, MarkerRole},
    header,
    json::JsonValue,
    json_calls::{CandidateOutcome, MatchedCall, is_answer_name, is_call_key, is_name_key},
    line_calls, marker, marker_index, python_calls,
    repair::{self, JsonRepair, LenientJsonParser, PayloadError},
    surrounding_text::is_meant,
    tag_calls,
};

/// The longest first key of an object that may be a call.
const MAX_FIRST_KEY_BYTES: usize = 96;
/// Fences that may hold JSON.
const JSON_FENCE_LANGUAGES: [&str; 12] = [
    "",
    "json",
    "jsonc",
    "json5",
    "tool_call",
    "tool_calls",
    "tool_use",
    "tool-call",
    "function_call",
    "text",
    "plaintext",
    "xml",
];

/// What ends JSON whose closers are missing.
const PAYLOAD_ENDS: &[&str] = &[
    "[Tool Result",
    "[Tool result",
    "Observation:",
    "<tool_response>",
    "<end_of_turn>",
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|endoftext|>",
    "</s>",
    "</tool_call>",
];
/// How often JSON that cannot be read is cut before a line of words.
const MAX_CUT_ATTEMPTS: usize = 4;
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
    body.eat("tool_code\n");
    parse_python_lines(body, context)
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

/// What a call without markers begins with.
enum Payload<'a> {
    Json {
        /// The tool that its first member names.
        name: Option<&'a str>,
    },
    Python,
}

/// What a call without markers could begin with. Looks at its first words.
fn detect_payload<'a>(start: TextCursor<'a>, context: FrameContext<'_>) -> Option<Payload<'a>> {
    let tools = context.tools;
    let mut parser = LenientJsonParser::new(start, &[]);
    let list = parser.cursor.eat("[");
    parser.cursor.eat("[");
    parser.skip_trivia();
    if list && parser.cursor.peek()? != '{' {
        let name = python_calls::peek_call_name(parser.cursor)?;
        return tools.find(name).map(|_| Payload::Python);
    }
    if !parser.cursor.eat("{") {
        return None;
    }
    parser.cursor.eat("{");
    parser.skip_trivia();
    let mut cursor = parser.cursor;
    cursor.take_while(|c| matches!(c, '\\' | '"' | '\'' | '“' | '`' | '‘' | '「' | '＂'));
    cursor.eat("&quot;");
    let key = cursor.take_while(|c| c.is_alphanumeric() || "_-./".contains(c));
    if key.len() > MAX_FIRST_KEY_BYTES || key.is_empty() || !is_call_key(key, tools) {
        return None;
    }
    if !is_name_key(key) || tools.find(key).is_some() {
        return Some(Payload::Json { name: None });
    }
    // The name is there: it must be one of a tool, or hold the call.
    let between = |c: char| is_space(c) || "\\\"'“”‘’「」＂`:：=>".contains(c);
    for _ in 0..2 {
        cursor.take_while(between);
        cursor.eat("&quot;");
    }
    cursor.take_while(between);
    if cursor.peek()? == '{' {
        return Some(Payload::Json { name: None });
    }
    let name = cursor.take_while(|c| c.is_alphanumeric() || "_-./: ".contains(c));
    if name.len() > MAX_FIRST_KEY_BYTES {
        return None;
    }
    if tools.find(name).is_some() {
        return Some(Payload::Json { name: Some(name) });
    }
    let candidate = is_answer_name(name) || (context.prompted && !name.is_empty());
    candidate.then_some(Payload::Json { name: None })
}

/// The text up to `end` as it is.
fn text_result(context: FrameContext<'_>, end: usize) -> FrameResult {
    let events = vec![DialectEvent::Text(context.raw_text(end))];
    FrameResult::Parsed { end, events }
}

/// What is known about JSON that may be a call.
#[derive(Clone, Copy)]
struct JsonContext<'a> {
    /// A fence is open around it.
    fenced: bool,
    /// The tool that its first member names.
    name: Option<&'a str>,
}

/// JSON values that end the message, or that are meant although words follow.
fn parse_json_calls(
    body: TextCursor<'_>,
    json_context: JsonContext<'_>,
    context: FrameContext<'_>,
) -> FrameResult {
    let mut fenced = json_context.fenced;
    let mut cursor = body;
    let mut found = Vec::new();
    let mut repairs = Vec::new();
    loop {
        let end = if fenced { cursor.find("\n```") } else { None };
        let region = end.map_or(cursor, |end| cursor.truncated_at(end));
        let payload = match parse_payload(region) {
            Err(_) if context.prompted && json_context.name.is_some() => {
                parse_before_words(region).ok_or(PayloadError::UnexpectedEnd)
            }
            payload => payload,
        };
        match payload {
            Ok(payload) => {
                if payload.repairs.contains(&JsonRepair::SurroundingText) {
                    fenced = false;
                }
                found.extend(payload.values);
                repairs.extend(payload.repairs);
                cursor.seek(payload.end);
            }
            Err(error) => return unreadable_result(region, error, json_context, context),
        }
        let end = match detect_follower(cursor, fenced) {
            PayloadFollower::NextValue(at, inside) => {
                cursor.seek(at);
                fenced = inside;
                continue;
            }
            PayloadFollower::EndOfMessage(end) => end,
            PayloadFollower::OtherText(end)
                if is_meant(
                    context.text_before,
                    cursor_at(context, end),
                    context.prompted,
                ) =>
            {
                end
            }
            PayloadFollower::OtherText(_) | PayloadFollower::OpenFence => {
                return text_result(context, cursor.position());
            }
        };
        repairs.retain(|it| *it != JsonRepair::SurroundingText);
        return finish_json_calls(&found, &repairs, end, context);
    }
}

/// JSON values that were read, what they needed, and where they end.
struct JsonPayload {
    values: Vec<JsonValue>,
    repairs: Vec<JsonRepair>,
    end: usize,
}

fn parse_payload(region: TextCursor<'_>) -> Result<JsonPayload, PayloadError> {
    if repair::unescape_payload(region.rest()).is_some() {
        let end = match repair::escaped_payload_length(region.rest()) {
            Some(length) => region.position() + length,
            None => region.end_of_input(),
        };
        let (value, repairs) = repair::parse_lenient(region.slice(region.position(), end))?;
        let mut after = region;
        after.seek(end);
        after.eat(";");
        return Ok(JsonPayload {
            values: vec![value],
            repairs,
            end: after.position(),
        });
    }
    let mut parser = LenientJsonParser::new(region, PAYLOAD_ENDS);
    let values = parse_json_values(&mut parser)?;
    Ok(JsonPayload {
        values,
        repairs: parser.repairs,
        end: parser.cursor.position(),
    })
}

/// JSON whose last closers are missing and on whose next line words follow.
fn parse_before_words(region: TextCursor<'_>) -> Option<JsonPayload> {
    let text = region.rest();
    let ends = text.match_indices('\n').filter(|(at, _)| {
        let line = text[at + 1..].trim_start();
        line.starts_with(char::is_alphabetic)
    });
    ends.take(MAX_CUT_ATTEMPTS)
        .find_map(|(at, _)| parse_payload(region.truncated_at(region.position() + at)).ok())
}

/// The result for JSON that cannot be parsed: text, or an invalid call where a prompted
/// model named a tool.
fn unreadable_result(
    region: TextCursor<'_>,
    error: PayloadError,
    json_context: JsonContext<'_>,
    context: FrameContext<'_>,
) -> FrameResult {
    let end = region.end_of_input();
    match json_context.name.filter(|_| context.prompted) {
        Some(name) => {
            let events = vec![context.unreadable_call(context.raw_text(end), name, error)];
            FrameResult::Parsed { end, events }
        }
        None => text_result(context, end),
    }
}

/// The events of values: text, unless all of them are calls. A call of an unknown
/// tool is one where our own prompt asked for calls.
fn finish_json_calls(
    values: &[JsonValue],
    repairs: &[JsonRepair],
    end: usize,
    context: FrameContext<'_>,
) -> FrameResult {
    let is_text = |it: &DialectEvent| match it {
        DialectEvent::InvalidCall(invalid) => !context.prompted || invalid.name.is_none(),
        _ => false,
    };
    match context.result_from_values(values, repairs, end) {
        FrameResult::Parsed { events, .. } if events.iter().any(is_text) => {
            text_result(context, end)
        }
        result => result,
    }
}

enum PayloadFollower {
    /// Another value begins, in a fence or not.
    NextValue(usize, bool),
    /// Nothing of the model's own follows.
    EndOfMessage(usize),
    /// Words follow; the value, its fence included, ends here.
    OtherText(usize),
    /// Something else follows in the same fence.
    OpenFence,
}

/// What follows a value that may be a call; `fenced` says that a fence is open.
fn detect_follower(cursor: TextCursor<'_>, mut fenced: bool) -> PayloadFollower {
    let mut ahead = cursor;
    let mut end = cursor.position();
    loop {
        ahead.skip_space();
        if ahead.peek().is_none()
            || HALLUCINATED_RESULT_MARKERS
                .iter()
                .any(|it| marker::match_length(it, ahead).is_some())
        {
            return PayloadFollower::EndOfMessage(end);
        }
        if ahead.eat("```") {
            if fenced {
                fenced = false;
                end = ahead.position();
                continue;
            }
            let info = ahead.take_while(|c| c.is_ascii_alphanumeric() || c == '_');
            ahead.skip_space();
            let value = matches!(ahead.peek(), Some('{' | '['));
            return if value && JSON_FENCE_LANGUAGES.contains(&info) {
                PayloadFollower::NextValue(ahead.position(), true)
            } else {
                PayloadFollower::OtherText(end)
            };
        }
        if ahead.peek() == Some('{') {
            return PayloadFollower::NextValue(ahead.position(), false);
        }
        match marker_index::find_marker(ahead, MarkerPlacement::Anywhere) {
            Some(hit) if hit.role == MarkerRole::ControlToken => {
                ahead = ahead.advanced_by(hit.length);
            }
            _ if fenced => return PayloadFollower::OpenFence,
            _ => return PayloadFollower::OtherText(end),
        }
    }
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
            events.retain(|it| matches!(it, DialectEvent::Call(_)));
            FrameResult::Parsed { end, events }
        }
        FrameResult::Parsed { end, events } if context.prompted && names_unknown_tool(&events) => {
            FrameResult::Parsed { end, events }
        }
        FrameResult::Parsed { end, .. } => text_result(context, end),
        FrameResult::NotAFrame => FrameResult::NotAFrame,
    }
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

fn cursor_at(context: FrameContext<'_>, at: usize) -> TextCursor<'_> {
    let mut cursor = context.start;
    cursor.seek(at);
    cursor
}
