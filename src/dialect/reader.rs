//! The machine: text in pieces, events out.

mod hold;
mod think;

use std::{cell::Cell, sync::Arc};

use super::{
    Broken, Event, bare,
    cursor::Cursor,
    frame, header,
    index::{self, Hit},
    kind::Dialect,
    lines, marker,
    output::{Last, Output},
    scene::{Scene, Verdict},
    table::{FRAMES, Frame, IMAGINED, MESSAGE_ENDS, Place, Role},
    tools::Tools,
};
use hold::Hold;

/// Longest frame with markers.
const MAX_FRAME: usize = 4 << 20;
/// Longest text that may be a call without markers.
const MAX_BARE: usize = 256 << 10;
/// How often a frame that only the end of the text decided is left before it.
const MAX_RETRIES: u32 = 16;

/// What a reader is told beside the tools and the dialect.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The prompt ended inside reasoning: the text begins there.
    pub reasoning_open: bool,
    /// A complete call that is the last thing in the reasoning, with nothing
    /// behind the reasoning's end, is meant as one.
    pub last_draft_counts: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            reasoning_open: false,
            last_draft_counts: true,
        }
    }
}

/// Reads one message of a model.
///
/// Text goes out as it comes in; only what may still become a marker or a call
/// is held back. Events do not depend on how the text was cut, once adjacent
/// pieces of the same kind are joined. The cost grows with the length of the
/// text and nothing else.
#[derive(Debug)]
pub struct Reader {
    tools: Arc<Tools>,
    dialect: Dialect,
    options: Options,
    buffer: String,
    /// How much of the buffer is done with.
    at: usize,
    mode: Mode,
    /// Only space stands before `at` on its line.
    line: bool,
    /// Only space stands before `at` in the message.
    fresh: bool,
    /// An odd backtick stands before `at` on its line.
    code: bool,
    /// The character before `at`.
    previous: char,
    /// Where reasoning was left by a call that may be a draft.
    draft: Option<Draft>,
    hold: Hold,
    retries: u32,
    output: Output,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Text,
    /// A code fence of so many backticks.
    Fence(usize),
    /// Reasoning between tags; the row of the table.
    Think(usize),
    /// Reasoning as an addressed message.
    Message,
    /// What the model made up after its call.
    Aside,
}

#[derive(Clone, Copy, Debug)]
struct Draft {
    start: usize,
    row: usize,
}

/// Whether the machine went on or needs more text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    On,
    Wait,
}

/// How the text ends, as far as known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    Over,
    /// The backend stopped before the model did.
    Cut,
}

impl Reader {
    /// A reader for one message.
    pub fn new(tools: Arc<Tools>, dialect: Dialect, options: Options) -> Self {
        let mode = match options.reasoning_open {
            true => Mode::Think(0),
            false => Mode::Text,
        };
        Self {
            tools,
            dialect,
            options,
            buffer: String::new(),
            at: 0,
            mode,
            line: true,
            fresh: true,
            code: false,
            previous: '\n',
            draft: None,
            hold: Hold::default(),
            retries: 0,
            output: Output::default(),
        }
    }

    /// Takes the next piece of text. What cannot change any more is appended
    /// to `events`.
    pub fn push(&mut self, text: &str, events: &mut Vec<Event>) {
        self.buffer.push_str(text);
        if self.hold.is_due(self.buffer.len() - self.at, text) {
            self.run(End::Open);
        }
        self.output.drain_to(events);
    }

    /// Ends the message; `cut` says that the backend stopped before the model
    /// did. What was held back is decided now: a call that is not complete is
    /// none.
    pub fn finish(&mut self, cut: bool, events: &mut Vec<Event>) {
        self.run(if cut { End::Cut } else { End::Over });
        if self.draft.take().is_some() {
            self.output.keep_draft();
        }
        self.output.finish();
        self.output.drain_to(events);
    }

    fn run(&mut self, end: End) {
        let before = self.at;
        while self.at < self.buffer.len() {
            let step = match self.mode {
                Mode::Text => self.text(end),
                Mode::Fence(ticks) => self.fence(ticks, end),
                Mode::Think(row) => self.think(row, end),
                Mode::Message => self.message(end),
                Mode::Aside => self.aside(),
            };
            if step == Step::Wait {
                break;
            }
        }
        self.hold
            .waited(self.buffer.len() - self.at, self.at > before);
        self.forget();
    }

    /// Drops what is done with.
    fn forget(&mut self) {
        let keep = self.draft.map_or(self.at, |draft| draft.start);
        if keep == self.buffer.len() {
            self.buffer.clear();
        } else if keep > 0 {
            self.buffer.drain(..keep);
        }
        self.at -= keep;
        if let Some(draft) = &mut self.draft {
            draft.start = 0;
        }
    }

    fn aside(&mut self) -> Step {
        let rest = self.buffer.split_off(self.at);
        self.output.aside(&rest);
        Step::On
    }

    /// Lines of a code fence, up to the line that closes it.
    fn fence(&mut self, ticks: usize, end: End) -> Step {
        let rest = &self.buffer[self.at..];
        if !self.line {
            let length = memchr::memchr(b'\n', rest.as_bytes());
            self.line = length.is_some();
            self.pass(length.map_or(rest.len(), |length| length + 1));
            return Step::On;
        }
        let space = rest.len() - rest.trim_start_matches([' ', '\t']).len();
        let line = &rest[space..];
        let run = line.len() - line.trim_start_matches('`').len();
        if space + run == rest.len() && end == End::Open {
            return Step::Wait;
        }
        self.line = false;
        if run >= ticks {
            self.mode = Mode::Text;
        }
        self.pass(space + run);
        Step::On
    }

