//! The state machine: takes chunks of text, emits events.

mod frames;
mod line_start;
mod reasoning;
mod rescan;

use std::sync::Arc;

use super::{
    DialectEvent, argument_stream::ArgumentStream, event_buffer::EventBuffer,
    grammar::MarkerPlacement, marker_index, selection::DialectSelection, tool_set::ToolSet,
};
use rescan::RescanBudget;

/// Longest frame with markers.
const MAX_FRAME_BYTES: usize = 4 << 20;
/// Longest text that may be a call without markers.
const MAX_MARKERLESS_BYTES: usize = 256 << 10;
/// Longest line that opens a fence.
const MAX_FENCE_LINE_BYTES: usize = 120;
/// The most frames that only the end of the text decides.
const MAX_UNDECIDED_FRAMES: u32 = 16;

/// How a message is parsed, beside its tools and its dialect.
#[derive(Clone, Copy, Debug)]
pub struct DialectOptions {
    /// The prompt ended inside reasoning: the text begins there.
    pub starts_in_reasoning: bool,
    /// The prompt may have ended inside reasoning. Text is held back until that is
    /// decided: by a closing tag, by anything else than text, or by the end. For models
    /// that are known to write a closing tag without an opening one; without this, such
    /// reasoning goes out as text, and [`DialectEvent::TextWasReasoning`] follows.
    pub may_start_in_reasoning: bool,
    /// A complete call that is the last thing in the reasoning, with nothing
    /// behind the reasoning's end, is made.
    pub accept_trailing_draft: bool,
    /// Our own prompt told the model how to write a call. Then JSON that is shaped
    /// like a call is one wherever it stands, words around it stay text, and a call
    /// of an unknown tool, with arguments of the wrong shape or in code that cannot be
    /// read is a [`DialectEvent::InvalidCall`] rather than text.
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
            may_start_in_reasoning: false,
            accept_trailing_draft: true,
            prompted: false,
            stream_arguments: false,
        }
    }
}

/// Parses one message of a model.
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
    /// How much of the buffer is consumed.
    position: usize,
    mode: ParserMode,
    /// Something that only a line begins with may begin here: only white space stands
    /// before it on its line, or a frame or token that is no text.
    at_line_start: bool,
    /// Only white space stands before `position` in the message.
    at_message_start: bool,
    /// An odd number of backticks stands before `position` on its line.
    in_inline_code: bool,
    /// The character before `position`.
    previous_char: char,
    /// Where reasoning was left by a call that may be a draft.
    draft_call: Option<DraftCall>,
    rescan_budget: RescanBudget,
    undecided_frames: u32,
    /// The frame at `position` whose arguments are handed out before its end.
    argument_stream: Option<ArgumentStream>,
    event_buffer: EventBuffer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParserMode {
    Text,
    CodeFence(CodeFence),
    /// Reasoning between tags; the row of the table.
    Reasoning(usize),
    /// Reasoning as an addressed message.
    ReasoningMessage,
    /// What the model made up after its call.
    Hallucination,
}

/// An open code fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CodeFence {
    /// A backtick or a tilde.
    mark: u8,
    /// How many of them opened it; as many close it.
    length: usize,
}

#[derive(Clone, Copy, Debug)]
struct DraftCall {
    start: usize,
    row: usize,
}

