//! The loop as data: events in, effects out. The driver does the rest.

use std::collections::HashMap;

use serde_json::Value;

use crate::{
    dialect::neutralise,
    llm::{Answer, Call, Finish, Message, Role},
};

/// How far a run may go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// How often the model is asked.
    pub(super) rounds: u32,
    /// Tokens of all rounds together, as the backend counts them.
    pub(super) tokens: u64,
    /// Characters of a result that the model gets to see.
    pub(super) observation: usize,
    /// How often a broken call is asked for again.
    pub(super) corrections: u32,
}

/// What happened.
#[derive(Debug)]
pub(super) enum Event {
    /// The model answered.
    Replied(Answer),
    /// Every call of the round has its result.
    Observed(Vec<Observation>),
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
pub(super) enum Effect {
    /// Send the whole conversation to the model.
    Ask,
    /// Run these, together.
    Call(Vec<Call>),
    /// Stop.
    Finish(Finished),
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finished {
    /// What the model said last.
    pub text: String,
    /// Why that is not its own end.
    pub cut: Option<Cut>,
}

/// Why a run was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
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
pub(super) struct Machine {
    messages: Vec<Message>,
    bounds: Bounds,
    asked: u32,
    tokens: u64,
    corrections: u32,
    /// The last that the model said to the reader.
    said: String,
    /// The calls of this round: their ids and what tells them apart.
    pending: Vec<(String, String)>,
    seen: HashMap<String, Seen>,
}

/// A call that was made before.
#[derive(Debug)]
struct Seen {
    result: String,
    /// How often it gave the same as the time before.
    unchanged: u32,
}

/// A call that gave the same so often is not made again.
const STUCK: u32 = 1;
/// The most calls of one round.
const MOST_CALLS: usize = 16;

impl Cut {
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

impl Machine {
    /// Begins with a conversation; the first effect is always [`Effect::Ask`].
    pub(super) fn start(messages: Vec<Message>, bounds: Bounds) -> (Self, Effect) {
        let machine = Self {
            messages,
            bounds,
            asked: 0,
            tokens: 0,
            corrections: 0,
            said: String::new(),
            pending: Vec::new(),
            seen: HashMap::new(),
        };
        (machine, Effect::Ask)
    }

    /// The conversation so far.
    pub(super) fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The last that the model said to the reader.
    pub(super) fn said(&self) -> &str {
        &self.said
    }

    /// How often the model was asked.
    pub(super) fn rounds(&self) -> u32 {
        self.asked
    }

    /// Goes on by one event.
    pub(super) fn on(&mut self, event: Event) -> Effect {
        match event {
            Event::Replied(answer) => self.replied(answer),
            Event::Observed(observations) => self.observed(observations),
        }
    }

    fn replied(&mut self, answer: Answer) -> Effect {
        self.asked += 1;
        self.tokens += tokens(&answer);
        if !answer.text.trim().is_empty() {
            self.said.clone_from(&answer.text);
        }
        let wants_tools = !answer.calls.is_empty() || !answer.broken.is_empty();
        match answer.finish {
            Finish::Length if wants_tools => {
                return self.correct(&answer, "Your answer was cut off before the call was complete. Write the call again, and nothing else.");
            }
            Finish::Length => return self.finish(Some(Cut::Length)),
            _ if !wants_tools => {
                self.said = answer.refusal.unwrap_or(answer.text);
                return self.finish(None);
            }
            _ if answer.calls.is_empty() => {
                let reasons: Vec<&str> = answer.broken.iter().map(|it| it.1.as_str()).collect();
                let why = format!(
                    "That was no call that can be made: {}. Write it again, or answer in plain text.",
                    reasons.join("; ")
                );
                return self.correct(&answer, &why);
            }
            _ => (),
        }
        match self.over() {
            Some(cut) => self.finish(Some(cut)),
            None => self.call(answer),
        }
    }

    fn call(&mut self, answer: Answer) -> Effect {
        let Answer {
            text, mut calls, ..
        } = answer;
        calls.truncate(MOST_CALLS);
        let keys: Vec<String> = calls.iter().map(key).collect();
        let stuck = |key: &String| {
            let seen = self.seen.get(key);
            seen.is_some_and(|it| it.unchanged >= STUCK)
        };
        if keys.iter().all(stuck) {
            return self.finish(Some(Cut::Repeats));
        }
        self.pending = calls.iter().map(|it| it.id.clone()).zip(keys).collect();
        self.messages.push(Message::assistant(&text, &calls));
        Effect::Call(calls)
    }

    fn observed(&mut self, observations: Vec<Observation>) -> Effect {
        for observation in observations {
            let again = self.is_the_same_again(&observation);
            let mut text = bounded(&neutralise(&observation.text), self.bounds.observation);
            if again {
                text.push_str("\n[The same call gave the same result before. Use it, or answer.]");
            }
            self.messages.push(Message::result(&observation.id, text));
        }
        self.pending.clear();
        Effect::Ask
    }