    fn text(&mut self, end: End) -> Step {
        let rest = &self.buffer[self.at..];
        if self.line {
            let space = rest.len() - rest.trim_start().len();
            if space > 0 {
                self.pass(space);
                return Step::On;
            }
            if let Some(step) = self.at_line(end) {
                return step;
            }
        }
        let bytes = self.buffer[self.at..].as_bytes();
        let plain = bytes.iter().position(|b| index::SPECIAL[*b as usize]);
        match plain {
            Some(0) => self.special(end),
            Some(length) => self.go(length),
            None => self.go(bytes.len()),
        }
    }

    /// Lets so many bytes through that are text.
    fn go(&mut self, length: usize) -> Step {
        self.line = false;
        self.fresh = false;
        self.pass(length);
        Step::On
    }

    /// Lets so many bytes through, whatever they are.
    fn pass(&mut self, length: usize) {
        let text = &self.buffer[self.at..self.at + length];
        self.previous = text.chars().next_back().unwrap_or(self.previous);
        self.output.text(text);
        self.at += length;
    }

    /// Looks at a byte that may begin a marker.
    fn special(&mut self, end: End) -> Step {
        match self.buffer.as_bytes()[self.at] {
            b'\n' => {
                self.pass(1);
                self.line = true;
                self.code = false;
                Step::On
            }
            b'`' => {
                self.code = !self.code;
                self.go(1)
            }
            _ => match self.marker(Place::Anywhere, end) {
                Some(step) => step,
                None => self.one(),
            },
        }
    }

    /// Lets one character through that opens nothing.
    fn one(&mut self) -> Step {
        let first = self.buffer[self.at..].chars().next();
        self.go(first.map_or(1, char::len_utf8))
    }

    /// Looks at the first word of a line. None when it is ordinary.
    fn at_line(&mut self, end: End) -> Option<Step> {
        let touched = Cell::new(false);
        let cursor = Cursor::new(&self.buffer[self.at..], &touched);
        let place = if self.fresh {
            Place::Message
        } else {
            Place::Line
        };
        let imagined = self.output.last == Last::Call
            && IMAGINED
                .iter()
                .any(|it| marker::length(it, cursor).is_some());
        let answer = (self.fresh || self.output.last == Last::Reasoning)
            .then(|| lines::ANSWERS.iter().find(|it| cursor.starts(it)))
            .flatten();
        let thought = self.fresh && lines::THOUGHTS.iter().any(|it| cursor.starts(it));
        let all = [">>>all\n", ">>>all\r\n"]
            .iter()
            .find(|it| cursor.starts(it));
        let fence = cursor.starts("```");
        if touched.get() && end == End::Open {
            return Some(Step::Wait);
        }
        if self.tools.is_empty() {
            return match fence {
                true => Some(self.open_fence()),
                false => self.marker(place, end),
            };
        }
        if imagined {
            self.mode = Mode::Aside;
            return Some(Step::On);
        }
        if let Some(label) = answer.or(all) {
            return Some(self.structure(label.len()));
        }
        if thought && self.dialect.reads("react") {
            return self.settle(MAX_BARE, end, false, |scene| lines::thought(scene.start));
        }
        if fence {
            let first = self.fresh;
            let example = bare::announces_example(self.output.tail());
            let step = self.settle(MAX_BARE, end, false, |scene| {
                bare::fence(scene, first, example)
            });
            return Some(step.unwrap_or_else(|| self.open_fence()));
        }
        match self.buffer.as_bytes()[self.at] {
            b'{' | b'[' => self.marker(place, end).or_else(|| self.bare(end)),
            b'<' => self.marker(place, end).or_else(|| self.tool_tag(end)),
            _ => self.marker(place, end),
        }
    }

    fn open_fence(&mut self) -> Step {
        let rest = &self.buffer[self.at..];
        let ticks = rest.len() - rest.trim_start_matches('`').len();
        self.mode = Mode::Fence(ticks);
        self.go(ticks)
    }

    fn bare(&mut self, end: End) -> Option<Step> {
        if !self.dialect.reads("bare_json") && !self.dialect.reads("pythonic") {
            return None;
        }
        if bare::announces_example(self.output.tail()) {
            return None;
        }
        self.settle(MAX_BARE, end, false, bare::bare)
    }

    fn tool_tag(&mut self, end: End) -> Option<Step> {
        if !self.dialect.reads("tag_per_tool") {
            return None;
        }
        self.settle(MAX_BARE, end, false, bare::tool_tag)
    }

    /// Looks for a marker. None when there is none.
    fn marker(&mut self, place: Place, end: End) -> Option<Step> {
        let touched = Cell::new(false);
        let cursor = Cursor::new(&self.buffer[self.at..], &touched);
        let Some(hit) = index::find(cursor, place) else {
            return (touched.get() && end == End::Open).then_some(Step::Wait);
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

    fn token(&mut self, length: usize) -> Step {
        let token = &self.buffer[self.at..self.at + length];
        self.output.token(token);
        self.at += length;
        Step::On
    }

    fn structure(&mut self, length: usize) -> Step {
        let token = &self.buffer[self.at..self.at + length];
        self.output.structure(token);
        self.at += length;
        self.line = true;
        Step::On
    }

    /// Reads a frame with markers. None when its opener is text.
    fn frame(&mut self, frame: &'static Frame, length: usize, end: End) -> Option<Step> {
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
    fn wrapper(&mut self, length: usize, end: End) -> Option<Step> {
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
    fn header(&mut self, length: usize, end: End) -> Option<Step> {
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
    fn settle(
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
    fn consider(
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
    fn take(&mut self, length: usize, events: Vec<Event>) {
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
enum Settled {
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
