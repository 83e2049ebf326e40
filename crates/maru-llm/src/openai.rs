//! Requests and responses of `/chat/completions` and `/completions`; responses are decoded with as few
//! copies as possible.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, de};
use serde_json::{Map, Value, json, value::RawValue};

use super::{
    ChatEvent, ChatMessage, ChatRequest, ChatTool, FinishReason, TextPrompt, TokenUsage,
    ToolChoice, decoder::ResponseDecoder, native_calls::ToolCallFragment,
};

/// What is wrong with a response.
pub(super) type ProtocolViolation = &'static str;

pub(super) const RESPONSE_TOO_LARGE: ProtocolViolation = "more than one response may hold";

/// What is asked for besides the text.
#[derive(Debug, Default)]
pub(super) struct OutputOptions {
    /// The schema that constrains the output.
    pub(super) form: Option<Value>,
    pub(super) stream: bool,
    /// Streams report their tokens only on request, which some backends do not know.
    pub(super) stream_usage: bool,
}

/// The body of a request for `model`.
pub(super) fn encode_request(request: ChatRequest, model: &str, output: OutputOptions) -> Vec<u8> {
    let mut all = Map::new();
    all.insert("model".to_owned(), model.into());
    match request.text_prompt {
        Some(TextPrompt { prompt, suffix }) => {
            all.insert("prompt".to_owned(), prompt);
            if let Some(suffix) = suffix {
                all.insert("suffix".to_owned(), suffix.into());
            }
        }
        None => {
            let messages = request.messages.into_iter();
            let messages = messages.map(ChatMessage::into_openai_json);
            all.insert("messages".to_owned(), messages.collect());
        }
    }
    all.extend(request.other);
    if request.tools.is_empty() {
        all.remove("parallel_tool_calls");
    } else {
        let tools = request.tools.into_iter().map(ChatTool::into_openai_json);
        all.insert("tools".to_owned(), tools.collect());
        if let Some(choice) = choice(&request.tool_choice) {
            all.insert("tool_choice".to_owned(), choice);
        }
    }
    if let Some(schema) = output.form {
        let form = json!({"name": "reply", "strict": true, "schema": schema});
        let format = json!({"type": "json_schema", "json_schema": form});
        all.insert("response_format".to_owned(), format);
    }
    if output.stream {
        all.insert("stream".to_owned(), true.into());
    }
    if output.stream && output.stream_usage {
        let options = all.entry("stream_options").or_insert_with(|| json!({}));
        match options {
            Value::Object(options) => {
                options.insert("include_usage".to_owned(), true.into());
            }
            other => *other = json!({"include_usage": true}),
        }
    } else {
        all.remove("stream_options");
    }
    serde_json::to_vec(&all).expect("values are JSON")
}

/// The same request without `stream_options`, if it has them.
pub(super) fn without_stream_options(body: &[u8]) -> Option<Vec<u8>> {
    let mut all: Map<String, Value> = serde_json::from_slice(body).ok()?;
    all.shift_remove("stream_options")?;
    Some(serde_json::to_vec(&all).expect("values are JSON"))
}

fn choice(choice: &ToolChoice) -> Option<Value> {
    match choice {
        ToolChoice::Auto => None,
        ToolChoice::None => Some("none".into()),
        ToolChoice::Required => Some("required".into()),
        ToolChoice::Named(name) => Some(json!({"type": "function", "function": {"name": name}})),
    }
}

