//! Markers, frames and addressed messages: what they are taken for.

use std::cell::Cell;

use super::{End, MAX_FRAME, MAX_RETRIES, Mode, Reader, Step};
use crate::dialect::{
    Broken, Event,
    cursor::Cursor,
    frame, header,
    index::{self, Hit},
    output::Last,
    scene::{Scene, Verdict},
    table::{FRAMES, Frame, MESSAGE_ENDS, Place, Role},
};

impl Reader {
    /// Looks for a marker. None when there is none.
    pub(super) fn marker(&mut self, place: Place, end: End) -> Option<Step> {
        let touched = Cell::new(false);
        let cursor = Cursor::new(&self.buffer[self.at..], &touched);
        let hit = index::find(cursor, place);
        // A longer marker may still begin with the one that was found.
        if touched.get() && end == End::Open {
            return Some(Step::Wait);
        }
        let Some(hit) = hit else {
            let rest = &self.buffer[self.at..];
            let partial = touched.get() && rest.len() > 1 && rest.starts_with('<');
            // The end of a message cut the token that follows its call.
            let length = rest.len();
            return (partial && self.output.last == Last::Call).then(|| self.token(length));
        };
        if self.previous == '`' && !self.line {
            return None;
        }
        match hit.role {
            Role::Frame(row) => self.frame(&FRAMES[row], hit.length, end),
            Role::Think(row) => self.open_thought(row, hit.length),
            Role::ThinkEnd(row) => Some(self.close_thought(row, hit.length, end)),
            Role::Header => self.header(hit.length, end),
            Role::Token => Some(self.token(hit.length)),
            Role::Structure => Some(self.structure(hit.length)),
        }
    }

    pub(super) fn token(&mut self, length: usize) -> Step {
        let token = &self.buffer[self.at..self.at + length];
        self.output.token(token);
        self.at += length;
        Step::On
    }

    pub(super) fn structure(&mut self, length: usize) -> Step {
        let token = &self.buffer[self.at..self.at + length];
        self.output.structure(token);
        self.at += length;
        self.line = true;
        Step::On
    }

    /// Reads a frame with markers. None when its opener is text.
    pub(super) fn frame(&mut self, frame: &'static Frame, length: usize, end: End) -> Option<Step> {
        if self.tools.is_empty() || !self.dialect.reads(frame.dialect) {
            return None;
        }
        let after = self.buffer[self.at + length..].chars().next();
        if after.is_none() && end == End::Open {
            return Some(Step::Wait);
        }
        if matches!(self.previous, '"' | '\'') && after == Some(self.previous) && !self.line {
            return None;
        }
        let step = self.settle(MAX_FRAME, end, true, |scene| {
            let scene = Scene {
                dialect: frame.dialect,
                closers: frame.closers,
                explicit: true,
                ..scene
            };
            frame::read(frame, length, scene)
        });
        step.or_else(|| self.wrapper(length, end))
    }

    /// A frame that only holds other frames is structure.
    pub(super) fn wrapper(&mut self, length: usize, end: End) -> Option<Step> {
        let touched = Cell::new(false);
        let mut inside = Cursor::new(&self.buffer[self.at..], &touched).moved(length);
        inside.skip_space();
        let holds = opens_frame(inside);
        if touched.get() && end == End::Open {
            return Some(Step::Wait);
        }
        holds.then(|| self.structure(length))
    }

    /// Reads the head of an addressed message. None when it is text.
    pub(super) fn header(&mut self, length: usize, end: End) -> Option<Step> {
        let touched = Cell::new(false);
        let cursor = Cursor::new(&self.buffer[self.at..], &touched);
        let address = header::address(cursor);
        if touched.get() && end == End::Open && address.is_none() {
            return Some(Step::Wait);
        }
        let Some(address) = address else {
            let barred = self.buffer[self.at..].starts_with('<');
            return barred.then(|| self.token(length));
        };
        let body = address.length;
        let reasons = address.recipient == Some("self")
            || (address.recipient.is_none() && address.channel == Some("analysis"));
        if reasons {
            self.output.structure("");
            self.at += body;
            self.mode = Mode::Message;
            return Some(Step::On);
        }
        let recipient = address
            .recipient
            .filter(|it| !matches!(*it, "user" | "all"));
        let Some(recipient) = recipient.map(str::to_owned) else {
            return Some(self.structure(body));
        };
        if self.tools.is_empty() {
            return Some(self.structure(body));
        }
        self.settle(MAX_FRAME, end, true, |scene| {
            let scene = Scene {
                dialect: "harmony",
                closers: MESSAGE_ENDS,
                explicit: true,
                ..scene
            };
            let inside = scene.start.moved(body);
            match index::find(inside, Place::Anywhere) {
                Some(Hit {
                    role: Role::Frame(row),
                    length,
                }) => frame::inside(&FRAMES[row], inside, length, scene),
                _ => frame::arguments(inside, &recipient, None, scene),
            }
        })
    }

