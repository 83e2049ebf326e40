//! Responses in the strict form that OpenAI's clients need. Several clients concatenate ids
//! and names, ignore calls that come twice, or fail on text after a call: text comes first,
//! then one call after the other, then one finish reason, then the usage.

use maru_protocol::push_json_string;
use maru_runtime::clock;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::call_text::CallOutput;
use crate::llm::{
    ChatEvent, ChatResponse, ChatToolCall, FinishReason, InvalidToolCall, TokenUsage, random_id,
};

/// Writes the chunks of a stream.
#[derive(Debug)]
pub(super) struct ChunkWriter {
    /// `data: {"id":…,"model":…,` of every chunk.
    chunk_prefix: String,
    output: CallOutput,
    /// Whether the client wants the usage.
    wants_usage: bool,
    has_begun: bool,
    /// The text does not end with a line break; a call in the text needs one.
    has_open_line: bool,
    /// Complete calls that wait for the end of the text.
    calls: Vec<ChatToolCall>,
    /// Calls that were written as `tool_calls`.
    call_count: usize,
    /// Bytes of arguments that were written of the call that is not complete.
    open_arguments: Option<usize>,
    usage: Option<TokenUsage>,
    finish: Option<FinishReason>,
}

impl ChunkWriter {
    pub(super) fn new(model: &str, output: CallOutput, wants_usage: bool) -> Self {
        let id = random_id("chatcmpl-");
        let (created, model) = (clock::now_ms() / 1000, Value::from(model));
        Self {
            chunk_prefix: format!(
                "data: {{\"id\":\"{id}\",\"object\":\"chat.completion.chunk\",\"created\":{created},\"model\":{model},"
            ),
            output,
            wants_usage,
            has_begun: false,
            has_open_line: false,
            calls: Vec::new(),
            call_count: 0,
            open_arguments: None,
            usage: None,
            finish: None,
        }
    }

    /// Writes what can be written; complete calls wait for the end of the text.
    pub(super) fn write(&mut self, events: &mut Vec<ChatEvent>, out: &mut String) {
        let mut events = events.drain(..).peekable();
        while let Some(event) = events.next() {
            match event {
                ChatEvent::Text(mut text)
                | ChatEvent::InvalidCall(InvalidToolCall {
                    mut text,
                    native: None,
                    ..
                }) => {
                    // What arrived together goes out together: a chunk for each of a
                    // million broken calls would be ten times as long as they are.
                    while let Some(
                        ChatEvent::Text(more)
                        | ChatEvent::InvalidCall(InvalidToolCall { text: more, .. }),
                    ) = events.next_if(|it| {
                        matches!(
                            it,
                            ChatEvent::Text(_)
                                | ChatEvent::InvalidCall(InvalidToolCall { native: None, .. })
                        )
                    }) {
                        text.push_str(&more);
                    }
                    self.write_content(&text, out);
                }
                ChatEvent::Reasoning(mut text) => {
                    while let Some(ChatEvent::Reasoning(more)) =
                        events.next_if(|it| matches!(it, ChatEvent::Reasoning(_)))
                    {
                        text.push_str(&more);
                    }
                    self.write_text("reasoning_content", &text, out);
                }
                // It is out already.
                ChatEvent::TextWasReasoning => (),
                ChatEvent::InvalidCall(invalid) => {
                    // One that stands apart from the text gets a line of its own.
                    let gap = if self.has_open_line { "\n" } else { "" };
                    self.write_content(&format!("{gap}{}", invalid.text), out);
                }
                ChatEvent::Refusal(text) => self.write_text("refusal", &text, out),
                ChatEvent::ToolCallStarted {
                    id,
                    name,
                    extra_content,
                } => {
                    self.write_held_calls(out);
                    self.write_call_start(&id, &name, extra_content, out);
                    self.open_arguments = Some(0);
                }
                ChatEvent::ToolCallArguments(mut piece) => {
                    while let Some(ChatEvent::ToolCallArguments(more)) =
                        events.next_if(|it| matches!(it, ChatEvent::ToolCallArguments(_)))
                    {
                        piece.push_str(&more);
                    }
                    self.write_arguments(&piece, out);
                }
                ChatEvent::ToolCall(call) => match self.open_arguments {
                    Some(written) => {
                        self.write_arguments(&call.arguments[written..], out);
                        self.open_arguments = None;
                    }
                    None => self.calls.push(call),
                },
                ChatEvent::Logprobs(logprobs) => self.write_logprobs(&logprobs, out),
                ChatEvent::SystemFingerprint(name) => self.set_system_fingerprint(&name),
                ChatEvent::Usage(usage) => self.usage = Some(usage),
                ChatEvent::Finish(finish) => self.finish = Some(finish),
            }
        }
    }

