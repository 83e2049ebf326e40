//! The machine: text in pieces, events out.

mod frames;
mod reasoning;
mod rescan;

use std::{cell::Cell, sync::Arc};

use super::{
    DialectEvent,
    cursor::TextCursor,
    event_buffer::{EventBuffer, LastEvent},
    grammar::{HALLUCINATED_RESULT_MARKERS, MarkerPlacement},
    line_calls, marker, marker_index, markerless_calls,
    selection::DialectSelection,
    tool_set::ToolSet,
};
use rescan::RescanBudget;

/// Longest frame with markers.
const MAX_FRAME_BYTES: usize = 4 << 20;
/// Longest text that may be a call without markers.
const MAX_MARKERLESS_BYTES: usize = 256 << 10;
/// Longest line that opens a fence.
const MAX_FENCE_LINE_BYTES: usize = 120;
/// How often a frame that only the end of the text decided is left before it.
const MAX_UNDECIDED_FRAMES: u32 = 16;

/// How a message is parsed, beside its tools and its dialect.
#[derive(Clone, Copy, Debug)]
pub struct DialectOptions {
    /// The prompt ended inside reasoning: the text begins there.
    pub starts_in_reasoning: bool,
    /// A complete call that is the last thing in the reasoning, with nothing
    /// behind the reasoning's end, is made.
    pub accept_trailing_draft: bool,
    /// Our own prompt told the model how to write a call. Then JSON that is shaped
    /// like a call is one wherever it stands, words around it stay text, and a call
    /// of an unknown tool is a [`DialectEvent::InvalidCall`] rather than text.
    ///
    /// Off for models that get their tools natively: there, such JSON in the middle
    /// of prose is rather an example.
    pub prompted: bool,
    /// Hand out arguments in pieces as soon as nothing that follows can change them.
    /// Calls for which that cannot be known come whole.
    pub stream_arguments: bool,
}

