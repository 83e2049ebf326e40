//! The agent loop as a state machine: events in, effects out. The driver performs the
//! effects.

use std::collections::HashMap;

use maru_dialect::escape_markers;
use serde_json::{Value, json};

use super::record::TokenTotals;
use maru_llm::{
    self as llm, ChatMessage, ChatResponse, ChatRole, ChatToolCall, InvalidToolCall, TokenUsage,
};
use maru_tools::estimate_tokens;

/// How far a run may go.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunLimits {
    /// The most rounds; each asks the model once.
    pub(super) max_rounds: u32,
    /// Tokens of all rounds together, as the backend counts them or, if it does not,
    /// estimated.
    pub(super) max_tokens: u64,
    /// Characters of a result that the model sees.
    pub(super) max_observation_chars: usize,
    /// How often the model may correct an invalid call.
    pub(super) max_corrections: u32,
}

/// What happened.
#[derive(Debug)]
pub(super) enum MachineEvent {
    /// The model replied.
    ModelReplied(Box<ModelReply>),
    /// Every call of the round has its result.
    CallsFinished(Vec<Observation>),
}

/// A reply of the model.
#[derive(Clone, Debug, Default)]
pub(super) struct ModelReply {
    /// The reply, parsed. Its text has no calls in it, not even invalid ones.
    pub(super) response: ChatResponse,
    /// The text as the model wrote it.
    pub(super) written: String,
}

/// The result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Observation {
    /// Of the call.
    pub(super) id: String,
    /// What the model sees.
    pub(super) text: String,
}

/// What to do next.
#[derive(Debug, PartialEq)]
pub(super) enum MachineEffect {
    /// Send the whole conversation to the model.
    AskModel,
    /// Run these calls, concurrently.
    RunCalls(Vec<ChatToolCall>),
    /// Stop.
    Finish(FinalAnswer),
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct FinalAnswer {
    /// The last text of the model, without its calls; empty if it only made calls.
    pub text: String,
    /// Why the run was ended before the model finished.
    pub cut: Option<CutReason>,
    /// Calls of the last round that were not made.
    pub pending_calls: Vec<ChatToolCall>,
}

/// Why a run was ended before the model finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutReason {
    /// The model was asked as often as it may be.
    Rounds,
    /// It took more tokens than it may.
    Tokens,
    /// It repeated a call whose result did not change.
    Repeats,
    /// Its reply was too long.
    Length,
    /// It wrote an invalid call, however often it was corrected.
    Broken,
    /// It took too long.
    Time,
    /// Its stream was silent for too long.
    Silence,
    /// Its stream broke off.
    Disconnect,
}

/// One run.
#[derive(Debug)]
pub(super) struct AgentMachine {
    messages: Vec<ChatMessage>,
    limits: RunLimits,
    rounds: u32,
    tokens: u64,
    corrections: u32,
    /// The last text for the user.
    last_text: String,
    /// The calls of this round: their ids and keys.
    pending: Vec<(String, String)>,
    /// What is wrong with the other calls of this round.
    pending_errors: Vec<CallError>,
    previous_calls: HashMap<String, PreviousCall>,
}

/// A call that is not made.
#[derive(Debug)]
struct CallError {
    /// The id, if the call stands in the history apart from the text.
    id: Option<String>,
    reason: String,
}

/// A call that was made before.
#[derive(Debug)]
struct PreviousCall {
    result: String,
    /// How often the result did not change.
    unchanged: u32,
}

/// How often a call may be repeated while its result does not change.
const MAX_UNCHANGED_REPEATS: u32 = 1;
/// The most calls of one round.
const MAX_CALLS_PER_ROUND: usize = 16;
/// The message to the model after its reply was cut off inside a call.
const CUT_OFF_CALL: &str =
    "Your answer was cut off before the call was complete. Write the call again, and nothing else.";

impl CutReason {
    /// Why a run ends that keeps what it has when its model fails; `None` if the backend
    /// refuses the request or cannot be reached. `has_begun` says whether a reply had.
    pub(super) fn from_failure(error: &llm::Error, has_begun: bool) -> Option<Self> {
        match error {
            llm::Error::Timeout { .. } => Some(Self::Time),
            llm::Error::Silent { .. } => Some(Self::Silence),
            llm::Error::Unreachable { .. } | llm::Error::InvalidResponse { .. } => {
                has_begun.then_some(Self::Disconnect)
            }
            _ => None,
        }
    }

