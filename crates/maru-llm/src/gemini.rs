//! Requests and responses of Gemini's own API: `generateContent` and
//! `streamGenerateContent`.

mod schema;

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Map, Value, json, value::RawValue};

use super::{
    ChatEvent, ChatMessage, ChatRequest, ChatRole, ChatTool, FinishReason, InvalidToolCall,
    TokenUsage, ToolChoice,
    decoder::ResponseDecoder,
    native_calls::ToolCallFragment,
    openai::{ProtocolViolation, RESPONSE_TOO_LARGE},
};

/// The text of a call that Gemini could not parse, if it does not show it.
const MALFORMED_CALL: &str = "[The model wrote a tool call that could not be parsed.]";
/// What Google asks for in place of a signature that was lost on the way.
const SKIP_SIGNATURE_VALIDATION: &str = "skip_thought_signature_validator";

/// Whether `model` takes neither instructions nor tools.
pub(super) fn lacks_tool_support(model: &str) -> bool {
    model.trim_start_matches("models/").starts_with("gemma")
}

/// Where a request for `model` goes, below the base address.
pub(super) fn request_path(model: &str, stream: bool) -> String {
    let model = model.trim_start_matches("models/");
    if stream {
        format!("/models/{model}:streamGenerateContent?alt=sse")
    } else {
        format!("/models/{model}:generateContent")
    }
}

/// The body of a request; `form` is the schema that constrains its output.
pub(super) fn encode_request(request: &ChatRequest, model: &str, form: Option<&Value>) -> Vec<u8> {
    let mut all = Map::new();
    let is_system = |it: &&ChatMessage| matches!(it.role, ChatRole::System | ChatRole::Developer);
    let system: Vec<Value> = request
        .messages
        .iter()
        .filter(is_system)
        .map(|it| json!({"text": it.text_content()}))
        .collect();
    if !system.is_empty() {
        all.insert("systemInstruction".to_owned(), json!({"parts": system}));
    }
    all.insert("contents".to_owned(), contents(&request.messages, model));
    if !request.tools.is_empty() {
        let tools: Vec<Value> = request.tools.iter().map(declaration).collect();
        all.insert("tools".to_owned(), json!([{"functionDeclarations": tools}]));
        all.insert(
            "toolConfig".to_owned(),
            json!({"functionCallingConfig": function_calling_config(&request.tool_choice)}),
        );
    }
    let settings = generation_config(&request.other, form);
    if !settings.is_empty() {
        all.insert("generationConfig".to_owned(), settings.into());
    }
    // Gemini's own members can be sent under their own names.
    for own in ["safetySettings", "cachedContent", "labels"] {
        if let Some(value) = request.other.get(own) {
            all.insert(own.to_owned(), value.clone());
        }
    }
    serde_json::to_vec(&all).expect("values are JSON")
}

fn declaration(tool: &ChatTool) -> Value {
    let mut declared = json!({"name": tool.name, "description": tool.description});
    let parameters = schema::to_gemini_schema(&tool.parameters);
    // An object without members is refused.
    if parameters["properties"]
        .as_object()
        .is_some_and(|it| !it.is_empty())
    {
        declared["parameters"] = parameters;
    }
    declared
}

fn function_calling_config(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => json!({"mode": "AUTO"}),
        ToolChoice::None => json!({"mode": "NONE"}),
        ToolChoice::Required => json!({"mode": "ANY"}),
        ToolChoice::Named(name) => json!({"mode": "ANY", "allowedFunctionNames": [name]}),
    }
}

/// Turns, those of one side joined.
fn contents(messages: &[ChatMessage], model: &str) -> Value {
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    // The calls that the next results answer.
    let mut calls: &[Value] = &[];
    let mut rest = messages;
    while let Some((message, after)) = rest.split_first() {
        rest = after;
        let (role, parts) = match message.role {
            ChatRole::System | ChatRole::Developer => continue,
            ChatRole::User => ("user", user_parts(message)),
            ChatRole::Assistant => {
                calls = message.tool_calls();
                ("model", model_parts(message, model))
            }
            ChatRole::Tool => {
                let others = after
                    .iter()
                    .take_while(|it| it.role == ChatRole::Tool)
                    .count();
                let results: Vec<&ChatMessage> =
                    std::iter::once(message).chain(&after[..others]).collect();
                rest = &after[others..];
                ("user", response_parts(results, calls))
            }
        };
        match turns.last_mut() {
            Some(last) if last.0 == role => last.1.extend(parts),
            _ => turns.push((role, parts)),
        }
    }
    let turns = turns.into_iter().filter(|it| !it.1.is_empty());
    turns
        .map(|(role, parts)| json!({"role": role, "parts": parts}))
        .collect()
}

