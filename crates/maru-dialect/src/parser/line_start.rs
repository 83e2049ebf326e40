//! What a line begins with: fences, labels, and calls without markers.

use std::cell::Cell;

use super::{
    CodeFence, DialectParser, InputState, MAX_FENCE_LINE_BYTES, MAX_MARKERLESS_BYTES, ParserMode,
    ParserStep, frames,
};
use crate::{
    cursor::TextCursor,
    event_buffer::LastEvent,
    frame_context::{FrameContext, FrameResult},
    grammar::{HALLUCINATED_RESULT_MARKERS, MarkerPlacement},
    line_calls, marker, marker_index, markerless_calls, stripped_harmony, surrounding_text,
};

/// Checks the first word of a line; `None` if it announces nothing.
pub(super) fn parse_line_start(parser: &mut DialectParser, end: InputState) -> Option<ParserStep> {
    let rest = &parser.buffer[parser.position..];
    let named = parser.tools.may_start_named_line(rest.as_bytes());
    if !named
        && !marker_index::LINE_FIRST_BYTES[rest.as_bytes()[0] as usize]
        && parser.event_buffer.last != LastEvent::Call
    {
        return None;
    }
    let touched = Cell::new(false);
    let cursor = TextCursor::new(rest, &touched);
    let line = LineStart::detect(cursor, parser.at_message_start, parser.event_buffer.last);
    if touched.get() && end == InputState::Open {
        return Some(ParserStep::NeedMoreText);
    }
    let place = if parser.at_message_start {
        MarkerPlacement::MessageStart
    } else {
        MarkerPlacement::LineStart
    };
    if parser.tools.is_empty() {
        return match line {
            LineStart::Fence(mark) => Some(open_fence(parser, mark, end)),
            _ => frames::parse_marker(parser, place, end),
        };
    }
    match line {
        LineStart::HallucinatedResult => {
            parser.mode = ParserMode::Hallucination;
            Some(ParserStep::Continue)
        }
        LineStart::Label(length) => Some(frames::consume_structural_token(parser, length)),
        LineStart::Thought if parser.dialect.accepts("react") => {
            frames::parse_and_apply(parser, MAX_MARKERLESS_BYTES, end, false, |context| {
                line_calls::parse_react_thought(context.start)
            })
        }
        LineStart::Fence(mark) => Some(open_fence(parser, mark, end)),
        LineStart::StrippedHarmony if parser.dialect.accepts("harmony") => {
            parse_stripped_harmony(parser, end)
        }
        LineStart::Script | LineStart::QuotedJson => {
            parse_markerless(parser, line, end).or_else(|| named_line(parser, named, end))
        }
        LineStart::Thought | LineStart::StrippedHarmony | LineStart::Other => {
            let first = parser.buffer.as_bytes()[parser.position];
            let step = frames::parse_marker(parser, place, end);
            let step = step.or_else(|| match first {
                b'{' | b'[' => bare(parser, end),
                b'<' => tool_tag(parser, end),
                _ => None,
            });
            step.or_else(|| named_line(parser, named, end))
        }
    }
}

/// Three backticks or tildes, or more: a fence, or a call in one.
fn open_fence(parser: &mut DialectParser, mark: u8, end: InputState) -> ParserStep {
    if mark == b'`' {
        return backticks(parser, end);
    }
    let rest = &parser.buffer[parser.position..];
    let length = rest.len() - rest.trim_start_matches(char::from(mark)).len();
    if length == rest.len() && end == InputState::Open {
        return ParserStep::NeedMoreText;
    }
    parser.mode = ParserMode::CodeFence(CodeFence { mark, length });
    parser.consume_text(length)
}

/// Three backticks or more: a call in a fence, a fence, or code in a line.
pub(super) fn backticks(parser: &mut DialectParser, end: InputState) -> ParserStep {
    let is_first = parser.at_message_start;
    if !parser.tools.is_empty()
        && !is_in_quotation(parser)
        && let Some(step) =
            frames::parse_and_apply(parser, MAX_MARKERLESS_BYTES, end, false, |context| {
                markerless_calls::parse_fence(context, is_first)
            })
    {
        if step == ParserStep::NeedMoreText {
            frames::begin_markerless_argument_stream(parser);
        }
        return step;
    }
    let touched = Cell::new(false);
    let mut line = TextCursor::new(&parser.buffer[parser.position..], &touched);
    let ticks = line.take_while(|c| c == '`').len();
    line.take_while(|c| c != '\n' && c != '`');
    let fence = line.position() > MAX_FENCE_LINE_BYTES || line.peek() != Some('`');
    if touched.get() && end == InputState::Open && line.position() <= MAX_FENCE_LINE_BYTES {
        return ParserStep::NeedMoreText;
    }
    if fence {
        parser.mode = ParserMode::CodeFence(CodeFence {
            mark: b'`',
            length: ticks,
        });
    } else {
        parser.in_inline_code = !parser.in_inline_code;
    }
    parser.consume_text(ticks)
}

