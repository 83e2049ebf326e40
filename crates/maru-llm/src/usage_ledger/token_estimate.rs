//! How many tokens a request will use, before its backend has counted them. Pure.

use serde_json::{Map, Value};

use super::super::{ChatRequest, TextPrompt};

/// Bytes of text in a token, in most languages and tokenizers.
const BYTES_PER_TOKEN: u64 = 4;
/// Bytes that an image counts, whatever its size.
const IMAGE_BYTES: u64 = 4000;
/// Tokens of a response that is not limited.
const DEFAULT_OUTPUT_TOKENS: u64 = 1000;
/// The most tokens that are reserved for a response: few are as long as their limit.
const MAX_OUTPUT_TOKENS: u64 = 4000;

/// Tokens that a request is expected to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct TokenEstimate {
    pub(in super::super) input: u64,
    pub(in super::super) output: u64,
}

impl TokenEstimate {
    pub(in super::super) fn of_chat(request: &ChatRequest) -> Self {
        let messages = request.messages.iter();
        let messages: u64 = messages.map(|it| members_bytes(&it.extra_members)).sum();
        let tools = request.tools.iter().map(|it| {
            let text = it.name.len() + it.description.len();
            text as u64 + text_bytes(&it.parameters)
        });
        let prompt = request.text_prompt.as_ref().map_or(0, prompt_bytes);
        let bytes = messages + tools.sum::<u64>() + prompt;
        Self {
            input: bytes.div_ceil(BYTES_PER_TOKEN),
            output: output_tokens(&request.other),
        }
    }

    pub(in super::super) fn of_texts<'a>(texts: impl Iterator<Item = &'a str>) -> Self {
        let bytes: u64 = texts.map(|it| it.len() as u64).sum();
        Self {
            input: bytes.div_ceil(BYTES_PER_TOKEN),
            output: 0,
        }
    }

    /// Tokens of so many bytes of text.
    pub(in super::super) fn tokens_of_bytes(bytes: u64) -> u64 {
        bytes.div_ceil(BYTES_PER_TOKEN)
    }
}

/// The limit of a response, within bounds.
pub(in super::super) fn output_tokens(options: &Map<String, Value>) -> u64 {
    let limit = |name: &str| options.get(name).and_then(Value::as_u64);
    let limit = limit("max_completion_tokens").or_else(|| limit("max_tokens"));
    limit
        .unwrap_or(DEFAULT_OUTPUT_TOKENS)
        .min(MAX_OUTPUT_TOKENS)
}

fn prompt_bytes(prompt: &TextPrompt) -> u64 {
    let suffix = prompt.suffix.as_ref().map_or(0, |it| it.len() as u64);
    let before = match &prompt.prompt {
        Value::Array(tokens) => tokens.len() as u64 * BYTES_PER_TOKEN,
        text => text_bytes(text),
    };
    before + suffix
}

/// Bytes of the texts in a value.
fn text_bytes(value: &Value) -> u64 {
    match value {
        Value::String(text) if text.starts_with("data:") => IMAGE_BYTES,
        Value::String(text) => text.len() as u64,
        Value::Array(items) => items.iter().map(text_bytes).sum(),
        Value::Object(members) => members_bytes(members),
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    }
}

fn members_bytes(members: &Map<String, Value>) -> u64 {
    members.values().map(text_bytes).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn estimate_counts_texts_and_bounds_images_and_responses() {
        let image = format!("data:image/png;base64,{}", "A".repeat(1_000_000));
        let request = ChatRequest {
            messages: vec![super::super::super::ChatMessage {
                role: super::super::super::ChatRole::User,
                extra_members:
                    json!({"content": [{"text": "x".repeat(400)}, {"image_url": {"url": image}}]})
                        .as_object()
                        .unwrap()
                        .clone(),
                written: None,
            }],
            other: json!({"max_tokens": 1_000_000})
                .as_object()
                .unwrap()
                .clone(),
            ..ChatRequest::default()
        };
        let expected = TokenEstimate {
            input: 1100,
            output: 4000,
        };
        assert_eq!(TokenEstimate::of_chat(&request), expected);
    }
}
