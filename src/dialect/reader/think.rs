//! Reasoning: where it begins and ends, and calls that stand in it.

use std::cell::Cell;

use super::{Draft, End, MAX_BARE, MAX_FRAME, Mode, Reader, Step, settle::Settled};
use crate::dialect::{
    Event,
    cursor::Cursor,
    frame, index, marker,
    output::Last,
    scene::Scene,
    table::{FRAMES, HEADERS, MESSAGE_ENDS, Place, Role, THOUGHTS},
};

impl Reader {
    /// Opens reasoning. None when the tag stands in the middle of text.
    pub(super) fn open_thought(&mut self, row: usize, length: usize) -> Option<Step> {
        let beside =
            matches!(self.output.last, Last::Reasoning | Last::Call) && self.previous == '>';
        if !self.line && !beside {
            return None;
        }
        if self.draft.take().is_some() {
            self.output.keep_draft();
        }
        self.output.end_reasoning();
        self.at += length;
        self.mode = Mode::Think(row);
        Some(Step::On)
    }

    /// Closes reasoning that is not open: a draft ends, or the beginning stood
    /// in the prompt, or it was closed before.
    pub(super) fn close_thought(&mut self, row: usize, length: usize, end: End) -> Step {
        let draft = self
            .draft
            .filter(|draft| draft.row == row && self.at - draft.start <= MAX_BARE);
        if let Some(draft) = draft {
            return self.close_draft(draft, length, end);
        }
        if self.output.thought || self.output.called {
            self.output.structure("");
        } else {
            self.output.was_reasoning();
        }
        self.at += length;
        self.line = true;
        Step::On
    }

    fn close_draft(&mut self, draft: Draft, length: usize, end: End) -> Step {
        let touched = Cell::new(false);
        let mut after = Cursor::new(&self.buffer[self.at..], &touched).moved(length);
        let over = loop {
            after.skip_space();
            match index::find(after, Place::Anywhere) {
                Some(hit) if hit.role == Role::Token => after = after.moved(hit.length),
                _ => break after.peek().is_none(),
            }
        };
        if touched.get() && end == End::Open {
            return Step::Wait;
        }
        self.draft = None;
        if over && self.options.last_draft_counts && self.output.draft_ends_with_call() {
            self.output.keep_draft();
        } else {
            self.output.drop_draft();
            self.output.reasoning(&self.buffer[draft.start..self.at]);
        }
        self.output.end_reasoning();
        self.at += length;
        self.line = true;
        Step::On
    }

    /// Reasoning between tags.
    pub(super) fn think(&mut self, row: usize, end: End) -> Step {
        if self.reason_up_to_marker() {
            return Step::On;
        }
        let touched = Cell::new(false);
        let cursor = Cursor::new(&self.buffer[self.at..], &touched);
        let quoted = self.previous == '`';
        let close = marker::length(THOUGHTS[row].1, cursor);
        let hit = index::find(cursor, Place::Anywhere);
        if touched.get() && end == End::Open {
            return Step::Wait;
        }
        if let Some(length) = close.filter(|_| !quoted) {
            self.output.end_reasoning();
            self.at += length;
            self.mode = Mode::Text;
            self.line = true;
            return Step::On;
        }
        let step = match hit.map(|hit| (hit.role, hit.length)) {
            Some((Role::Frame(at), length)) if !quoted => self.drafted(row, at, length, end),
            _ => None,
        };
        step.unwrap_or_else(|| self.reason_one())
    }

    /// Reasoning as an addressed message.
    pub(super) fn message(&mut self, end: End) -> Step {
        if self.reason_up_to_marker() {
            return Step::On;
        }
        let touched = Cell::new(false);
        let cursor = Cursor::new(&self.buffer[self.at..], &touched);
        let ended = MESSAGE_ENDS
            .iter()
            .find_map(|it| marker::length(it, cursor));
        let mut headers = HEADERS
            .iter()
            .filter(|(_, place)| *place == Place::Anywhere);
        let header = headers.any(|(it, _)| marker::length(it, cursor).is_some());
        if touched.get() && end == End::Open {
            return Step::Wait;
        }
        if ended.is_none() && !header {
            return self.reason_one();
        }
        self.output.end_reasoning();
        self.at += ended.unwrap_or(0);
        self.mode = Mode::Text;
        self.line = true;
        Step::On
    }

    /// A frame in reasoning: a call, if the reasoning never ends.
    fn drafted(&mut self, row: usize, frame: usize, length: usize, end: End) -> Option<Step> {
        let frame = &FRAMES[frame];
        if self.tools.is_empty() || !self.dialect.reads(frame.dialect) {
            return None;
        }
        let settled = self.consider(MAX_FRAME, end, true, |scene| {
            let scene = Scene {
                dialect: frame.dialect,
                closers: frame.closers,
                ..scene
            };
            frame::read(frame, length, scene)
        });
        match settled {
            Settled::Wait => Some(Step::Wait),
            Settled::No => None,
            Settled::TooLong(length) => {
                self.reason(length);
                Some(Step::On)
            }
            Settled::Done(length, events) => {
                if !events.iter().any(|it| matches!(it, Event::Call(_))) {
                    self.reason(length);
                    return Some(Step::On);
                }
                let start = self.at;
                self.draft = Some(Draft { start, row });
                self.output.begin_draft();
                self.mode = Mode::Text;
                self.take(length, events);
                Some(Step::On)
            }
        }
    }

    /// Lets reasoning through up to what may be a marker; whether there was any.
    fn reason_up_to_marker(&mut self) -> bool {
        let rest = &self.buffer.as_bytes()[self.at..];
        let special = |b: &u8| index::SPECIAL[*b as usize] && !matches!(b, b'\n' | b'`');
        let length = rest.iter().position(special).unwrap_or(rest.len());
        self.reason(length);
        length > 0
    }

    fn reason_one(&mut self) -> Step {
        let first = self.buffer[self.at..].chars().next();
        self.reason(first.map_or(1, char::len_utf8));
        Step::On
    }

    fn reason(&mut self, length: usize) {
        let text = &self.buffer[self.at..self.at + length];
        self.previous = text.chars().next_back().unwrap_or(self.previous);
        self.output.reasoning(text);
        self.at += length;
    }
}
