//! Calls without markers: JSON or python as the end of a message, fenced or
//! not, and tags named after tools.

use super::{
    DialectEvent,
    cursor::{TextCursor, is_space},
    frame::{parse_frame, parse_json_values, parse_python_body},
    frame_context::{FrameContext, FrameResult},
    grammar::{FRAMES, HALLUCINATED_RESULT_MARKERS, MarkerPlacement, MarkerRole},
    json::JsonValue,
    json_calls::{CandidateOutcome, MatchedCall, is_answer_name, is_call_key, is_name_key},
    line_calls, marker, marker_index, python_calls,
    repair::{self, JsonRepair, LenientJsonParser, PayloadError},
    tag_calls,
    tool_set::ToolSet,
};

/// Longest first key that is looked at.
const MAX_FIRST_KEY_BYTES: usize = 96;
/// Words that announce an example rather than a call.
const EXAMPLE_WORDS: [&str; 11] = [
    "example",
    "e.g.",
    "for instance",
    "looks like",
    "look like",
    "syntax",
    "format",
    "예시",
    "예를 들",
    "형식",
    "例",
];
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

/// Whether the end of the text before announces an example.
pub(super) fn announces_example(tail: &str) -> bool {
    let line = tail.trim_end().rsplit('\n').next().unwrap_or_default();
    let line = line.to_lowercase();
    EXAMPLE_WORDS.iter().any(|word| line.contains(word))
}

/// Reads what begins like bare JSON or a python list.
pub(super) fn parse_bare(scene: FrameContext<'_>) -> FrameResult {
    let start = scene.start;
    match detect_payload(start, scene.tools) {
        Some(PayloadStart::Json) => parse_json_calls(start, false, scene),
        Some(PayloadStart::Python) => parse_python_list(scene),
        None => FrameResult::NotAFrame,
    }
}

/// Reads a fence: of a dialect, or around a call that is the message's end.
/// `first` says that nothing stands before it, `tail` is the text that does.
pub(super) fn parse_fence(scene: FrameContext<'_>, first: bool, tail: &str) -> FrameResult {
    let mut body = scene.start;
    body.take_while(|c| c == '`');
    let info = body.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
    body.take_while(|c| c == ' ' || c == '\r');
    if body.peek() == Some('\n') || matches!(info, "json" | "tool_code") {
        let info = info.to_ascii_lowercase();
        return match info.as_str() {
            "tool_code" => parse_tool_code_fence(body, scene),
            "tool" => line_calls::parse_tool_block(
                body,
                FrameContext {
                    dialect: "codeblock_tool",
                    explicit: true,
                    ..scene
                },
            ),
            info if JSON_FENCE_LANGUAGES.contains(&info) && !announces_example(tail) => {
                parse_json_fence(body, scene, first)
            }
            _ => FrameResult::NotAFrame,
        };
    }
    FrameResult::NotAFrame
}