    /// Its name in responses and records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rounds => "max_iterations",
            Self::Tokens => "max_tokens",
            Self::Repeats => "repeated_call",
            Self::Length => "length",
            Self::Broken => "broken_call",
            Self::Time => "timeout",
            Self::Silence => "idle_timeout",
            Self::Disconnect => "broken_stream",
        }
    }
}

impl AgentMachine {
    /// Begins with a conversation; the first effect is always [`MachineEffect::AskModel`].
    pub(super) fn start(messages: Vec<ChatMessage>, limits: RunLimits) -> (Self, MachineEffect) {
        let machine = Self {
            messages,
            limits,
            rounds: 0,
            tokens: 0,
            corrections: 0,
            last_text: String::new(),
            pending: Vec::new(),
            pending_errors: Vec::new(),
            previous_calls: HashMap::new(),
        };
        (machine, MachineEffect::AskModel)
    }

    /// The conversation so far.
    pub(super) fn messages(&self) -> &[ChatMessage] {
        &self.messages
    }

    /// How often the model was asked.
    pub(super) fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Advances by one event.
    pub(super) fn on(&mut self, event: MachineEvent) -> MachineEffect {
        match event {
            MachineEvent::ModelReplied(reply) => self.on_reply(*reply),
            MachineEvent::CallsFinished(observations) => self.on_observations(observations),
        }
    }

    /// The model was asked and did not finish its reply. Ends the run with what there is;
    /// `None` if there is nothing: no text, no call and no round before this one.
    pub(super) fn break_off(
        &mut self,
        cut: CutReason,
        reply: &ModelReply,
    ) -> Option<MachineEffect> {
        self.keep_text(&reply.response.text);
        let has_nothing =
            self.rounds == 0 && self.last_text.is_empty() && reply.response.calls.is_empty();
        self.rounds += 1;
        (!has_nothing).then(|| self.finish(cut, reply))
    }

    /// The time of the run is over, between two replies.
    pub(super) fn time_out(&self) -> MachineEffect {
        self.finish(CutReason::Time, &ModelReply::default())
    }

    fn keep_text(&mut self, text: &str) {
        if !text.trim().is_empty() {
            text.clone_into(&mut self.last_text);
        }
    }

    fn on_reply(&mut self, reply: ModelReply) -> MachineEffect {
        self.rounds += 1;
        let counted = reply.response.usage.as_ref().map(TokenUsage::total);
        let counted = counted.filter(|it| *it > 0);
        let tokens = counted.unwrap_or_else(|| self.round_tokens(&reply).total());
        self.tokens = self.tokens.saturating_add(tokens);
        let response = &reply.response;
        self.keep_text(&response.text);
        let wants_tools = !response.calls.is_empty() || !response.invalid_calls.is_empty();
        match response.finish_reason {
            reason if reason.is_cut() && wants_tools => {
                self.request_correction(&reply, CUT_OFF_CALL)
            }
            reason if reason.is_cut() => self.finish(CutReason::Length, &reply),
            _ if !wants_tools => {
                let response = reply.response;
                MachineEffect::Finish(FinalAnswer {
                    text: response.refusal.unwrap_or(response.text),
                    cut: None,
                    pending_calls: Vec::new(),
                })
            }
            _ if response.calls.is_empty() => {
                let reasons: Vec<&str> = response
                    .invalid_calls
                    .iter()
                    .map(|it| it.reason.as_str())
                    .collect();
                let note = invalid_call_note(&reasons);
                self.request_correction(&reply, &note)
            }
            _ => match self.exceeded_limit() {
                Some(cut) => self.finish(cut, &reply),
                None => self.call(reply),
            },
        }
    }

    fn call(&mut self, mut reply: ModelReply) -> MachineEffect {
        let keys: Vec<String> = reply.response.calls.iter().map(call_key).collect();
        let is_stuck = |key: &String| {
            let previous = self.previous_calls.get(key);
            previous.is_some_and(|it| it.unchanged >= MAX_UNCHANGED_REPEATS)
        };
        if keys.iter().all(is_stuck) {
            return self.finish(CutReason::Repeats, &reply);
        }
        self.push_reply(&reply);
        let mut calls = std::mem::take(&mut reply.response.calls);
        for extra in calls.drain(MAX_CALLS_PER_ROUND.min(calls.len())..) {
            self.pending_errors.push(CallError {
                id: Some(extra.id),
                reason: format!("a reply may make {MAX_CALLS_PER_ROUND} calls at most"),
            });
        }
        let invalid = reply.response.invalid_calls.into_iter();
        self.pending_errors.extend(invalid.map(CallError::from));
        self.pending = calls.iter().map(|it| it.id.clone()).zip(keys).collect();
        MachineEffect::RunCalls(calls)
    }

