//! Events and the record of a run.

use std::sync::Arc;

use maru_runtime::clock;
use serde_json::{Value, json};

use super::{CutReason, FinalAnswer, UnavailableServer};
use maru_auth::Principal;
use maru_llm::{ChatResponse, ChatToolCall, TokenUsage};

/// Something that happened, for those who watch.
#[derive(Clone, Debug)]
pub enum RunEvent {
    /// The run has begun.
    Started {
        /// Its id.
        run: Arc<str>,
        /// The model.
        model: String,
        /// How many tools are offered.
        tools: usize,
        /// About how many tokens their descriptions cost.
        tool_tokens: usize,
        /// Named servers that are not connected.
        unavailable_servers: Vec<UnavailableServer>,
    },
    /// The model is asked for this time.
    RoundStarted(u32),
    /// It says something.
    Text(String),
    /// It thinks something.
    Reasoning(String),
    /// The model produced only reasoning in this round.
    TextWasReasoning,
    /// It calls a tool.
    CallStarted(RunCall),
    /// It wrote a call that cannot be made, and gets the reason.
    CallRejected {
        /// What it wrote.
        text: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The call waits for approval.
    AwaitingApproval {
        /// Its id.
        id: String,
        /// The tool.
        tool: String,
    },
    /// The call has its result.
    CallFinished(RunCall),
    /// What a round took, as the backend counts.
    Usage(Value),
    /// It is done.
    Completed(RunOutcome),
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// Its id.
    pub run: Arc<str>,
    /// The model that answered.
    pub model: String,
    /// Its text.
    pub answer: FinalAnswer,
    /// How often it was asked.
    pub rounds: u32,
    /// The calls that were made, with their results.
    pub calls: Vec<RunCall>,
    /// Calls that the model wanted when the run was ended.
    pub pending_calls: Vec<RunCall>,
    /// What all rounds took together.
    pub tokens: TokenTotals,
    /// About how many tokens the descriptions of the tools cost, each time.
    pub tool_tokens: usize,
    /// Named servers that were not connected.
    pub unavailable_servers: Vec<UnavailableServer>,
}

/// Tokens, as the backend counts them or, if it does not, estimated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenTotals {
    /// Read.
    pub prompt: u64,
    /// Written.
    pub completion: u64,
}

/// A call of a tool.
#[derive(Clone, Debug)]
pub struct RunCall {
    /// Its id.
    pub id: String,
    /// `server.tool`.
    pub tool: String,
    /// As they were sent.
    pub arguments: String,
    /// How the model wrote it.
    pub dialect: &'static str,
    /// What had to be repaired.
    pub repairs: Vec<String>,
    /// What the model wrote.
    pub raw: String,
    /// What came back.
    pub result: Option<RunCallResult>,
}

/// What came back from a call.
#[derive(Clone, Debug)]
pub struct RunCallResult {
    /// As text.
    pub text: String,
    /// How the call ended.
    pub outcome: RunCallOutcome,
    /// How long it took.
    pub milliseconds: u64,
}

/// How a call of a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunCallOutcome {
    /// With a result.
    Ok,
    /// The tool was called and reports an error.
    Failed,
    /// A person refused it, or nobody approved it.
    Refused,
    /// It could not be called.
    Rejected,
    /// It did not answer in time.
    TimedOut,
}

impl RunCallOutcome {
    /// Its name in responses and records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::Refused => "refused",
            Self::Rejected => "rejected",
            Self::TimedOut => "timed_out",
        }
    }

    /// Whether the call has no useful result.
    pub fn is_error(self) -> bool {
        self != Self::Ok
    }
}

/// A run, as it is kept.
#[derive(Clone, Debug)]
pub(super) struct RunRecord {
    pub(super) id: Arc<str>,
    pub(super) user: String,
    /// What the user was limited to when it began; null without limits.
    pub(super) limits: Value,
    model: String,
    question: String,
    pub(super) started: i64,
    ended: Option<i64>,
    state: &'static str,
    /// Calls that wait for approval.
    waiting_calls: usize,
    tools: usize,
    tool_tokens: usize,
    rounds: Vec<RunRound>,
    pub(super) tokens: TokenTotals,
    answer: Option<FinalAnswer>,
    error: Option<String>,
}

#[derive(Clone, Debug, Default)]
struct RunRound {
    text: String,
    reasoning: String,
    broken: Vec<String>,
    calls: Vec<RunCall>,
    usage: Value,
    milliseconds: u64,
}

/// Longer texts are kept in part.
const MAX_KEPT_CHARS: usize = 20_000;

impl RunRecord {
    pub(super) fn new(id: Arc<str>, principal: &Principal, question: &str) -> Self {
        Self {
            id,
            user: principal.name().to_owned(),
            limits: principal.limits(),
            model: String::new(),
            question: truncate(question),
            started: clock::now_ms(),
            ended: None,
            state: "running",
            waiting_calls: 0,
            tools: 0,
            tool_tokens: 0,
            rounds: Vec::new(),
            tokens: TokenTotals::default(),
            answer: None,
            error: None,
        }
    }

    pub(super) fn set_model(&mut self, model: &str, tools: usize, tool_tokens: usize) {
        model.clone_into(&mut self.model);
        self.tools = tools;
        self.tool_tokens = tool_tokens;
    }

