//! Parses reasoning: its tags, and calls inside it.

use std::cell::Cell;

use super::{
    DialectParser, DraftCall, InputState, MAX_FRAME_BYTES, MAX_MARKERLESS_BYTES, ParserMode,
    ParserStep,
    frames::{self, FrameAttempt},
};
use crate::{
    DialectEvent,
    cursor::TextCursor,
    event_buffer::LastEvent,
    frame,
    frame_context::FrameContext,
    grammar::{FRAMES, MESSAGE_ENDS, MESSAGE_HEADERS, MarkerPlacement, MarkerRole, REASONING_TAGS},
    marker, marker_index,
};

/// Opens reasoning. None when the tag is in the middle of text.
pub(super) fn open_reasoning(
    parser: &mut DialectParser,
    row: usize,
    length: usize,
) -> Option<ParserStep> {
    let beside = matches!(
        parser.event_buffer.last,
        LastEvent::Reasoning | LastEvent::Call
    ) && parser.previous_char == '>';
    if !parser.at_line_start && !beside {
        return None;
    }
    if parser.draft_call.take().is_some() {
        parser.event_buffer.commit_draft();
    }
    parser.event_buffer.end_reasoning();
    parser.position += length;
    parser.mode = ParserMode::Reasoning(row);
    Some(ParserStep::Continue)
}

/// Closes reasoning that is not open: a draft ends, or the beginning stood in the
/// prompt, or it was closed before. None when the tag is text.
pub(super) fn close_reasoning(
    parser: &mut DialectParser,
    row: usize,
    length: usize,
    end: InputState,
) -> Option<ParserStep> {
    let draft = parser
        .draft_call
        .filter(|draft| draft.row == row && parser.position - draft.start <= MAX_MARKERLESS_BYTES);
    if let Some(draft) = draft {
        return Some(close_draft(parser, draft, length, end));
    }
    if !parser.at_line_start && parser.event_buffer.last == LastEvent::Text {
        match is_quoted_closer(parser, length) {
            None if end == InputState::Open => return Some(ParserStep::NeedMoreText),
            Some(false) => (),
            None | Some(true) => return None,
        }
    }
    if parser.event_buffer.has_reasoning || parser.event_buffer.has_call {
        parser.event_buffer.push_structural_token("");
    } else {
        parser.event_buffer.reclassify_text_as_reasoning();
    }
    parser.position += length;
    parser.at_line_start = true;
    Some(ParserStep::Continue)
}

/// Whether a closing tag in the middle of a line is a word of its sentence: it is
/// quoted, or stands between spaces, or nothing follows it. None when that is not
/// known yet.
fn is_quoted_closer(parser: &DialectParser, length: usize) -> Option<bool> {
    match parser.previous_char {
        '"' | '\'' | '`' | '(' | '“' | '‘' => return Some(true),
        ' ' => (),
        _ => return Some(false),
    }
    let after = &parser.buffer[parser.position + length..];
    let next = after.chars().next()?;
    if next != '\n' && next != '\r' {
        return Some(true);
    }
    (!after.trim_start().is_empty()).then_some(false)
}

fn close_draft(
    parser: &mut DialectParser,
    draft: DraftCall,
    length: usize,
    end: InputState,
) -> ParserStep {
    let touched = Cell::new(false);
    let mut after =
        TextCursor::new(&parser.buffer[parser.position..], &touched).advanced_by(length);
    let over = loop {
        after.skip_space();
        match marker_index::find_marker(after, MarkerPlacement::Anywhere) {
            Some(hit) if hit.role == MarkerRole::ControlToken => {
                after = after.advanced_by(hit.length);
            }
            _ => break after.peek().is_none(),
        }
    };
    if touched.get() && end == InputState::Open {
        return ParserStep::NeedMoreText;
    }
    parser.draft_call = None;
    if over && parser.options.accept_trailing_draft && parser.event_buffer.draft_ends_with_call() {
        parser.event_buffer.commit_draft();
    } else {
        parser.event_buffer.discard_draft();
        parser
            .event_buffer
            .push_reasoning(&parser.buffer[draft.start..parser.position]);
    }
    parser.event_buffer.end_reasoning();
    parser.position += length;
    parser.at_line_start = true;
    ParserStep::Continue
}