/// Reads a tag named after a tool.
pub(super) fn parse_tool_tag(scene: FrameContext<'_>) -> FrameResult {
    let mut body = scene.start.advanced_by(1);
    let name = body.take_while(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'));
    let Some(tool) = scene.tools.find_exact(name).filter(|_| body.eat(">")) else {
        return FrameResult::NotAFrame;
    };
    let mut reader = tag_calls::TagCallParser {
        cursor: body,
        tools: scene.tools,
        is_frame_opener: scene.is_frame_opener,
    };
    let Ok(arguments) = reader.parse_tool_parameters(tool) else {
        return text_result(scene, reader.cursor.position());
    };
    let mut after = reader.cursor;
    after.skip_space();
    let closed = after.eat("</") && after.eat(name) && after.eat(">");
    let ended = after.peek().is_none() && !arguments.is_empty();
    if !closed && !ended {
        return text_result(scene, reader.cursor.position());
    }
    let outcome = CandidateOutcome::Call(MatchedCall::new(tool, arguments));
    let end = if closed {
        after.position()
    } else {
        reader.cursor.position()
    };
    scene.result_from_outcomes(vec![(outcome, scene.raw_text(end))], &[], end)
}

enum PayloadStart {
    Json,
    Python,
}

/// What a call without markers could begin with. Looks at its first words.
fn detect_payload(start: TextCursor<'_>, tools: &ToolSet) -> Option<PayloadStart> {
    let mut parser = LenientJsonParser::new(start, &[]);
    let list = parser.cursor.eat("[");
    parser.skip_trivia();
    if list && parser.cursor.peek()? != '{' {
        let name = python_calls::peek_call_name(parser.cursor)?;
        return tools.find(name).map(|_| PayloadStart::Python);
    }
    if !parser.cursor.eat("{") {
        return None;
    }
    parser.cursor.eat("{");
    parser.skip_trivia();
    let mut cursor = parser.cursor;
    cursor.take_while(|c| matches!(c, '\\' | '"' | '\'' | '“' | '`'));
    cursor.eat("&quot;");
    let key = cursor.take_while(|c| c.is_alphanumeric() || "_-./".contains(c));
    if key.len() > MAX_FIRST_KEY_BYTES || key.is_empty() || !is_call_key(key, tools) {
        return None;
    }
    if !is_name_key(key) || tools.find(key).is_some() {
        return Some(PayloadStart::Json);
    }
    // The name is there: it must be one of a tool, or hold the call.
    let between = |c: char| is_space(c) || "\\\"'“”`:：=>".contains(c);
    for _ in 0..2 {
        cursor.take_while(between);
        cursor.eat("&quot;");
    }
    cursor.take_while(between);
    if cursor.peek()? == '{' {
        return Some(PayloadStart::Json);
    }
    let name = cursor.take_while(|c| c.is_alphanumeric() || "_-./: ".contains(c));
    (name.len() <= MAX_FIRST_KEY_BYTES && (tools.find(name).is_some() || is_answer_name(name)))
        .then_some(PayloadStart::Json)
}

/// The text up to `end` as it is.
fn text_result(scene: FrameContext<'_>, end: usize) -> FrameResult {
    let events = vec![DialectEvent::Text(scene.raw_text(end))];
    FrameResult::Parsed { end, events }
}

/// JSON up to the end of the message; `fenced` says that a fence is open.
fn parse_json_calls(
    body: TextCursor<'_>,
    mut fenced: bool,
    scene: FrameContext<'_>,
) -> FrameResult {
    let mut cursor = body;
    let mut found = Vec::new();
    let mut repairs = Vec::new();
    loop {
        let end = if fenced { cursor.find("\n```") } else { None };
        let region = end.map_or(cursor, |end| cursor.truncated_at(end));
        if repair::unescape_payload(region.rest()).is_some() {
            return parse_escaped_calls(region, scene);
        }
        let mut parser = LenientJsonParser::new(region, &[]);
        match parse_json_values(&mut parser) {
            Ok(more) => found.extend(more),
            Err(PayloadError::UnexpectedEnd) => return text_result(scene, region.end_of_input()),
            Err(_) => return text_result(scene, parser.cursor.position()),
        }
        repairs.append(&mut parser.repairs);
        cursor.seek(parser.cursor.position());
        match detect_follower(cursor, fenced) {
            PayloadFollower::NextValue(at, inside) => {
                cursor.seek(at);
                fenced = inside;
            }
            PayloadFollower::EndOfMessage(end) => {
                repairs.retain(|it| *it != JsonRepair::SurroundingText);
                return finish_json_calls(&found, &repairs, end, scene);
            }
            PayloadFollower::OtherText => return text_result(scene, cursor.position()),
        }
    }
}

/// A payload that was escaped as a whole and ends the message.
fn parse_escaped_calls(region: TextCursor<'_>, scene: FrameContext<'_>) -> FrameResult {
    let end = region.end_of_input();
    match repair::parse_lenient(region.rest()) {
        Ok((value, repairs)) => finish_json_calls(&[value], &repairs, end, scene),
        Err(_) => text_result(scene, end),
    }
}

/// The values are the end of the message: calls, if all of them are.
fn finish_json_calls(
    values: &[JsonValue],
    repairs: &[JsonRepair],
    end: usize,
    scene: FrameContext<'_>,
) -> FrameResult {
    match scene.result_from_values(values, repairs, end) {
        FrameResult::Parsed { events, .. }
            if events
                .iter()
                .any(|it| matches!(it, DialectEvent::InvalidCall(_))) =>
        {
            text_result(scene, end)
        }
        verdict => verdict,
    }
}

enum PayloadFollower {
    /// Another value begins, in a fence or not.
    NextValue(usize, bool),
    /// Nothing of the model's own follows.
    EndOfMessage(usize),
    OtherText,
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
                PayloadFollower::OtherText
            };
        }
        if ahead.peek() == Some('{') {
            return PayloadFollower::NextValue(ahead.position(), false);
        }
        match marker_index::find_marker(ahead, MarkerPlacement::Anywhere) {
            Some(hit) if hit.role == MarkerRole::ControlToken => {
                ahead = ahead.advanced_by(hit.length);
            }
            _ => return PayloadFollower::OtherText,
        }
    }
}