/// Decodes a whole response, or one event of a streamed one; whether it had a choice.
pub(super) fn decode_response(
    data: &[u8],
    decoder: &mut ResponseDecoder,
    out: &mut Vec<ChatEvent>,
) -> Result<bool, ProtocolViolation> {
    let mut has_choice = false;
    let chunk: CompletionChunk<'_> = serde_json::from_slice(data)
        .map_err(|_| "a response in another form than the protocol's")?;
    if chunk.error.is_some() {
        return Err("an error instead of a response");
    }
    if let Some(name) = chunk.system_fingerprint {
        decoder.set_system_fingerprint(name, out);
    }
    for choice in chunk.choices.unwrap_or_default() {
        // We ask for one.
        if choice.index.unwrap_or(0) != 0 {
            continue;
        }
        has_choice = true;
        if let Some(delta) = choice.delta.or(choice.message) {
            decode_delta(&delta, decoder, out)?;
        } else if let Some(text) = choice.text.filter(|it| !it.0.is_empty()) {
            decoder
                .push_text(&text.0, out)
                .map_err(|_| RESPONSE_TOO_LARGE)?;
        }
        if let Some(logprobs) = choice.logprobs {
            decode_logprobs(logprobs, decoder, out)?;
        }
        if let Some(matched) = choice.stop_reason.or(choice.matched_stop)
            && let Ok(Some(text)) = serde_json::from_str::<Option<LenientText<'_>>>(matched.get())
        {
            out.push(ChatEvent::StopSequence(text.0.into_owned()));
        }
        if let Some(reason) = choice.finish_reason {
            decoder.set_finish_reason(parse_finish_reason(&reason.0));
        }
    }
    if let Some(usage) = chunk.usage {
        out.push(ChatEvent::Usage(TokenUsage(usage)));
    }
    Ok(has_choice)
}

/// Log probabilities are passed on as they are, counted as part of the response.
fn decode_logprobs(
    logprobs: &RawValue,
    decoder: &mut ResponseDecoder,
    out: &mut Vec<ChatEvent>,
) -> Result<(), ProtocolViolation> {
    decoder
        .count_bytes(logprobs.get())
        .map_err(|_| RESPONSE_TOO_LARGE)?;
    if let Ok(members) = serde_json::from_str(logprobs.get()) {
        out.push(ChatEvent::Logprobs(members));
    }
    Ok(())
}

fn decode_delta(
    delta: &MessageDelta<'_>,
    decoder: &mut ResponseDecoder,
    out: &mut Vec<ChatEvent>,
) -> Result<(), ProtocolViolation> {
    let reasoning = delta.reasoning_content.as_ref();
    if let Some(text) = reasoning.or(delta.reasoning.as_ref()) {
        decoder
            .push_reasoning(&text.0, out)
            .map_err(|_| RESPONSE_TOO_LARGE)?;
    }
    if let Some(text) = delta.content.as_ref().filter(|it| !it.0.is_empty()) {
        decoder
            .push_text(&text.0, out)
            .map_err(|_| RESPONSE_TOO_LARGE)?;
    }
    if let Some(text) = &delta.refusal {
        decoder
            .push_refusal(&text.0, out)
            .map_err(|_| RESPONSE_TOO_LARGE)?;
    }
    for call in delta.tool_calls.iter().flatten() {
        let extra = call.extra_content.as_ref();
        let signature = extra.and_then(|it| it["google"]["thought_signature"].as_str());
        let fragment = ToolCallFragment {
            index: call.index,
            id: call.id.as_ref().map_or("", |it| &it.0),
            thought_signature: signature,
            ..ToolCallFragment::default()
        };
        decode_function(call.function.as_ref(), &fragment, decoder, out)?;
    }
    if let Some(function) = &delta.function_call {
        let fragment = ToolCallFragment {
            index: Some(0),
            ..ToolCallFragment::default()
        };
        decode_function(Some(function), &fragment, decoder, out)?;
    }
    Ok(())
}

fn decode_function(
    function: Option<&FunctionDelta<'_>>,
    fragment: &ToolCallFragment<'_>,
    decoder: &mut ResponseDecoder,
    out: &mut Vec<ChatEvent>,
) -> Result<(), ProtocolViolation> {
    let name = function.and_then(|it| it.name.as_ref());
    let arguments = function.and_then(|it| it.arguments).map(unquote_arguments);
    let fragment = ToolCallFragment {
        name: name.map_or("", |it| &it.0),
        arguments: arguments.as_deref().unwrap_or_default(),
        ..*fragment
    };
    if fragment.id.is_empty() && fragment.name.is_empty() && fragment.arguments.is_empty() {
        return Ok(());
    }
    decoder
        .push_call_fragment(&fragment, out)
        .map_err(|_| RESPONSE_TOO_LARGE)
}