    fn on_observations(&mut self, observations: Vec<Observation>) -> MachineEffect {
        for observation in observations {
            let is_repeated = self.is_repeated_result(&observation);
            let mut text =
                truncate_observation(&observation.text, self.limits.max_observation_chars);
            if is_repeated {
                text.push_str("\n[The same call gave the same result before. Use it, or answer.]");
            }
            self.messages
                .push(ChatMessage::tool_result(&observation.id, text));
        }
        self.pending.clear();
        self.push_call_errors();
        MachineEffect::AskModel
    }

    fn is_repeated_result(&mut self, observation: &Observation) -> bool {
        let mut pending = self.pending.iter();
        let Some((_, key)) = pending.find(|(id, _)| *id == observation.id) else {
            return false;
        };
        let result = &observation.text;
        match self.previous_calls.get_mut(key) {
            Some(previous) if previous.result == *result => {
                previous.unchanged += 1;
                true
            }
            _ => {
                let result = result.clone();
                let previous = PreviousCall {
                    result,
                    unchanged: 0,
                };
                self.previous_calls.insert(key.clone(), previous);
                false
            }
        }
    }

    /// Asks for the call again, within the limits.
    fn request_correction(&mut self, reply: &ModelReply, note: &str) -> MachineEffect {
        if let Some(cut) = self.exceeded_limit() {
            return self.finish(cut, reply);
        }
        if self.corrections >= self.limits.max_corrections {
            return self.finish(CutReason::Broken, reply);
        }
        self.corrections += 1;
        self.push_reply(reply);
        let cut_off = reply.response.calls.iter().map(|it| CallError {
            id: Some(it.id.clone()),
            reason: note.to_owned(),
        });
        let invalid = reply.response.invalid_calls.iter().cloned();
        let errors = cut_off.chain(invalid.map(CallError::from));
        // A call that stands apart from the text gets a result, the text a note.
        let (results, in_text): (Vec<_>, Vec<_>) = errors.partition(|it| it.id.is_some());
        let needs_note = results.is_empty() || !in_text.is_empty();
        self.pending_errors = results;
        self.push_call_errors();
        if needs_note {
            self.push_note(note);
        }
        MachineEffect::AskModel
    }

    /// The turn of the model, as it wrote it.
    fn push_reply(&mut self, reply: &ModelReply) {
        let response = &reply.response;
        let mut calls: Vec<Value> = response
            .calls
            .iter()
            .map(ChatToolCall::to_openai_json)
            .collect();
        for invalid in &response.invalid_calls {
            if let Some(native) = &invalid.native {
                let function = json!({"name": invalid.name, "arguments": native.arguments});
                calls.push(json!({"id": native.id, "type": "function", "function": function}));
            }
        }
        let written = Some(reply.written.clone()).filter(|it| !it.trim().is_empty());
        let text = match &written {
            Some(written) if calls.is_empty() => written,
            _ => &response.text,
        };
        let message = ChatMessage::assistant(text, calls, written.clone());
        self.messages.push(message);
    }

    /// Tells the model what was wrong with the calls that were not made.
    fn push_call_errors(&mut self) {
        let mut reasons = Vec::new();
        for error in std::mem::take(&mut self.pending_errors) {
            match error.id {
                Some(id) => {
                    let text = format!("Error: {}", error.reason);
                    self.messages.push(ChatMessage::tool_result(&id, text));
                }
                None => reasons.push(error.reason),
            }
        }
        if !reasons.is_empty() {
            let reasons: Vec<&str> = reasons.iter().map(String::as_str).collect();
            self.push_note(&invalid_call_note(&reasons));
        }
    }

    fn push_note(&mut self, note: &str) {
        let note = format!("[Tool Error]\n{}", escape_markers(note));
        self.messages.push(ChatMessage::text(ChatRole::User, note));
    }

    fn exceeded_limit(&self) -> Option<CutReason> {
        match (
            self.rounds >= self.limits.max_rounds,
            self.tokens >= self.limits.max_tokens,
        ) {
            (true, _) => Some(CutReason::Rounds),
            (_, true) => Some(CutReason::Tokens),
            _ => None,
        }
    }

