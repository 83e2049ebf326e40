//! From what a backend hands out piece by piece to what its model meant.

use std::sync::Arc;

use maru_dialect::{DialectOptions, DialectParser, DialectSelection, ToolSet};
use serde_json::{Map, Value};

use super::{
    ChatEvent, ChatToolCall, FinishReason, TokenUsage,
    constrained::{self, ConstrainedOutput},
};

/// The most that one answer may hold.
const MAX_RESPONSE_BYTES: usize = 16 << 20;
/// The most calls that a backend may make in one answer.
const MAX_NATIVE_CALLS: usize = 128;

/// One answer while it comes. Pure.
#[derive(Debug)]
pub(super) struct ResponseDecoder {
    tools: Arc<ToolSet>,
    parser: DialectParser,
    /// Everything so far, where the output is held to our own form.
    constrained_text: Option<String>,
    native_calls: Vec<NativeCall>,
    emitted_calls: Vec<(String, String)>,
    dialect_events: Vec<maru_dialect::DialectEvent>,
    received_bytes: usize,
    finish_reason: Option<FinishReason>,
    ended: bool,
}

/// A call that the backend read, as far as it has come.
#[derive(Debug, Default)]
struct NativeCall {
    index: u64,
    id: String,
    name: String,
    arguments: String,
}

/// A piece of a call that the backend read.
#[derive(Debug, Default)]
pub(super) struct ToolCallFragment<'a> {
    /// Which call; the one before, when nothing is said.
    pub(super) index: Option<u64>,
    pub(super) id: &'a str,
    pub(super) name: &'a str,
    pub(super) arguments: &'a str,
}

/// What a backend sends goes beyond what is taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ResponseTooLarge;

impl ResponseDecoder {
    pub(super) fn new(
        tools: ToolSet,
        dialect: DialectSelection,
        options: DialectOptions,
        constrained: bool,
    ) -> Self {
        let tools = Arc::new(tools);
        Self {
            parser: DialectParser::new(Arc::clone(&tools), dialect, options),
            tools,
            constrained_text: constrained.then(String::new),
            native_calls: Vec::new(),
            emitted_calls: Vec::new(),
            dialect_events: Vec::new(),
            received_bytes: 0,
            finish_reason: None,
            ended: false,
        }
    }

    pub(super) fn push_text(
        &mut self,
        text: &str,
        out: &mut Vec<ChatEvent>,
    ) -> Result<(), ResponseTooLarge> {
        self.count_bytes(text)?;
        match &mut self.constrained_text {
            Some(held) => held.push_str(text),
            None => {
                self.parser.push(text, &mut self.dialect_events);
                self.forward_events(out);
            }
        }
        Ok(())
    }

    pub(super) fn push_reasoning(
        &mut self,
        text: &str,
        out: &mut Vec<ChatEvent>,
    ) -> Result<(), ResponseTooLarge> {
        self.count_bytes(text)?;
        if !text.is_empty() {
            out.push(ChatEvent::Reasoning(text.to_owned()));
        }
        Ok(())
    }

    pub(super) fn push_refusal(
        &mut self,
        text: &str,
        out: &mut Vec<ChatEvent>,
    ) -> Result<(), ResponseTooLarge> {
        self.count_bytes(text)?;
        if !text.is_empty() {
            out.push(ChatEvent::Refusal(text.to_owned()));
        }
        Ok(())
    }

    /// Some backends say the index, some the id, some neither but once.
    pub(super) fn push_call_fragment(
        &mut self,
        piece: &ToolCallFragment<'_>,
    ) -> Result<(), ResponseTooLarge> {
        self.count_bytes(piece.id)?;
        self.count_bytes(piece.name)?;
        self.count_bytes(piece.arguments)?;
        let native = self.native_call_mut(piece)?;
        if native.id.is_empty() {
            native.id.push_str(piece.id);
        }
        // Some repeat the name with every piece.
        if native.name != piece.name {
            native.name.push_str(piece.name);
        }
        native.arguments.push_str(piece.arguments);
        Ok(())
    }