    /// Whether the finish reason is known.
    pub(super) fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    /// The response is complete: writes calls, the finish reason, the usage, and the end.
    pub(super) fn write_end(&mut self, out: &mut String) {
        self.write_held_calls(out);
        let finish = self.finish.unwrap_or(FinishReason::Stop);
        let finish = finish_reason(finish, self.call_count > 0);
        self.write_delta(&json!({}), Some(finish), out);
        if let Some(usage) = self.usage.take().filter(|_| self.wants_usage) {
            let usage = Value::Object(usage.0);
            let prefix = &self.chunk_prefix;
            out.push_str(&format!("{prefix}\"choices\":[],\"usage\":{usage}}}\n\n"));
        }
        out.push_str("data: [DONE]\n\n");
    }

    /// The first chunk has the role, whatever follows.
    pub(super) fn write_first_chunk(&mut self, out: &mut String) {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.write_choice_start(out);
            out.push_str("{\"role\":\"assistant\",\"content\":\"\"}");
            out.push_str(CHOICE_END);
        }
    }

    /// Text for the user. No client expects any after a call: what a model adds there is
    /// not lost, but no answer.
    fn write_content(&mut self, text: &str, out: &mut String) {
        if self.call_count == 0 {
            self.write_text("content", text, out);
        } else if !text.trim().is_empty() && self.open_arguments.is_none() {
            self.write_text("reasoning_content", text, out);
        }
    }

    fn write_text(&mut self, member: &str, text: &str, out: &mut String) {
        if text.is_empty() {
            return;
        }
        self.write_first_chunk(out);
        self.write_choice_start(out);
        out.push_str("{\"");
        out.push_str(member);
        out.push_str("\":");
        push_json_string(out, text);
        out.push('}');
        out.push_str(CHOICE_END);
        if member == "content" {
            self.has_open_line = !text.ends_with('\n');
        }
    }

    fn write_held_calls(&mut self, out: &mut String) {
        for call in std::mem::take(&mut self.calls) {
            match self.output.render(&call) {
                Some(text) => {
                    let gap = if self.has_open_line { "\n\n" } else { "" };
                    self.write_content(&format!("{gap}{text}\n"), out);
                }
                None => {
                    self.write_call_start(&call.id, &call.name, call.extra_content, out);
                    self.write_arguments(&call.arguments, out);
                    self.open_arguments = None;
                }
            }
        }
    }

    fn write_call_start(
        &mut self,
        id: &str,
        name: &str,
        extra_content: Option<Value>,
        out: &mut String,
    ) {
        let function = json!({"name": name, "arguments": ""});
        let mut call =
            json!({"index": self.call_count, "id": id, "type": "function", "function": function});
        if let Some(extra) = extra_content {
            call["extra_content"] = extra;
        }
        self.call_count += 1;
        self.write_delta(&json!({"tool_calls": [call]}), None, out);
    }

    /// A piece of the arguments of the call that was started last.
    fn write_arguments(&mut self, piece: &str, out: &mut String) {
        if piece.is_empty() {
            return;
        }
        let index = self.call_count.saturating_sub(1);
        self.write_choice_start(out);
        out.push_str(&format!(
            "{{\"tool_calls\":[{{\"index\":{index},\"function\":{{\"arguments\":"
        ));
        push_json_string(out, piece);
        out.push_str("}}]}");
        out.push_str(CHOICE_END);
        if let Some(written) = &mut self.open_arguments {
            *written += piece.len();
        }
    }

    fn write_logprobs(&mut self, logprobs: &Map<String, Value>, out: &mut String) {
        self.write_first_chunk(out);
        self.write_choice_start(out);
        let logprobs = serde_json::to_string(logprobs).expect("values are JSON");
        out.push_str(&format!(
            "{{}},\"logprobs\":{logprobs},\"finish_reason\":null}}]}}\n\n"
        ));
    }

    fn write_delta(&mut self, delta: &Value, finish: Option<FinishReason>, out: &mut String) {
        self.write_first_chunk(out);
        self.write_choice_start(out);
        let finish = Value::from(finish.map(FinishReason::as_str));
        out.push_str(&format!("{delta},\"finish_reason\":{finish}}}]}}\n\n"));
    }

    /// A chunk up to its delta.
    fn write_choice_start(&self, out: &mut String) {
        out.push_str(&self.chunk_prefix);
        if self.wants_usage {
            out.push_str("\"usage\":null,");
        }
        out.push_str("\"choices\":[{\"index\":0,\"delta\":");
    }

    fn set_system_fingerprint(&mut self, name: &str) {
        if !self.has_begun {
            self.chunk_prefix.push_str("\"system_fingerprint\":");
            push_json_string(&mut self.chunk_prefix, name);
            self.chunk_prefix.push(',');
        }
    }
}

