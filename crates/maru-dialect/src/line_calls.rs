//! Parses calls written as labelled lines (`ReAct`, Qwen-Agent, Continue).

use super::{
    DialectEvent,
    cursor::TextCursor,
    frame::{parse_json_body, parse_named_arguments},
    frame_context::{FrameContext, FrameResult},
    json::{JsonObject, JsonValue},
    json_calls::{CandidateOutcome, MatchedCall, is_answer_name, single_argument},
    python_calls,
    repair::{LenientJsonParser, OpenContainer},
    tool_set::ToolSignature,
};

/// Longest name on a line.
const MAX_LINE_NAME_BYTES: usize = 128;
const ACTION_INPUT_LABELS: [&str; 5] = [
    "Action Input:",
    "**Action Input:**",
    "Action input:",
    "ActionInput:",
    "Action_Input:",
];
/// What ends the input of an action that is not JSON.
const ACTION_INPUT_ENDS: [&str; 4] = ["\nObserv", "\nThought:", "\nAction:", "\nFinal Answer:"];
/// What opens the thoughts of a `ReAct` message.
pub(super) const THOUGHT_LABELS: [&str; 4] = ["Thought:", "**Thought:**", "생각:", "思考:"];
/// What opens its answer.
pub(super) const FINAL_ANSWER_LABELS: [&str; 3] =
    ["Final Answer:", "**Final Answer:**", "최종 답변:"];

/// Lines that open text for everyone.
pub(super) const RECIPIENT_ALL_LINES: [&str; 2] = [">>>all\n", ">>>all\r\n"];

/// `Action: ⟨n⟩` and its input; or `Action:` and fenced JSON.
pub(super) fn parse_react_action(body: TextCursor<'_>, context: FrameContext<'_>) -> FrameResult {
    let mut cursor = body;
    cursor.take_while(|c| c == ' ' || c == '\t');
    let mut fenced = cursor;
    fenced.skip_space();
    if matches!(fenced.peek(), Some('`' | '{' | '[')) {
        return if fenced.starts_with("```") || fenced.peek() != Some('`') {
            parse_json_body(
                fenced,
                FrameContext {
                    dialect: "cohere",
                    ..context
                },
            )
        } else {
            FrameResult::NotAFrame
        };
    }
    let name = cursor
        .take_while(|c| !matches!(c, '\n' | '[' | '(' | '{'))
        .trim();
    if name.is_empty() || name.len() > MAX_LINE_NAME_BYTES {
        return FrameResult::NotAFrame;
    }
    match cursor.peek() {
        Some('[' | '(') => bracketed(cursor, name, context),
        _ => labelled(cursor, name, context),
    }
}

/// `✿FUNCTION✿: ⟨n⟩` and `✿ARGS✿: {…}`.
pub(super) fn parse_qwen_agent(body: TextCursor<'_>, context: FrameContext<'_>) -> FrameResult {
    let mut cursor = body;
    if !colon(&mut cursor) {
        return FrameResult::NotAFrame;
    }
    let name = cursor.take_while(|c| c != '\n' && c != '✿').trim();
    cursor.skip_space();
    if name.is_empty()
        || name.len() > MAX_LINE_NAME_BYTES
        || !cursor.eat("✿ARGS✿")
        || !colon(&mut cursor)
    {
        return FrameResult::NotAFrame;
    }
    parse_named_arguments(cursor, name, None, context)
}

/// Fence `tool`: `TOOL_NAME: ⟨n⟩`, then `BEGIN_ARG: ⟨k⟩` … `END_ARG`.
pub(super) fn parse_tool_block(body: TextCursor<'_>, context: FrameContext<'_>) -> FrameResult {
    let mut cursor = body;
    cursor.skip_space();
    if !cursor.eat("TOOL_NAME:") {
        return FrameResult::NotAFrame;
    }
    let name = cursor.take_while(|c| c != '\n').trim();
    let tool = context.tools.find(name);
    let mut found = JsonObject::new();
    loop {
        cursor.skip_space();
        if cursor.eat("```") || cursor.peek().is_none() {
            break;
        }
        if !cursor.eat("BEGIN_ARG:") {
            return FrameResult::NotAFrame;
        }
        let key = cursor.take_while(|c| c != '\n').trim();
        cursor.bump();
        let Some(end) = cursor.find("END_ARG") else {
            return FrameResult::NotAFrame;
        };
        let text = cursor.slice(cursor.position(), end);
        let text = text.strip_suffix('\n').unwrap_or(text);
        let schema = tool.and_then(|tool| tool.schema.schema_for(key));
        found.push((
            key.to_owned(),
            super::arguments::value_from_text(text, schema),
        ));
        cursor.seek(end + "END_ARG".len());
    }
    let outcome = call_outcome(tool, name, Some(found));
    let end = cursor.position();
    context.result_from_outcomes(vec![(outcome, context.raw_text(end))], &[], end)
}

/// Thoughts up to an action or an answer; without one they are text.
pub(super) fn parse_react_thought(body: TextCursor<'_>) -> FrameResult {
    let mut cursor = body;
    loop {
        cursor.take_while(|c| c != '\n');
        if cursor.bump().is_none() {
            let text = body.slice(body.position(), body.end_of_input()).to_owned();
            let events = vec![DialectEvent::Text(text)];
            let end = body.end_of_input();
            return FrameResult::Parsed { end, events };
        }
        let mut line = cursor;
        line.take_while(|c| c == ' ' || c == '\t');
        if matches!(line.peek(), Some('<' | '`' | '{' | '[')) {
            return FrameResult::NotAFrame;
        }
        let labels = FINAL_ANSWER_LABELS
            .iter()
            .chain(&["Action:", "**Action:**"]);
        if labels.into_iter().any(|label| line.starts_with(label)) {
            let text = body
                .slice(body.position(), cursor.position())
                .trim()
                .to_owned();
            let end = cursor.position();
            let events = vec![DialectEvent::Reasoning(text)];
            return FrameResult::Parsed { end, events };
        }
    }
}