    /// Adds a round: the reply of the model.
    pub(super) fn add_round(
        &mut self,
        reply: &ChatResponse,
        tokens: TokenTotals,
        milliseconds: u64,
    ) {
        let usage = reply.usage.as_ref();
        self.tokens.prompt = self.tokens.prompt.saturating_add(tokens.prompt);
        self.tokens.completion = self.tokens.completion.saturating_add(tokens.completion);
        self.rounds.push(RunRound {
            text: truncate(&reply.text),
            reasoning: truncate(&reply.reasoning),
            broken: reply
                .invalid_calls
                .iter()
                .map(|it| it.reason.clone())
                .collect(),
            calls: Vec::new(),
            usage: usage.map_or(Value::Null, |it| Value::Object(it.0.clone())),
            milliseconds,
        });
    }

    /// Adds a call to the round, or its result.
    pub(super) fn put_call(&mut self, call: &RunCall) {
        let Some(round) = self.rounds.last_mut() else {
            return;
        };
        let known = round.calls.iter_mut().find(|it| it.id == call.id);
        let mut call = call.clone();
        if let Some(result) = &mut call.result {
            result.text = truncate(&result.text);
        }
        match known {
            Some(known) => *known = call,
            None => round.calls.push(call),
        }
    }

    /// A call begins to wait for approval.
    pub(super) fn begin_wait(&mut self) {
        self.waiting_calls += 1;
        self.state = "waiting";
    }

    /// A call that waited was decided.
    pub(super) fn end_wait(&mut self) {
        self.waiting_calls = self.waiting_calls.saturating_sub(1);
        if self.waiting_calls == 0 {
            self.state = "running";
        }
    }

    pub(super) fn end(&mut self, ended: Result<&FinalAnswer, &str>) {
        self.ended = Some(clock::now_ms());
        match ended {
            Ok(finished) => {
                self.state = "done";
                self.answer = Some(finished.clone());
            }
            Err(message) => {
                self.state = "failed";
                self.error = Some(message.to_owned());
            }
        }
    }

    /// Its reader has left, or the hub stops.
    pub(super) fn stop(&mut self) {
        self.ended = Some(clock::now_ms());
        self.state = "stopped";
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Every call of every round.
    pub(super) fn calls(&self) -> Vec<RunCall> {
        self.rounds.iter().flat_map(|it| it.calls.clone()).collect()
    }

    /// Without the rounds.
    pub(super) fn summary(&self) -> Value {
        json!({
            "id": &*self.id,
            "user": self.user,
            "limits": self.limits,
            "model": self.model,
            "question": self.question,
            "state": self.state,
            "started_at": clock::format_rfc3339(self.started),
            "ended_at": self.ended.map(clock::format_rfc3339),
            "rounds": self.rounds.len(),
            "calls": self.rounds.iter().map(|it| it.calls.len()).sum::<usize>(),
            "cut": self.answer.as_ref().and_then(|it| it.cut).map(CutReason::name),
            "usage": self.tokens.to_json(),
        })
    }

    /// All of it.
    pub(super) fn to_json(&self) -> Value {
        let mut json = self.summary();
        json["tools"] = self.tools.into();
        json["tool_tokens"] = self.tool_tokens.into();
        json["rounds"] = self.rounds.iter().map(RunRound::to_json).collect();
        json["answer"] = json!(self.answer.as_ref().map(|it| &it.text));
        json["error"] = json!(self.error);
        json
    }
}

impl RunRound {
    fn to_json(&self) -> Value {
        json!({
            "text": self.text,
            "reasoning": self.reasoning,
            "broken": self.broken,
            "calls": self.calls.iter().map(RunCall::to_json).collect::<Vec<_>>(),
            "usage": self.usage,
            "ms": self.milliseconds,
        })
    }
}

impl RunCall {
    pub(super) fn new(call: &ChatToolCall, tool: &str) -> Self {
        Self {
            id: call.id.clone(),
            tool: tool.to_owned(),
            arguments: call.arguments.clone(),
            dialect: call.dialect,
            repairs: call.repairs.iter().map(ToString::to_string).collect(),
            raw: truncate(&call.raw),
            result: None,
        }
    }

    /// As the API shows it.
    pub fn to_json(&self) -> Value {
        let arguments: Value = serde_json::from_str(&self.arguments).unwrap_or_default();
        let mut shown = json!({
            "id": self.id,
            "name": self.tool,
            "arguments": arguments,
            "dialect": self.dialect,
            "repairs": self.repairs,
            "raw": self.raw,
        });
        if let Some(result) = &self.result {
            shown["result"] = result.text.as_str().into();
            shown["is_error"] = result.outcome.is_error().into();
            shown["outcome"] = result.outcome.as_str().into();
            shown["ms"] = result.milliseconds.into();
        }
        shown
    }
}

impl From<&TokenUsage> for TokenTotals {
    fn from(usage: &TokenUsage) -> Self {
        Self {
            prompt: usage.count("prompt_tokens"),
            completion: usage.count("completion_tokens"),
        }
    }
}

impl TokenTotals {
    /// Read and written together.
    pub(super) fn total(self) -> u64 {
        self.prompt.saturating_add(self.completion)
    }

    /// As OpenAI writes them.
    pub fn to_json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.total(),
        })
    }
}

fn truncate(text: &str) -> String {
    match text.char_indices().nth(MAX_KEPT_CHARS) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}…", &text[..end]),
    }
}