/// Whether the parser went on or needs more text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Creates a parser for one message.
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
            argument_stream: None,
            event_buffer: EventBuffer::new(options.may_start_in_reasoning),
        }
    }

    /// Returns how many bytes of the text are held back because what follows decides about
    /// them.
    pub fn held_bytes(&self) -> usize {
        self.buffer.len()
    }

    /// Returns whether the message began inside reasoning: the tag that closed it came
    /// without one that opened it.
    pub fn started_in_reasoning(&self) -> bool {
        self.event_buffer.started_in_reasoning()
    }

    /// Returns whether text is held back because it may be reasoning.
    pub fn holds_start_text(&self) -> bool {
        self.event_buffer.holds_start_text()
    }

    /// Hands out the text that was held back because it may be reasoning: the backend
    /// sends the reasoning apart from the text.
    pub fn release_start(&mut self, events: &mut Vec<DialectEvent>) {
        self.event_buffer.release_start();
        self.event_buffer.drain_to(events);
    }

    /// Parses the next chunk. Events that no further text can change are appended to
    /// `events`.
    pub fn push(&mut self, text: &str, events: &mut Vec<DialectEvent>) {
        self.buffer.push_str(text);
        if self
            .rescan_budget
            .should_rescan(self.buffer.len() - self.position, text)
        {
            self.run(InputState::Open);
        }
        self.stream_arguments();
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

    /// Hands out what is certain of the arguments in an open frame.
    fn stream_arguments(&mut self) {
        if let Some(stream) = &mut self.argument_stream {
            let mut events = Vec::new();
            stream.advance(&self.buffer[self.position..], &self.tools, &mut events);
            for event in events {
                self.event_buffer.push_event(event);
            }
        }
    }

    fn run(&mut self, end: InputState) {
        let before = self.position;
        while self.position < self.buffer.len() {
            let step = match self.mode {
                ParserMode::Text => self.text(end),
                ParserMode::CodeFence(fence) => self.fence(fence, end),
                ParserMode::Reasoning(row) => reasoning::parse_reasoning(self, row, end),
                ParserMode::ReasoningMessage => reasoning::parse_reasoning_message(self, end),
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

    /// Removes consumed text from the buffer.
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

    /// Hands out the lines of a code fence, up to the one that closes it.
    fn fence(&mut self, fence: CodeFence, end: InputState) -> ParserStep {
        let rest = &self.buffer[self.position..];
        // Lines before the first mark do not close it.
        let mark = memchr::memchr(fence.mark, rest.as_bytes()).unwrap_or(rest.len());
        if let Some(last) = memchr::memrchr(b'\n', &rest.as_bytes()[..mark]) {
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
        let run = line.len() - line.trim_start_matches(char::from(fence.mark)).len();
        if space + run == rest.len() && end == InputState::Open {
            return ParserStep::NeedMoreText;
        }
        self.at_line_start = false;
        if run >= fence.length {
            self.mode = ParserMode::Text;
        }
        self.pass_through(space + run);
        ParserStep::Continue
    }

    fn text(&mut self, end: InputState) -> ParserStep {
        let rest = &self.buffer[self.position..];
        if self.at_line_start {
            if let Some(length) = invisible_length(rest) {
                let after = &rest[length..];
                if after.is_empty() && end == InputState::Open {
                    return ParserStep::NeedMoreText;
                }
                let is_mark = self.at_message_start && rest.starts_with('\u{feff}');
                if is_mark || after.starts_with(['{', '[', '"', '<', '`']) {
                    return frames::consume_structural_token(self, length);
                }
            }
            let space = rest.len() - rest.trim_start().len();
            if space > 0 {
                self.pass_through(space);
                return ParserStep::Continue;
            }
            if let Some(step) = line_start::parse_line_start(self, end) {
                return step;
            }
        }
        match self.plain_text_length() {
            0 if self.buffer.as_bytes()[self.position] == b'`' => {
                if self.is_backtick_run_open(end) {
                    ParserStep::NeedMoreText
                } else {
                    line_start::backticks(self, end)
                }
            }
            0 => {
                let first = self.buffer.as_bytes()[self.position];
                let mut step = frames::parse_marker(self, MarkerPlacement::Anywhere, end);
                if step.is_none() && self.options.prompted && matches!(first, b'{' | b'[') {
                    step = line_start::bare(self, end);
                }
                step.unwrap_or_else(|| self.consume_char())
            }
            length => {
                let line = self.buffer.as_bytes()[self.position + length - 1] == b'\n';
                self.consume_text(length);
                self.at_line_start = line;
                ParserStep::Continue
            }
        }
    }

    /// The length of what is certainly text: up to a possible marker, or to a line
    /// that may begin with one.
    fn plain_text_length(&mut self) -> usize {
        let bytes = &self.buffer.as_bytes()[self.position..];
        let first_bytes = if self.options.prompted {
            &marker_index::PROMPTED_FIRST_BYTES
        } else {
            &marker_index::MARKER_FIRST_BYTES
        };
        let mut length = 0;
        while let Some(by) = bytes[length..]
            .iter()
            .position(|b| first_bytes[*b as usize])
        {
            length += by;
            match bytes[length] {
                b'`' if may_fence(&bytes[length..]) => return length,
                b'`' => self.in_inline_code = !self.in_inline_code,
                b'\n' => {
                    self.in_inline_code = false;
                    let line = &bytes[length + 1..];
                    if marker_index::may_start_line_marker(line)
                        || self.tools.may_start_named_line(line)
                    {
                        return length + 1;
                    }
                }
                b'[' if self.options.prompted && bytes[length..].starts_with(b"[{") => {
                    return length;
                }
                _ if marker_index::may_start_marker(&bytes[length..]) => return length,
                _ => (),
            }
            length += 1;
        }
        bytes.len()
    }

    /// Whether a run of backticks may still grow.
    fn is_backtick_run_open(&self, end: InputState) -> bool {
        let rest = &self.buffer.as_bytes()[self.position..];
        end == InputState::Open && rest.iter().all(|b| *b == b'`')
    }

    /// Hands out `length` bytes of text.
    fn consume_text(&mut self, length: usize) -> ParserStep {
        self.at_line_start = false;
        self.at_message_start = false;
        self.pass_through(length);
        ParserStep::Continue
    }

    /// Hands out `length` bytes without changing what may follow.
    fn pass_through(&mut self, length: usize) {
        let text = &self.buffer[self.position..self.position + length];
        self.previous_char = text.chars().next_back().unwrap_or(self.previous_char);
        self.event_buffer.push_text(text);
        self.position += length;
    }

    /// Hands out one character that opens nothing.
    fn consume_char(&mut self) -> ParserStep {
        let first = self.buffer[self.position..].chars().next();
        self.consume_text(first.map_or(1, char::len_utf8))
    }
}

/// The length of the byte order mark or zero-width space that is next.
fn invisible_length(text: &str) -> Option<usize> {
    let first = text.chars().next()?;
    matches!(first, '\u{feff}' | '\u{200b}' | '\u{2060}').then(|| first.len_utf8())
}

/// Whether a run of three backticks begins here, as far as can be seen.
fn may_fence(bytes: &[u8]) -> bool {
    bytes.iter().take(3).all(|b| *b == b'`')
}