fn user_parts(message: &ChatMessage) -> Vec<Value> {
    match message.extra_members.get("content") {
        Some(Value::Array(parts)) => parts.iter().filter_map(user_part).collect(),
        _ => vec![json!({"text": message.text_content()})],
    }
}

fn user_part(part: &Value) -> Option<Value> {
    if let Some(text) = part["text"].as_str() {
        return Some(json!({"text": text}));
    }
    let url = part["image_url"]["url"].as_str()?;
    let inline = url
        .strip_prefix("data:")
        .and_then(|it| it.split_once(";base64,"));
    Some(match inline {
        Some((kind, data)) => json!({"inlineData": {"mimeType": kind, "data": data}}),
        None => json!({"fileData": {"fileUri": url}}),
    })
}

fn model_parts(message: &ChatMessage, model: &str) -> Vec<Value> {
    let mut parts = Vec::new();
    let text = message.text_content();
    if !text.is_empty() {
        parts.push(json!({"text": text}));
    }
    for call in message.tool_calls() {
        let arguments = call["function"]["arguments"].as_str().unwrap_or("{}");
        let arguments: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
        let function =
            json!({"id": call["id"], "name": call["function"]["name"], "args": arguments});
        let mut part = json!({"functionCall": function});
        let signature = &call["extra_content"]["google"]["thought_signature"];
        if signature.is_string() {
            part["thoughtSignature"] = signature.clone();
        } else if model.contains("gemini-3") {
            part["thoughtSignature"] = SKIP_SIGNATURE_VALIDATION.into();
        }
        parts.push(part);
    }
    parts
}

/// The results of one turn in the order of its calls: where ids are ignored, two results
/// of one tool are distinguished by their order.
fn response_parts(mut results: Vec<&ChatMessage>, calls: &[Value]) -> Vec<Value> {
    let mut positions = HashMap::with_capacity(calls.len());
    for (at, call) in calls.iter().enumerate() {
        if let Some(id) = call["id"].as_str() {
            positions.entry(id).or_insert(at);
        }
    }
    let position = |it: &&ChatMessage| {
        let id = it.extra_members.get("tool_call_id")?.as_str()?;
        positions.get(id).copied()
    };
    results.sort_by_key(|it| position(it).unwrap_or(usize::MAX));
    let parts = results.iter().map(|it| {
        let call = position(it).and_then(|at| calls.get(at));
        response_part(it, call)
    });
    parts.collect()
}

/// A result with the id and the name of its call.
fn response_part(message: &ChatMessage, call: Option<&Value>) -> Value {
    let name = call.map_or(Value::from("tool"), |it| it["function"]["name"].clone());
    let text = message.text_content();
    let result = match serde_json::from_str::<Value>(&text) {
        Ok(object @ Value::Object(_)) => object,
        _ => json!({"result": text}),
    };
    let mut response = json!({"name": name, "response": result});
    if let Some(id) = call.and_then(|it| it.get("id")) {
        response["id"] = id.clone();
    }
    json!({"functionResponse": response})
}

fn generation_config(other: &Map<String, Value>, form: Option<&Value>) -> Map<String, Value> {
    const GENERATION_CONFIG_KEYS: [(&str, &str); 10] = [
        ("temperature", "temperature"),
        ("top_p", "topP"),
        ("top_k", "topK"),
        ("max_tokens", "maxOutputTokens"),
        ("max_completion_tokens", "maxOutputTokens"),
        ("stop", "stopSequences"),
        ("seed", "seed"),
        ("presence_penalty", "presencePenalty"),
        ("frequency_penalty", "frequencyPenalty"),
        ("generationConfig", ""),
    ];
    let mut settings = Map::new();
    for (ours, theirs) in GENERATION_CONFIG_KEYS {
        match other.get(ours) {
            None | Some(Value::Null) => (),
            Some(Value::String(one)) if ours == "stop" => {
                settings.insert(theirs.to_owned(), json!([one]));
            }
            Some(Value::Object(own)) if theirs.is_empty() => settings.extend(own.clone()),
            Some(value) => {
                settings.insert(theirs.to_owned(), value.clone());
            }
        }
    }
    let format = other.get("response_format").unwrap_or(&Value::Null);
    let requested = format.pointer("/json_schema/schema");
    if let Some(form) = form.or(requested) {
        settings.insert("responseSchema".to_owned(), schema::to_gemini_schema(form));
    }
    if form.is_some() || matches!(format["type"].as_str(), Some("json_schema" | "json_object")) {
        settings.insert("responseMimeType".to_owned(), "application/json".into());
    }
    settings
}

