//! The loop as data: events in, effects out. The driver does the rest.

use std::collections::HashMap;

use maru_dialect::escape_markers;
use serde_json::Value;

use crate::llm::{ChatMessage, ChatResponse, ChatRole, ChatToolCall, FinishReason};

/// How far a run may go.
#[derive(Clone, Copy, Debug)]
pub(super) struct RunLimits {
    /// How often the model is asked.
    pub(super) max_rounds: u32,
    /// Tokens of all rounds together, as the backend counts them.
    pub(super) max_tokens: u64,
    /// Characters of a result that the model gets to see.
    pub(super) max_observation_chars: usize,
    /// How often a broken call is asked for again.
    pub(super) max_corrections: u32,
}

/// What happened.
#[derive(Debug)]
pub(super) enum MachineEvent {
    /// The model answered.
    ModelReplied(ChatResponse),
    /// Every call of the round has its result.
    CallsFinished(Vec<Observation>),
}

/// What a call gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Observation {
    /// Of the call.
    pub(super) id: String,
    /// What the model gets.
    pub(super) text: String,
}

/// What to do next.
#[derive(Debug, PartialEq)]
pub(super) enum MachineEffect {
    /// Send the whole conversation to the model.
    AskModel,
    /// Run these, together.
    RunCalls(Vec<ChatToolCall>),
    /// Stop.
    Finish(FinalAnswer),
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FinalAnswer {
    /// What the model said last.
    pub text: String,
    /// Why that is not its own end.
    pub cut: Option<CutReason>,
}

/// Why a run was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutReason {
    /// The model was asked as often as it may be.
    Rounds,
    /// It took more tokens than it may.
    Tokens,
    /// It made the same call again and again and learned nothing from it.
    Repeats,
    /// Its answer was too long.
    Length,
    /// It wrote a call that nobody could read, however often it was asked.
    Broken,
    /// It took too long.
    Time,
}

/// One run.
#[derive(Debug)]
pub(super) struct AgentMachine {
    messages: Vec<ChatMessage>,
    limits: RunLimits,
    rounds: u32,
    tokens: u64,
    corrections: u32,
    /// The last that the model said to the reader.
    last_text: String,
    /// The calls of this round: their ids and what tells them apart.
    pending: Vec<(String, String)>,
    previous_calls: HashMap<String, PreviousCall>,
}

/// A call that was made before.
#[derive(Debug)]
struct PreviousCall {
    result: String,
    /// How often it gave the same as the time before.
    unchanged: u32,
}

/// A call that gave the same so often is not made again.
const MAX_UNCHANGED_REPEATS: u32 = 1;
/// The most calls of one round.
const MAX_CALLS_PER_ROUND: usize = 16;

impl CutReason {
    /// Its name in answers and records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rounds => "max_iterations",
            Self::Tokens => "max_tokens",
            Self::Repeats => "repeated_call",
            Self::Length => "length",
            Self::Broken => "broken_call",
            Self::Time => "timeout",
        }
    }
}

impl AgentMachine {
    /// Begins with a conversation; the first effect is always [`Effect::Ask`].
    pub(super) fn start(messages: Vec<ChatMessage>, bounds: RunLimits) -> (Self, MachineEffect) {
        let machine = Self {
            messages,
            limits: bounds,
            rounds: 0,
            tokens: 0,
            corrections: 0,
            last_text: String::new(),
            pending: Vec::new(),
            previous_calls: HashMap::new(),
        };
        (machine, MachineEffect::AskModel)
    }

    /// The conversation so far.
    pub(super) fn messages(&self) -> &[ChatMessage] {
        &self.messages
    }

    /// The last that the model said to the reader.
    pub(super) fn last_text(&self) -> &str {
        &self.last_text
    }

    /// How often the model was asked.
    pub(super) fn rounds(&self) -> u32 {
        self.rounds
    }

    /// Goes on by one event.
    pub(super) fn on(&mut self, event: MachineEvent) -> MachineEffect {
        match event {
            MachineEvent::ModelReplied(answer) => self.on_reply(answer),
            MachineEvent::CallsFinished(observations) => self.on_observations(observations),
        }
    }

