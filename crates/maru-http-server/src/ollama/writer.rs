//! Responses of `/api/chat` and `/api/generate`, whole or a line for each piece.

use std::{convert::Infallible, time::Duration};

use axum::{
    body::Body,
    http::{HeaderValue, header},
    response::Response,
};
use futures_util::{Stream, StreamExt as _};
use maru_runtime::clock;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    super::{
        model_api::{ApiError, ClientApi, ParsedRequest, ResponseEnd, ResponsePiece},
        openai::ChatCompletionWriter,
    },
    chat_request::{TranslatedRequest, translate_chat, translate_generate},
};
use maru_llm::{ChatResponse, FinishReason, TokenUsage};

const NDJSON: HeaderValue = HeaderValue::from_static("application/x-ndjson");

/// Writes responses of `/api/chat`.
pub(in super::super) type OllamaChatWriter = OllamaWriter<true>;
/// Writes responses of `/api/generate`.
pub(in super::super) type OllamaGenerateWriter = OllamaWriter<false>;

/// Writes a response as lines, or whole.
#[derive(Debug)]
pub(in super::super) struct OllamaWriter<const IS_CHAT: bool> {
    model: String,
    shows_thinking: bool,
    started_at: Instant,
    /// When the first piece was written.
    first_at: Option<Instant>,
    /// Id, name and arguments of the call that is not complete.
    open_call: Option<(String, String, String)>,
}

impl<const IS_CHAT: bool> OllamaWriter<IS_CHAT> {
    fn new(translated: &TranslatedRequest) -> Self {
        Self {
            model: translated.model.clone(),
            shows_thinking: translated.shows_thinking,
            started_at: Instant::now(),
            first_at: None,
            open_call: None,
        }
    }

    /// A response with this text, reasoning and calls.
    fn response(&self, text: &str, thinking: &str, calls: Vec<Value>) -> Value {
        let created = clock::format_rfc3339(clock::now_ms());
        let mut response = json!({"model": self.model, "created_at": created});
        let thinking = Some(thinking).filter(|it| !it.is_empty() && self.shows_thinking);
        if IS_CHAT {
            let mut message = json!({"role": "assistant", "content": text});
            if let Some(thinking) = thinking {
                message["thinking"] = thinking.into();
            }
            if !calls.is_empty() {
                message["tool_calls"] = calls.into();
            }
            response["message"] = message;
        } else {
            response["response"] = text.into();
            if let Some(thinking) = thinking {
                response["thinking"] = thinking.into();
            }
        }
        response["done"] = false.into();
        response
    }

    fn write_line(&mut self, text: &str, thinking: &str, calls: Vec<Value>, out: &mut String) {
        self.first_at.get_or_insert_with(Instant::now);
        let is_empty = text.is_empty() && calls.is_empty();
        if is_empty && !self.shows_thinking {
            return;
        }
        let line = self.response(text, thinking, calls);
        out.push_str(&format!("{line}\n"));
    }

    /// Completes a response: why it ended, and what it used.
    fn finish(
        &self,
        mut response: Value,
        finish: FinishReason,
        usage: Option<&TokenUsage>,
    ) -> Value {
        let now = Instant::now();
        let first_at = self.first_at.unwrap_or(now);
        let nanoseconds = |it: Duration| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX);
        response["done"] = true.into();
        response["done_reason"] = match finish {
            FinishReason::Length => "length".into(),
            FinishReason::Stop | FinishReason::ToolCalls | FinishReason::ContentFilter => {
                "stop".into()
            }
        };
        response["total_duration"] = nanoseconds(now - self.started_at).into();
        response["load_duration"] = 0.into();
        response["prompt_eval_count"] = usage.map_or(0, TokenUsage::input).into();
        response["prompt_eval_duration"] = nanoseconds(first_at - self.started_at).into();
        response["eval_count"] = usage.map_or(0, TokenUsage::output).into();
        response["eval_duration"] = nanoseconds(now - first_at).into();
        response
    }
}

impl<const IS_CHAT: bool> ClientApi for OllamaWriter<IS_CHAT> {
    fn parse(body: Value) -> Result<ParsedRequest<Self>, ApiError> {
        let translated = if IS_CHAT {
            translate_chat(body)?
        } else {
            translate_generate(body)?
        };
        let api = Self::new(&translated);
        let parsed = ChatCompletionWriter::parse(translated.body)?;
        Ok(ParsedRequest {
            request: parsed.request,
            stream: translated.stream,
            api,
        })
    }

    fn error_body(error: &ApiError) -> Value {
        json!({"error": error.message})
    }

    fn response_body(self, response: ChatResponse) -> String {
        let calls = response.calls.iter().enumerate();
        let calls = calls.map(|(at, it)| call_json(at, &it.id, &it.name, &it.arguments));
        let text = response.refusal.as_deref().unwrap_or(&response.text);
        let shown = self.response(text, &response.reasoning, calls.collect());
        self.finish(shown, response.finish_reason, response.usage.as_ref())
            .to_string()
    }

    fn write_start(&mut self, _out: &mut String) {}

    fn write_piece(&mut self, piece: ResponsePiece, out: &mut String) {
        match piece {
            ResponsePiece::Text(text) | ResponsePiece::Refusal(text) => {
                self.write_line(&text, "", Vec::new(), out);
            }
            ResponsePiece::Reasoning(text) => self.write_line("", &text, Vec::new(), out),
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
                    let call = call_json(0, &id, &name, &arguments);
                    self.write_line("", "", vec![call], out);
                }
            }
            // This API has no place for them.
            _ => (),
        }
    }

    fn write_end(&mut self, end: ResponseEnd, out: &mut String) {
        let empty = self.response("", "", Vec::new());
        let line = self.finish(empty, end.finish, end.usage.as_ref());
        out.push_str(&format!("{line}\n"));
    }

    fn write_error(&mut self, error: &ApiError, out: &mut String) {
        out.push_str(&format!("{}\n", Self::error_body(error)));
    }

    /// There are no comments in this format.
    fn write_queue_position(_position: usize, _out: &mut String) {}

    fn stream_response(
        texts: impl Stream<Item = String> + Send + 'static,
        _keep_alive: Duration,
    ) -> Response {
        let mut response = Response::new(Body::from_stream(texts.map(Ok::<_, Infallible>)));
        response.headers_mut().insert(header::CONTENT_TYPE, NDJSON);
        response
    }
}

/// A call. Its arguments are an object here, not text.
fn call_json(index: usize, id: &str, name: &str, arguments: &str) -> Value {
    let arguments: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
    json!({"id": id, "function": {"index": index, "name": name, "arguments": arguments}})
}