/// Decodes a whole response, or one event of a streamed one; whether it had a choice.
pub(super) fn decode_response(
    data: &[u8],
    decoder: &mut ResponseDecoder,
    out: &mut Vec<ChatEvent>,
) -> Result<bool, ProtocolViolation> {
    let response: GenerateContentResponse<'_> = serde_json::from_slice(data)
        .map_err(|_| "a response in another form than the protocol's")?;
    if response.error.is_some() {
        return Err("an error instead of a response");
    }
    if response
        .prompt_feedback
        .is_some_and(|it| it.block_reason.is_some())
    {
        decoder.set_finish_reason(FinishReason::ContentFilter);
    }
    let has_candidates = response
        .candidates
        .as_ref()
        .is_some_and(|it| !it.is_empty());
    let has_choice = decoder.is_finished() || has_candidates;
    for candidate in response.candidates.into_iter().flatten().take(1) {
        let parts = candidate.content.and_then(|it| it.parts);
        for part in parts.into_iter().flatten() {
            decode_part(&part, decoder, out)?;
        }
        if let Some(reason) = candidate.finish_reason {
            if matches!(
                reason.as_str(),
                "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL"
            ) {
                out.push(ChatEvent::InvalidCall(malformed_call(
                    candidate.finish_message,
                )));
            }
            decoder.set_finish_reason(parse_finish_reason(&reason));
        }
    }
    if let Some(usage) = response.usage_metadata {
        out.push(ChatEvent::Usage(usage.into_token_usage()));
    }
    Ok(has_choice)
}

fn decode_part(
    part: &GeminiPart<'_>,
    decoder: &mut ResponseDecoder,
    out: &mut Vec<ChatEvent>,
) -> Result<(), ProtocolViolation> {
    if let Some(text) = &part.text {
        let pushed = if part.thought {
            decoder.push_reasoning(text, out)
        } else {
            decoder.push_text(text, out)
        };
        pushed.map_err(|_| RESPONSE_TOO_LARGE)?;
    }
    if let Some(call) = &part.function_call {
        let fragment = ToolCallFragment {
            name: &call.name,
            arguments: call.args.map_or("{}", RawValue::get),
            thought_signature: part.thought_signature.as_deref(),
            ..ToolCallFragment::default()
        };
        decoder
            .push_call_fragment(&fragment, out)
            .map_err(|_| RESPONSE_TOO_LARGE)?;
    }
    Ok(())
}

/// A call that Gemini itself could not parse.
fn malformed_call(message: Option<String>) -> InvalidToolCall {
    InvalidToolCall {
        text: message.unwrap_or_else(|| MALFORMED_CALL.to_owned()),
        name: None,
        reason: "the backend could not parse the call".to_owned(),
        native: None,
    }
}

fn parse_finish_reason(reason: &str) -> FinishReason {
    match reason {
        "MAX_TOKENS" => FinishReason::Length,
        "STOP"
        | "FINISH_REASON_UNSPECIFIED"
        | "OTHER"
        | "MALFORMED_FUNCTION_CALL"
        | "UNEXPECTED_TOOL_CALL" => FinishReason::Stop,
        _suppressed => FinishReason::ContentFilter,
    }
}

/// Names of models in a listing.
pub(super) fn parse_model_names(listing: &Value) -> Vec<String> {
    let models = listing["models"].as_array().into_iter().flatten();
    let names = models.filter_map(|it| it["name"].as_str());
    names
        .map(|it| it.trim_start_matches("models/").to_owned())
        .collect()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GenerateContentResponse<'a> {
    #[serde(borrow)]
    candidates: Option<Vec<GeminiCandidate<'a>>>,
    usage_metadata: Option<UsageMetadata>,
    prompt_feedback: Option<PromptFeedback>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PromptFeedback {
    block_reason: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct UsageMetadata {
    prompt_token_count: u64,
    candidates_token_count: u64,
    thoughts_token_count: u64,
    cached_content_token_count: u64,
    total_token_count: u64,
}

impl UsageMetadata {
    fn into_token_usage(self) -> TokenUsage {
        let completion = self
            .candidates_token_count
            .saturating_add(self.thoughts_token_count);
        TokenUsage::from_counts(self.prompt_token_count, completion, self.total_token_count)
            .with_details(self.cached_content_token_count, self.thoughts_token_count)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiCandidate<'a> {
    #[serde(borrow)]
    content: Option<GeminiContent<'a>>,
    finish_reason: Option<String>,
    finish_message: Option<String>,
}

#[derive(Deserialize)]
struct GeminiContent<'a> {
    #[serde(borrow)]
    parts: Option<Vec<GeminiPart<'a>>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiPart<'a> {
    text: Option<String>,
    #[serde(default)]
    thought: bool,
    thought_signature: Option<String>,
    #[serde(borrow)]
    function_call: Option<GeminiFunctionCall<'a>>,
}

#[derive(Deserialize)]
struct GeminiFunctionCall<'a> {
    name: String,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
}
