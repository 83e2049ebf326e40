//! Responses in the form of Anthropic's clients: one block after the other, each with its
//! start, its deltas and its end.

use std::{borrow::Cow, fmt::Write as _, sync::LazyLock};

use maru_protocol::{begin_event, end_event, push_json_string, write_event};
use serde_json::Value;

use super::super::model_api::{ApiError, ClientApi, ParsedRequest, ResponseEnd, ResponsePiece};
use super::{error::error_body, message_request};
use maru_llm::{ChatResponse, FinishReason, TokenUsage, random_id};

/// What maru's own signatures begin with. Clients drop thinking without a signature.
pub(super) const OWN_SIGNATURE_PREFIX: &str = "maru_";
/// An event that clients skip.
static PING: LazyLock<String> =
    LazyLock::new(|| write_event(Some("ping"), None, "{\"type\":\"ping\"}"));

/// Writes a response as events, or whole.
#[derive(Debug)]
pub(in super::super) struct MessageWriter {
    model: String,
    shows_thinking: bool,
    /// The tokens of the request, unless the backend counts them.
    estimated_input: usize,
    /// Whether the model declined.
    is_refused: bool,
    has_begun: bool,
    open_block: Option<BlockKind>,
    /// Blocks that were begun.
    block_count: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BlockKind {
    Text,
    Thinking,
    ToolUse,
}

impl MessageWriter {
    pub(super) fn new(model: &str, shows_thinking: bool, estimated_input: usize) -> Self {
        Self {
            model: model.to_owned(),
            shows_thinking,
            estimated_input,
            is_refused: false,
            has_begun: false,
            open_block: None,
            block_count: 0,
        }
    }

    fn write_message_start(&mut self, out: &mut String) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        begin_event(out, Some("message_start"));
        out.push_str("{\"type\":\"message_start\",\"message\":");
        write_message_head(&self.model, out);
        let input = self.estimated_input;
        let _ = write!(
            out,
            "],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{{\"input_tokens\":{input},\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":0,\"output_tokens\":0}}}}}}"
        );
        end_event(out);
        out.push_str(&PING);
    }

