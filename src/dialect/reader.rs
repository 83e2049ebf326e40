//! The machine: text in pieces, events out.

mod hold;
mod settle;
mod think;

use std::{cell::Cell, sync::Arc};

use super::{
    Event, bare,
    cursor::Cursor,
    index,
    kind::Dialect,
    lines, marker,
    output::{Last, Output},
    table::{IMAGINED, Place},
    tools::Tools,
};
use hold::Hold;

/// Longest frame with markers.
const MAX_FRAME: usize = 4 << 20;
/// Longest text that may be a call without markers.
const MAX_BARE: usize = 256 << 10;
/// Longest line that opens a fence.
const MAX_INFO: usize = 120;
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
        // Lines before the first backtick are none that close it.
        let tick = memchr::memchr(b'`', rest.as_bytes()).unwrap_or(rest.len());
        if let Some(last) = memchr::memrchr(b'\n', &rest.as_bytes()[..tick]) {
            self.line = true;
            self.pass(last + 1);
            return Step::On;
        }
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
        match self.plain() {
            0 if self.buffer.as_bytes()[self.at] == b'`' => match self.runs_on(end) {
                true => Step::Wait,
                false => self.backticks(end),
            },
            0 => match self.marker(Place::Anywhere, end) {
                Some(step) => step,
                None => self.one(),
            },
            length => {
                let line = self.buffer.as_bytes()[self.at + length - 1] == b'\n';
                self.go(length);
                self.line = line;
                Step::On
            }
        }
    }

    /// How much is certainly text: up to what may be a marker, or to a line
    /// that may begin with one.
    fn plain(&mut self) -> usize {
        let bytes = &self.buffer.as_bytes()[self.at..];
        let mut length = 0;
        while let Some(by) = bytes[length..]
            .iter()
            .position(|b| index::SPECIAL[*b as usize])
        {
            length += by;
            match bytes[length] {
                b'`' if may_fence(&bytes[length..]) => return length,
                b'`' => self.code = !self.code,
                b'\n' => {
                    self.code = false;
                    if index::may_open_line(&bytes[length + 1..]) {
                        return length + 1;
                    }
                }
                _ if index::may_begin(&bytes[length..]) => return length,
                _ => (),
            }
            length += 1;
        }
        bytes.len()
    }

    /// Whether a run of backticks is not all there.
    fn runs_on(&self, end: End) -> bool {
        let rest = &self.buffer.as_bytes()[self.at..];
        end == End::Open && rest.iter().all(|b| *b == b'`')
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

    /// Lets one character through that opens nothing.
    fn one(&mut self) -> Step {
        let first = self.buffer[self.at..].chars().next();
        self.go(first.map_or(1, char::len_utf8))
    }

    /// Looks at the first word of a line. None when it is ordinary.
    fn at_line(&mut self, end: End) -> Option<Step> {
        let first = self.buffer.as_bytes()[self.at];
        if !index::LINE[first as usize] && self.output.last != Last::Call {
            return None;
        }
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
        let all = lines::TO_ALL.iter().find(|it| cursor.starts(it));
        let fence = cursor.starts("```");
        if touched.get() && end == End::Open {
            return Some(Step::Wait);
        }
        if self.tools.is_empty() {
            return match fence {
                true => Some(self.backticks(end)),
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
            return Some(self.backticks(end));
        }
        match self.buffer.as_bytes()[self.at] {
            b'{' | b'[' => self.marker(place, end).or_else(|| self.bare(end)),
            b'<' => self.marker(place, end).or_else(|| self.tool_tag(end)),
            _ => self.marker(place, end),
        }
    }

    /// Three backticks or more: a call in a fence, a fence, or code in a line.
    fn backticks(&mut self, end: End) -> Step {
        let first = self.fresh;
        let tail = self.output.tail().to_owned();
        if !self.tools.is_empty()
            && let Some(step) = self.settle(MAX_BARE, end, false, |scene| {
                bare::fence(scene, first, &tail)
            })
        {
            return step;
        }
        let touched = Cell::new(false);
        let mut line = Cursor::new(&self.buffer[self.at..], &touched);
        let ticks = line.take_while(|c| c == '`').len();
        line.take_while(|c| c != '\n' && c != '`');
        let fence = line.at() > MAX_INFO || line.peek() != Some('`');
        if touched.get() && end == End::Open && line.at() <= MAX_INFO {
            return Step::Wait;
        }
        match fence {
            true => self.mode = Mode::Fence(ticks),
            false => self.code = !self.code,
        }
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
}

/// Whether a run of three backticks begins here, as far as can be seen.
fn may_fence(bytes: &[u8]) -> bool {
    bytes.iter().take(3).all(|b| *b == b'`')
}