    /// Reads what begins here and takes it over if it is settled. None when it
    /// is text.
    pub(super) fn settle(
        &mut self,
        limit: usize,
        end: End,
        explicit: bool,
        read: impl FnOnce(Scene<'_>) -> Verdict,
    ) -> Option<Step> {
        match self.consider(limit, end, explicit, read) {
            Settled::Wait => Some(Step::Wait),
            Settled::TooLong(length) => Some(self.go(length)),
            Settled::No => None,
            Settled::Done(length, events) => {
                if self.code && !self.line {
                    match self.buffer[self.at + length..].chars().next() {
                        Some('`') => return None,
                        None if end == End::Open => return Some(Step::Wait),
                        _ => (),
                    }
                }
                self.take(length, events);
                Some(Step::On)
            }
        }
    }

    /// Reads what begins here.
    pub(super) fn consider(
        &mut self,
        limit: usize,
        end: End,
        explicit: bool,
        read: impl FnOnce(Scene<'_>) -> Verdict,
    ) -> Settled {
        if self.retries > MAX_RETRIES {
            return Settled::No;
        }
        let rest = &self.buffer[self.at..];
        let length = floor(rest, limit);
        let whole = length == rest.len();
        let touched = Cell::new(false);
        let verdict = read(Scene {
            tools: &self.tools,
            dialect: "bare_json",
            closers: &[],
            explicit,
            start: Cursor::new(&rest[..length], &touched),
            opener: &opens_frame,
        });
        if touched.get() && !whole {
            return Settled::TooLong(length);
        }
        if touched.get() && end == End::Open {
            return Settled::Wait;
        }
        self.retries += u32::from(touched.get());
        match verdict {
            Verdict::No => Settled::No,
            Verdict::Done {
                end: length,
                mut events,
            } => {
                if touched.get() && end == End::Cut {
                    events.iter_mut().for_each(cut);
                }
                Settled::Done(length, events)
            }
        }
    }

    /// Takes over what was read.
    pub(super) fn take(&mut self, length: usize, events: Vec<Event>) {
        self.line = false;
        for event in events {
            match &event {
                Event::Call(call) => {
                    if call.dialect == "react" {
                        self.mode = Mode::Aside;
                    }
                    self.fresh = false;
                    self.line = true;
                }
                Event::Reasoning(_) => self.line = true,
                _ => self.fresh = false,
            }
            self.output.event(event);
        }
        let read = &self.buffer[self.at..self.at + length];
        self.previous = read.chars().next_back().unwrap_or('\n');
        self.at += length;
        self.code = false;
    }
}

/// What became of something that was held back.
pub(super) enum Settled {
    Wait,
    /// It is longer than anything may be; this much of it is text.
    TooLong(usize),
    No,
    Done(usize, Vec<Event>),
}

/// A call that the backend cut off is none.
fn cut(event: &mut Event) {
    if let Event::Call(call) = event {
        *event = Event::Broken(Broken {
            text: std::mem::take(&mut call.raw),
            dialect: call.dialect,
            name: Some(std::mem::take(&mut call.name)),
            reason: "the call was cut off before its end".to_owned(),
        });
    }
}

fn opens_frame(cursor: Cursor<'_>) -> bool {
    index::find(cursor, Place::Anywhere).is_some_and(|hit| matches!(hit.role, Role::Frame(_)))
}

/// The longest part of `text` of at most `limit` bytes.
fn floor(text: &str, limit: usize) -> usize {
    let mut length = limit.min(text.len());
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    length
}
