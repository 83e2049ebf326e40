//! Responses of `/api/chat` and `/api/generate`, whole or a line for each piece.

use std::{borrow::Cow, fmt::Write as _};

use maru_protocol::push_json_string;
use maru_runtime::clock;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    super::{
        model_api::{ApiError, ClientApi, ParsedRequest, ResponseEnd, ResponsePiece, parse_model},
        openai::{ChatCompletionWriter, TextCompletionWriter},
    },
    chat_request::{TargetApi, TranslatedRequest, translate_chat, translate_generate},
};
use maru_llm::{ChatRequest, ChatResponse, FinishReason, TokenUsage};

/// Writes responses of `/api/chat`.
pub(in super::super) type OllamaChatWriter = OllamaWriter<true>;
/// Writes responses of `/api/generate`.
pub(in super::super) type OllamaGenerateWriter = OllamaWriter<false>;

/// Writes a response as lines, or whole.
#[derive(Debug)]
pub(in super::super) struct OllamaWriter<const IS_CHAT: bool> {
    target: TargetApi,
    model: String,
    shows_thinking: bool,
    started_at: Instant,
    /// When the first piece was written.
    first_at: Option<Instant>,
    /// Id, name and arguments of the call that is not complete.
    open_call: Option<(String, String, String)>,
    /// Calls that were written.
    call_count: usize,
}

impl<const IS_CHAT: bool> OllamaWriter<IS_CHAT> {
    fn new(translated: &TranslatedRequest) -> Self {
        Self {
            target: translated.target,
            model: translated.model.clone(),
            shows_thinking: translated.shows_thinking,
            started_at: Instant::now(),
            first_at: None,
            open_call: None,
            call_count: 0,
        }
    }

    /// Writes a response with this text, reasoning and calls, up to `done`.
    fn write_content(&self, text: &str, thinking: &str, calls: &[Value], out: &mut String) {
        out.push_str("{\"model\":");
        push_json_string(out, &self.model);
        let created = clock::format_rfc3339(clock::now_ms());
        let text_member = if IS_CHAT {
            "\"message\":{\"role\":\"assistant\",\"content\":"
        } else {
            "\"response\":"
        };
        let _ = write!(out, ",\"created_at\":\"{created}\",{text_member}");
        push_json_string(out, text);
        if !thinking.is_empty() && self.shows_thinking {
            out.push_str(",\"thinking\":");
            push_json_string(out, thinking);
        }
        if !calls.is_empty() {
            let _ = write!(out, ",\"tool_calls\":{}", json!(calls));
        }
        if IS_CHAT {
            out.push('}');
        }
    }

    fn write_line(&mut self, text: &str, thinking: &str, calls: &[Value], out: &mut String) {
        self.first_at.get_or_insert_with(Instant::now);
        let is_empty = text.is_empty() && calls.is_empty();
        if is_empty && !self.shows_thinking {
            return;
        }
        self.write_content(text, thinking, calls, out);
        out.push_str(",\"done\":false}\n");
    }

    /// Writes the end of a response: why it ended, and what it used.
    fn write_done(&self, finish: FinishReason, usage: Option<&TokenUsage>, out: &mut String) {
        let now = Instant::now();
        let first_at = self.first_at.unwrap_or(now);
        let (total, first) = (now - self.started_at, first_at - self.started_at);
        let reason = if finish.is_cut() { "length" } else { "stop" };
        let (input, output) = (
            usage.map_or(0, TokenUsage::input),
            usage.map_or(0, TokenUsage::output),
        );
        let _ = write!(
            out,
            ",\"done\":true,\"done_reason\":\"{reason}\",\"total_duration\":{},\"load_duration\":0,\
             \"prompt_eval_count\":{input},\"prompt_eval_duration\":{},\
             \"eval_count\":{output},\"eval_duration\":{}}}",
            total.as_nanos(),
            first.as_nanos(),
            (total - first).as_nanos()
        );
    }
}