fn parse_python_list(scene: FrameContext<'_>) -> FrameResult {
    match parse_python_body(scene.start, scene) {
        FrameResult::Parsed { end, events } => {
            let mut after = scene.start;
            after.seek(end);
            let good = events.iter().all(|it| matches!(it, DialectEvent::Call(_)));
            match detect_follower(after, false) {
                PayloadFollower::EndOfMessage(_) if good => FrameResult::Parsed { end, events },
                _ => text_result(scene, end),
            }
        }
        FrameResult::NotAFrame => FrameResult::NotAFrame,
    }
}

/// Fence `tool_code`: python calls, and nothing else.
fn parse_tool_code_fence(body: TextCursor<'_>, scene: FrameContext<'_>) -> FrameResult {
    let scene = FrameContext {
        dialect: "tool_code",
        explicit: true,
        closers: &["```"],
        ..scene
    };
    match parse_python_body(body, scene) {
        FrameResult::Parsed { end, events }
            if events.iter().any(|it| matches!(it, DialectEvent::Call(_))) =>
        {
            FrameResult::Parsed { end, events }
        }
        FrameResult::Parsed { end, .. } => text_result(scene, end),
        FrameResult::NotAFrame => FrameResult::NotAFrame,
    }
}

fn parse_json_fence(body: TextCursor<'_>, scene: FrameContext<'_>, first: bool) -> FrameResult {
    let mut inside = body;
    inside.skip_space();
    match inside.peek() {
        Some('{' | '[') => match detect_payload(inside, scene.tools) {
            Some(PayloadStart::Json) => parse_fenced_json(inside, scene),
            Some(PayloadStart::Python) | None => FrameResult::NotAFrame,
        },
        Some('<') if first => parse_fenced_frame(inside, scene),
        _ => FrameResult::NotAFrame,
    }
}

fn parse_fenced_json(inside: TextCursor<'_>, scene: FrameContext<'_>) -> FrameResult {
    let FrameResult::Parsed { end, events } = parse_json_calls(inside, true, scene) else {
        return FrameResult::NotAFrame;
    };
    let shown = |event: &DialectEvent| matches!(event, DialectEvent::Text(text) if *text == scene.raw_text(end));
    if events.iter().any(shown) {
        FrameResult::NotAFrame
    } else {
        FrameResult::Parsed { end, events }
    }
}

/// A frame with markers in a fence that is the whole message.
fn parse_fenced_frame(inside: TextCursor<'_>, scene: FrameContext<'_>) -> FrameResult {
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
        ..scene
    };
    let FrameResult::Parsed { end, events } = parse_frame(frame, hit.length, inner) else {
        return FrameResult::NotAFrame;
    };
    let mut after = cursor_at(scene, end);
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

fn cursor_at(scene: FrameContext<'_>, at: usize) -> TextCursor<'_> {
    let mut cursor = scene.start;
    cursor.seek(at);
    cursor
}
