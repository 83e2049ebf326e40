//! Decodes the pieces of a backend's response into events.

use std::{mem, sync::Arc};

use maru_dialect::{
    DialectEvent, DialectOptions, DialectParser, DialectSelection, NormalizedArguments, ParsedCall,
    ToolSet,
};
use serde_json::{Value, json, value::RawValue};

use super::{
    ChatEvent, ChatToolCall, FinishReason, InvalidNativeCall, InvalidToolCall,
    anthropic::MessageProgress,
    call_stream::{CallProgress, CallStream},
    chat::{ANTHROPIC_CONTENT, random_id},
    constrained::{self, ConstrainedOutput, ConstrainedPiece, ConstrainedReader},
    native_calls::{NativeCall, NativeCalls, ToolCallFragment},
    reasoning_start::ReasoningStart,
};

/// The most bytes that one response may hold.
const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// How a response is decoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct DecoderOptions {
    /// Text is handed out as it comes, and nothing in it is a call or reasoning.
    pub(super) plain_text: bool,
    /// The syntax of calls in the text.
    pub(super) dialect: DialectSelection,
    /// Whether the text begins inside reasoning.
    pub(super) reasoning_start: ReasoningStart,
    /// Whether maru's own prompt says how to write a call.
    pub(super) prompted: bool,
    /// Whether the output is constrained to our own form.
    pub(super) constrained: bool,
    /// Whether arguments are handed out while they arrive.
    pub(super) stream_arguments: bool,
    /// Whether what the model wrote is kept for the history.
    pub(super) keep_written: bool,
    /// The most calls; the rest is left out.
    pub(super) max_calls: usize,
}

impl DecoderOptions {
    /// For a text that the model continues.
    pub(super) fn plain_text() -> Self {
        Self {
            plain_text: true,
            dialect: DialectSelection::Auto,
            reasoning_start: ReasoningStart::NotExpected,
            prompted: false,
            constrained: false,
            stream_arguments: false,
            keep_written: false,
            max_calls: 0,
        }
    }
}

/// Decodes one response while it arrives. Pure.
#[derive(Debug)]
pub(super) struct ResponseDecoder {
    tools: Arc<ToolSet>,
    options: DecoderOptions,
    parser: DialectParser,
    constrained: Option<ConstrainedReader>,
    /// Streams the call that constrained output is.
    constrained_call: Option<CallStream>,
    native_calls: NativeCalls,
    /// Calls in the text that came after native ones, which may repeat them.
    held_calls: Vec<ParsedCall>,
    /// Names and arguments of the calls that were handed out.
    emitted_calls: Vec<(String, String)>,
    /// The call that was started and is not complete.
    open_call: Option<OpenCall>,
    dialect_events: Vec<DialectEvent>,
    written: Option<String>,
    received_bytes: usize,
    has_fingerprint: bool,
    finish_reason: Option<FinishReason>,
    ended: bool,
    /// What was read of a message of Anthropic's API.
    pub(super) message: MessageProgress,
}

/// A call whose arguments are being handed out.
#[derive(Debug)]
struct OpenCall {
    id: String,
    arguments: String,
}

/// The backend sent more than one response may hold.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ResponseTooLarge;

impl ResponseDecoder {
    pub(super) fn new(tools: ToolSet, options: DecoderOptions) -> Self {
        let tools = Arc::new(tools);
        let dialect_options = DialectOptions {
            starts_in_reasoning: options.reasoning_start == ReasoningStart::Certain,
            may_start_in_reasoning: options.reasoning_start == ReasoningStart::Likely,
            prompted: options.prompted,
            stream_arguments: options.stream_arguments,
            ..DialectOptions::default()
        };
        Self {
            parser: DialectParser::new(Arc::clone(&tools), options.dialect, dialect_options),
            tools,
            options,
            constrained: options.constrained.then(ConstrainedReader::default),
            constrained_call: None,
            native_calls: NativeCalls::default(),
            held_calls: Vec::new(),
            emitted_calls: Vec::new(),
            open_call: None,
            dialect_events: Vec::new(),
            written: options.keep_written.then(String::new),
            received_bytes: 0,
            has_fingerprint: false,
            finish_reason: None,
            ended: false,
            message: MessageProgress::default(),
        }
    }