    fn on_reply(&mut self, answer: ChatResponse) -> MachineEffect {
        self.rounds += 1;
        self.tokens += total_tokens(&answer);
        if !answer.text.trim().is_empty() {
            self.last_text.clone_from(&answer.text);
        }
        let wants_tools = !answer.calls.is_empty() || !answer.invalid_calls.is_empty();
        match answer.finish_reason {
            FinishReason::Length if wants_tools => {
                return self.request_correction(&answer, "Your answer was cut off before the call was complete. Write the call again, and nothing else.");
            }
            FinishReason::Length => return self.finish(Some(CutReason::Length)),
            _ if !wants_tools => {
                self.last_text = answer.refusal.unwrap_or(answer.text);
                return self.finish(None);
            }
            _ if answer.calls.is_empty() => {
                let reasons: Vec<&str> = answer
                    .invalid_calls
                    .iter()
                    .map(|it| it.1.as_str())
                    .collect();
                let why = format!(
                    "That was no call that can be made: {}. Write it again, or answer in plain text.",
                    reasons.join("; ")
                );
                return self.request_correction(&answer, &why);
            }
            _ => (),
        }
        match self.exceeded_limit() {
            Some(cut) => self.finish(Some(cut)),
            None => self.call(answer),
        }
    }

    fn call(&mut self, answer: ChatResponse) -> MachineEffect {
        let ChatResponse {
            text, mut calls, ..
        } = answer;
        calls.truncate(MAX_CALLS_PER_ROUND);
        let keys: Vec<String> = calls.iter().map(call_key).collect();
        let stuck = |key: &String| {
            let seen = self.previous_calls.get(key);
            seen.is_some_and(|it| it.unchanged >= MAX_UNCHANGED_REPEATS)
        };
        if keys.iter().all(stuck) {
            return self.finish(Some(CutReason::Repeats));
        }
        self.pending = calls.iter().map(|it| it.id.clone()).zip(keys).collect();
        self.messages.push(ChatMessage::assistant(&text, &calls));
        MachineEffect::RunCalls(calls)
    }

    fn on_observations(&mut self, observations: Vec<Observation>) -> MachineEffect {
        for observation in observations {
            let again = self.is_repeated_result(&observation);
            let mut text = truncate_observation(
                &escape_markers(&observation.text),
                self.limits.max_observation_chars,
            );
            if again {
                text.push_str("\n[The same call gave the same result before. Use it, or answer.]");
            }
            self.messages
                .push(ChatMessage::tool_result(&observation.id, text));
        }
        self.pending.clear();
        MachineEffect::AskModel
    }

    fn is_repeated_result(&mut self, observation: &Observation) -> bool {
        let mut pending = self.pending.iter();
        let Some((_, key)) = pending.find(|(id, _)| *id == observation.id) else {
            return false;
        };
        let result = &observation.text;
        match self.previous_calls.get_mut(key) {
            Some(seen) if seen.result == *result => {
                seen.unchanged += 1;
                true
            }
            _ => {
                let result = result.clone();
                let seen = PreviousCall {
                    result,
                    unchanged: 0,
                };
                self.previous_calls.insert(key.clone(), seen);
                false
            }
        }
    }

    /// Asks for the call again, if that may be.
    fn request_correction(&mut self, answer: &ChatResponse, why: &str) -> MachineEffect {
        if let Some(cut) = self.exceeded_limit() {
            return self.finish(Some(cut));
        }
        if self.corrections >= self.limits.max_corrections {
            return self.finish(Some(CutReason::Broken));
        }
        self.corrections += 1;
        self.messages
            .push(ChatMessage::text(ChatRole::Assistant, answer.text.clone()));
        let told = format!("[Tool Error]\n{}", escape_markers(why));
        self.messages.push(ChatMessage::text(ChatRole::User, told));
        MachineEffect::AskModel
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

    fn finish(&self, cut: Option<CutReason>) -> MachineEffect {
        let text = self.last_text.clone();
        MachineEffect::Finish(FinalAnswer { text, cut })
    }
}

fn total_tokens(answer: &ChatResponse) -> u64 {
    let usage = answer.usage.as_ref();
    let count = |name: &str| usage.and_then(|it| it.0.get(name)?.as_u64());
    let parts = || Some(count("prompt_tokens")? + count("completion_tokens")?);
    count("total_tokens").or_else(parts).unwrap_or(0)
}

/// What tells a call apart: the order of its arguments does not.
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
    use serde_json::json;

