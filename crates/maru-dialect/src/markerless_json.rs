//! Parses JSON calls without markers, and decides whether they are meant by what
//! follows them.

use super::{
    DialectEvent,
    cursor::{TextCursor, is_space},
    frame::parse_json_values,
    frame_context::{FrameContext, FrameResult},
    grammar::{HALLUCINATED_RESULT_MARKERS, MarkerPlacement, MarkerRole},
    json::JsonValue,
    json_calls::{CandidateOutcome, is_answer_name, is_call_key, is_name_key},
    marker, marker_index, python_calls,
    repair::{self, JsonRepair, LenientJsonParser, PayloadError},
    surrounding_text::is_meant,
};

/// The longest first key of an object that may be a call.
const MAX_FIRST_KEY_BYTES: usize = 96;
/// How far into an object the member is sought that names a tool.
const MAX_MEMBERS_BEFORE_NAME_BYTES: usize = 4096;
/// Fences that may hold JSON.
pub(super) const JSON_FENCE_LANGUAGES: [&str; 12] = [
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
pub(super) const PAYLOAD_ENDS: &[&str] = &[
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

/// What a call without markers begins with.
pub(super) enum Payload<'a> {
    Json {
        /// The tool that its first member names.
        name: Option<&'a str>,
    },
    Python,
}

/// What a call without markers could begin with. Looks at its first words.
pub(super) fn detect_payload<'a>(
    start: TextCursor<'a>,
    context: FrameContext<'_>,
) -> Option<Payload<'a>> {
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
    if key.len() > MAX_FIRST_KEY_BYTES || key.is_empty() {
        return None;
    }
    if !is_call_key(key, tools) {
        let name = context
            .prompted
            .then(|| find_name_member(parser.cursor))??;
        let name = Some(name).filter(|name| tools.find(name).is_some());
        return Some(Payload::Json { name });
    }
    if !is_name_key(key) || tools.find(key).is_some() {
        return Some(Payload::Json { name: None });
    }
    // The name is there: it must be one of a tool, or hold the call.
    let between = |c: char| is_space(c) || "\\\"'“”‘’「」＂`:：=>".contains(c);
    let key_end = cursor.position();
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
    let has_value = || {
        let separator = cursor.slice(key_end, cursor.position());
        !name.is_empty() || separator.contains([':', '：', '='])
    };
    let candidate = is_answer_name(name) || (context.prompted && has_value());
    candidate.then_some(Payload::Json { name: None })
}

/// The value of the first member of an object that names a tool, as it is written; the
/// object's first key is next. None when other members than strict JSON stand before it.
fn find_name_member(first_key: TextCursor<'_>) -> Option<&str> {
    let mut cursor = first_key;
    loop {
        let key = skip_string(&mut cursor)?;
        cursor.skip_space();
        if !cursor.eat(":") {
            return None;
        }
        cursor.skip_space();
        let start = cursor.position();
        if is_name_key(key) {
            return match cursor.peek()? {
                '"' => skip_string(&mut cursor),
                _ => Some(""),
            };
        }
        let mut depth = 0_usize;
        loop {
            if cursor.position() - first_key.position() > MAX_MEMBERS_BEFORE_NAME_BYTES {
                return None;
            }
            match cursor.peek()? {
                '"' => drop(skip_string(&mut cursor)?),
                '{' | '[' => {
                    depth += 1;
                    cursor.bump();
                }
                '}' | ']' if depth > 0 => {
                    depth -= 1;
                    cursor.bump();
                }
                ',' if depth == 0 && cursor.position() > start => break,
                c if is_space(c)
                    || c.is_ascii_alphanumeric()
                    || matches!(c, '-' | '+' | '.')
                    || (depth > 0 && matches!(c, ',' | ':')) =>
                {
                    cursor.bump();
                }
                _ => return None,
            }
        }
        cursor.eat(",");
        cursor.skip_space();
    }
}