    fn native_call_mut(
        &mut self,
        piece: &ToolCallFragment<'_>,
    ) -> Result<&mut NativeCall, ResponseTooLarge> {
        let known = match piece.index {
            Some(index) => {
                let same = self.native_calls.iter().rposition(|it| it.index == index);
                // Another id at the same index is another call all the same.
                same.filter(|at| {
                    let id = &self.native_calls[*at].id;
                    piece.id.is_empty() || id.is_empty() || id == piece.id || piece.name.is_empty()
                })
            }
            None if piece.name.is_empty() => self.native_calls.len().checked_sub(1),
            None => None,
        };
        if let Some(at) = known {
            return Ok(&mut self.native_calls[at]);
        }
        if self.native_calls.len() >= MAX_NATIVE_CALLS {
            return Err(ResponseTooLarge);
        }
        self.native_calls.push(NativeCall {
            index: piece.index.unwrap_or(self.native_calls.len() as u64),
            ..NativeCall::default()
        });
        Ok(self.native_calls.last_mut().expect("one was added"))
    }

    /// The backend says why it ended.
    pub(super) fn set_finish_reason(&mut self, finish: FinishReason) {
        self.finish_reason.get_or_insert(finish);
    }

    pub(super) fn is_finished(&self) -> bool {
        self.finish_reason.is_some()
    }

    /// Nothing more comes: hands out what was held back, and the reason.
    pub(super) fn complete(&mut self, out: &mut Vec<ChatEvent>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let finish = self.finish_reason.unwrap_or(FinishReason::Stop);
        let cut = finish == FinishReason::Length;
        if let Some(held) = self.constrained_text.take() {
            self.complete_constrained(&held, out);
        }
        self.parser.finish(cut, &mut self.dialect_events);
        self.forward_events(out);
        let in_text = self.emitted_calls.len();
        for native in std::mem::take(&mut self.native_calls) {
            self.complete_native_call(&native, in_text, out);
        }
        out.push(ChatEvent::Finish(match finish {
            FinishReason::Length | FinishReason::ContentFilter => finish,
            FinishReason::Stop | FinishReason::ToolCalls if self.emitted_calls.is_empty() => {
                FinishReason::Stop
            }
            FinishReason::Stop | FinishReason::ToolCalls => FinishReason::ToolCalls,
        }));
    }

    /// The answer broke off: hands out the text that was held back.
    pub(super) fn abort(&mut self, out: &mut Vec<ChatEvent>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        if let Some(held) = self.constrained_text.take() {
            self.parser.push(&held, &mut self.dialect_events);
        }
        self.parser.finish(true, &mut self.dialect_events);
        self.forward_events(out);
    }

    fn complete_constrained(&mut self, held: &str, out: &mut Vec<ChatEvent>) {
        match constrained::parse_output(held) {
            Some(ConstrainedOutput::Answer(text)) => out.push(ChatEvent::Text(text)),
            Some(ConstrainedOutput::Call { name, arguments }) => {
                match maru_dialect::normalize_arguments(&self.tools, &name, &arguments) {
                    Ok(made) => {
                        self.emit_call(into_parsed_call(made, "constrained", held), None, out);
                    }
                    Err(_) => out.push(ChatEvent::Text(held.to_owned())),
                }
            }
            // It was not held to the form, or was cut off.
            None => self.parser.push(held, &mut self.dialect_events),
        }
    }