/// A chunk behind its delta.
const CHOICE_END: &str = ",\"finish_reason\":null}]}\n\n";

/// A whole response.
pub(super) fn completion_json(
    model: &str,
    output: &CallOutput,
    mut response: ChatResponse,
) -> String {
    let mut tool_calls = Vec::new();
    for call in std::mem::take(&mut response.calls) {
        match output.render(&call) {
            Some(text) => append_call_text(&mut response.text, &text),
            None => tool_calls.push(call),
        }
    }
    let finish = finish_reason(response.finish_reason, !tool_calls.is_empty());
    let is_silent =
        response.text.is_empty() && (!tool_calls.is_empty() || response.refusal.is_some());
    let completion = ChatCompletion {
        id: random_id("chatcmpl-"),
        object: "chat.completion",
        created: clock::now_ms() / 1000,
        model,
        system_fingerprint: response.system_fingerprint.as_deref(),
        choices: [ChatCompletionChoice {
            index: 0,
            message: ChatCompletionMessage {
                role: "assistant",
                content: (!is_silent).then_some(&response.text),
                refusal: response.refusal.as_deref(),
                reasoning_content: &response.reasoning,
                tool_calls: tool_calls
                    .iter()
                    .map(ChatCompletionToolCall::from)
                    .collect(),
            },
            logprobs: response.logprobs.as_ref(),
            finish_reason: finish.as_str(),
        }],
        usage: response.usage.as_ref().map(|it| &it.0),
    };
    serde_json::to_string(&completion).expect("a response is JSON")
}

fn append_call_text(text: &mut String, call: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push_str("\n\n");
    }
    text.push_str(call);
    text.push('\n');
}

/// Calls in the text are text.
fn finish_reason(finish: FinishReason, has_calls: bool) -> FinishReason {
    match finish {
        FinishReason::ToolCalls if !has_calls => FinishReason::Stop,
        finish => finish,
    }
}

#[derive(Serialize)]
struct ChatCompletion<'a> {
    id: String,
    object: &'static str,
    created: i64,
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    system_fingerprint: Option<&'a str>,
    choices: [ChatCompletionChoice<'a>; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<&'a Map<String, Value>>,
}

#[derive(Serialize)]
struct ChatCompletionChoice<'a> {
    index: u32,
    message: ChatCompletionMessage<'a>,
    logprobs: Option<&'a Map<String, Value>>,
    finish_reason: &'static str,
}

#[derive(Serialize)]
struct ChatCompletionMessage<'a> {
    role: &'static str,
    content: Option<&'a String>,
    refusal: Option<&'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    reasoning_content: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<ChatCompletionToolCall<'a>>,
}

#[derive(Serialize)]
struct ChatCompletionToolCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: ChatCompletionFunction<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<&'a Value>,
}

#[derive(Serialize)]
struct ChatCompletionFunction<'a> {
    name: &'a str,
    arguments: &'a str,
}

impl<'a> From<&'a ChatToolCall> for ChatCompletionToolCall<'a> {
    fn from(call: &'a ChatToolCall) -> Self {
        Self {
            id: &call.id,
            r#type: "function",
            function: ChatCompletionFunction {
                name: &call.name,
                arguments: &call.arguments,
            },
            extra_content: call.extra_content.as_ref(),
        }
    }
}
