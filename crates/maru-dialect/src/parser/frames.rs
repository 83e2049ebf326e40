//! Parses markers, frames and message headers at the current position.

use std::cell::Cell;

use super::{
    DialectParser, InputState, MAX_FRAME_BYTES, MAX_UNDECIDED_FRAMES, ParserMode, ParserStep,
    line_start, reasoning,
};
use crate::{
    DialectEvent, InvalidCall,
    argument_stream::{ArgumentStream, ArgumentsStart},
    cursor::TextCursor,
    event_buffer::LastEvent,
    frame,
    frame_context::{FrameContext, FrameResult},
    grammar::{FRAMES, FrameSyntax, MESSAGE_ENDS, MarkerPlacement, MarkerRole},
    header,
    marker_index::{self, MarkerMatch},
    surrounding_text,
};

/// Parses the marker at the current position; `None` without one.
pub(super) fn parse_marker(
    parser: &mut DialectParser,
    place: MarkerPlacement,
    end: InputState,
) -> Option<ParserStep> {
    let touched = Cell::new(false);
    let cursor = TextCursor::new(&parser.buffer[parser.position..], &touched);
    let hit = marker_index::find_marker(cursor, place);
    // A longer marker may still begin with the one that was found.
    if touched.get() && end == InputState::Open {
        return Some(ParserStep::NeedMoreText);
    }
    let Some(hit) = hit else {
        let rest = &parser.buffer[parser.position..];
        let partial = touched.get() && rest.len() > 1 && rest.starts_with('<');
        // The end of a message cut the token that follows its call.
        let length = rest.len();
        return (partial && parser.event_buffer.last == LastEvent::Call)
            .then(|| consume_control_token(parser, length));
    };
    if parser.previous_char == '`' && !parser.at_line_start {
        return None;
    }
    match hit.role {
        MarkerRole::FrameOpener(row) => frame(parser, &FRAMES[row], hit.length, end),
        MarkerRole::ReasoningOpener(row) => reasoning::open_reasoning(parser, row, hit.length),
        MarkerRole::ReasoningCloser(row) => {
            reasoning::close_reasoning(parser, row, hit.length, end)
        }
        MarkerRole::MessageHeader => apply_message_header(parser, hit.length, end),
        MarkerRole::ControlToken => Some(consume_control_token(parser, hit.length)),
        MarkerRole::StructuralToken => Some(consume_structural_token(parser, hit.length)),
    }
}

fn consume_control_token(parser: &mut DialectParser, length: usize) -> ParserStep {
    let token = &parser.buffer[parser.position..parser.position + length];
    // A backend leaks a token right after the last word. A closing tag, or a token
    // that stands like a word in its sentence, is what the model speaks of.
    let is_tag = token.starts_with("</")
        && !token.contains(['|', '｜', '‖'])
        && !matches!(token, "</s>" | "</response>");
    if parser.event_buffer.last == LastEvent::Text && (is_tag || parser.previous_char == ' ') {
        parser.event_buffer.push_quotable_token(token);
    } else {
        parser.event_buffer.push_control_token(token);
    }
    parser.position += length;
    ParserStep::Continue
}

pub(super) fn consume_structural_token(parser: &mut DialectParser, length: usize) -> ParserStep {
    let token = &parser.buffer[parser.position..parser.position + length];
    parser.event_buffer.push_structural_token(token);
    parser.position += length;
    parser.at_line_start = true;
    ParserStep::Continue
}

/// Parses a frame with markers. None when its opener is text.
fn frame(
    parser: &mut DialectParser,
    frame: &'static FrameSyntax,
    length: usize,
    end: InputState,
) -> Option<ParserStep> {
    if parser.tools.is_empty()
        || !parser.dialect.accepts(frame.dialect)
        || line_start::is_in_quotation(parser)
    {
        return None;
    }
    let after = parser.buffer[parser.position + length..].chars().next();
    if after.is_none() && end == InputState::Open {
        return Some(ParserStep::NeedMoreText);
    }
    if matches!(parser.previous_char, '"' | '\'')
        && after == Some(parser.previous_char)
        && !parser.at_line_start
    {
        return None;
    }
    let step = parse_and_apply(parser, MAX_FRAME_BYTES, end, true, |context| {
        let context = FrameContext {
            dialect: frame.dialect,
            closers: frame.closers,
            explicit: true,
            ..context
        };
        frame::parse_frame(frame, length, context)
    });
    if step == Some(ParserStep::NeedMoreText) {
        begin_argument_stream(parser, ArgumentsStart::Frame(frame, length));
    }
    step.or_else(|| wrapper(parser, length, end))
}