/// Whether the line is an indented code block or a block quote: what looks like a
/// call there is shown, not made.
pub(super) fn is_in_quotation(parser: &DialectParser) -> bool {
    parser.event_buffer.last == LastEvent::Text && parser.event_buffer.is_in_code_or_quote()
}

pub(super) fn bare(parser: &mut DialectParser, end: InputState) -> Option<ParserStep> {
    if !parser.dialect.accepts("bare_json") && !parser.dialect.accepts("pythonic") {
        return None;
    }
    let is_shown = || {
        let text_before = parser.event_buffer.text_tail();
        parser.in_inline_code || surrounding_text::is_shown_in_line(text_before)
    };
    if is_in_quotation(parser) || (!parser.at_line_start && is_shown()) {
        return None;
    }
    let step = frames::parse_and_apply(
        parser,
        MAX_MARKERLESS_BYTES,
        end,
        false,
        markerless_calls::parse_bare,
    );
    if step == Some(ParserStep::NeedMoreText) {
        frames::begin_markerless_argument_stream(parser);
    }
    step
}

/// A call without markers that the first word of its line announces.
fn parse_markerless(
    parser: &mut DialectParser,
    line: LineStart,
    end: InputState,
) -> Option<ParserStep> {
    let (dialect, read): (_, fn(FrameContext<'_>) -> FrameResult) = match line {
        LineStart::Script => ("tool_code", markerless_calls::parse_script),
        _ => ("bare_json", markerless_calls::parse_quoted_json),
    };
    if !parser.dialect.accepts(dialect) || is_in_quotation(parser) {
        return None;
    }
    frames::parse_and_apply(parser, MAX_MARKERLESS_BYTES, end, false, |context| {
        read(FrameContext { dialect, ..context })
    })
}

/// A line that begins with the name of a tool, if it does.
fn named_line(parser: &mut DialectParser, named: bool, end: InputState) -> Option<ParserStep> {
    if !named || is_in_quotation(parser) {
        return None;
    }
    let is_first = parser.at_message_start;
    frames::parse_and_apply(parser, MAX_MARKERLESS_BYTES, end, false, |context| {
        markerless_calls::parse_named_line(context, is_first)
    })
}

fn parse_stripped_harmony(parser: &mut DialectParser, end: InputState) -> Option<ParserStep> {
    frames::parse_and_apply(parser, MAX_MARKERLESS_BYTES, end, true, |context| {
        stripped_harmony::parse_reply(FrameContext {
            dialect: "harmony",
            ..context
        })
    })
}

fn tool_tag(parser: &mut DialectParser, end: InputState) -> Option<ParserStep> {
    if !parser.dialect.accepts("tag_per_tool") || is_in_quotation(parser) {
        return None;
    }
    frames::parse_and_apply(
        parser,
        MAX_MARKERLESS_BYTES,
        end,
        false,
        markerless_calls::parse_tool_tag,
    )
}

/// What the first word of a line announces.
#[derive(Clone, Copy)]
enum LineStart {
    /// The model makes up the result of its call.
    HallucinatedResult,
    /// A label before the answer; its length in bytes.
    Label(usize),
    /// The thoughts of a `ReAct` message.
    Thought,
    /// A code fence of backticks or tildes.
    Fence(u8),
    /// A reply of gpt-oss without its tokens.
    StrippedHarmony,
    /// Python without a fence.
    Script,
    /// JSON written as a string.
    QuotedJson,
    Other,
}

impl LineStart {
    fn detect(cursor: TextCursor<'_>, at_message_start: bool, last: LastEvent) -> Self {
        let starts_with = |labels: &[&str]| labels.iter().any(|it| cursor.starts_with(it));
        let label = |labels: &[&str]| {
            let label = labels.iter().find(|it| cursor.starts_with(it));
            label.map(|label| Self::Label(label.len()))
        };
        // Of labels none begins with a bracket, of results some do.
        let bracket = cursor.rest().starts_with(['<', '{', '[', ']']);
        if bracket && last != LastEvent::Call {
            return Self::Other;
        }
        let is_result = |it: &&str| marker::match_length(it, cursor).is_some();
        if last == LastEvent::Call && HALLUCINATED_RESULT_MARKERS.iter().any(is_result) {
            return Self::HallucinatedResult;
        }
        if (at_message_start || last == LastEvent::Reasoning)
            && let Some(label) = label(&line_calls::FINAL_ANSWER_LABELS)
        {
            return label;
        }
        if let Some(label) = label(&line_calls::RECIPIENT_ALL_LINES) {
            return label;
        }
        if at_message_start && starts_with(&line_calls::THOUGHT_LABELS) {
            return Self::Thought;
        }
        for (mark, fence) in [(b'`', "```"), (b'~', "~~~")] {
            if cursor.starts_with(fence) {
                return Self::Fence(mark);
            }
        }
        if at_message_start && starts_with(&stripped_harmony::REPLY_STARTS) {
            return Self::StrippedHarmony;
        }
        if starts_with(&markerless_calls::SCRIPT_STARTS) {
            return Self::Script;
        }
        if markerless_calls::is_quoted_json(cursor) {
            return Self::QuotedJson;
        }
        Self::Other
    }
}