fn colon(cursor: &mut TextCursor<'_>) -> bool {
    cursor.skip_space();
    let found = cursor.eat(":") || cursor.eat("：");
    cursor.skip_space();
    found
}

fn call_outcome(
    tool: Option<&ToolSignature>,
    name: &str,
    arguments: Option<JsonObject>,
) -> CandidateOutcome {
    match (tool, arguments) {
        (None, _) => CandidateOutcome::UnknownTool(name.to_owned()),
        (Some(tool), Some(arguments)) => CandidateOutcome::Call(MatchedCall::new(tool, arguments)),
        (Some(_), None) => CandidateOutcome::NotACall("its input cannot be read"),
    }
}

/// `⟨n⟩[…]` or `⟨n⟩(…)`.
fn bracketed(cursor: TextCursor<'_>, name: &str, context: FrameContext<'_>) -> FrameResult {
    let Some(tool) = context.tools.find(name) else {
        return FrameResult::NotAFrame;
    };
    let mut parser = LenientJsonParser::new(cursor, &[]);
    let written = parser.parse_nested(OpenContainer::Call, python_calls::parse_call_arguments);
    let read = written.ok().and_then(|(keywords, positional)| {
        let written = python_calls::PythonCall::new(name, keywords, positional);
        Some((written.into_arguments(tool)?, parser.cursor.position()))
    });
    let (arguments, end) = match read {
        Some(read) => read,
        None => {
            let mut plain = cursor.advanced_by(1);
            let text = plain.take_while(|c| !matches!(c, ']' | ')' | '\n')).trim();
            plain.bump();
            match single_argument(&JsonValue::String(text.to_owned()), tool) {
                Some(arguments) => (arguments, plain.position()),
                None => return FrameResult::NotAFrame,
            }
        }
    };
    let outcome = call_outcome(Some(tool), name, Some(arguments));
    context.result_from_outcomes(vec![(outcome, context.raw_text(end))], &[], end)
}

fn labelled(mut cursor: TextCursor<'_>, name: &str, context: FrameContext<'_>) -> FrameResult {
    let tool = context.tools.find(name);
    let alone = cursor.position();
    cursor.skip_space();
    if !ACTION_INPUT_LABELS.iter().any(|label| cursor.eat(label)) {
        // Without any input this is a call only of a tool that needs none.
        let needs_none = tool.is_some_and(|tool| tool.schema.required.is_empty());
        if !needs_none || cursor.peek().is_some_and(|_| !cursor.starts_with("Observ")) {
            return FrameResult::NotAFrame;
        }
        let outcome = call_outcome(tool, name, Some(JsonObject::new()));
        return context.result_from_outcomes(vec![(outcome, context.raw_text(alone))], &[], alone);
    }
    cursor.take_while(|c| c == ' ' || c == '\t');
    let is_empty = ACTION_INPUT_ENDS.iter().any(|end| cursor.starts_with(end));
    if !is_empty {
        cursor.skip_space();
    }
    if matches!(cursor.peek(), Some('{' | '`')) && !is_answer_name(name) {
        return parse_named_arguments(cursor, name, None, context);
    }
    let text = if is_empty {
        ""
    } else {
        take_plain_input(&mut cursor)
    };
    let end = cursor.position();
    let outcome = match tool {
        None if is_answer_name(name) => CandidateOutcome::Answer(text.to_owned()),
        None => CandidateOutcome::UnknownTool(name.to_owned()),
        Some(tool) => call_outcome(Some(tool), name, arguments_from_plain_input(text, tool)),
    };
    context.result_from_outcomes(vec![(outcome, context.raw_text(end))], &[], end)
}

/// Plain input, up to where the model continues in another role.
fn take_plain_input<'a>(cursor: &mut TextCursor<'a>) -> &'a str {
    let from = cursor.position();
    loop {
        cursor.take_while(|c| c != '\n');
        if cursor.peek().is_none() || ACTION_INPUT_ENDS.iter().any(|end| cursor.starts_with(end)) {
            return cursor.slice(from, cursor.position()).trim();
        }
        cursor.bump();
    }
}

/// Arguments from input that is not an object: nothing, `k=v`, or a single value.
fn arguments_from_plain_input(text: &str, tool: &ToolSignature) -> Option<JsonObject> {
    if matches!(text, "" | "None" | "null" | "none" | "N/A") {
        return Some(JsonObject::new());
    }
    let touched = std::cell::Cell::new(false);
    let call = format!("({text})");
    let mut parser = LenientJsonParser::new(TextCursor::new(&call, &touched), &[]);
    if let Ok((keywords, positional)) =
        parser.parse_nested(OpenContainer::Call, python_calls::parse_call_arguments)
        && positional.is_empty()
        && !keywords.is_empty()
        && keywords
            .iter()
            .all(|(key, _)| tool.schema.property(key).is_some())
    {
        return Some(keywords);
    }
    let text = text.trim_matches(['"', '\'', '`']);
    single_argument(&JsonValue::String(text.to_owned()), tool)
}