/// The text of a string, or the value itself: some backends write an object.
fn unquote_arguments(raw: &RawValue) -> Cow<'_, str> {
    let raw = raw.get();
    match raw.as_bytes().first() {
        Some(b'"') => {
            serde_json::from_str::<LenientText<'_>>(raw).map_or(Cow::Borrowed(""), |it| it.0)
        }
        Some(b'n') => Cow::Borrowed(""),
        _ => Cow::Borrowed(raw),
    }
}

fn parse_finish_reason(reason: &str) -> FinishReason {
    match reason {
        "length" | "max_tokens" | "model_length" => FinishReason::Length,
        "content_filter" => FinishReason::ContentFilter,
        "tool_calls" | "function_call" => FinishReason::ToolCalls,
        _ => FinishReason::Stop,
    }
}

#[derive(Deserialize)]
struct CompletionChunk<'a> {
    #[serde(borrow)]
    choices: Option<Vec<CompletionChoice<'a>>>,
    usage: Option<Map<String, Value>>,
    #[serde(borrow)]
    system_fingerprint: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct CompletionChoice<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    delta: Option<MessageDelta<'a>>,
    #[serde(borrow)]
    message: Option<MessageDelta<'a>>,
    /// The continuation of a text, in place of a message.
    #[serde(borrow)]
    text: Option<LenientText<'a>>,
    #[serde(borrow)]
    logprobs: Option<&'a RawValue>,
    #[serde(borrow)]
    finish_reason: Option<LenientText<'a>>,
    /// The stop sequence that was met, as vLLM names it; the number of a token otherwise.
    #[serde(borrow)]
    stop_reason: Option<&'a RawValue>,
    /// The same, as `SGLang` names it.
    #[serde(borrow)]
    matched_stop: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct MessageDelta<'a> {
    #[serde(borrow)]
    content: Option<LenientText<'a>>,
    #[serde(borrow)]
    reasoning_content: Option<LenientText<'a>>,
    #[serde(borrow)]
    reasoning: Option<LenientText<'a>>,
    #[serde(borrow)]
    refusal: Option<LenientText<'a>>,
    #[serde(borrow)]
    tool_calls: Option<Vec<ToolCallDelta<'a>>>,
    /// What `tool_calls` replaced.
    #[serde(borrow)]
    function_call: Option<FunctionDelta<'a>>,
}

#[derive(Deserialize)]
struct ToolCallDelta<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    id: Option<LenientText<'a>>,
    #[serde(borrow)]
    function: Option<FunctionDelta<'a>>,
    extra_content: Option<Value>,
}

#[derive(Deserialize)]
struct FunctionDelta<'a> {
    #[serde(borrow)]
    name: Option<LenientText<'a>>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

/// Text that is borrowed where nothing in it is escaped. Some backends write it in parts.
struct LenientText<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for LenientText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LenientTextVisitor;
        impl<'de> de::Visitor<'de> for LenientTextVisitor {
            type Value = LenientText<'de>;

            fn expecting(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                out.write_str("text")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<LenientText<'de>, E> {
                Ok(LenientText(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<LenientText<'de>, E> {
                Ok(LenientText(Cow::Owned(text.to_owned())))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(
                self,
                mut parts: A,
            ) -> Result<LenientText<'de>, A::Error> {
                let mut all = String::new();
                while let Some(part) = parts.next_element::<Value>()? {
                    all.push_str(part["text"].as_str().unwrap_or_default());
                }
                Ok(LenientText(Cow::Owned(all)))
            }
        }
        deserializer.deserialize_any(LenientTextVisitor)
    }
}
