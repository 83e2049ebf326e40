//! Collects events: joins text, drops white space and control tokens beside frames,
//! and sets aside events that may turn out to be a draft.

use std::mem;

use super::DialectEvent;

/// How much of the visible text is remembered.
const MAX_TAIL_BYTES: usize = 160;

/// The most text that is held back because it may be reasoning.
const MAX_HELD_START_BYTES: usize = 256 << 10;
/// Columns from which on a line is code in Markdown.
const CODE_INDENT: usize = 4;

/// What came last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum LastEvent {
    #[default]
    Nothing,
    Text,
    Reasoning,
    Call,
    InvalidCall,
}

/// The events so far that were not handed out yet.
#[derive(Debug, Default)]
pub(super) struct EventBuffer {
    ready: Vec<DialectEvent>,
    /// Events that count only if the reasoning around them never ends.
    draft_events: Option<DraftEvents>,
    /// White space and tokens that wait for what follows them.
    held_text: String,
    /// The same without the tokens.
    held_whitespace: String,
    /// A token that only structures the message is among what is held.
    holds_structural_token: bool,
    reasoning_whitespace: String,
    /// The next reasoning is the first of its frame.
    at_reasoning_start: bool,
    /// There was reasoning that was not empty.
    has_reasoning_text: bool,
    /// Space was left out since the last text.
    dropped_whitespace: bool,
    /// Text at the beginning of the message is held back: it may be reasoning.
    holds_start: bool,
    /// The message began inside reasoning.
    started_in_reasoning: bool,
    pub(super) last: LastEvent,
    /// The end of the visible text.
    tail: String,
    /// Whether there was text, reasoning, a call.
    pub(super) has_text: bool,
    pub(super) has_reasoning: bool,
    pub(super) has_call: bool,
}

#[derive(Debug)]
struct DraftEvents {
    events: Vec<DialectEvent>,
    has_call: bool,
    /// What was so before it.
    had_text: bool,
    dropped_whitespace: bool,
}

impl EventBuffer {
    /// An empty buffer; `holds_start` says that the message may begin in reasoning.
    pub(super) fn new(holds_start: bool) -> Self {
        Self {
            holds_start,
            ..Self::default()
        }
    }

    pub(super) fn push_text(&mut self, text: &str) {
        let solid = text.trim_end();
        if solid.is_empty() {
            self.hold(text);
            return;
        }
        let text_only = match self.last {
            LastEvent::Call | LastEvent::Reasoning => solid.trim_start(),
            LastEvent::Nothing if self.holds_structural_token => solid.trim_start(),
            _ => solid,
        };
        let continues = self.last == LastEvent::Text
            && self.held_text.is_empty()
            && !self.holds_structural_token
            && !self.dropped_whitespace;
        if !continues {
            self.flush_held(solid.len() > text_only.len());
        }
        self.append(text_only);
        self.last = LastEvent::Text;
        self.has_text = true;
        if solid.len() < text.len() {
            self.hold(&text[solid.len()..]);
        }
    }

    /// A token that means nothing beside a frame and at the end.
    pub(super) fn push_control_token(&mut self, token: &str) {
        self.held_text.push_str(token);
    }

    /// A token that means nothing beside a frame, and is text at the end.
    pub(super) fn push_quotable_token(&mut self, token: &str) {
        self.hold(token);
    }

    /// A token that never is text.
    pub(super) fn push_structural_token(&mut self, token: &str) {
        self.held_text.push_str(token);
        self.holds_structural_token = true;
    }

    pub(super) fn push_reasoning(&mut self, text: &str) {
        let solid = text.trim_end();
        let start = self.last != LastEvent::Reasoning || self.at_reasoning_start;
        if solid.is_empty() {
            if !start {
                self.reasoning_whitespace.push_str(text);
            }
            return;
        }
        self.clear_held();
        let mut piece = mem::take(&mut self.reasoning_whitespace);
        if start && self.has_reasoning_text {
            piece.push('\n');
        }
        self.at_reasoning_start = false;
        self.has_reasoning_text = true;
        piece.push_str(if start { solid.trim_start() } else { solid });
        self.reasoning_whitespace.push_str(&text[solid.len()..]);
        self.last = LastEvent::Reasoning;
        self.has_reasoning = true;
        self.push(DialectEvent::Reasoning(piece));
    }

    /// Reasoning ended: what follows is something else, more of it included.
    pub(super) fn end_reasoning(&mut self) {
        self.clear_held();
        self.reasoning_whitespace.clear();
        self.last = LastEvent::Reasoning;
        self.has_reasoning = true;
        self.at_reasoning_start = true;
    }

