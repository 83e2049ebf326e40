//! The frame that is being parsed, and how its candidates become events.

use super::{
    DialectEvent, InvalidCall, ParsedCall,
    arguments::as_object,
    cursor::TextCursor,
    json::{JsonValue, write_object},
    json_calls::{CandidateOutcome, MatchedCall, extract_calls},
    marker,
    repair::{JsonRepair, PayloadError},
    surrounding_text::{announces_example, is_certainly_meant},
    tool_set::{ToolSet, ToolSignature},
};

/// The result of parsing a frame.
pub(super) enum FrameResult {
    /// It was none: its opener is text.
    NotAFrame,
    /// It ends at `end` and stands for these events.
    Parsed {
        end: usize,
        events: Vec<DialectEvent>,
    },
}

/// A frame that is being parsed.
#[derive(Clone, Copy)]
pub(super) struct FrameContext<'a> {
    pub(super) tools: &'a ToolSet,
    pub(super) dialect: &'static str,
    pub(super) closers: &'static [&'static str],
    pub(super) explicit: bool,
    /// Our own prompt told the model how to call.
    pub(super) prompted: bool,
    /// The end of the visible text before the frame.
    pub(super) text_before: &'a str,
    /// Where the frame begins, its opener included.
    pub(super) start: TextCursor<'a>,
    /// Whether a marker that opens a frame is next.
    pub(super) is_frame_opener: &'a dyn Fn(TextCursor<'_>) -> bool,
}

