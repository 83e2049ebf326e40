//! Reasoning: where it begins and ends, and calls that stand in it.

use std::cell::Cell;

use super::{
    DialectParser, DraftCall, InputState, MAX_FRAME_BYTES, MAX_MARKERLESS_BYTES, ParserMode,
    ParserStep, frames::FrameAttempt,
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

impl DialectParser {
    /// Opens reasoning. None when the tag stands in the middle of text.
    pub(super) fn open_reasoning(&mut self, row: usize, length: usize) -> Option<ParserStep> {
        let beside = matches!(
            self.event_buffer.last,
            LastEvent::Reasoning | LastEvent::Call
        ) && self.previous_char == '>';
        if !self.at_line_start && !beside {
            return None;
        }
        if self.draft_call.take().is_some() {
            self.event_buffer.commit_draft();
        }
        self.event_buffer.end_reasoning();
        self.position += length;
        self.mode = ParserMode::Reasoning(row);
        Some(ParserStep::Continue)
    }

    /// Closes reasoning that is not open: a draft ends, or the beginning stood in the
    /// prompt, or it was closed before. None when the tag is text.
    pub(super) fn close_reasoning(
        &mut self,
        row: usize,
        length: usize,
        end: InputState,
    ) -> Option<ParserStep> {
        let draft = self.draft_call.filter(|draft| {
            draft.row == row && self.position - draft.start <= MAX_MARKERLESS_BYTES
        });
        if let Some(draft) = draft {
            return Some(self.close_draft(draft, length, end));
        }
        if !self.at_line_start && self.event_buffer.last == LastEvent::Text {
            match self.is_quoted_closer(length) {
                None if end == InputState::Open => return Some(ParserStep::NeedMoreText),
                Some(false) => (),
                None | Some(true) => return None,
            }
        }
        if self.event_buffer.has_reasoning || self.event_buffer.has_call {
            self.event_buffer.push_structural_token("");
        } else {
            self.event_buffer.reclassify_text_as_reasoning();
        }
        self.position += length;
        self.at_line_start = true;
        Some(ParserStep::Continue)
    }

    /// Whether a closing tag in the middle of a line is a word of its sentence: it is
    /// quoted, or stands between spaces, or nothing follows it. None when that is not
    /// known yet.
    fn is_quoted_closer(&self, length: usize) -> Option<bool> {
        match self.previous_char {
            '"' | '\'' | '`' | '(' | '“' | '‘' => return Some(true),
            ' ' => (),
            _ => return Some(false),
        }
        let after = &self.buffer[self.position + length..];
        let next = after.chars().next()?;
        if next != '\n' && next != '\r' {
            return Some(true);
        }
        (!after.trim_start().is_empty()).then_some(false)
    }

    fn close_draft(&mut self, draft: DraftCall, length: usize, end: InputState) -> ParserStep {
        let touched = Cell::new(false);
        let mut after =
            TextCursor::new(&self.buffer[self.position..], &touched).advanced_by(length);
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
        self.draft_call = None;
        if over && self.options.accept_trailing_draft && self.event_buffer.draft_ends_with_call() {
            self.event_buffer.commit_draft();
        } else {
            self.event_buffer.discard_draft();
            self.event_buffer
                .push_reasoning(&self.buffer[draft.start..self.position]);
        }
        self.event_buffer.end_reasoning();
        self.position += length;
        self.at_line_start = true;
        ParserStep::Continue
    }

    /// Reasoning between tags.
    pub(super) fn parse_reasoning(&mut self, row: usize, end: InputState) -> ParserStep {
        if self.consume_reasoning_to_marker() {
            return ParserStep::Continue;
        }
        let touched = Cell::new(false);
        let cursor = TextCursor::new(&self.buffer[self.position..], &touched);
        let quoted = self.previous_char == '`';
        let close = marker::match_length(REASONING_TAGS[row].1, cursor);
        let hit = marker_index::find_marker(cursor, MarkerPlacement::Anywhere);
        if touched.get() && end == InputState::Open {
            return ParserStep::NeedMoreText;
        }
        if let Some(length) = close.filter(|_| !quoted) {
            self.event_buffer.end_reasoning();
            self.position += length;
            self.mode = ParserMode::Text;
            self.at_line_start = true;
            return ParserStep::Continue;
        }
        let step = match hit.map(|hit| (hit.role, hit.length)) {
            Some((MarkerRole::FrameOpener(at), length)) if !quoted => {
                self.parse_draft_call(row, at, length, end)
            }
            _ => None,
        };
        step.unwrap_or_else(|| self.consume_reasoning_char())
    }

    /// Reasoning as an addressed message.
    pub(super) fn parse_reasoning_message(&mut self, end: InputState) -> ParserStep {
        if self.consume_reasoning_to_marker() {
            return ParserStep::Continue;
        }
        let touched = Cell::new(false);
        let cursor = TextCursor::new(&self.buffer[self.position..], &touched);
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
            return self.consume_reasoning_char();
        }
        self.event_buffer.end_reasoning();
        self.position += ended.unwrap_or(0);
        self.mode = ParserMode::Text;
        self.at_line_start = true;
        ParserStep::Continue
    }

    /// A frame in reasoning: a call, if the reasoning never ends.
    fn parse_draft_call(
        &mut self,
        row: usize,
        frame: usize,
        length: usize,
        end: InputState,
    ) -> Option<ParserStep> {
        let frame = &FRAMES[frame];
        if self.tools.is_empty() || !self.dialect.accepts(frame.dialect) {
            return None;
        }
        let settled = self.try_parse(MAX_FRAME_BYTES, end, true, |scene| {
            let scene = FrameContext {
                dialect: frame.dialect,
                closers: frame.closers,
                ..scene
            };
            frame::parse_frame(frame, length, scene)
        });
        match settled {
            FrameAttempt::NeedMoreText => Some(ParserStep::NeedMoreText),
            FrameAttempt::NotAFrame => None,
            FrameAttempt::TooLong(length) => {
                self.consume_reasoning(length);
                Some(ParserStep::Continue)
            }
            FrameAttempt::Parsed(length, events) => {
                if !events.iter().any(|it| matches!(it, DialectEvent::Call(_))) {
                    self.consume_reasoning(length);
                    return Some(ParserStep::Continue);
                }
                let start = self.position;
                self.draft_call = Some(DraftCall { start, row });
                self.event_buffer.begin_draft();
                self.mode = ParserMode::Text;
                self.apply_events(length, events);
                Some(ParserStep::Continue)
            }
        }
    }

    /// Lets reasoning through up to what may be a marker; whether there was any.
    fn consume_reasoning_to_marker(&mut self) -> bool {
        let rest = &self.buffer.as_bytes()[self.position..];
        let special =
            |b: &u8| marker_index::MARKER_FIRST_BYTES[*b as usize] && !matches!(b, b'\n' | b'`');
        let length = rest.iter().position(special).unwrap_or(rest.len());
        self.consume_reasoning(length);
        length > 0
    }

    fn consume_reasoning_char(&mut self) -> ParserStep {
        let first = self.buffer[self.position..].chars().next();
        self.consume_reasoning(first.map_or(1, char::len_utf8));
        ParserStep::Continue
    }

    fn consume_reasoning(&mut self, length: usize) {
        let text = &self.buffer[self.position..self.position + length];
        self.previous_char = text.chars().next_back().unwrap_or(self.previous_char);
        self.event_buffer.push_reasoning(text);
        self.position += length;
    }
}