    /// Some backends read a call and leave it in the text, too: those of the
    /// first `in_text` calls are not made twice.
    fn complete_native_call(
        &mut self,
        native: &NativeCall,
        in_text: usize,
        out: &mut Vec<ChatEvent>,
    ) {
        match maru_dialect::normalize_arguments(&self.tools, &native.name, &native.arguments) {
            Ok(made) => {
                let same = |it: &(String, String)| it.0 == made.name && it.1 == made.arguments;
                if !self.emitted_calls[..in_text].iter().any(same) {
                    let call = into_parsed_call(made, "native", &native.arguments);
                    self.emit_call(call, Some(&native.id), out);
                }
            }
            Err(unusable) => out.push(ChatEvent::InvalidCall {
                text: format!("{}({})", native.name, native.arguments),
                name: Some(native.name.clone()),
                reason: unusable.to_string(),
            }),
        }
    }

    fn forward_events(&mut self, out: &mut Vec<ChatEvent>) {
        for event in std::mem::take(&mut self.dialect_events) {
            match event {
                maru_dialect::DialectEvent::Text(text) => out.push(ChatEvent::Text(text)),
                maru_dialect::DialectEvent::Reasoning(text) => out.push(ChatEvent::Reasoning(text)),
                maru_dialect::DialectEvent::Call(call)
                | maru_dialect::DialectEvent::CallFinished(call) => self.emit_call(call, None, out),
                // Not asked for: calls come whole.
                maru_dialect::DialectEvent::CallStarted(_)
                | maru_dialect::DialectEvent::CallArguments(_) => (),
                maru_dialect::DialectEvent::TextWasReasoning => {
                    out.push(ChatEvent::TextWasReasoning);
                }
                // Made up after a call, such as its result.
                maru_dialect::DialectEvent::Hallucination(_) => (),
                maru_dialect::DialectEvent::InvalidCall(broken) => {
                    out.push(ChatEvent::InvalidCall {
                        text: broken.text,
                        name: broken.name,
                        reason: broken.reason,
                    });
                }
            }
        }
    }

    fn emit_call(
        &mut self,
        call: maru_dialect::ParsedCall,
        id: Option<&str>,
        out: &mut Vec<ChatEvent>,
    ) {
        self.emitted_calls
            .push((call.name.clone(), call.arguments.clone()));
        let given = id.or(call.id.as_deref());
        out.push(ChatEvent::ToolCall(ChatToolCall {
            id: given
                .filter(|it| is_openai_call_id(it))
                .map_or_else(new_call_id, str::to_owned),
            name: call.name,
            arguments: call.arguments,
            dialect: call.dialect,
            repairs: call.repairs,
            raw: call.raw,
            explicit: call.explicit,
        }));
    }

    fn count_bytes(&mut self, by: &str) -> Result<(), ResponseTooLarge> {
        self.received_bytes += by.len();
        if self.received_bytes > MAX_RESPONSE_BYTES {
            Err(ResponseTooLarge)
        } else {
            Ok(())
        }
    }
}

impl TokenUsage {
    /// The counts that every client reads.
    pub(super) fn from_counts(prompt: u64, completion: u64, total: u64) -> Self {
        let mut counts = Map::new();
        counts.insert("prompt_tokens".to_owned(), prompt.into());
        counts.insert("completion_tokens".to_owned(), completion.into());
        counts.insert("total_tokens".to_owned(), total.into());
        Self(counts)
    }

    /// A count, or 0.
    pub fn count(&self, name: &str) -> u64 {
        self.0.get(name).and_then(Value::as_u64).unwrap_or(0)
    }
}

/// A call that did not have to be looked for.
fn into_parsed_call(
    made: maru_dialect::NormalizedArguments,
    dialect: &'static str,
    raw: &str,
) -> maru_dialect::ParsedCall {
    maru_dialect::ParsedCall {
        name: made.name,
        arguments: made.arguments,
        id: None,
        dialect,
        repairs: made.repairs,
        raw: raw.to_owned(),
        explicit: true,
    }
}

/// Ids that OpenAI itself makes are kept; others may come again in the next turn.
fn is_openai_call_id(id: &str) -> bool {
    id.strip_prefix("call_").is_some_and(|it| {
        (16..=40).contains(&it.len()) && it.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

fn new_call_id() -> String {
    super::chat::random_id("call_")
}