impl FrameContext<'_> {
    /// What the frame holds up to `end`.
    pub(super) fn raw_text(&self, end: usize) -> String {
        self.start.slice(self.start.position(), end).to_owned()
    }

    /// Whether the text before announces an example.
    pub(super) fn follows_example_words(&self) -> bool {
        announces_example(self.text_before, self.prompted)
    }

    /// Whether a call without markers is meant, whatever follows it.
    pub(super) fn is_certainly_meant(&self, fenced: bool) -> bool {
        self.prompted && is_certainly_meant(self.text_before, fenced)
    }

    /// Where the first closer from `cursor` on begins and ends.
    pub(super) fn find_closer(&self, cursor: TextCursor<'_>) -> Option<(usize, usize)> {
        let mut ahead = cursor;
        loop {
            let at = ahead.find(self.closers.first()?.get(..1)?)?;
            ahead.seek(at);
            if let Some(length) = self
                .closers
                .iter()
                .find_map(|it| marker::match_length(it, ahead))
            {
                return Some((at, at + length));
            }
            ahead.bump();
        }
    }

    /// A call of the tool that stands apart from its arguments.
    pub(super) fn resolve_call(
        &self,
        name: &str,
        value: &JsonValue,
        repairs: &mut Vec<JsonRepair>,
    ) -> CandidateOutcome {
        let Some(arguments) = as_object(value, repairs) else {
            return match self.tools.find(name) {
                Some(tool) => CandidateOutcome::wrong_arguments(tool, name, value),
                None => CandidateOutcome::NotACall("its arguments are no object"),
            };
        };
        let nameless = name
            .trim_start_matches("functions.")
            .chars()
            .all(|c| c.is_ascii_digit() || c == ':');
        let counter = name.starts_with("call_") && self.tools.find(name).is_none();
        let tool = if nameless || counter {
            self.tools.find_by_keys(&arguments)
        } else {
            self.tools.find(name)
        };
        match tool {
            Some(tool) => CandidateOutcome::Call(MatchedCall::new(tool, arguments)),
            None => CandidateOutcome::UnknownTool(name.to_owned()),
        }
    }

    /// The events of JSON values.
    pub(super) fn result_from_values(
        &self,
        values: &[JsonValue],
        repairs: &[JsonRepair],
        end: usize,
    ) -> FrameResult {
        self.result_from_outcomes(self.outcomes_of_values(values), repairs, end)
    }

    /// The candidates in JSON values: the first only, unless one can be made.
    pub(super) fn outcomes_of_values(
        &self,
        values: &[JsonValue],
    ) -> Vec<(CandidateOutcome, String)> {
        let mut found = Vec::new();
        for value in values {
            for outcome in extract_calls(value, self.tools, self.explicit) {
                found.push((outcome, value.to_strict_json()));
            }
        }
        if found.is_empty() {
            found.push((
                CandidateOutcome::NotACall("it holds no call"),
                String::new(),
            ));
        }
        keep_first_failure(&mut found);
        found
    }

    /// The events of what was found; the first stands for the whole frame.
    pub(super) fn result_from_outcomes(
        &self,
        mut found: Vec<(CandidateOutcome, String)>,
        repairs: &[JsonRepair],
        end: usize,
    ) -> FrameResult {
        keep_first_failure(&mut found);
        let mut whole = Some(self.raw_text(end));
        let events = found.into_iter().map(|(outcome, part)| {
            let raw = whole.take().unwrap_or(part);
            self.outcome_event(outcome, raw, repairs)
        });
        let events = events.collect();
        FrameResult::Parsed { end, events }
    }

    /// The event of one candidate, of which `raw` is the text.
    pub(super) fn outcome_event(
        &self,
        outcome: CandidateOutcome,
        raw: String,
        repairs: &[JsonRepair],
    ) -> DialectEvent {
        match outcome {
            CandidateOutcome::Call(found) => self.call_event(found, raw, repairs),
            CandidateOutcome::Answer(text) => DialectEvent::Text(text),
            CandidateOutcome::UnknownTool(name) => {
                let reason = self.tools.explain_unknown(&name);
                self.invalid_call_event(raw, Some(name), reason)
            }
            CandidateOutcome::Invalid { name, reason } => {
                self.invalid_call_event(raw, name, reason)
            }
            CandidateOutcome::NotACall(reason) => {
                self.invalid_call_event(raw, None, format!("this is no call: {reason}"))
            }
        }
    }

    fn call_event(&self, found: MatchedCall, raw: String, repairs: &[JsonRepair]) -> DialectEvent {
        let mut arguments = String::new();
        write_object(&found.arguments, &mut arguments);
        let mut repairs = repairs.to_vec();
        for repair in found.repairs {
            if !repairs.contains(&repair) {
                repairs.push(repair);
            }
        }
        DialectEvent::Call(ParsedCall {
            name: found.name,
            arguments,
            id: found.id,
            dialect: self.dialect,
            repairs,
            raw,
            explicit: self.explicit,
        })
    }

    fn invalid_call_event(
        &self,
        text: String,
        name: Option<String>,
        reason: String,
    ) -> DialectEvent {
        let dialect = self.dialect;
        DialectEvent::InvalidCall(InvalidCall {
            text,
            dialect,
            name,
            reason,
        })
    }

    /// A call that cannot be read, of the tool called `name`.
    pub(super) fn unreadable_call(
        &self,
        raw: String,
        name: &str,
        error: PayloadError,
    ) -> DialectEvent {
        self.invalid_call_event(raw, Some(name.to_owned()), error.to_string())
    }

    /// A frame up to `end` that is a call of `tool` which cannot be made.
    pub(super) fn invalid_call_result(
        &self,
        end: usize,
        tool: &ToolSignature,
        reason: String,
    ) -> FrameResult {
        let name = Some(tool.name.clone());
        let events = vec![self.invalid_call_event(self.raw_text(end), name, reason)];
        FrameResult::Parsed { end, events }
    }

    /// A frame that cannot be read: it lasts up to its closer, or to the end.
    pub(super) fn unreadable_frame(&self, at: TextCursor<'_>, error: PayloadError) -> FrameResult {
        if at.needs_more_text() {
            return FrameResult::NotAFrame;
        }
        let end = match self.find_closer(at) {
            Some((_, end)) => end,
            None => at.end_of_input(),
        };
        let events = vec![self.invalid_call_event(self.raw_text(end), None, error.to_string())];
        FrameResult::Parsed { end, events }
    }
}

/// Leaves the first of candidates of which none can be made.
fn keep_first_failure(found: &mut Vec<(CandidateOutcome, String)>) {
    let good = |(outcome, _): &(CandidateOutcome, String)| {
        matches!(
            outcome,
            CandidateOutcome::Call(_) | CandidateOutcome::Answer(_)
        )
    };
    if !found.iter().any(good) {
        found.truncate(1);
    }
}