    /// Its end came without a beginning.
    pub(super) fn reclassify_text_as_reasoning(&mut self) {
        self.started_in_reasoning = true;
        if self.holds_start {
            self.turn_held_text_into_reasoning();
        } else if self.has_text {
            self.push(DialectEvent::TextWasReasoning);
        }
        self.has_text = false;
        self.end_reasoning();
    }

    /// Whether a closing tag without an opening one showed that the message began inside
    /// reasoning.
    pub(super) fn started_in_reasoning(&self) -> bool {
        self.started_in_reasoning
    }

    /// Whether text is held back because it may be reasoning.
    pub(super) fn holds_start_text(&self) -> bool {
        self.holds_start && !self.ready.is_empty()
    }

    /// The beginning of the message is known not to be reasoning.
    pub(super) fn release_start(&mut self) {
        self.holds_start = false;
    }

    fn turn_held_text_into_reasoning(&mut self) {
        self.holds_start = false;
        for event in &mut self.ready {
            if let DialectEvent::Text(text) = event {
                self.has_reasoning_text = true;
                *event = DialectEvent::Reasoning(mem::take(text));
            }
        }
    }

    /// Whether the text so far may still turn out to be reasoning.
    fn is_start_undecided(&self) -> bool {
        let length = |event: &DialectEvent| match event {
            DialectEvent::Text(text) => Some(text.len()),
            _ => None,
        };
        let lengths: Option<Vec<usize>> = self.ready.iter().map(length).collect();
        lengths.is_some_and(|all| all.iter().sum::<usize>() <= MAX_HELD_START_BYTES)
    }

    pub(super) fn push_hallucination(&mut self, text: &str) {
        self.push(DialectEvent::Hallucination(text.to_owned()));
    }

    pub(super) fn push_event(&mut self, event: DialectEvent) {
        match &event {
            DialectEvent::Text(text) => return self.push_text(text),
            DialectEvent::Call(_)
            | DialectEvent::CallStarted(_)
            | DialectEvent::CallFinished(_) => {
                self.clear_held();
                self.last = LastEvent::Call;
                match &mut self.draft_events {
                    Some(draft) => draft.has_call = true,
                    None => self.has_call = true,
                }
            }
            DialectEvent::InvalidCall(_) => {
                match self.last {
                    LastEvent::Call | LastEvent::Reasoning
                        if self.held_whitespace.len() == self.held_text.len() =>
                    {
                        self.clear_held();
                    }
                    _ => {
                        let held = mem::take(&mut self.held_text);
                        self.clear_held();
                        self.append(&held);
                    }
                }
                self.last = LastEvent::InvalidCall;
            }
            _ => (),
        }
        self.push(event);
    }

    /// From here on, events wait for [`Self::commit_draft`] or [`Self::discard_draft`].
    pub(super) fn begin_draft(&mut self) {
        self.draft_events = Some(DraftEvents {
            events: Vec::new(),
            has_call: false,
            had_text: self.has_text,
            dropped_whitespace: self.dropped_whitespace,
        });
    }

    /// Whether the draft ends with a call.
    pub(super) fn draft_ends_with_call(&self) -> bool {
        let last = self
            .draft_events
            .as_ref()
            .and_then(|draft| draft.events.last());
        matches!(last, Some(DialectEvent::Call(_)))
            && self.held_text.len() == self.held_whitespace.len()
    }

    pub(super) fn commit_draft(&mut self) {
        if let Some(draft) = self.draft_events.take() {
            self.reasoning_whitespace.clear();
            self.has_call |= draft.has_call;
            for event in draft.events {
                self.push(event);
            }
        }
    }

    pub(super) fn discard_draft(&mut self) {
        if let Some(draft) = self.draft_events.take() {
            self.clear_held();
            self.last = LastEvent::Reasoning;
            self.at_reasoning_start = false;
            self.has_text = draft.had_text;
            self.dropped_whitespace = draft.dropped_whitespace;
        }
    }

    /// The message is over.
    pub(super) fn finish(&mut self) {
        self.holds_start = false;
        let rest = match self.last {
            LastEvent::InvalidCall => mem::take(&mut self.held_text),
            LastEvent::Call | LastEvent::Reasoning => String::new(),
            LastEvent::Text | LastEvent::Nothing => mem::take(&mut self.held_whitespace),
        };
        self.clear_held();
        self.append(&rest);
        self.commit_draft();
    }

    /// Hands out what cannot change any more.
    pub(super) fn drain_to(&mut self, events: &mut Vec<DialectEvent>) {
        if self.holds_start && self.is_start_undecided() {
            return;
        }
        self.holds_start = false;
        for event in self.ready.drain(..) {
            join(events, event);
        }
    }