/// Parses reasoning between tags.
pub(super) fn parse_reasoning(
    parser: &mut DialectParser,
    row: usize,
    end: InputState,
) -> ParserStep {
    if consume_reasoning_to_marker(parser) {
        return ParserStep::Continue;
    }
    let touched = Cell::new(false);
    let cursor = TextCursor::new(&parser.buffer[parser.position..], &touched);
    let quoted = parser.previous_char == '`';
    let close = marker::match_length(REASONING_TAGS[row].1, cursor);
    let hit = marker_index::find_marker(cursor, MarkerPlacement::Anywhere);
    if touched.get() && end == InputState::Open {
        return ParserStep::NeedMoreText;
    }
    if let Some(length) = close.filter(|_| !quoted) {
        parser.event_buffer.end_reasoning();
        parser.position += length;
        parser.mode = ParserMode::Text;
        parser.at_line_start = true;
        return ParserStep::Continue;
    }
    let step = match hit.map(|hit| (hit.role, hit.length)) {
        Some((MarkerRole::FrameOpener(at), length)) if !quoted => {
            parse_draft_call(parser, row, at, length, end)
        }
        _ => None,
    };
    step.unwrap_or_else(|| consume_reasoning_char(parser))
}

/// Parses reasoning that is an addressed message.
pub(super) fn parse_reasoning_message(parser: &mut DialectParser, end: InputState) -> ParserStep {
    if consume_reasoning_to_marker(parser) {
        return ParserStep::Continue;
    }
    let touched = Cell::new(false);
    let cursor = TextCursor::new(&parser.buffer[parser.position..], &touched);
    let ended = MESSAGE_ENDS
        .iter()
        .find_map(|it| marker::match_length(it, cursor));
    let mut headers = MESSAGE_HEADERS
        .iter()
        .filter(|(_, place)| *place == MarkerPlacement::Anywhere);
    let header = headers.any(|(it, _)| marker::match_length(it, cursor).is_some());
    if touched.get() && end == InputState::Open {
        return ParserStep::NeedMoreText;
    }
    if ended.is_none() && !header {
        return consume_reasoning_char(parser);
    }
    parser.event_buffer.end_reasoning();
    parser.position += ended.unwrap_or(0);
    parser.mode = ParserMode::Text;
    parser.at_line_start = true;
    ParserStep::Continue
}

/// Parses a frame in reasoning, which is a call if the reasoning never ends.
fn parse_draft_call(
    parser: &mut DialectParser,
    row: usize,
    frame: usize,
    length: usize,
    end: InputState,
) -> Option<ParserStep> {
    let frame = &FRAMES[frame];
    if parser.tools.is_empty() || !parser.dialect.accepts(frame.dialect) {
        return None;
    }
    let attempt = frames::try_parse(parser, MAX_FRAME_BYTES, end, true, |context| {
        let context = FrameContext {
            dialect: frame.dialect,
            closers: frame.closers,
            ..context
        };
        frame::parse_frame(frame, length, context)
    });
    match attempt {
        FrameAttempt::NeedMoreText => Some(ParserStep::NeedMoreText),
        FrameAttempt::NotAFrame => None,
        FrameAttempt::TooLong(length) => {
            consume_reasoning(parser, length);
            Some(ParserStep::Continue)
        }
        FrameAttempt::Parsed(length, events) => {
            if !events.iter().any(|it| matches!(it, DialectEvent::Call(_))) {
                consume_reasoning(parser, length);
                return Some(ParserStep::Continue);
            }
            let start = parser.position;
            parser.draft_call = Some(DraftCall { start, row });
            parser.event_buffer.begin_draft();
            parser.mode = ParserMode::Text;
            frames::apply_events(parser, length, events);
            Some(ParserStep::Continue)
        }
    }
}

/// Hands out reasoning up to what may be a marker; returns whether there was any.
fn consume_reasoning_to_marker(parser: &mut DialectParser) -> bool {
    let rest = &parser.buffer.as_bytes()[parser.position..];
    let special =
        |b: &u8| marker_index::MARKER_FIRST_BYTES[*b as usize] && !matches!(b, b'\n' | b'`');
    let length = rest.iter().position(special).unwrap_or(rest.len());
    consume_reasoning(parser, length);
    length > 0
}

fn consume_reasoning_char(parser: &mut DialectParser) -> ParserStep {
    let first = parser.buffer[parser.position..].chars().next();
    consume_reasoning(parser, first.map_or(1, char::len_utf8));
    ParserStep::Continue
}

fn consume_reasoning(parser: &mut DialectParser, length: usize) {
    let text = &parser.buffer[parser.position..parser.position + length];
    parser.previous_char = text.chars().next_back().unwrap_or(parser.previous_char);
    parser.event_buffer.push_reasoning(text);
    parser.position += length;
}
