//! Messages of gpt-oss whose special tokens a backend removed:
//! `analysis⟨text⟩assistantcommentary to=functions.⟨n⟩ json{…}`.

use super::{
    DialectEvent,
    cursor::TextCursor,
    frame_context::{FrameContext, FrameResult},
    repair::{LenientJsonParser, PayloadError},
};

/// What the next message of the reply begins with, its tokens removed.
const NEXT_MESSAGE: [&str; 3] = ["assistantanalysis", "assistantcommentary", "assistantfinal"];
/// What a reply can begin with.
pub(super) const REPLY_STARTS: [&str; 6] = [
    "analysis",
    "commentary to=",
    "assistantanalysis",
    "assistantcommentary",
    "assistantfinal",
    "assistant commentary to=",
];
/// How the arguments are announced.
const CONTENT_TYPES: [&str; 4] = ["<|constrain|>json", "json", "code", "text"];

/// What one message of the reply is.
enum MessageKind<'a> {
    Reasoning,
    Text,
    Call(&'a str),
}

/// Reads a whole reply without tokens. Not a frame when it only begins like one.
pub(super) fn parse_reply(context: FrameContext<'_>) -> FrameResult {
    let mut cursor = context.start;
    let mut events = Vec::new();
    let begins_with_reasoning = cursor.starts_with("analysis");
    if begins_with_reasoning && !next_is_glued(cursor) {
        return FrameResult::NotAFrame;
    }
    while cursor.peek().is_some() {
        let Some(kind) = parse_header(&mut cursor) else {
            return FrameResult::NotAFrame;
        };
        match kind {
            MessageKind::Call(name) => match parse_call(&mut cursor, name, context) {
                Some(event) => events.push(event),
                None => return FrameResult::NotAFrame,
            },
            MessageKind::Reasoning | MessageKind::Text => {
                let text = take_body(&mut cursor);
                // Without another message these are words of ordinary text.
                if begins_with_reasoning && events.is_empty() && cursor.peek().is_none() {
                    return FrameResult::NotAFrame;
                }
                if !text.trim().is_empty() {
                    events.push(match kind {
                        MessageKind::Reasoning => DialectEvent::Reasoning(text.trim().to_owned()),
                        _ => DialectEvent::Text(text.to_owned()),
                    });
                }
            }
        }
    }
    let end = cursor.position();
    FrameResult::Parsed { end, events }
}

/// Whether the word `analysis` runs into the text or stands on its own line.
fn next_is_glued(start: TextCursor<'_>) -> bool {
    let after = start.advanced_by("analysis".len());
    after
        .peek()
        .is_none_or(|c| c.is_uppercase() || c == '\n' || !c.is_ascii())
}

fn parse_header<'a>(cursor: &mut TextCursor<'a>) -> Option<MessageKind<'a>> {
    cursor.eat("assistant");
    cursor.skip_space();
    if cursor.eat("analysis") {
        return Some(MessageKind::Reasoning);
    }
    if cursor.eat("final") {
        return Some(MessageKind::Text);
    }
    if !cursor.eat("commentary") {
        return None;
    }
    let mut ahead = *cursor;
    ahead.skip_space();
    if !ahead.eat("to=") {
        return Some(MessageKind::Text);
    }
    let name = ahead.take_while(|c| c.is_alphanumeric() || "_-./:".contains(c));
    ahead.skip_space();
    CONTENT_TYPES.iter().any(|it| ahead.eat(it));
    *cursor = ahead;
    Some(MessageKind::Call(name))
}

/// Text up to the next message.
fn take_body<'a>(cursor: &mut TextCursor<'a>) -> &'a str {
    let from = cursor.position();
    loop {
        match cursor.find("assistant") {
            None => cursor.seek(cursor.end_of_input()),
            Some(at) => {
                cursor.seek(at);
                if !NEXT_MESSAGE.iter().any(|it| cursor.starts_with(it)) {
                    cursor.bump();
                    continue;
                }
            }
        }
        return cursor.slice(from, cursor.position());
    }
}

/// The call of the tool called `name`. None when something else follows.
fn parse_call(
    cursor: &mut TextCursor<'_>,
    name: &str,
    context: FrameContext<'_>,
) -> Option<DialectEvent> {
    let start = cursor.position();
    cursor.skip_space();
    if cursor.peek()? != '{' {
        return None;
    }
    let mut parser = LenientJsonParser::new(*cursor, &[]);
    let value = match parser.parse_value() {
        Ok(value) => value,
        Err(PayloadError::UnexpectedEnd) => {
            let end = cursor.end_of_input();
            cursor.seek(end);
            let raw = cursor.slice(start, end).to_owned();
            return Some(context.unreadable_call(raw, name, PayloadError::UnexpectedEnd));
        }
        Err(_) => return None,
    };
    let mut repairs = parser.repairs;
    let outcome = context.resolve_call(name, &value, &mut repairs);
    cursor.seek(parser.cursor.position());
    cursor.skip_space();
    let raw = cursor.slice(start, cursor.position()).to_owned();
    Some(context.outcome_event(outcome, raw, &repairs))
}