    /// The end of the visible text, and whether that is all of it.
    pub(super) fn text_tail(&self) -> &str {
        let mut from = self.tail.len().saturating_sub(MAX_TAIL_BYTES);
        while !self.tail.is_char_boundary(from) {
            from += 1;
        }
        &self.tail[from..]
    }

    /// Whether the current line of the visible text is an indented code block or a
    /// block quote.
    pub(super) fn is_in_code_or_quote(&self) -> bool {
        let line = self.held_text.rsplit('\n').next().unwrap_or_default();
        let starts_here = line.len() < self.held_text.len();
        if starts_here {
            let before = &self.held_text[..self.held_text.len() - line.len() - 1];
            return is_indented(line)
                && (before.contains('\n') || is_indented(last_line(self.text_tail())));
        }
        let text = self.text_tail();
        let line = last_line(text);
        let before = text[..text.len() - line.len()].trim_end_matches([' ', '\t', '\r']);
        let before = before.strip_suffix('\n').unwrap_or(before);
        let after_blank = before.trim_end_matches([' ', '\t', '\r']).ends_with('\n');
        line.trim_start().starts_with('>')
            || (is_indented(line) && (after_blank || is_indented(last_line(before))))
    }

    fn hold(&mut self, space: &str) {
        self.held_text.push_str(space);
        self.held_whitespace.push_str(space);
    }

    fn clear_held(&mut self) {
        self.dropped_whitespace |= !self.held_whitespace.is_empty();
        self.held_text.clear();
        self.held_whitespace.clear();
        self.holds_structural_token = false;
    }

    /// Writes what was held back before text; `gap` says that space before
    /// that text was left out.
    fn flush_held(&mut self, gap: bool) {
        let gap = self.dropped_whitespace || gap || !self.held_whitespace.is_empty();
        // Given back below: between lines something is held each time.
        let (held, space) = (
            mem::take(&mut self.held_text),
            mem::take(&mut self.held_whitespace),
        );
        self.append(match (self.last, self.holds_structural_token) {
            // Text on both sides of a frame does not run together.
            (LastEvent::Call | LastEvent::Reasoning, _) if gap && self.has_text => "\n",
            (LastEvent::Call | LastEvent::Reasoning, _) | (LastEvent::Nothing, true) => "",
            (_, true) => &space,
            (_, false) => &held,
        });
        (self.held_text, self.held_whitespace) = (held, space);
        self.clear_held();
        self.dropped_whitespace = false;
    }

    fn append(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        let mut from = text.len().saturating_sub(MAX_TAIL_BYTES + 4);
        while !text.is_char_boundary(from) {
            from += 1;
        }
        self.tail.push_str(&text[from..]);
        if self.tail.len() > 8 * MAX_TAIL_BYTES {
            let dropped = self.tail.len() - self.text_tail().len();
            self.tail.drain(..dropped);
        }
        let list = match &mut self.draft_events {
            Some(draft) => &mut draft.events,
            None => &mut self.ready,
        };
        match list.last_mut() {
            Some(DialectEvent::Text(last)) => last.push_str(text),
            _ => list.push(DialectEvent::Text(text.to_owned())),
        }
    }

    fn push(&mut self, event: DialectEvent) {
        match &mut self.draft_events {
            Some(draft) => join(&mut draft.events, event),
            None => join(&mut self.ready, event),
        }
    }
}

/// The last line, as far as it goes.
fn last_line(text: &str) -> &str {
    text.rsplit('\n').next().unwrap_or_default()
}

/// Whether a line is indented as far as code is in Markdown.
fn is_indented(line: &str) -> bool {
    let mut columns = 0;
    for c in line.chars() {
        match c {
            ' ' => columns += 1,
            '\t' => columns += CODE_INDENT,
            _ => break,
        }
    }
    columns >= CODE_INDENT
}

/// Appends an event; text that continues is joined.
fn join(events: &mut Vec<DialectEvent>, event: DialectEvent) {
    match (events.last_mut(), event) {
        (Some(DialectEvent::Text(last)), DialectEvent::Text(text))
        | (Some(DialectEvent::Reasoning(last)), DialectEvent::Reasoning(text))
        | (Some(DialectEvent::Hallucination(last)), DialectEvent::Hallucination(text))
        | (Some(DialectEvent::CallArguments(last)), DialectEvent::CallArguments(text)) => {
            last.push_str(&text);
        }
        (_, event) => events.push(event),
    }
}
