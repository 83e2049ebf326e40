//! Responses in the strict form that OpenAI's clients need.

use maru_protocol::{begin_event, end_event, push_json_string, write_event};
use maru_runtime::clock;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{
    super::model_api::{ApiError, ClientApi, ParsedRequest, ResponseEnd, ResponsePiece},
    chat_request,
    error::error_body,
};
use maru_llm::{ChatResponse, ChatToolCall, FinishReason, random_id};

/// Writes a response as chunks, or whole.
#[derive(Debug)]
pub(in super::super) struct ChatCompletionWriter {
    model: String,
    /// An event up to `{"id":…,"model":…,` of every chunk.
    chunk_prefix: String,
    /// Whether the client wants the usage.
    wants_usage: bool,
    has_begun: bool,
    /// Calls that were written.
    call_count: usize,
}

impl ChatCompletionWriter {
    pub(super) fn new(model: &str, wants_usage: bool) -> Self {
        Self {
            model: model.to_owned(),
            chunk_prefix: String::new(),
            wants_usage,
            has_begun: false,
            call_count: 0,
        }
    }

    /// The first chunk has the role, whatever follows.
    fn write_first_chunk(&mut self, out: &mut String) {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.write_prefix();
            self.write_choice_start(out);
            out.push_str("{\"role\":\"assistant\",\"content\":\"\"}");
            end_choice(out);
        }
    }

    fn write_prefix(&mut self) {
        if self.chunk_prefix.is_empty() {
            let id = random_id("chatcmpl-");
            let (created, model) = (clock::now_ms() / 1000, Value::from(self.model.as_str()));
            begin_event(&mut self.chunk_prefix, None);
            self.chunk_prefix.push_str(&format!(
                "{{\"id\":\"{id}\",\"object\":\"chat.completion.chunk\",\"created\":{created},\"model\":{model},"
            ));
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
        end_choice(out);
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
    fn write_arguments(&self, piece: &str, out: &mut String) {
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
        end_choice(out);
    }

    fn write_logprobs(&mut self, logprobs: &Map<String, Value>, out: &mut String) {
        self.write_first_chunk(out);
        self.write_choice_start(out);
        let logprobs = serde_json::to_string(logprobs).expect("values are JSON");
        out.push_str(&format!(
            "{{}},\"logprobs\":{logprobs},\"finish_reason\":null}}]}}"
        ));
        end_event(out);
    }

    fn write_delta(&mut self, delta: &Value, finish: Option<FinishReason>, out: &mut String) {
        self.write_first_chunk(out);
        self.write_choice_start(out);
        let finish = Value::from(finish.map(FinishReason::as_str));
        out.push_str(&format!("{delta},\"finish_reason\":{finish}}}]}}"));
        end_event(out);
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
            self.write_prefix();
            self.chunk_prefix.push_str("\"system_fingerprint\":");
            push_json_string(&mut self.chunk_prefix, name);
            self.chunk_prefix.push(',');
        }
    }

    #[cfg(test)]
    pub(super) fn wants_usage(&self) -> bool {
        self.wants_usage
    }
}

impl ClientApi for ChatCompletionWriter {
    fn parse(body: Value) -> Result<ParsedRequest<Self>, ApiError> {
        chat_request::parse(body)
    }

    fn error_body(error: &ApiError) -> Value {
        error_body(error)
    }

    fn response_body(self, response: ChatResponse) -> String {
        completion_json(&self.model, &response)
    }

    fn write_start(&mut self, out: &mut String) {
        self.write_first_chunk(out);
    }

    fn write_piece(&mut self, piece: ResponsePiece, out: &mut String) {
        match piece {
            ResponsePiece::Text(text) => self.write_text("content", &text, out),
            ResponsePiece::Reasoning(text) => self.write_text("reasoning_content", &text, out),
            ResponsePiece::Refusal(text) => self.write_text("refusal", &text, out),
            ResponsePiece::CallStart {
                id,
                name,
                extra_content,
            } => self.write_call_start(&id, &name, extra_content, out),
            ResponsePiece::CallArguments(piece) => self.write_arguments(&piece, out),
            // OpenAI's API has no place for signatures.
            ResponsePiece::CallEnd
            | ResponsePiece::ReasoningSignature(_)
            | ResponsePiece::RedactedReasoning(_) => (),
            ResponsePiece::Logprobs(logprobs) => self.write_logprobs(&logprobs, out),
            ResponsePiece::SystemFingerprint(name) => self.set_system_fingerprint(&name),
        }
    }

    /// Writes the finish reason, the usage, and the end.
    fn write_end(&mut self, end: ResponseEnd, out: &mut String) {
        self.write_delta(&json!({}), Some(end.finish), out);
        if let Some(usage) = end.usage.filter(|_| self.wants_usage) {
            let usage = Value::Object(usage.0);
            let prefix = &self.chunk_prefix;
            out.push_str(&format!("{prefix}\"choices\":[],\"usage\":{usage}}}"));
            end_event(out);
        }
        out.push_str(&write_event(None, None, "[DONE]"));
    }

    fn write_error(&mut self, error: &ApiError, out: &mut String) {
        out.push_str(&write_event(None, None, &error_body(error).to_string()));
    }
}

/// A chunk behind its delta.
fn end_choice(out: &mut String) {
    out.push_str(",\"finish_reason\":null}]}");
    end_event(out);
}

/// A whole response.
fn completion_json(model: &str, response: &ChatResponse) -> String {
    let tool_calls = &response.calls;
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
            finish_reason: response.finish_reason.as_str(),
        }],
        usage: response.usage.as_ref().map(|it| &it.0),
    };
    serde_json::to_string(&completion).expect("a response is JSON")
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