    use super::*;
    use crate::llm::TokenUsage;

    const LIMITS: RunLimits = RunLimits {
        max_rounds: 5,
        max_tokens: 1000,
        max_observation_chars: 100,
        max_corrections: 2,
    };

    fn machine(bounds: RunLimits) -> AgentMachine {
        let question = ChatMessage::text(ChatRole::User, "How many?");
        let (machine, effect) = AgentMachine::start(vec![question], bounds);
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
        }
    }

    fn says(text: &str) -> MachineEvent {
        let text = text.to_owned();
        MachineEvent::ModelReplied(ChatResponse {
            text,
            ..ChatResponse::default()
        })
    }

    fn calls(text: &str, calls: Vec<ChatToolCall>) -> MachineEvent {
        MachineEvent::ModelReplied(ChatResponse {
            text: text.to_owned(),
            calls,
            finish_reason: FinishReason::ToolCalls,
            ..ChatResponse::default()
        })
    }

    fn broken(text: &str) -> MachineEvent {
        MachineEvent::ModelReplied(ChatResponse {
            text: text.to_owned(),
            invalid_calls: vec![(None, "there is no tool cuont".to_owned())],
            ..ChatResponse::default()
        })
    }

    fn gives(id: &str, text: &str) -> MachineEvent {
        MachineEvent::CallsFinished(vec![Observation {
            id: id.to_owned(),
            text: text.to_owned(),
        }])
    }

    fn finish(text: &str, cut: Option<CutReason>) -> MachineEffect {
        let text = text.to_owned();
        MachineEffect::Finish(FinalAnswer { text, cut })
    }

    /// Feeds all but the last event, each of which must have the effect beside it.
    fn check(bounds: RunLimits, steps: Vec<(MachineEvent, MachineEffect)>) -> AgentMachine {
        let mut machine = machine(bounds);
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
        let result = machine.messages()[3].text_content();
        assert!(!result.contains("<tool_call>"), "{result}");
        assert!(result.starts_with("b: 7 <"), "{result}");
    }

    #[test]
    fn broken_call_is_asked_for_again_a_bounded_number_of_times() {
        let machine = check(
            LIMITS,
            vec![
                (broken("cuont()"), MachineEffect::AskModel),
                (broken("cuont( )"), MachineEffect::AskModel),
                (broken("no"), finish("no", Some(CutReason::Broken))),
            ],
        );
        let told = machine.messages()[2].text_content();
        assert!(
            told.starts_with("[Tool Error]\n") && told.contains("no tool cuont"),
            "{told}"
        );
    }

    #[test]
    fn call_that_was_cut_off_is_not_run() {
        let cut = || {
            MachineEvent::ModelReplied(ChatResponse {
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
        let text = MachineEvent::ModelReplied(ChatResponse {
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
                    finish("Again.", Some(CutReason::Repeats)),
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
        let bounds = RunLimits {
            max_rounds: 2,
            ..LIMITS
        };
        check(
            bounds,
            vec![
                (calls("First.", one("a")), MachineEffect::RunCalls(one("a"))),
                (gives("a", "1"), MachineEffect::AskModel),
                (
                    calls("", one("b")),
                    finish("First.", Some(CutReason::Rounds)),
                ),
            ],
        );
        let dear = MachineEvent::ModelReplied(ChatResponse {
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
        check(LIMITS, vec![(dear, finish("", Some(CutReason::Tokens)))]);
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
