//! Responses of `/messages`, whole or as events.

use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use super::super::{
    ChatEvent, FinishReason, TokenUsage,
    chat::REASONING_BLOCKS,
    decoder::ResponseDecoder,
    native_calls::ToolCallFragment,
    openai::{ProtocolViolation, RESPONSE_TOO_LARGE},
};

const INVALID_FORM: ProtocolViolation = "a response in another form than the protocol's";

/// What was read of a message that arrives in events.
#[derive(Debug, Default)]
pub(in super::super) struct MessageProgress {
    /// Whether its last event has arrived.
    pub(in super::super) is_stopped: bool,
    usage: MessageUsage,
    /// Reasoning that is not signed as yet.
    thinking: String,
    /// Signed reasoning that goes out with the next call.
    reasoning_blocks: Vec<Value>,
    /// The call that is open, and whether it has arguments.
    open_call: Option<(u64, bool)>,
}

/// Decodes a whole response, or one event of a streamed one; whether it had a message.
pub(in super::super) fn decode_response(
    data: &[u8],
    decoder: &mut ResponseDecoder,
    out: &mut Vec<ChatEvent>,
) -> Result<bool, ProtocolViolation> {
    let event: MessageEvent<'_> = serde_json::from_slice(data).map_err(|_| INVALID_FORM)?;
    match event.kind.as_str() {
        "error" => return Err("an error instead of a response"),
        // A whole response.
        "message" => {
            for (index, block) in event.content.into_iter().flatten().enumerate() {
                let index = index as u64;
                decode_block_start(index, &block, decoder, out)?;
                decode_block_stop(decoder, out)?;
            }
            decode_end(event.stop_reason.as_deref(), decoder);
            out.extend(event.stop_sequence.map(ChatEvent::StopSequence));
            decode_usage(event.usage, decoder, out);
        }
        "message_start" => {
            let message = event.message.ok_or(INVALID_FORM)?;
            decode_usage(message.usage, decoder, out);
        }
        "content_block_start" => {
            let block = event.content_block.ok_or(INVALID_FORM)?;
            decode_block_start(event.index.unwrap_or(0), &block, decoder, out)?;
        }
        "content_block_delta" => {
            let delta = event.delta.ok_or(INVALID_FORM)?;
            decode_delta(event.index.unwrap_or(0), &delta, decoder, out)?;
        }
        "content_block_stop" => decode_block_stop(decoder, out)?,
        "message_delta" => {
            if let Some(delta) = event.delta {
                decode_end(delta.stop_reason.as_deref(), decoder);
                out.extend(delta.stop_sequence.map(ChatEvent::StopSequence));
            }
            decode_usage(event.usage, decoder, out);
        }
        "message_stop" => decoder.message.is_stopped = true,
        // `ping`, and events of later versions.
        _ => return Ok(false),
    }
    Ok(true)
}

fn decode_block_start(
    index: u64,
    block: &ContentBlock<'_>,
    decoder: &mut ResponseDecoder,
    out: &mut Vec<ChatEvent>,
) -> Result<(), ProtocolViolation> {
    match block.kind.as_str() {
        "text" => push_text(block.text.as_deref(), decoder, out),
        "thinking" => {
            push_thinking(block.thinking.as_deref(), decoder, out)?;
            sign_thinking(block.signature.as_deref(), decoder, out)
        }
        "redacted_thinking" => {
            if let Some(data) = &block.data {
                decoder.count_bytes(data).map_err(|_| RESPONSE_TOO_LARGE)?;
                let block = json!({"type": "redacted_thinking", "data": data});
                decoder.message.reasoning_blocks.push(block);
                out.push(ChatEvent::RedactedReasoning(data.to_owned()));
            }
            Ok(())
        }
        "tool_use" => {
            let input = block.input.map(RawValue::get);
            // A stream begins with an empty object and sends the arguments in pieces.
            let input = input.filter(|it| it.len() > 2 && it.starts_with('{'));
            decoder.message.open_call = Some((index, input.is_some()));
            let blocks = std::mem::take(&mut decoder.message.reasoning_blocks);
            let blocks = (!blocks.is_empty()).then(|| json!({REASONING_BLOCKS: blocks}));
            let fragment = ToolCallFragment {
                index: Some(index),
                id: block.id.as_deref().unwrap_or_default(),
                name: block.name.as_deref().unwrap_or_default(),
                arguments: input.unwrap_or_default(),
                anthropic_content: blocks.as_ref(),
                ..ToolCallFragment::default()
            };
            push_fragment(&fragment, decoder, out)
        }
        // Tools of the backend itself, which clients know nothing of.
        _ => Ok(()),
    }
}

fn decode_delta(
    index: u64,
    delta: &BlockDelta<'_>,
    decoder: &mut ResponseDecoder,
    out: &mut Vec<ChatEvent>,
) -> Result<(), ProtocolViolation> {
    push_text(delta.text.as_deref(), decoder, out)?;
    push_thinking(delta.thinking.as_deref(), decoder, out)?;
    sign_thinking(delta.signature.as_deref(), decoder, out)?;
    let arguments = delta.partial_json.as_deref().unwrap_or_default();
    if arguments.is_empty() {
        return Ok(());
    }
    match &mut decoder.message.open_call {
        Some((open, has_arguments)) if *open == index => *has_arguments = true,
        // Input of a tool of the backend itself.
        _ => return Ok(()),
    }
    let fragment = ToolCallFragment {
        index: Some(index),
        arguments,
        ..ToolCallFragment::default()
    };
    push_fragment(&fragment, decoder, out)
}

