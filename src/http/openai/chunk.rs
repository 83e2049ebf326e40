//! Events as OpenAI's clients want them. Several clients concatenate ids and
//! names, ignore calls that come twice, or fail on text after a call; so texts
//! come first, then each call in two pieces, then one reason, then the usage.

use std::time::{SystemTime, UNIX_EPOCH};

use maru_protocol::push_json_string;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::call_text;
use crate::{
    config::ClientMode,
    llm::{ChatEvent, ChatResponse, ChatToolCall, FinishReason, TokenUsage, random_id},
};

/// Writes a stream.
#[derive(Debug)]
pub(super) struct ChunkWriter {
    /// `{"id":…,"model":…,"choices":` of every chunk.
    chunk_prefix: String,
    mode: ClientMode,
    /// Whether the usage is wanted.
    wants_usage: bool,
    begun: bool,
    /// The end of the text so far, to which a call in the text is added.
    has_open_line: bool,
    calls: Vec<ChatToolCall>,
    usage: Option<TokenUsage>,
    finish: Option<FinishReason>,
}

impl ChunkWriter {
    pub(super) fn new(model: &str, mode: ClientMode, wants_usage: bool) -> Self {
        let id = random_id("chatcmpl-");
        let (created, model) = (now(), Value::from(model));
        let usage = if wants_usage { "\"usage\":null," } else { "" };
        Self {
            chunk_prefix: format!(
                "data: {{\"id\":\"{id}\",\"object\":\"chat.completion.chunk\",\"created\":{created},\"model\":{model},{usage}\"choices\":"
            ),
            mode,
            wants_usage,
            begun: false,
            has_open_line: false,
            calls: Vec::new(),
            usage: None,
            finish: None,
        }
    }