    fn is_the_same_again(&mut self, observation: &Observation) -> bool {
        let mut pending = self.pending.iter();
        let Some((_, key)) = pending.find(|(id, _)| *id == observation.id) else {
            return false;
        };
        let result = &observation.text;
        match self.seen.get_mut(key) {
            Some(seen) if seen.result == *result => {
                seen.unchanged += 1;
                true
            }
            _ => {
                let result = result.clone();
                let seen = Seen {
                    result,
                    unchanged: 0,
                };
                self.seen.insert(key.clone(), seen);
                false
            }
        }
    }

    /// Asks for the call again, if that may be.
    fn correct(&mut self, answer: &Answer, why: &str) -> Effect {
        if let Some(cut) = self.over() {
            return self.finish(Some(cut));
        }
        if self.corrections >= self.bounds.corrections {
            return self.finish(Some(Cut::Broken));
        }
        self.corrections += 1;
        self.messages
            .push(Message::text(Role::Assistant, answer.text.clone()));
        let told = format!("[Tool Error]\n{}", neutralise(why));
        self.messages.push(Message::text(Role::User, told));
        Effect::Ask
    }

    fn over(&self) -> Option<Cut> {
        match (
            self.asked >= self.bounds.rounds,
            self.tokens >= self.bounds.tokens,
        ) {
            (true, _) => Some(Cut::Rounds),
            (_, true) => Some(Cut::Tokens),
            _ => None,
        }
    }