/// Drops the opener of a frame that only holds other frames. None when it holds none.
fn wrapper(parser: &mut DialectParser, length: usize, end: InputState) -> Option<ParserStep> {
    let touched = Cell::new(false);
    let mut inside =
        TextCursor::new(&parser.buffer[parser.position..], &touched).advanced_by(length);
    inside.skip_space();
    let holds = is_frame_opener(inside);
    if touched.get() && end == InputState::Open {
        return Some(ParserStep::NeedMoreText);
    }
    holds.then(|| consume_structural_token(parser, length))
}

/// Parses the header of an addressed message. None when it is text.
fn apply_message_header(
    parser: &mut DialectParser,
    length: usize,
    end: InputState,
) -> Option<ParserStep> {
    let touched = Cell::new(false);
    let cursor = TextCursor::new(&parser.buffer[parser.position..], &touched);
    let address = header::parse_message_header(cursor);
    if touched.get() && end == InputState::Open && address.is_none() {
        return Some(ParserStep::NeedMoreText);
    }
    let Some(address) = address else {
        let barred = parser.buffer[parser.position..].starts_with('<');
        return barred.then(|| consume_control_token(parser, length));
    };
    let body = address.length;
    let reasons = address.recipient == Some("self")
        || (address.recipient.is_none() && address.channel == Some("analysis"));
    if reasons {
        parser.event_buffer.push_structural_token("");
        parser.position += body;
        parser.mode = ParserMode::ReasoningMessage;
        return Some(ParserStep::Continue);
    }
    let recipient = address
        .recipient
        .filter(|it| !matches!(*it, "user" | "all"));
    let Some(recipient) = recipient.map(str::to_owned) else {
        return Some(consume_structural_token(parser, body));
    };
    if parser.tools.is_empty() {
        return Some(consume_structural_token(parser, body));
    }
    let step = parse_and_apply(parser, MAX_FRAME_BYTES, end, true, |context| {
        let context = FrameContext {
            dialect: "harmony",
            closers: MESSAGE_ENDS,
            explicit: true,
            ..context
        };
        let inside = context.start.advanced_by(body);
        match marker_index::find_marker(inside, MarkerPlacement::Anywhere) {
            Some(MarkerMatch {
                role: MarkerRole::FrameOpener(row),
                length,
            }) => frame::parse_nested_frame(&FRAMES[row], inside, length, context),
            _ => frame::parse_named_arguments(inside, &recipient, None, context),
        }
    });
    if step == Some(ParserStep::NeedMoreText) {
        begin_argument_stream(parser, ArgumentsStart::Named(recipient, body));
    }
    step
}

/// Hands out the arguments of the frame that begins here as they come, if that is
/// wanted and the frame can only be a call.
fn begin_argument_stream(parser: &mut DialectParser, start: ArgumentsStart) {
    let is_code = parser.in_inline_code && !parser.at_line_start;
    if parser.options.stream_arguments
        && parser.argument_stream.is_none()
        && parser.draft_call.is_none()
        && !is_code
        && !surrounding_text::leads_to_example(parser.event_buffer.text_tail())
    {
        parser.argument_stream = Some(ArgumentStream::new(start));
    }
}

/// Hands out the arguments of JSON without markers as they come, if what stands before it
/// decides that it is a call.
pub(super) fn begin_markerless_argument_stream(parser: &mut DialectParser) {
    // The words are compared last: this is asked with every scan of an open call.
    if parser.options.stream_arguments
        && parser.argument_stream.is_none()
        && parser.options.prompted
        && parser.dialect.accepts("bare_json")
        && surrounding_text::is_certainly_meant(
            parser.event_buffer.text_tail(),
            parser.buffer[parser.position..].starts_with('`'),
        )
    {
        begin_argument_stream(parser, ArgumentsStart::Markerless);
    }
}

/// Ends the argument stream of a frame that turned out not to be a call.
fn abort_argument_stream(parser: &mut DialectParser) {
    if let Some(stream) = parser.argument_stream.take()
        && stream.has_started()
    {
        let event = stream.abort(String::new(), "");
        parser.event_buffer.push_event(event);
    }
}