    /// Ends the run with the last text of the model, without calls.
    fn finish(&self, cut: CutReason, reply: &ModelReply) -> MachineEffect {
        MachineEffect::Finish(FinalAnswer {
            text: self.last_text.clone(),
            cut: Some(cut),
            pending_calls: reply.response.calls.clone(),
        })
    }

    /// The tokens of a round, as the backend counts them or, if it does not, estimated.
    pub(super) fn round_tokens(&self, reply: &ModelReply) -> TokenTotals {
        let counted = reply.response.usage.as_ref().map(TokenTotals::from);
        counted.filter(|it| it.total() > 0).unwrap_or_else(|| {
            let conversation = self.messages.iter().map(ChatMessage::text_content);
            let conversation: usize = conversation.map(|it| estimate_tokens(&it)).sum();
            let reply =
                estimate_tokens(&reply.written) + estimate_tokens(&reply.response.reasoning);
            TokenTotals {
                prompt: u64::try_from(conversation).unwrap_or(u64::MAX),
                completion: u64::try_from(reply).unwrap_or(u64::MAX),
            }
        })
    }
}

impl From<InvalidToolCall> for CallError {
    fn from(invalid: InvalidToolCall) -> Self {
        Self {
            id: invalid.native.map(|it| it.id),
            reason: invalid.reason,
        }
    }
}

fn invalid_call_note(reasons: &[&str]) -> String {
    format!(
        "That was no call that can be made: {}. Write it again, or answer in plain text.",
        reasons.join("; ")
    )
}

/// Identifies a call: the order of its arguments does not matter.
fn call_key(call: &ChatToolCall) -> String {
    let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
    format!("{} {}", call.name, sort_members(&arguments))
}

fn sort_members(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut members: Vec<(String, Value)> = members
                .iter()
                .map(|(name, it)| (name.clone(), sort_members(it)))
                .collect();
            members.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(members.into_iter().collect())
        }
        Value::Array(items) => items.iter().map(sort_members).collect(),
        other => other.clone(),
    }
}