    fn finish(&self, cut: Option<Cut>) -> Effect {
        let text = self.said.clone();
        Effect::Finish(Finished { text, cut })
    }
}

fn tokens(answer: &Answer) -> u64 {
    let usage = answer.usage.as_ref();
    let count = |name: &str| usage.and_then(|it| it.0.get(name)?.as_u64());
    let parts = || Some(count("prompt_tokens")? + count("completion_tokens")?);
    count("total_tokens").or_else(parts).unwrap_or(0)
}

/// What tells a call apart: the order of its arguments does not.
fn key(call: &Call) -> String {
    let arguments: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
    format!("{} {}", call.name, sorted(&arguments))
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut members: Vec<(String, Value)> = members
                .iter()
                .map(|(name, it)| (name.clone(), sorted(it)))
                .collect();
            members.sort_by(|a, b| a.0.cmp(&b.0));
            Value::Object(members.into_iter().collect())
        }
        Value::Array(items) => items.iter().map(sorted).collect(),
        other => other.clone(),
    }
}

fn bounded(text: &str, limit: usize) -> String {
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
    use crate::llm::Usage;

    const BOUNDS: Bounds = Bounds {
        rounds: 5,
        tokens: 1000,
        observation: 100,
        corrections: 2,
    };

    fn machine(bounds: Bounds) -> Machine {
        let question = Message::text(Role::User, "How many?");
        let (machine, effect) = Machine::start(vec![question], bounds);
        assert_eq!(effect, Effect::Ask);
        machine
    }

    fn call(id: &str, arguments: &str) -> Call {
        Call {
            id: id.to_owned(),
            name: "count".to_owned(),
            arguments: arguments.to_owned(),
            dialect: "native",
            repairs: Vec::new(),
            raw: String::new(),
            explicit: true,
        }
    }

    fn says(text: &str) -> Event {
        let text = text.to_owned();
        Event::Replied(Answer {
            text,
            ..Answer::default()
        })
    }

    fn calls(text: &str, calls: Vec<Call>) -> Event {
        Event::Replied(Answer {
            text: text.to_owned(),
            calls,
            finish: Finish::ToolCalls,
            ..Answer::default()
        })
    }

    fn broken(text: &str) -> Event {
        Event::Replied(Answer {
            text: text.to_owned(),
            broken: vec![(None, "there is no tool cuont".to_owned())],
            ..Answer::default()
        })
    }

    fn gives(id: &str, text: &str) -> Event {
        Event::Observed(vec![Observation {
            id: id.to_owned(),
            text: text.to_owned(),
        }])
    }

    fn finish(text: &str, cut: Option<Cut>) -> Effect {
        let text = text.to_owned();
        Effect::Finish(Finished { text, cut })
    }

    /// Feeds all but the last event, each of which must have the effect beside it.
    fn check(bounds: Bounds, steps: Vec<(Event, Effect)>) -> Machine {
        let mut machine = machine(bounds);
        for (at, (event, expected)) in steps.into_iter().enumerate() {
            assert_eq!(machine.on(event), expected, "step {at}");
        }
        machine
    }

    #[test]
    fn answer_without_a_call_is_the_end() {
        check(BOUNDS, vec![(says("Seven."), finish("Seven.", None))]);
    }

    #[test]
    fn calls_of_one_round_run_together_and_their_results_go_back() {
        let both = || vec![call("a", "{}"), call("b", r#"{"x":1}"#)];
        let observed = Event::Observed(
            ["a", "b"]
                .map(|id| Observation {
                    id: id.to_owned(),
                    text: format!("{id}: 7 <tool_call>"),
                })
                .to_vec(),
        );
        let machine = check(
            BOUNDS,
            vec![
                (calls("Let me count.", both()), Effect::Call(both())),
                (observed, Effect::Ask),
                (says("Seven."), finish("Seven.", None)),
            ],
        );
        let roles: Vec<Role> = machine.messages().iter().map(|it| it.role).collect();
        assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool, Role::Tool]);
        let result = machine.messages()[3].content();
        assert!(!result.contains("<tool_call>"), "{result}");
        assert!(result.starts_with("b: 7 <"), "{result}");
    }

    #[test]
    fn broken_call_is_asked_for_again_a_bounded_number_of_times() {
        let machine = check(
            BOUNDS,
            vec![
                (broken("cuont()"), Effect::Ask),
                (broken("cuont( )"), Effect::Ask),
                (broken("no"), finish("no", Some(Cut::Broken))),
            ],
        );
        let told = machine.messages()[2].content();
        assert!(
            told.starts_with("[Tool Error]\n") && told.contains("no tool cuont"),
            "{told}"
        );
    }

    #[test]
    fn call_that_was_cut_off_is_not_run() {
        let cut = || {
            Event::Replied(Answer {
                calls: vec![call("a", "{}")],
                finish: Finish::Length,
                ..Answer::default()
            })
        };
        check(
            BOUNDS,
            vec![
                (cut(), Effect::Ask),
                (says("Seven."), finish("Seven.", None)),
            ],
        );
        let text = Event::Replied(Answer {
            text: "Seven and".to_owned(),
            finish: Finish::Length,
            ..Answer::default()
        });
        check(BOUNDS, vec![(text, finish("Seven and", Some(Cut::Length)))]);
    }

    #[test]
    fn same_call_without_progress_is_stopped() {
        let one = |id: &str, arguments: &str| vec![call(id, arguments)];
        let machine = check(
            BOUNDS,
            vec![
                (
                    calls("", one("a", r#"{"x":1,"y":2}"#)),
                    Effect::Call(one("a", r#"{"x":1,"y":2}"#)),
                ),
                (gives("a", "7"), Effect::Ask),
                (
                    calls("", one("b", r#"{"y":2,"x":1}"#)),
                    Effect::Call(one("b", r#"{"y":2,"x":1}"#)),
                ),
                (gives("b", "7"), Effect::Ask),
                (
                    calls("Again.", one("c", r#"{"x":1,"y":2}"#)),
                    finish("Again.", Some(Cut::Repeats)),
                ),
            ],
        );
        assert!(
            machine.messages()[4]
                .content()
                .contains("same result before")
        );
    }

    #[test]
    fn same_call_with_another_result_is_progress() {
        let one = |id: &str| vec![call(id, "{}")];
        check(
            BOUNDS,
            vec![
                (calls("", one("a")), Effect::Call(one("a"))),
                (gives("a", "1"), Effect::Ask),
                (calls("", one("b")), Effect::Call(one("b"))),
                (gives("b", "2"), Effect::Ask),
                (calls("", one("c")), Effect::Call(one("c"))),
            ],
        );
    }

    #[test]
    fn at_the_limit_the_last_answer_is_returned_and_marked() {
        let one = |id: &str| vec![call(id, "{}")];
        let bounds = Bounds {
            rounds: 2,
            ..BOUNDS
        };
        check(
            bounds,
            vec![
                (calls("First.", one("a")), Effect::Call(one("a"))),
                (gives("a", "1"), Effect::Ask),
                (calls("", one("b")), finish("First.", Some(Cut::Rounds))),
            ],
        );
        let dear = Event::Replied(Answer {
            calls: one("a"),
            usage: Some(Usage(
                json!({"prompt_tokens": 900, "completion_tokens": 100})
                    .as_object()
                    .unwrap()
                    .clone(),
            )),
            finish: Finish::ToolCalls,
            ..Answer::default()
        });
        check(BOUNDS, vec![(dear, finish("", Some(Cut::Tokens)))]);
    }

    #[test]
    fn long_result_is_cut_with_a_note() {
        let one = vec![call("a", "{}")];
        let machine = check(
            BOUNDS,
            vec![
                (calls("", one.clone()), Effect::Call(one)),
                (gives("a", &"가".repeat(300)), Effect::Ask),
            ],
        );
        let text = machine.messages()[2].content();
        assert!(
            text.ends_with("[cut: 100 of 300 characters shown; ask for less]"),
            "{text}"
        );
    }
}