    /// Text and thinking of one kind share a block.
    fn write_delta(&mut self, kind: BlockKind, text: &str, out: &mut String) {
        if self.open_block != Some(kind) {
            let block = match kind {
                BlockKind::Thinking => {
                    "{\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"}"
                }
                BlockKind::Text | BlockKind::ToolUse => "{\"type\":\"text\",\"text\":\"\"}",
            };
            self.write_block_start(kind, block, out);
        }
        let (delta, member) = match kind {
            BlockKind::Text => ("text_delta", "text"),
            BlockKind::Thinking => ("thinking_delta", "thinking"),
            BlockKind::ToolUse => ("input_json_delta", "partial_json"),
        };
        self.write_block_delta(delta, member, text, out);
    }

    fn write_block_start(&mut self, kind: BlockKind, block: &str, out: &mut String) {
        self.write_message_start(out);
        self.write_block_stop(out);
        let index = self.block_count;
        begin_event(out, Some("content_block_start"));
        let _ = write!(
            out,
            "{{\"type\":\"content_block_start\",\"index\":{index},\"content_block\":{block}}}"
        );
        end_event(out);
        self.block_count += 1;
        self.open_block = Some(kind);
    }

    fn write_block_delta(&self, delta: &str, member: &str, text: &str, out: &mut String) {
        let index = self.block_count.saturating_sub(1);
        begin_event(out, Some("content_block_delta"));
        let _ = write!(
            out,
            "{{\"type\":\"content_block_delta\",\"index\":{index},\"delta\":{{\"type\":\"{delta}\",\"{member}\":"
        );
        push_json_string(out, text);
        out.push_str("}}");
        end_event(out);
    }

    /// Ends the open block. Thinking that the backend did not sign gets a signature of ours.
    fn write_block_stop(&mut self, out: &mut String) {
        if self.open_block == Some(BlockKind::Thinking) {
            self.write_signature(&random_id(OWN_SIGNATURE_PREFIX), out);
        }
        self.close_block(out);
    }

    fn write_signature(&mut self, signature: &str, out: &mut String) {
        self.write_block_delta("signature_delta", "signature", signature, out);
        self.close_block(out);
    }

    fn close_block(&mut self, out: &mut String) {
        if self.open_block.take().is_some() {
            let index = self.block_count.saturating_sub(1);
            begin_event(out, Some("content_block_stop"));
            let _ = write!(out, "{{\"type\":\"content_block_stop\",\"index\":{index}}}");
            end_event(out);
        }
    }

    fn write_reasoning_signature(&mut self, signature: &str, out: &mut String) {
        if self.open_block != Some(BlockKind::Thinking) {
            self.write_delta(BlockKind::Thinking, "", out);
        }
        self.write_signature(signature, out);
    }

    fn write_redacted(&mut self, data: &str, out: &mut String) {
        let mut block = String::from("{\"type\":\"redacted_thinking\",\"data\":");
        push_json_string(&mut block, data);
        block.push('}');
        self.write_block_start(BlockKind::Text, &block, out);
        self.close_block(out);
    }

    fn write_call_start(&mut self, id: &str, name: &str, out: &mut String) {
        let mut block = String::new();
        write_call_head(id, name, &mut block);
        block.push_str("{}}");
        self.write_block_start(BlockKind::ToolUse, &block, out);
    }

    fn whole_message(&self, response: &ChatResponse) -> String {
        let mut out = String::with_capacity(response.text.len() + 512);
        write_message_head(&self.model, &mut out);
        let mut blocks = Vec::new();
        if self.shows_thinking {
            blocks.extend(thinking_blocks(response));
        }
        let refusal = response.refusal.as_deref().unwrap_or_default();
        for text in [response.text.as_str(), refusal] {
            if !text.is_empty() {
                let mut block = String::from("{\"type\":\"text\",\"text\":");
                push_json_string(&mut block, text);
                block.push('}');
                blocks.push(block);
            }
        }
        for call in &response.calls {
            let mut block = String::new();
            write_call_head(&call.id, &call.name, &mut block);
            block.push_str(&call.arguments);
            block.push('}');
            blocks.push(block);
        }
        out.push_str(&blocks.join(","));
        out.push_str("],");
        let stop_sequence = response.stop_sequence.as_deref();
        self.write_stop(response.finish_reason, stop_sequence, &mut out);
        out.push_str(",\"usage\":");
        self.write_usage(response.usage.as_ref(), &mut out);
        out.push('}');
        out
    }

    fn write_stop(&self, finish: FinishReason, stop_sequence: Option<&str>, out: &mut String) {
        let reason = match finish {
            FinishReason::Stop if self.is_refused => "refusal",
            FinishReason::Stop if stop_sequence.is_some() => "stop_sequence",
            FinishReason::Stop => "end_turn",
            FinishReason::Paused => "pause_turn",
            FinishReason::Length => "max_tokens",
            FinishReason::ContextWindow => "model_context_window_exceeded",
            FinishReason::ToolCalls => "tool_use",
            FinishReason::ContentFilter => "refusal",
        };
        let _ = write!(out, "\"stop_reason\":\"{reason}\",\"stop_sequence\":");
        match stop_sequence {
            Some(text) => push_json_string(out, text),
            None => out.push_str("null"),
        }
    }

    /// Tokens of the prompt that the backend had in its cache are counted apart. Where the
    /// backend counts none, those of the prompt are estimated.
    fn write_usage(&self, usage: Option<&TokenUsage>, out: &mut String) {
        let cached = usage.map_or(0, TokenUsage::cached);
        let estimated = self.estimated_input as u64;
        let input = usage
            .map_or(estimated, TokenUsage::input)
            .saturating_sub(cached);
        let output = usage.map_or(0, TokenUsage::output);
        let _ = write!(
            out,
            "{{\"input_tokens\":{input},\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":{cached},\"output_tokens\":{output}}}"
        );
    }
}

impl ClientApi for MessageWriter {
    fn parse(body: Value) -> Result<ParsedRequest<Self>, ApiError> {
        message_request::parse(body)
    }