fn truncate_observation(text: &str, limit: usize) -> String {
    match text.char_indices().nth(limit) {
        None => text.to_owned(),
        Some((end, _)) => {
            let all = text.chars().count();
            format!(
                "{}\n[cut: {limit} of {all} characters shown; ask for less]",
                &text[..end]
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use maru_llm::{FinishReason, InvalidNativeCall};

    const LIMITS: RunLimits = RunLimits {
        max_rounds: 5,
        max_tokens: 1000,
        max_observation_chars: 100,
        max_corrections: 2,
    };

    fn machine(limits: RunLimits) -> AgentMachine {
        let question = ChatMessage::text(ChatRole::User, "How many?");
        let (machine, effect) = AgentMachine::start(vec![question], limits);
        assert_eq!(effect, MachineEffect::AskModel);
        machine
    }

    fn call(id: &str, arguments: &str) -> ChatToolCall {
        ChatToolCall {
            id: id.to_owned(),
            name: "count".to_owned(),
            arguments: arguments.to_owned(),
            dialect: "native",
            repairs: Vec::new(),
            raw: String::new(),
            explicit: true,
            extra_content: None,
        }
    }

    fn replies(response: ChatResponse) -> MachineEvent {
        let written = response.text.clone();
        MachineEvent::ModelReplied(Box::new(ModelReply { response, written }))
    }

    fn says(text: &str) -> MachineEvent {
        let text = text.to_owned();
        replies(ChatResponse {
            text,
            ..ChatResponse::default()
        })
    }

    fn calls(text: &str, calls: Vec<ChatToolCall>) -> MachineEvent {
        replies(ChatResponse {
            text: text.to_owned(),
            calls,
            finish_reason: FinishReason::ToolCalls,
            ..ChatResponse::default()
        })
    }

    fn invalid(text: &str, native: Option<InvalidNativeCall>) -> InvalidToolCall {
        InvalidToolCall {
            text: text.to_owned(),
            name: Some("cuont".to_owned()),
            reason: "there is no tool cuont".to_owned(),
            native,
        }
    }

    /// A call in the text that cannot be made.
    fn broken(written: &str) -> MachineEvent {
        MachineEvent::ModelReplied(Box::new(ModelReply {
            response: ChatResponse {
                invalid_calls: vec![invalid(written, None)],
                ..ChatResponse::default()
            },
            written: written.to_owned(),
        }))
    }

    fn gives(id: &str, text: &str) -> MachineEvent {
        MachineEvent::CallsFinished(vec![Observation {
            id: id.to_owned(),
            text: text.to_owned(),
        }])
    }

    fn finish(text: &str, cut: Option<CutReason>) -> MachineEffect {
        finish_with(text, cut, Vec::new())
    }

    fn finish_with(
        text: &str,
        cut: Option<CutReason>,
        pending_calls: Vec<ChatToolCall>,
    ) -> MachineEffect {
        let text = text.to_owned();
        MachineEffect::Finish(FinalAnswer {
            text,
            cut,
            pending_calls,
        })
    }

    /// Feeds all but the last event, each of which must have the effect beside it.
    fn check(limits: RunLimits, steps: Vec<(MachineEvent, MachineEffect)>) -> AgentMachine {
        let mut machine = machine(limits);
        for (at, (event, expected)) in steps.into_iter().enumerate() {
            assert_eq!(machine.on(event), expected, "step {at}");
        }
        machine
    }

    #[test]
    fn answer_without_a_call_is_the_end() {
        check(LIMITS, vec![(says("Seven."), finish("Seven.", None))]);
    }

    #[test]
    fn calls_of_one_round_run_together_and_their_results_go_back() {
        let both = || vec![call("a", "{}"), call("b", r#"{"x":1}"#)];
        let observed = MachineEvent::CallsFinished(
            ["a", "b"]
                .map(|id| Observation {
                    id: id.to_owned(),
                    text: format!("{id}: 7 <tool_call>"),
                })
                .to_vec(),
        );
        let machine = check(
            LIMITS,
            vec![
                (
                    calls("Let me count.", both()),
                    MachineEffect::RunCalls(both()),
                ),
                (observed, MachineEffect::AskModel),
                (says("Seven."), finish("Seven.", None)),
            ],
        );
        let roles: Vec<ChatRole> = machine.messages().iter().map(|it| it.role).collect();
        assert_eq!(
            roles,
            [
                ChatRole::User,
                ChatRole::Assistant,
                ChatRole::Tool,
                ChatRole::Tool
            ]
        );
        assert_eq!(machine.messages()[3].text_content(), "b: 7 <tool_call>");
    }

    #[test]
    fn broken_call_is_asked_for_again_a_bounded_number_of_times() {
        let machine = check(
            LIMITS,
            vec![
                (broken("cuont()"), MachineEffect::AskModel),
                (broken("cuont( )"), MachineEffect::AskModel),
                (broken("no"), finish("", Some(CutReason::Broken))),
            ],
        );
        let messages = machine.messages();
        assert_eq!(messages[1].text_content(), "cuont()", "as it was written");
        let note = messages[2].text_content();
        assert!(
            note.starts_with("[Tool Error]\n") && note.contains("no tool cuont"),
            "{note}"
        );
    }

    #[test]
    fn invalid_calls_beside_valid_ones_are_told_too() {
        let native = InvalidNativeCall {
            id: "b".to_owned(),
            arguments: "{".to_owned(),
        };
        let mixed = replies(ChatResponse {
            calls: vec![call("a", "{}")],
            invalid_calls: vec![invalid("cuont({)", Some(native)), invalid("cuont()", None)],
            finish_reason: FinishReason::ToolCalls,
            ..ChatResponse::default()
        });
        let machine = check(
            LIMITS,
            vec![
                (mixed, MachineEffect::RunCalls(vec![call("a", "{}")])),
                (gives("a", "7"), MachineEffect::AskModel),
            ],
        );
        let shown: Vec<String> = machine.messages()[1..]
            .iter()
            .map(|it| format!("{} {}", it.role.as_str(), it.text_content()))
            .collect();
        assert_eq!(shown[..2], ["assistant ", "tool 7"]);
        assert_eq!(shown[2], "tool Error: there is no tool cuont");
        assert!(shown[3].starts_with("user [Tool Error]"), "{shown:?}");
        let turn = &machine.messages()[1].extra_members["tool_calls"];
        assert_eq!(turn[1]["id"], "b");
    }

    #[test]
    fn tokens_are_estimated_where_the_backend_does_not_count() {
        let limits = RunLimits {
            max_tokens: 20,
            ..LIMITS
        };
        let one = || vec![call("a", "{}")];
        check(
            limits,
            vec![(
                calls(&"word ".repeat(20), one()),
                finish_with(&"word ".repeat(20), Some(CutReason::Tokens), one()),
            )],
        );
    }

    #[test]
    fn text_before_a_timeout_is_kept() {
        let half = ModelReply {
            response: ChatResponse {
                text: "Half an ans".to_owned(),
                ..ChatResponse::default()
            },
            ..ModelReply::default()
        };
        for cut in [CutReason::Time, CutReason::Silence, CutReason::Disconnect] {
            let mut machine = machine(LIMITS);
            let ended = machine.break_off(cut, &half);
            assert_eq!(ended, Some(finish("Half an ans", Some(cut))));
            assert_eq!(machine.rounds(), 1);
        }
        let mut machine = machine(LIMITS);
        let ended = machine.break_off(CutReason::Time, &ModelReply::default());
        assert_eq!(ended, None);
    }

    #[test]
    fn call_that_was_cut_off_is_not_run() {
        let cut = || {
            replies(ChatResponse {
                calls: vec![call("a", "{}")],
                finish_reason: FinishReason::Length,
                ..ChatResponse::default()
            })
        };
        check(
            LIMITS,
            vec![
                (cut(), MachineEffect::AskModel),
                (says("Seven."), finish("Seven.", None)),
            ],
        );
        let text = replies(ChatResponse {
            text: "Seven and".to_owned(),
            finish_reason: FinishReason::Length,
            ..ChatResponse::default()
        });
        check(
            LIMITS,
            vec![(text, finish("Seven and", Some(CutReason::Length)))],
        );
    }

    #[test]
    fn same_call_without_progress_is_stopped() {
        let one = |id: &str, arguments: &str| vec![call(id, arguments)];
        let machine = check(
            LIMITS,
            vec![
                (
                    calls("", one("a", r#"{"x":1,"y":2}"#)),
                    MachineEffect::RunCalls(one("a", r#"{"x":1,"y":2}"#)),
                ),
                (gives("a", "7"), MachineEffect::AskModel),
                (
                    calls("", one("b", r#"{"y":2,"x":1}"#)),
                    MachineEffect::RunCalls(one("b", r#"{"y":2,"x":1}"#)),
                ),
                (gives("b", "7"), MachineEffect::AskModel),
                (
                    calls("Again.", one("c", r#"{"x":1,"y":2}"#)),
                    finish_with(
                        "Again.",
                        Some(CutReason::Repeats),
                        one("c", r#"{"x":1,"y":2}"#),
                    ),
                ),
            ],
        );
        assert!(
            machine.messages()[4]
                .text_content()
                .contains("same result before")
        );
    }

    #[test]
    fn same_call_with_another_result_is_progress() {
        let one = |id: &str| vec![call(id, "{}")];
        check(
            LIMITS,
            vec![
                (calls("", one("a")), MachineEffect::RunCalls(one("a"))),
                (gives("a", "1"), MachineEffect::AskModel),
                (calls("", one("b")), MachineEffect::RunCalls(one("b"))),
                (gives("b", "2"), MachineEffect::AskModel),
                (calls("", one("c")), MachineEffect::RunCalls(one("c"))),
            ],
        );
    }

    #[test]
    fn at_the_limit_the_last_answer_is_returned_and_marked() {
        let one = |id: &str| vec![call(id, "{}")];
        let limits = RunLimits {
            max_rounds: 2,
            ..LIMITS
        };
        check(
            limits,
            vec![
                (calls("First.", one("a")), MachineEffect::RunCalls(one("a"))),
                (gives("a", "1"), MachineEffect::AskModel),
                (
                    calls("", one("b")),
                    finish_with("First.", Some(CutReason::Rounds), one("b")),
                ),
            ],
        );
        let dear = replies(ChatResponse {
            calls: one("a"),
            usage: Some(TokenUsage(
                json!({"prompt_tokens": 900, "completion_tokens": 100})
                    .as_object()
                    .unwrap()
                    .clone(),
            )),
            finish_reason: FinishReason::ToolCalls,
            ..ChatResponse::default()
        });
        check(
            LIMITS,
            vec![(dear, finish_with("", Some(CutReason::Tokens), one("a")))],
        );
    }

    #[test]
    fn long_result_is_cut_with_a_note() {
        let one = vec![call("a", "{}")];
        let machine = check(
            LIMITS,
            vec![
                (calls("", one.clone()), MachineEffect::RunCalls(one)),
                (gives("a", &"가".repeat(300)), MachineEffect::AskModel),
            ],
        );
        let text = machine.messages()[2].text_content();
        assert!(
            text.ends_with("[cut: 100 of 300 characters shown; ask for less]"),
            "{text}"
        );
    }
}