/// Steps over a string of strict JSON; what stands between its quotes.
fn skip_string<'a>(cursor: &mut TextCursor<'a>) -> Option<&'a str> {
    if !cursor.eat("\"") {
        return None;
    }
    let start = cursor.position();
    loop {
        match cursor.bump()? {
            '"' => return Some(cursor.slice(start, cursor.position() - 1)),
            '\\' => drop(cursor.bump()?),
            '\n' => return None,
            _ if cursor.position() - start > MAX_MEMBERS_BEFORE_NAME_BYTES => return None,
            _ => (),
        }
    }
}

/// The text up to `end` as it is.
pub(super) fn text_result(context: FrameContext<'_>, end: usize) -> FrameResult {
    let events = vec![DialectEvent::Text(context.raw_text(end))];
    FrameResult::Parsed { end, events }
}

/// What is known about JSON that may be a call.
#[derive(Clone, Copy)]
pub(super) struct JsonContext<'a> {
    /// A fence is open around it.
    pub(super) fenced: bool,
    /// The tool that its first member names.
    pub(super) name: Option<&'a str>,
}

/// JSON values that end the message, or that are meant although words follow.
pub(super) fn parse_json_calls(
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
        if cursor.needs_more_text() {
            return FrameResult::NotAFrame;
        }
        let region = end.map_or(cursor, |end| cursor.truncated_at(end));
        let payload = match parse_payload(region) {
            _ if region.needs_more_text() => return FrameResult::NotAFrame,
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
            Err(error) => {
                // The fence belongs to the call: left behind, it would open another.
                let fence_end = end.map(|end| end + "\n```".len());
                let end = fence_end.unwrap_or_else(|| region.end_of_input());
                return unreadable_result(end, error, json_context, context);
            }
        }
        let follower = detect_follower(cursor, fenced);
        if cursor.needs_more_text() {
            return FrameResult::NotAFrame;
        }
        let end = match follower {
            PayloadFollower::NextValue(at, inside) => {
                cursor.seek(at);
                fenced = inside;
                continue;
            }
            PayloadFollower::EndOfMessage(end) => end,
            PayloadFollower::OtherText(end)
                if (json_context.name.is_some()
                    && context.is_certainly_meant(json_context.fenced))
                    || is_meant(
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
    end: usize,
    error: PayloadError,
    json_context: JsonContext<'_>,
    context: FrameContext<'_>,
) -> FrameResult {
    match json_context.name.filter(|_| context.prompted) {
        Some(name) => {
            let events = vec![context.unreadable_call(context.raw_text(end), name, error)];
            FrameResult::Parsed { end, events }
        }
        None => text_result(context, end),
    }
}

/// The events of values: text, unless all of them are calls. One that cannot be made
/// is an invalid call where our own prompt asked for calls.
fn finish_json_calls(
    values: &[JsonValue],
    repairs: &[JsonRepair],
    end: usize,
    context: FrameContext<'_>,
) -> FrameResult {
    let is_text = |(outcome, _): &(CandidateOutcome, String)| match outcome {
        CandidateOutcome::Call(_) | CandidateOutcome::Answer(_) => false,
        CandidateOutcome::UnknownTool(_) | CandidateOutcome::Invalid { .. } => !context.prompted,
        CandidateOutcome::NotACall(_) => true,
    };
    let outcomes = context.outcomes_of_values(values);
    if outcomes.iter().any(is_text) {
        return text_result(context, end);
    }
    context.result_from_outcomes(outcomes, repairs, end)
}

pub(super) enum PayloadFollower {
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
pub(super) fn detect_follower(cursor: TextCursor<'_>, mut fenced: bool) -> PayloadFollower {
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

pub(super) fn cursor_at(context: FrameContext<'_>, at: usize) -> TextCursor<'_> {
    let mut cursor = context.start;
    cursor.seek(at);
    cursor
}