impl<const IS_CHAT: bool> ClientApi for OllamaWriter<IS_CHAT> {
    const STREAM_TYPE: &'static str = "application/x-ndjson";

    fn parse(body: Value) -> Result<ParsedRequest<Self>, ApiError> {
        let translated = if IS_CHAT {
            translate_chat(body)?
        } else {
            translate_generate(body)?
        };
        let api = Self::new(&translated);
        let mut body = translated.body;
        let request = match translated.target {
            TargetApi::Chat => ChatCompletionWriter::parse(body)?.request,
            TargetApi::Text => TextCompletionWriter::parse(body)?.request,
            TargetApi::Load { .. } => ChatRequest {
                model: parse_model(body.get_mut("model").map(Value::take))?,
                ..ChatRequest::default()
            },
        };
        Ok(ParsedRequest {
            request,
            stream: translated.stream,
            api,
        })
    }

    fn error_body(error: &ApiError) -> Value {
        json!({"error": error.message})
    }

    fn response_without_model(&self) -> Option<String> {
        let TargetApi::Load { unload } = self.target else {
            return None;
        };
        let reason = if unload { "unload" } else { "load" };
        let mut out = String::new();
        self.write_content("", "", &[], &mut out);
        let _ = write!(out, ",\"done\":true,\"done_reason\":\"{reason}\"}}");
        Some(out)
    }

    fn response_body(self, response: ChatResponse) -> String {
        let calls = response.calls.iter().enumerate();
        let calls = calls.map(|(at, it)| call_json(at, &it.id, &it.name, &it.arguments));
        let calls: Vec<Value> = calls.collect();
        let text = response.refusal.as_deref().unwrap_or(&response.text);
        let mut out = String::new();
        self.write_content(text, &response.reasoning, &calls, &mut out);
        self.write_done(response.finish_reason, response.usage.as_ref(), &mut out);
        out
    }

    fn write_start(&mut self, _out: &mut String) {}

    fn write_piece(&mut self, piece: ResponsePiece, out: &mut String) {
        match piece {
            ResponsePiece::Text(text) | ResponsePiece::Refusal(text) => {
                self.write_line(&text, "", &[], out);
            }
            ResponsePiece::Reasoning(text) => self.write_line("", &text, &[], out),
            ResponsePiece::CallStart { id, name, .. } => {
                self.open_call = Some((id, name, String::new()));
            }
            ResponsePiece::CallArguments(piece) => {
                if let Some((.., arguments)) = &mut self.open_call {
                    arguments.push_str(&piece);
                }
            }
            ResponsePiece::CallEnd => {
                if let Some((id, name, arguments)) = self.open_call.take() {
                    let call = call_json(self.call_count, &id, &name, &arguments);
                    self.call_count += 1;
                    self.write_line("", "", &[call], out);
                }
            }
            // This API has no place for them.
            _ => (),
        }
    }

    fn write_end(&mut self, end: ResponseEnd, out: &mut String) {
        self.write_content("", "", &[], out);
        self.write_done(end.finish, end.usage.as_ref(), out);
        out.push('\n');
    }

    fn write_error(&mut self, error: &ApiError, out: &mut String) {
        out.push_str(&format!("{}\n", Self::error_body(error)));
    }

    /// There are no comments in this format.
    fn write_queue_position(_position: usize, _out: &mut String) {}

    /// Nor do clients skip an empty line, but a piece without text.
    fn keep_alive(&self) -> Cow<'static, str> {
        let mut out = String::new();
        self.write_content("", "", &[], &mut out);
        out.push_str(",\"done\":false}\n");
        out.into()
    }
}

/// A call. Its arguments are an object here, not text.
fn call_json(index: usize, id: &str, name: &str, arguments: &str) -> Value {
    let arguments: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
    json!({"id": id, "function": {"index": index, "name": name, "arguments": arguments}})
}