    /// Writes what can be written; calls wait for the end of the text.
    pub(super) fn write(&mut self, events: &mut Vec<ChatEvent>, out: &mut String) {
        let mut events = events.drain(..).peekable();
        while let Some(event) = events.next() {
            match event {
                ChatEvent::Text(mut text) | ChatEvent::InvalidCall { mut text, .. } => {
                    // What came together goes out together.
                    while let Some(ChatEvent::Text(more)) =
                        events.next_if(|it| matches!(it, ChatEvent::Text(_)))
                    {
                        text.push_str(&more);
                    }
                    self.write_text("content", &text, out);
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
                ChatEvent::Refusal(text) => self.write_text("refusal", &text, out),
                ChatEvent::ToolCall(call) => self.calls.push(call),
                ChatEvent::Usage(usage) => self.usage = Some(usage),
                ChatEvent::Finish(finish) => self.finish = Some(finish),
            }
        }
    }

    /// Whether the backend has said why it ended.
    pub(super) fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    /// The backend has ended: calls, the reason, the usage, and the end.
    pub(super) fn write_end(&mut self, out: &mut String) {
        let calls = std::mem::take(&mut self.calls);
        for (index, call) in calls.iter().enumerate() {
            match self.mode {
                ClientMode::Openai => self.write_call(index, call, out),
                ClientMode::Xml => self.write_call_as_text(&call_text::call_as_xml(call), out),
                ClientMode::Shell => self.write_call_as_text(&call_text::call_as_shell(call), out),
            }
        }
        let finish = finish_for_mode(self.finish.unwrap_or(FinishReason::Stop), self.mode);
        self.write_delta(&json!({}), Some(finish), out);
        if let Some(usage) = self.usage.take().filter(|_| self.wants_usage) {
            let head = self.chunk_prefix.replacen("\"usage\":null,", "", 1);
            let usage = Value::Object(usage.0);
            out.push_str(&format!("{head}[],\"usage\":{usage}}}\n\n"));
        }
        out.push_str("data: [DONE]\n\n");
    }

    fn write_text(&mut self, member: &str, text: &str, out: &mut String) {
        if text.is_empty() {
            return;
        }
        self.write_first_chunk(out);
        out.push_str(&self.chunk_prefix);
        out.push_str("[{\"index\":0,\"delta\":{\"");
        out.push_str(member);
        out.push_str("\":");
        push_json_string(out, text);
        out.push_str("},\"finish_reason\":null}]}\n\n");
        if member == "content" {
            self.has_open_line = !text.ends_with('\n');
        }
    }

    fn write_call_as_text(&mut self, text: &str, out: &mut String) {
        let gap = if self.has_open_line { "\n\n" } else { "" };
        self.write_text("content", &format!("{gap}{text}\n"), out);
    }

    fn write_call(&mut self, index: usize, call: &ChatToolCall, out: &mut String) {
        let function = json!({"name": call.name, "arguments": ""});
        let first =
            json!({"index": index, "id": call.id, "type": "function", "function": function});
        self.write_delta(&json!({"tool_calls": [first]}), None, out);
        let next = json!({"index": index, "function": {"arguments": call.arguments}});
        self.write_delta(&json!({"tool_calls": [next]}), None, out);
    }

    fn write_delta(&mut self, delta: &Value, finish: Option<FinishReason>, out: &mut String) {
        self.write_first_chunk(out);
        let finish = Value::from(finish.map(FinishReason::as_str));
        let head = &self.chunk_prefix;
        out.push_str(&format!(
            "{head}[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\n"
        ));
    }

    /// The first chunk names the role, whatever follows.
    pub(super) fn write_first_chunk(&mut self, out: &mut String) {
        if !std::mem::replace(&mut self.begun, true) {
            out.push_str(&self.chunk_prefix);
            out.push_str("[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n");
        }
    }
}

/// A whole answer.
pub(super) fn completion_json(model: &str, mode: ClientMode, mut answer: ChatResponse) -> String {
    let calls = std::mem::take(&mut answer.calls);
    let finish = finish_for_mode(answer.finish_reason, mode);
    match mode {
        ClientMode::Openai => (),
        ClientMode::Xml => calls
            .iter()
            .for_each(|it| append_call_text(&mut answer.text, &call_text::call_as_xml(it))),
        ClientMode::Shell => calls
            .iter()
            .for_each(|it| append_call_text(&mut answer.text, &call_text::call_as_shell(it))),
    }
    let calls = match mode {
        ClientMode::Openai => calls,
        ClientMode::Xml | ClientMode::Shell => Vec::new(),
    };
    let silent = answer.text.is_empty() && (!calls.is_empty() || answer.refusal.is_some());
    let completion = ChatCompletion {
        id: random_id("chatcmpl-"),
        object: "chat.completion",
        created: now(),
        model,
        choices: [ChatCompletionChoice {
            index: 0,
            message: ChatCompletionMessage {
                role: "assistant",
                content: (!silent).then_some(&answer.text),
                refusal: answer.refusal.as_deref(),
                reasoning_content: &answer.reasoning,
                tool_calls: calls.iter().map(ChatCompletionToolCall::from).collect(),
            },
            logprobs: None,
            finish_reason: finish.as_str(),
        }],
        usage: answer.usage.as_ref().map(|it| &it.0),
    };
    serde_json::to_string(&completion).expect("an answer is JSON")
}

fn append_call_text(text: &mut String, call: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push_str("\n\n");
    }
    text.push_str(call);
    text.push('\n');
}

/// Calls in the text are text.
fn finish_for_mode(finish: FinishReason, mode: ClientMode) -> FinishReason {
    match (finish, mode) {
        (FinishReason::ToolCalls, ClientMode::Xml | ClientMode::Shell) => FinishReason::Stop,
        (finish, _) => finish,
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |it| it.as_secs())
}

#[derive(Serialize)]
struct ChatCompletion<'a> {
    id: String,
    object: &'static str,
    created: u64,
    model: &'a str,
    choices: [ChatCompletionChoice<'a>; 1],
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<&'a Map<String, Value>>,
}

#[derive(Serialize)]
struct ChatCompletionChoice<'a> {
    index: u32,
    message: ChatCompletionMessage<'a>,
    logprobs: Option<()>,
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
        }
    }
}