impl Default for DialectOptions {
    fn default() -> Self {
        Self {
            starts_in_reasoning: false,
            accept_trailing_draft: true,
            prompted: false,
            stream_arguments: false,
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
pub struct DialectParser {
    tools: Arc<ToolSet>,
    dialect: DialectSelection,
    options: DialectOptions,
    buffer: String,
    /// How much of the buffer is done with.
    position: usize,
    mode: ParserMode,
    /// Only space stands before `at` on its line.
    at_line_start: bool,
    /// Only space stands before `at` in the message.
    at_message_start: bool,
    /// An odd backtick stands before `at` on its line.
    in_inline_code: bool,
    /// The character before `at`.
    previous_char: char,
    /// Where reasoning was left by a call that may be a draft.
    draft_call: Option<DraftCall>,
    rescan_budget: RescanBudget,
    undecided_frames: u32,
    event_buffer: EventBuffer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParserMode {
    Text,
    /// A code fence of so many backticks.
    CodeFence(usize),
    /// Reasoning between tags; the row of the table.
    Reasoning(usize),
    /// Reasoning as an addressed message.
    ReasoningMessage,
    /// What the model made up after its call.
    Hallucination,
}

#[derive(Clone, Copy, Debug)]
struct DraftCall {
    start: usize,
    row: usize,
}

/// Whether the machine went on or needs more text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ParserStep {
    Continue,
    NeedMoreText,
}

/// How the text ends, as far as known.
#[derive(Clone, Copy, PartialEq, Eq)]
enum InputState {
    Open,
    Complete,
    /// The backend stopped before the model did.
    Truncated,
}

impl DialectParser {
    /// A reader for one message.
    pub fn new(tools: Arc<ToolSet>, dialect: DialectSelection, options: DialectOptions) -> Self {
        let mode = if options.starts_in_reasoning {
            ParserMode::Reasoning(0)
        } else {
            ParserMode::Text
        };
        Self {
            tools,
            dialect,
            options,
            buffer: String::new(),
            position: 0,
            mode,
            at_line_start: true,
            at_message_start: true,
            in_inline_code: false,
            previous_char: '\n',
            draft_call: None,
            rescan_budget: RescanBudget::default(),
            undecided_frames: 0,
            event_buffer: EventBuffer::default(),
        }
    }

    /// Takes the next piece of text. What cannot change any more is appended
    /// to `events`.
    pub fn push(&mut self, text: &str, events: &mut Vec<DialectEvent>) {
        self.buffer.push_str(text);
        if self
            .rescan_budget
            .should_rescan(self.buffer.len() - self.position, text)
        {
            self.run(InputState::Open);
        }
        self.event_buffer.drain_to(events);
    }

    /// Ends the message; `cut` says that the backend stopped before the model
    /// did. What was held back is decided now: a call that is not complete is
    /// none.
    pub fn finish(&mut self, cut: bool, events: &mut Vec<DialectEvent>) {
        self.run(if cut {
            InputState::Truncated
        } else {
            InputState::Complete
        });
        if self.draft_call.take().is_some() {
            self.event_buffer.commit_draft();
        }
        self.event_buffer.finish();
        self.event_buffer.drain_to(events);
    }

    fn run(&mut self, end: InputState) {
        let before = self.position;
        while self.position < self.buffer.len() {
            let step = match self.mode {
                ParserMode::Text => self.text(end),
                ParserMode::CodeFence(ticks) => self.fence(ticks, end),
                ParserMode::Reasoning(row) => self.parse_reasoning(row, end),
                ParserMode::ReasoningMessage => self.parse_reasoning_message(end),
                ParserMode::Hallucination => self.consume_hallucination(),
            };
            if step == ParserStep::NeedMoreText {
                break;
            }
        }
        self.rescan_budget
            .record_scan(self.buffer.len() - self.position, self.position > before);
        self.discard_consumed();
    }

    /// Drops what is done with.
    fn discard_consumed(&mut self) {
        let keep = self.draft_call.map_or(self.position, |draft| draft.start);
        if keep == self.buffer.len() {
            self.buffer.clear();
        } else if keep > 0 {
            self.buffer.drain(..keep);
        }
        self.position -= keep;
        if let Some(draft) = &mut self.draft_call {
            draft.start = 0;
        }
    }

    fn consume_hallucination(&mut self) -> ParserStep {
        let rest = self.buffer.split_off(self.position);
        self.event_buffer.push_hallucination(&rest);
        ParserStep::Continue
    }

    /// Lines of a code fence, up to the line that closes it.
    fn fence(&mut self, ticks: usize, end: InputState) -> ParserStep {
        let rest = &self.buffer[self.position..];
        // Lines before the first backtick are none that close it.
        let tick = memchr::memchr(b'`', rest.as_bytes()).unwrap_or(rest.len());
        if let Some(last) = memchr::memrchr(b'\n', &rest.as_bytes()[..tick]) {
            self.at_line_start = true;
            self.pass_through(last + 1);
            return ParserStep::Continue;
        }
        if !self.at_line_start {
            let length = memchr::memchr(b'\n', rest.as_bytes());
            self.at_line_start = length.is_some();
            self.pass_through(length.map_or(rest.len(), |length| length + 1));
            return ParserStep::Continue;
        }
        let space = rest.len() - rest.trim_start_matches([' ', '\t']).len();
        let line = &rest[space..];
        let run = line.len() - line.trim_start_matches('`').len();
        if space + run == rest.len() && end == InputState::Open {
            return ParserStep::NeedMoreText;
        }
        self.at_line_start = false;
        if run >= ticks {
            self.mode = ParserMode::Text;
        }
        self.pass_through(space + run);
        ParserStep::Continue
    }

    fn text(&mut self, end: InputState) -> ParserStep {
        let rest = &self.buffer[self.position..];
        if self.at_line_start {
            let space = rest.len() - rest.trim_start().len();
            if space > 0 {
                self.pass_through(space);
                return ParserStep::Continue;
            }
            if let Some(step) = self.parse_line_start(end) {
                return step;
            }
        }
        match self.plain_text_length() {
            0 if self.buffer.as_bytes()[self.position] == b'`' => {
                if self.is_backtick_run_open(end) {
                    ParserStep::NeedMoreText
                } else {
                    self.backticks(end)
                }
            }
            0 => match self.parse_marker(MarkerPlacement::Anywhere, end) {
                Some(step) => step,
                None => self.consume_char(),
            },
            length => {
                let line = self.buffer.as_bytes()[self.position + length - 1] == b'\n';
                self.consume_text(length);
                self.at_line_start = line;
                ParserStep::Continue
            }
        }
    }

    /// How much is certainly text: up to what may be a marker, or to a line
    /// that may begin with one.
    fn plain_text_length(&mut self) -> usize {
        let bytes = &self.buffer.as_bytes()[self.position..];
        let mut length = 0;
        while let Some(by) = bytes[length..]
            .iter()
            .position(|b| marker_index::MARKER_FIRST_BYTES[*b as usize])
        {
            length += by;
            match bytes[length] {
                b'`' if may_fence(&bytes[length..]) => return length,
                b'`' => self.in_inline_code = !self.in_inline_code,
                b'\n' => {
                    self.in_inline_code = false;
                    if marker_index::may_start_line_marker(&bytes[length + 1..]) {
                        return length + 1;
                    }
                }
                _ if marker_index::may_start_marker(&bytes[length..]) => return length,
                _ => (),
            }
            length += 1;
        }
        bytes.len()
    }

    /// Whether a run of backticks is not all there.
    fn is_backtick_run_open(&self, end: InputState) -> bool {
        let rest = &self.buffer.as_bytes()[self.position..];
        end == InputState::Open && rest.iter().all(|b| *b == b'`')
    }

    /// Lets so many bytes through that are text.
    fn consume_text(&mut self, length: usize) -> ParserStep {
        self.at_line_start = false;
        self.at_message_start = false;
        self.pass_through(length);
        ParserStep::Continue
    }

    /// Lets so many bytes through, whatever they are.
    fn pass_through(&mut self, length: usize) {
        let text = &self.buffer[self.position..self.position + length];
        self.previous_char = text.chars().next_back().unwrap_or(self.previous_char);
        self.event_buffer.push_text(text);
        self.position += length;
    }

    /// Lets one character through that opens nothing.
    fn consume_char(&mut self) -> ParserStep {
        let first = self.buffer[self.position..].chars().next();
        self.consume_text(first.map_or(1, char::len_utf8))
    }

    /// Looks at the first word of a line. None when it is ordinary.
    fn parse_line_start(&mut self, end: InputState) -> Option<ParserStep> {
        let first = self.buffer.as_bytes()[self.position];
        if !marker_index::LINE_FIRST_BYTES[first as usize]
            && self.event_buffer.last != LastEvent::Call
        {
            return None;
        }
        let touched = Cell::new(false);
        let cursor = TextCursor::new(&self.buffer[self.position..], &touched);
        let place = if self.at_message_start {
            MarkerPlacement::MessageStart
        } else {
            MarkerPlacement::LineStart
        };
        let imagined = self.event_buffer.last == LastEvent::Call
            && HALLUCINATED_RESULT_MARKERS
                .iter()
                .any(|it| marker::match_length(it, cursor).is_some());
        let answer = (self.at_message_start || self.event_buffer.last == LastEvent::Reasoning)
            .then(|| {
                line_calls::FINAL_ANSWER_LABELS
                    .iter()
                    .find(|it| cursor.starts_with(it))
            })
            .flatten();
        let thought = self.at_message_start
            && line_calls::THOUGHT_LABELS
                .iter()
                .any(|it| cursor.starts_with(it));
        let all = line_calls::RECIPIENT_ALL_LINES
            .iter()
            .find(|it| cursor.starts_with(it));
        let fence = cursor.starts_with("```");
        if touched.get() && end == InputState::Open {
            return Some(ParserStep::NeedMoreText);
        }
        if self.tools.is_empty() {
            return if fence {
                Some(self.backticks(end))
            } else {
                self.parse_marker(place, end)
            };
        }
        if imagined {
            self.mode = ParserMode::Hallucination;
            return Some(ParserStep::Continue);
        }
        if let Some(label) = answer.or(all) {
            return Some(self.consume_structural_token(label.len()));
        }
        if thought && self.dialect.accepts("react") {
            return self.parse_and_apply(MAX_MARKERLESS_BYTES, end, false, |scene| {
                line_calls::parse_react_thought(scene.start)
            });
        }
        if fence {
            return Some(self.backticks(end));
        }
        match self.buffer.as_bytes()[self.position] {
            b'{' | b'[' => self.parse_marker(place, end).or_else(|| self.bare(end)),
            b'<' => self.parse_marker(place, end).or_else(|| self.tool_tag(end)),
            _ => self.parse_marker(place, end),
        }
    }

    /// Three backticks or more: a call in a fence, a fence, or code in a line.
    fn backticks(&mut self, end: InputState) -> ParserStep {
        let first = self.at_message_start;
        let tail = self.event_buffer.text_tail().to_owned();
        if !self.tools.is_empty()
            && let Some(step) = self.parse_and_apply(MAX_MARKERLESS_BYTES, end, false, |scene| {
                markerless_calls::parse_fence(scene, first, &tail)
            })
        {
            return step;
        }
        let touched = Cell::new(false);
        let mut line = TextCursor::new(&self.buffer[self.position..], &touched);
        let ticks = line.take_while(|c| c == '`').len();
        line.take_while(|c| c != '\n' && c != '`');
        let fence = line.position() > MAX_FENCE_LINE_BYTES || line.peek() != Some('`');
        if touched.get() && end == InputState::Open && line.position() <= MAX_FENCE_LINE_BYTES {
            return ParserStep::NeedMoreText;
        }
        if fence {
            self.mode = ParserMode::CodeFence(ticks);
        } else {
            self.in_inline_code = !self.in_inline_code;
        }
        self.consume_text(ticks)
    }

    fn bare(&mut self, end: InputState) -> Option<ParserStep> {
        if !self.dialect.accepts("bare_json") && !self.dialect.accepts("pythonic") {
            return None;
        }
        if markerless_calls::announces_example(self.event_buffer.text_tail()) {
            return None;
        }
        self.parse_and_apply(
            MAX_MARKERLESS_BYTES,
            end,
            false,
            markerless_calls::parse_bare,
        )
    }

    fn tool_tag(&mut self, end: InputState) -> Option<ParserStep> {
        if !self.dialect.accepts("tag_per_tool") {
            return None;
        }
        self.parse_and_apply(
            MAX_MARKERLESS_BYTES,
            end,
            false,
            markerless_calls::parse_tool_tag,
        )
    }
}

/// Whether a run of three backticks begins here, as far as can be seen.
fn may_fence(bytes: &[u8]) -> bool {
    bytes.iter().take(3).all(|b| *b == b'`')
}