    fn error_body(error: &ApiError) -> Value {
        error_body(error)
    }

    fn response_body(mut self, response: ChatResponse) -> String {
        self.is_refused = response.refusal.is_some();
        self.whole_message(&response)
    }

    fn write_start(&mut self, out: &mut String) {
        self.write_message_start(out);
    }

    fn write_piece(&mut self, piece: ResponsePiece, out: &mut String) {
        let shows_thinking = self.shows_thinking;
        self.is_refused |= matches!(piece, ResponsePiece::Refusal(_));
        match piece {
            ResponsePiece::Text(text) | ResponsePiece::Refusal(text) => {
                self.write_delta(BlockKind::Text, &text, out);
            }
            ResponsePiece::Reasoning(text) if shows_thinking => {
                self.write_delta(BlockKind::Thinking, &text, out);
            }
            ResponsePiece::ReasoningSignature(signature) if shows_thinking => {
                self.write_reasoning_signature(&signature, out);
            }
            ResponsePiece::RedactedReasoning(data) if shows_thinking => {
                self.write_redacted(&data, out);
            }
            ResponsePiece::CallStart { id, name, .. } => self.write_call_start(&id, &name, out),
            ResponsePiece::CallArguments(piece) if !piece.is_empty() => {
                self.write_delta(BlockKind::ToolUse, &piece, out);
            }
            ResponsePiece::CallEnd => self.write_block_stop(out),
            ResponsePiece::CallArguments(_)
            | ResponsePiece::Reasoning(_)
            | ResponsePiece::ReasoningSignature(_)
            | ResponsePiece::RedactedReasoning(_)
            | ResponsePiece::Logprobs(_)
            | ResponsePiece::SystemFingerprint(_) => (),
        }
    }

    /// Writes the stop reason, the usage, and the end.
    fn write_end(&mut self, end: ResponseEnd, out: &mut String) {
        self.write_message_start(out);
        self.write_block_stop(out);
        begin_event(out, Some("message_delta"));
        out.push_str("{\"type\":\"message_delta\",\"delta\":{");
        self.write_stop(end.finish, end.stop_sequence.as_deref(), out);
        out.push_str("},\"usage\":");
        self.write_usage(end.usage.as_ref(), out);
        out.push('}');
        end_event(out);
        let stop = "{\"type\":\"message_stop\"}";
        out.push_str(&write_event(Some("message_stop"), None, stop));
    }

    fn write_error(&mut self, error: &ApiError, out: &mut String) {
        let body = error_body(error).to_string();
        out.push_str(&write_event(Some("error"), None, &body));
    }

    fn keep_alive(&self) -> Cow<'static, str> {
        PING.as_str().into()
    }
}

/// Reasoning with the backend's signatures, or with one of ours.
fn thinking_blocks(response: &ChatResponse) -> Vec<String> {
    if !response.reasoning_blocks.is_empty() {
        let blocks = response.reasoning_blocks.iter();
        return blocks.map(Value::to_string).collect();
    }
    if response.reasoning.is_empty() {
        return Vec::new();
    }
    let mut block = String::from("{\"type\":\"thinking\",\"thinking\":");
    push_json_string(&mut block, &response.reasoning);
    let signature = random_id(OWN_SIGNATURE_PREFIX);
    let _ = write!(block, ",\"signature\":\"{signature}\"}}");
    vec![block]
}

/// A message up to its first block.
fn write_message_head(model: &str, out: &mut String) {
    let id = random_id("msg_");
    let _ = write!(
        out,
        "{{\"id\":\"{id}\",\"type\":\"message\",\"role\":\"assistant\",\"model\":"
    );
    push_json_string(out, model);
    out.push_str(",\"content\":[");
}

/// A call up to its input.
fn write_call_head(id: &str, name: &str, out: &mut String) {
    out.push_str("{\"type\":\"tool_use\",\"id\":");
    push_json_string(out, id);
    out.push_str(",\"name\":");
    push_json_string(out, name);
    out.push_str(",\"input\":");
}