    pub(super) fn push_text(
        &mut self,
        text: &str,
        out: &mut Vec<ChatEvent>,
    ) -> Result<(), ResponseTooLarge> {
        self.count_bytes(text)?;
        if self.options.plain_text {
            out.push(ChatEvent::Text(text.to_owned()));
            return Ok(());
        }
        if let Some(written) = &mut self.written {
            written.push_str(text);
        }
        match &mut self.constrained {
            Some(reader) => {
                let piece = reader.push(text);
                self.forward_constrained(piece, out);
            }
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
            self.parser.release_start(&mut self.dialect_events);
            self.forward_events(out);
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

    pub(super) fn push_call_fragment(
        &mut self,
        fragment: &ToolCallFragment<'_>,
        out: &mut Vec<ChatEvent>,
    ) -> Result<(), ResponseTooLarge> {
        self.count_bytes(fragment.id)?;
        self.count_bytes(fragment.name)?;
        self.count_bytes(fragment.arguments)?;
        self.count_bytes(fragment.thought_signature.unwrap_or_default())?;
        self.native_calls.push(fragment)?;
        if self.options.stream_arguments {
            self.stream_native_call(out);
        }
        Ok(())
    }

    /// Which configuration of the backend answers; only the first one counts.
    pub(super) fn set_system_fingerprint(&mut self, name: &RawValue, out: &mut Vec<ChatEvent>) {
        if !mem::replace(&mut self.has_fingerprint, true)
            && let Ok(name) = serde_json::from_str(name.get())
        {
            out.push(ChatEvent::SystemFingerprint(name));
        }
    }

    /// Why the response ended, in the backend's opinion.
    pub(super) fn set_finish_reason(&mut self, finish: FinishReason) {
        self.finish_reason.get_or_insert(finish);
    }

    pub(super) fn is_finished(&self) -> bool {
        self.finish_reason.is_some()
    }

    /// What is known of the text so far.
    pub(super) fn text_parser(&self) -> &DialectParser {
        &self.parser
    }

    /// How many bytes are held back and looked at again when more arrives.
    pub(super) fn held_bytes(&self) -> usize {
        let constrained = self.constrained.as_ref();
        self.parser.held_bytes()
            + self.native_calls.held_bytes()
            + constrained.map_or(0, ConstrainedReader::held_bytes)
    }

    /// What the model wrote, if it was to be kept.
    pub(super) fn take_written(&mut self) -> Option<String> {
        self.written.take()
    }

    /// Nothing more arrives: hands out what was held back, and the finish reason.
    pub(super) fn complete(&mut self, out: &mut Vec<ChatEvent>) {
        if mem::replace(&mut self.ended, true) {
            return;
        }
        let finish = self.finish_reason.unwrap_or(FinishReason::Stop);
        if let Some(reader) = self.constrained.take() {
            self.complete_constrained(reader, out);
        }
        self.parser
            .finish(finish.is_cut(), &mut self.dialect_events);
        self.forward_events(out);
        self.emit_native_calls(usize::MAX, out);
        for call in mem::take(&mut self.held_calls) {
            if !self.is_emitted(&call.name, &call.arguments) {
                self.emit_call(call, None, None, out);
            }
        }
        let is_cut = self.open_call.take().is_some();
        out.push(ChatEvent::Finish(match finish {
            FinishReason::Length | FinishReason::ContextWindow | FinishReason::ContentFilter => {
                finish
            }
            // The client has the beginning of a call that will never be complete.
            _ if is_cut => FinishReason::Length,
            _ if !self.emitted_calls.is_empty() => FinishReason::ToolCalls,
            FinishReason::Paused => FinishReason::Paused,
            FinishReason::Stop | FinishReason::ToolCalls => FinishReason::Stop,
        }));
    }

    /// The response broke off: hands out the text that was held back.
    pub(super) fn abort(&mut self, out: &mut Vec<ChatEvent>) {
        if mem::replace(&mut self.ended, true) {
            return;
        }
        // In a run, the beginning of a call is not text.
        let constrained = self.constrained.take();
        if let Some(reader) = constrained.filter(|_| !self.options.prompted) {
            self.parser
                .push(&reader.into_held(), &mut self.dialect_events);
        }
        self.parser.finish(true, &mut self.dialect_events);
        self.forward_events(out);
    }

    fn forward_constrained(&mut self, piece: ConstrainedPiece, out: &mut Vec<ChatEvent>) {
        match piece {
            ConstrainedPiece::Held => (),
            ConstrainedPiece::Answer(text) => out.push(ChatEvent::Text(text)),
            ConstrainedPiece::Call(text) if self.options.stream_arguments => {
                let mut stream = self
                    .constrained_call
                    .take()
                    .unwrap_or_else(|| CallStream::for_json(&self.tools));
                let progress = stream.push(&text);
                self.constrained_call = Some(stream);
                self.advance_call(progress, None, None, out);
            }
            ConstrainedPiece::Call(_) => (),
            ConstrainedPiece::Free(text) => {
                self.constrained = None;
                self.parser.push(&text, &mut self.dialect_events);
                self.forward_events(out);
            }
        }
    }

    fn complete_constrained(&mut self, reader: ConstrainedReader, out: &mut Vec<ChatEvent>) {
        let held = reader.into_held();
        let call = match constrained::parse_output(&held) {
            Some(ConstrainedOutput::Answer(text)) => {
                out.push(ChatEvent::Text(text));
                return;
            }
            Some(ConstrainedOutput::Call { name, arguments }) => {
                maru_dialect::normalize_arguments(&self.tools, &name, &arguments).ok()
            }
            None => None,
        };
        match call {
            Some(made) => {
                let call = into_parsed_call(made, "constrained", &held);
                self.emit_call(call, None, None, out);
            }
            // Cut off, or a call of nothing that was offered.
            None => self.parser.push(&held, &mut self.dialect_events),
        }
    }

    /// Streams the first native call that is not complete.
    fn stream_native_call(&mut self, out: &mut Vec<ChatEvent>) {
        // A call in the text may be the same as a native one; that is found out at the end.
        let text_has_calls = self.native_calls.emitted == 0 && !self.emitted_calls.is_empty();
        if text_has_calls || self.emitted_calls.len() >= self.options.max_calls {
            return;
        }
        // The next call begins when the one before is complete.
        let last = self.native_calls.calls.len() - 1;
        if self.native_calls.emitted < last && !self.emit_native_calls(last, out) {
            return;
        }
        let Some(call) = self.native_calls.calls.get_mut(self.native_calls.emitted) else {
            return;
        };
        if call.arguments.len() == call.streamed_bytes {
            return;
        }
        let mut stream = call
            .stream
            .take()
            .unwrap_or_else(|| CallStream::for_arguments(&self.tools, &call.name));
        let progress = stream.push(&call.arguments[call.streamed_bytes..]);
        call.streamed_bytes = call.arguments.len();
        call.stream = Some(stream);
        let (id, extra_content) = (call.id.clone(), extra_content(call));
        self.advance_call(progress, Some(&id), extra_content, out);
    }

    /// Hands out native calls up to `end`; false if one of them is not complete as yet.
    /// At the end of the response every one is, or is no call.
    fn emit_native_calls(&mut self, end: usize, out: &mut Vec<ChatEvent>) -> bool {
        let in_text = if self.native_calls.emitted == 0 {
            self.emitted_calls.len()
        } else {
            0
        };
        while self.native_calls.emitted < end.min(self.native_calls.calls.len()) {
            let at = self.native_calls.emitted;
            let call = &mut self.native_calls.calls[at];
            if !self.ended && !call.may_normalize() {
                return false;
            }
            let made = maru_dialect::normalize_arguments(&self.tools, &call.name, &call.arguments);
            if made.is_err() && !self.ended {
                return false;
            }
            let call = self.native_calls.calls[at].take();
            self.native_calls.emitted += 1;
            match made {
                // Some backends parse a call and leave it in the text, too.
                Ok(made)
                    if self.emitted_calls[..in_text]
                        .iter()
                        .any(|it| it.0 == made.name && it.1 == made.arguments) => {}
                Ok(made) => {
                    let extra_content = extra_content(&call);
                    let parsed = into_parsed_call(made, "native", &call.arguments);
                    self.emit_call(parsed, Some(&call.id), extra_content, out);
                }
                Err(error) => out.push(ChatEvent::InvalidCall(InvalidToolCall {
                    text: format!("{}({})", call.name, call.arguments),
                    reason: error.to_string(),
                    name: Some(call.name),
                    native: Some(InvalidNativeCall {
                        id: usable_id(Some(&call.id)),
                        arguments: call.arguments,
                    }),
                })),
            }
        }
        true
    }

    fn forward_events(&mut self, out: &mut Vec<ChatEvent>) {
        for event in mem::take(&mut self.dialect_events) {
            match event {
                DialectEvent::Text(text) => out.push(ChatEvent::Text(text)),
                DialectEvent::Reasoning(text) => out.push(ChatEvent::Reasoning(text)),
                DialectEvent::TextWasReasoning => out.push(ChatEvent::TextWasReasoning),
                DialectEvent::CallStarted(start) if self.native_calls.is_empty() => {
                    let progress = CallProgress {
                        started: Some(start.name),
                        arguments: String::new(),
                    };
                    self.advance_call(progress, None, None, out);
                }
                DialectEvent::CallArguments(arguments) if self.native_calls.is_empty() => {
                    let progress = CallProgress {
                        started: None,
                        arguments,
                    };
                    self.advance_call(progress, None, None, out);
                }
                DialectEvent::CallStarted(_) | DialectEvent::CallArguments(_) => (),
                DialectEvent::Call(call) | DialectEvent::CallFinished(call) => {
                    if self.native_calls.is_empty() || self.open_call.is_some() {
                        self.emit_call(call, None, None, out);
                    } else {
                        self.held_calls.push(call);
                    }
                }
                // Made up after a call, such as its result.
                DialectEvent::Hallucination(_) => (),
                DialectEvent::InvalidCall(invalid) => {
                    out.push(ChatEvent::InvalidCall(InvalidToolCall {
                        text: invalid.text,
                        name: invalid.name,
                        reason: invalid.reason,
                        native: None,
                    }));
                }
            }
        }
    }

    /// Starts a call, or adds a piece to the arguments of the one that was started.
    fn advance_call(
        &mut self,
        progress: CallProgress,
        id: Option<&str>,
        extra_content: Option<Value>,
        out: &mut Vec<ChatEvent>,
    ) {
        if let Some(name) = progress.started
            && self.open_call.is_none()
            && self.emitted_calls.len() < self.options.max_calls
        {
            let id = usable_id(id);
            self.open_call = Some(OpenCall {
                id: id.clone(),
                arguments: String::new(),
            });
            out.push(ChatEvent::ToolCallStarted {
                id,
                name,
                extra_content,
            });
        }
        if let Some(open) = &mut self.open_call
            && !progress.arguments.is_empty()
        {
            open.arguments.push_str(&progress.arguments);
            out.push(ChatEvent::ToolCallArguments(progress.arguments));
        }
    }

    fn emit_call(
        &mut self,
        call: ParsedCall,
        id: Option<&str>,
        extra_content: Option<Value>,
        out: &mut Vec<ChatEvent>,
    ) {
        if self.emitted_calls.len() >= self.options.max_calls {
            return;
        }
        let id = match self.open_call.take() {
            Some(open) if call.arguments.starts_with(&open.arguments) => open.id,
            // What the client has of it cannot be taken back.
            Some(open) => {
                self.open_call = Some(open);
                return;
            }
            None => usable_id(id.or(call.id.as_deref())),
        };
        self.emitted_calls
            .push((call.name.clone(), call.arguments.clone()));
        out.push(ChatEvent::ToolCall(ChatToolCall {
            id,
            name: call.name,
            arguments: call.arguments,
            dialect: call.dialect,
            repairs: call.repairs,
            raw: call.raw,
            explicit: call.explicit,
            extra_content,
        }));
    }

    fn is_emitted(&self, name: &str, arguments: &str) -> bool {
        let mut emitted = self.emitted_calls.iter();
        emitted.any(|it| it.0 == name && it.1 == arguments)
    }

    pub(super) fn count_bytes(&mut self, text: &str) -> Result<(), ResponseTooLarge> {
        self.received_bytes += text.len();
        if self.received_bytes > MAX_RESPONSE_BYTES {
            Err(ResponseTooLarge)
        } else {
            Ok(())
        }
    }
}

/// A call that did not have to be looked for.
fn into_parsed_call(made: NormalizedArguments, dialect: &'static str, raw: &str) -> ParsedCall {
    ParsedCall {
        name: made.name,
        arguments: made.arguments,
        id: None,
        dialect,
        repairs: made.repairs,
        raw: raw.to_owned(),
        explicit: true,
    }
}

/// Gemini's signature, or Anthropic's signed reasoning, as clients of OpenAI's API hand it
/// back.
fn extra_content(call: &NativeCall) -> Option<Value> {
    if let Some(content) = &call.anthropic_content {
        return Some(json!({ANTHROPIC_CONTENT: content}));
    }
    let signature = call.thought_signature.as_ref()?;
    Some(json!({"google": {"thought_signature": signature}}))
}

/// Ids that OpenAI itself makes are kept; others may come again in the next turn.
fn usable_id(id: Option<&str>) -> String {
    let is_openai_id = |id: &str| {
        id.strip_prefix("call_").is_some_and(|it| {
            (16..=40).contains(&it.len()) && it.bytes().all(|byte| byte.is_ascii_alphanumeric())
        })
    };
    id.filter(|it| is_openai_id(it))
        .map_or_else(|| random_id("call_"), str::to_owned)
}