/// Parses what begins here and applies its events once they are final. None when it
/// is text.
pub(super) fn parse_and_apply(
    parser: &mut DialectParser,
    limit: usize,
    end: InputState,
    explicit: bool,
    read: impl FnOnce(FrameContext<'_>) -> FrameResult,
) -> Option<ParserStep> {
    match try_parse(parser, limit, end, explicit, read) {
        FrameAttempt::NeedMoreText => Some(ParserStep::NeedMoreText),
        FrameAttempt::TooLong(length) => {
            abort_argument_stream(parser);
            Some(parser.consume_text(length))
        }
        FrameAttempt::NotAFrame => {
            abort_argument_stream(parser);
            None
        }
        FrameAttempt::Parsed(length, mut events) => {
            if parser.in_inline_code && !parser.at_line_start {
                match parser.buffer[parser.position + length..].chars().next() {
                    Some('`') => return None,
                    None if end == InputState::Open => return Some(ParserStep::NeedMoreText),
                    _ => (),
                }
            }
            if explicit && surrounding_text::leads_to_example(parser.event_buffer.text_tail()) {
                let raw = &parser.buffer[parser.position..parser.position + length];
                events = vec![DialectEvent::Text(raw.to_owned())];
            }
            if let Some(stream) = parser.argument_stream.take()
                && stream.has_started()
                && !events.is_empty()
            {
                let first = events.remove(0);
                events.splice(..0, stream.finish(first));
            }
            apply_events(parser, length, events);
            Some(ParserStep::Continue)
        }
    }
}

/// Parses what begins here, without applying it.
pub(super) fn try_parse(
    parser: &mut DialectParser,
    limit: usize,
    end: InputState,
    explicit: bool,
    read: impl FnOnce(FrameContext<'_>) -> FrameResult,
) -> FrameAttempt {
    if parser.undecided_frames > MAX_UNDECIDED_FRAMES {
        return FrameAttempt::NotAFrame;
    }
    let rest = &parser.buffer[parser.position..];
    let length = floor_char_boundary(rest, limit);
    let whole = length == rest.len();
    let touched = Cell::new(false);
    let result = read(FrameContext {
        tools: &parser.tools,
        dialect: "bare_json",
        closers: &[],
        explicit,
        prompted: parser.options.prompted,
        text_before: parser.event_buffer.text_tail(),
        start: TextCursor::new(&rest[..length], &touched)
            .waiting_for_more(!whole || end == InputState::Open),
        is_frame_opener: &is_frame_opener,
    });
    if touched.get() && !whole {
        return FrameAttempt::TooLong(length);
    }
    if touched.get() && end == InputState::Open {
        return FrameAttempt::NeedMoreText;
    }
    parser.undecided_frames += u32::from(touched.get());
    match result {
        FrameResult::NotAFrame => FrameAttempt::NotAFrame,
        FrameResult::Parsed {
            end: length,
            mut events,
        } => {
            if touched.get() && end == InputState::Truncated {
                events.iter_mut().for_each(invalidate_truncated_call);
            }
            FrameAttempt::Parsed(length, events)
        }
    }
}

/// Hands out the events of a frame of `length` bytes and moves behind it.
pub(super) fn apply_events(parser: &mut DialectParser, length: usize, events: Vec<DialectEvent>) {
    parser.at_line_start = false;
    for event in events {
        match &event {
            DialectEvent::Call(call) | DialectEvent::CallFinished(call) => {
                if call.dialect == "react" {
                    parser.mode = ParserMode::Hallucination;
                }
                parser.at_message_start = false;
                parser.at_line_start = true;
            }
            DialectEvent::Reasoning(_) | DialectEvent::CallArguments(_) => {
                parser.at_line_start = true;
            }
            _ => parser.at_message_start = false,
        }
        parser.event_buffer.push_event(event);
    }
    let read = &parser.buffer[parser.position..parser.position + length];
    parser.previous_char = read.chars().next_back().unwrap_or('\n');
    parser.position += length;
    parser.in_inline_code = false;
}

/// The outcome of one attempt to parse a frame.
pub(super) enum FrameAttempt {
    NeedMoreText,
    /// It exceeds the size limit; this many bytes of it are text.
    TooLong(usize),
    NotAFrame,
    Parsed(usize, Vec<DialectEvent>),
}

/// Turns a call that the backend cut off into an invalid one.
fn invalidate_truncated_call(event: &mut DialectEvent) {
    if let DialectEvent::Call(call) = event {
        *event = DialectEvent::InvalidCall(InvalidCall {
            text: std::mem::take(&mut call.raw),
            dialect: call.dialect,
            name: Some(std::mem::take(&mut call.name)),
            reason: "the call was cut off before its end".to_owned(),
        });
    }
}

fn is_frame_opener(cursor: TextCursor<'_>) -> bool {
    marker_index::find_marker(cursor, MarkerPlacement::Anywhere)
        .is_some_and(|hit| matches!(hit.role, MarkerRole::FrameOpener(_)))
}

/// The longest part of `text` of at most `limit` bytes.
fn floor_char_boundary(text: &str, limit: usize) -> usize {
    let mut length = limit.min(text.len());
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    length
}