/// A call without arguments is complete.
fn decode_block_stop(
    decoder: &mut ResponseDecoder,
    out: &mut Vec<ChatEvent>,
) -> Result<(), ProtocolViolation> {
    match decoder.message.open_call.take() {
        Some((index, false)) => {
            let fragment = ToolCallFragment {
                index: Some(index),
                arguments: "{}",
                ..ToolCallFragment::default()
            };
            push_fragment(&fragment, decoder, out)
        }
        _ => Ok(()),
    }
}

fn push_text(
    text: Option<&str>,
    decoder: &mut ResponseDecoder,
    out: &mut Vec<ChatEvent>,
) -> Result<(), ProtocolViolation> {
    match text.filter(|it| !it.is_empty()) {
        Some(text) => decoder.push_text(text, out).map_err(|_| RESPONSE_TOO_LARGE),
        None => Ok(()),
    }
}

fn push_thinking(
    text: Option<&str>,
    decoder: &mut ResponseDecoder,
    out: &mut Vec<ChatEvent>,
) -> Result<(), ProtocolViolation> {
    let Some(text) = text.filter(|it| !it.is_empty()) else {
        return Ok(());
    };
    decoder.message.thinking.push_str(text);
    decoder
        .push_reasoning(text, out)
        .map_err(|_| RESPONSE_TOO_LARGE)
}

/// The signature ends a block of thinking.
fn sign_thinking(
    signature: Option<&str>,
    decoder: &mut ResponseDecoder,
    out: &mut Vec<ChatEvent>,
) -> Result<(), ProtocolViolation> {
    let Some(signature) = signature.filter(|it| !it.is_empty()) else {
        return Ok(());
    };
    decoder
        .count_bytes(signature)
        .map_err(|_| RESPONSE_TOO_LARGE)?;
    let thinking = std::mem::take(&mut decoder.message.thinking);
    let block = json!({"type": "thinking", "thinking": thinking, "signature": signature});
    decoder.message.reasoning_blocks.push(block);
    out.push(ChatEvent::ReasoningSignature(signature.to_owned()));
    Ok(())
}

fn push_fragment(
    fragment: &ToolCallFragment<'_>,
    decoder: &mut ResponseDecoder,
    out: &mut Vec<ChatEvent>,
) -> Result<(), ProtocolViolation> {
    decoder
        .push_call_fragment(fragment, out)
        .map_err(|_| RESPONSE_TOO_LARGE)
}

fn decode_end(reason: Option<&str>, decoder: &mut ResponseDecoder) {
    let reason = match reason {
        None => return,
        Some("max_tokens") => FinishReason::Length,
        Some("model_context_window_exceeded") => FinishReason::ContextWindow,
        Some("pause_turn") => FinishReason::Paused,
        Some("tool_use") => FinishReason::ToolCalls,
        Some("refusal") => FinishReason::ContentFilter,
        Some(_) => FinishReason::Stop,
    };
    decoder.set_finish_reason(reason);
}

/// The first event has the tokens of the prompt, the last ones those of the response.
fn decode_usage(
    usage: Option<MessageUsage>,
    decoder: &mut ResponseDecoder,
    out: &mut Vec<ChatEvent>,
) {
    let Some(new) = usage else {
        return;
    };
    let known = &mut decoder.message.usage;
    known.update(&new);
    out.push(ChatEvent::Usage(known.to_token_usage()));
}

#[derive(Deserialize)]
struct MessageEvent<'a> {
    #[serde(rename = "type")]
    kind: String,
    index: Option<u64>,
    #[serde(borrow)]
    content: Option<Vec<ContentBlock<'a>>>,
    #[serde(borrow)]
    content_block: Option<ContentBlock<'a>>,
    #[serde(borrow)]
    delta: Option<BlockDelta<'a>>,
    message: Option<StartedMessage>,
    usage: Option<MessageUsage>,
    stop_reason: Option<String>,
    stop_sequence: Option<String>,
}

#[derive(Deserialize)]
struct StartedMessage {
    usage: Option<MessageUsage>,
}

#[derive(Deserialize)]
struct ContentBlock<'a> {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    data: Option<String>,
    id: Option<String>,
    name: Option<String>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct BlockDelta<'a> {
    #[serde(borrow)]
    text: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow)]
    thinking: Option<std::borrow::Cow<'a, str>>,
    signature: Option<String>,
    #[serde(borrow)]
    partial_json: Option<std::borrow::Cow<'a, str>>,
    stop_reason: Option<String>,
    stop_sequence: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
struct MessageUsage {
    input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

impl MessageUsage {
    /// Takes the counts that a later event repeats or adds.
    fn update(&mut self, new: &Self) {
        self.input_tokens = new.input_tokens.or(self.input_tokens);
        self.cache_read_input_tokens = new.cache_read_input_tokens.or(self.cache_read_input_tokens);
        self.cache_creation_input_tokens = new
            .cache_creation_input_tokens
            .or(self.cache_creation_input_tokens);
        self.output_tokens = new.output_tokens.or(self.output_tokens);
    }

    /// As OpenAI counts: cached tokens are part of the prompt.
    fn to_token_usage(&self) -> TokenUsage {
        let cached = self.cache_read_input_tokens.unwrap_or(0);
        let created = self.cache_creation_input_tokens.unwrap_or(0);
        let uncached = self.input_tokens.unwrap_or(0).saturating_add(created);
        let input = uncached.saturating_add(cached);
        let output = self.output_tokens.unwrap_or(0);
        TokenUsage::from_counts(input, output, input.saturating_add(output)).with_details(cached, 0)
    }
}
