//! The body of a request to `/messages`.

use serde_json::{Map, Value, json};

use super::super::{
    ChatMessage, ChatRequest, ChatRole, ChatTool, ToolChoice,
    chat::{ANTHROPIC_CONTENT, REASONING_BLOCKS},
};

/// The version of the API, which every request names.
pub(in super::super) const API_VERSION: &str = "2023-06-01";
pub(in super::super) const REQUEST_PATH: &str = "/messages";
/// The API wants a limit; every current model takes this one.
const DEFAULT_MAX_TOKENS: u64 = 8192;
/// The fewest tokens of thinking that the API takes.
const MIN_THINKING_TOKENS: u64 = 1024;
/// The most characters of an id.
const MAX_ID_CHARS: usize = 64;

/// Encodes a request for `model`; `form` is the schema that constrains its output.
pub(in super::super) fn encode_request(
    request: &ChatRequest,
    model: &str,
    form: Option<&Value>,
    stream: bool,
) -> Vec<u8> {
    let mut all = Map::new();
    all.insert("model".to_owned(), model.into());
    let system = system_text(&request.messages);
    if !system.is_empty() {
        all.insert("system".to_owned(), system.into());
    }
    let turns = turns(&request.messages);
    if !request.tools.is_empty() {
        all.insert(
            "tools".to_owned(),
            request.tools.iter().map(tool_json).collect(),
        );
        let is_parallel = request.other.get("parallel_tool_calls") != Some(&Value::Bool(false));
        let choice = tool_choice_json(&request.tool_choice, is_parallel);
        all.insert("tool_choice".to_owned(), choice);
    }
    insert_options(request, form, &mut all);
    insert_thinking(request, &turns, &mut all);
    all.insert("messages".to_owned(), turns.into());
    if stream {
        all.insert("stream".to_owned(), true.into());
    }
    serde_json::to_vec(&all).expect("values are JSON")
}

fn system_text(messages: &[ChatMessage]) -> String {
    let is_system = |it: &&ChatMessage| matches!(it.role, ChatRole::System | ChatRole::Developer);
    let texts = messages.iter().filter(is_system);
    let texts: Vec<String> = texts.map(ChatMessage::text_content).collect();
    texts.join("\n\n").trim().to_owned()
}

/// The messages, where neighbours of one role are one message. The first is the user's.
fn turns(messages: &[ChatMessage]) -> Vec<Value> {
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in messages {
        let (role, blocks) = match message.role {
            ChatRole::System | ChatRole::Developer => continue,
            ChatRole::User => ("user", content_blocks(message)),
            ChatRole::Assistant => ("assistant", assistant_blocks(message)),
            ChatRole::Tool => ("user", vec![result_block(message)]),
        };
        if blocks.is_empty() {
            continue;
        }
        match turns.last_mut() {
            Some(last) if last.0 == role => last.1.extend(blocks),
            _ => turns.push((role, blocks)),
        }
    }
    if turns.first().is_none_or(|it| it.0 != "user") {
        turns.insert(0, ("user", vec![text_block("(The conversation begins.)")]));
    }
    for (role, blocks) in &mut turns {
        // Results come before everything else that the user says.
        if *role == "user" {
            blocks.sort_by_key(|it| it["type"] != "tool_result");
        }
    }
    if let Some(("assistant", blocks)) = turns.last_mut()
        && let Some(Value::String(text)) = blocks.last_mut().and_then(|it| it.get_mut("text"))
    {
        // A beginning that the model continues must not end in white space.
        text.truncate(text.trim_end().len());
    }
    turns
        .into_iter()
        .map(|(role, content)| json!({"role": role, "content": content}))
        .collect()
}

fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

/// Texts and images; empty texts are refused.
fn content_blocks(message: &ChatMessage) -> Vec<Value> {
    match message.extra_members.get("content") {
        Some(Value::Array(parts)) => parts.iter().filter_map(content_block).collect(),
        _ => {
            let text = message.text_content();
            let is_empty = text.trim().is_empty();
            (!is_empty).then(|| text_block(&text)).into_iter().collect()
        }
    }
}

fn content_block(part: &Value) -> Option<Value> {
    let mut block = match (part["text"].as_str(), part["image_url"]["url"].as_str()) {
        (Some(text), _) if text.trim().is_empty() => return None,
        (Some(text), _) => text_block(text),
        (None, Some(url)) => json!({"type": "image", "source": image_source(url)}),
        (None, None) => return None,
    };
    if let Some(cache) = part.get("cache_control") {
        block["cache_control"] = cache.clone();
    }
    Some(block)
}

fn image_source(url: &str) -> Value {
    let inline = url.strip_prefix("data:");
    match inline.and_then(|it| it.split_once(";base64,")) {
        Some((kind, data)) => json!({"type": "base64", "media_type": kind, "data": data}),
        None => json!({"type": "url", "url": url}),
    }
}

/// Signed reasoning, text and calls, in the order that the API wants.
fn assistant_blocks(message: &ChatMessage) -> Vec<Value> {
    let mut blocks = reasoning_blocks(message);
    blocks.extend(content_blocks(message));
    for call in message.tool_calls() {
        let function = &call["function"];
        let arguments = function["arguments"].as_str().unwrap_or("{}");
        let input: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
        let id = call_id(call["id"].as_str());
        blocks
            .push(json!({"type": "tool_use", "id": id, "name": function["name"], "input": input}));
    }
    blocks
}

/// Reasoning with the backend's signature, which it wants back: a member of the message, or
/// what a client of OpenAI's API got with the first call.
fn reasoning_blocks(message: &ChatMessage) -> Vec<Value> {
    let of_message = message.extra_members.get(REASONING_BLOCKS);
    let of_call = || {
        let calls = message.tool_calls().iter();
        calls
            .map(|it| &it["extra_content"][ANTHROPIC_CONTENT][REASONING_BLOCKS])
            .find(|it| it.is_array())
    };
    let blocks = of_message.filter(|it| it.is_array()).or_else(of_call);
    let is_signed = |it: &&Value| match it["type"].as_str() {
        Some("thinking") => it["signature"].as_str().is_some_and(|it| !it.is_empty()),
        Some("redacted_thinking") => it["data"].is_string(),
        _ => false,
    };
    let blocks = blocks.and_then(Value::as_array).into_iter().flatten();
    blocks.filter(is_signed).cloned().collect()
}

fn result_block(message: &ChatMessage) -> Value {
    let id = message.extra_members.get("tool_call_id");
    let text = message.text_content();
    let mut block = json!({
        "type": "tool_result",
        "tool_use_id": call_id(id.and_then(Value::as_str)),
        "content": text,
    });
    if message.extra_members.get("is_error") == Some(&Value::Bool(true)) {
        block["is_error"] = true.into();
    }
    block
}

/// The API takes letters, digits, `_` and `-`.
fn call_id(id: Option<&str>) -> String {
    let id = id.filter(|it| !it.is_empty()).unwrap_or("call");
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    let id = id.chars().take(MAX_ID_CHARS);
    id.map(|c| if allowed(c) { c } else { '_' }).collect()
}

fn tool_json(tool: &ChatTool) -> Value {
    let mut schema = tool.parameters.clone();
    if let Value::Object(members) = &mut schema {
        members
            .entry("type")
            .or_insert_with(|| Value::from("object"));
    }
    let mut shown = json!({"name": tool.name, "input_schema": schema});
    if !tool.description.is_empty() {
        shown["description"] = tool.description.as_str().into();
    }
    shown
}

fn tool_choice_json(choice: &ToolChoice, is_parallel: bool) -> Value {
    let mut shown = match choice {
        ToolChoice::Auto => json!({"type": "auto"}),
        ToolChoice::None => return json!({"type": "none"}),
        ToolChoice::Required => json!({"type": "any"}),
        ToolChoice::Named(name) => json!({"type": "tool", "name": name}),
    };
    if !is_parallel {
        shown["disable_parallel_tool_use"] = true.into();
    }
    shown
}

/// Options of OpenAI's API under their names here, and those that only this API has.
fn insert_options(request: &ChatRequest, form: Option<&Value>, all: &mut Map<String, Value>) {
    let other = &request.other;
    let own = &request.anthropic_members;
    let given = |name: &str| other.get(name).or(own.get(name)).filter(|it| !it.is_null());
    let limit = given("max_completion_tokens").or_else(|| given("max_tokens"));
    let limit = limit.cloned().unwrap_or_else(|| DEFAULT_MAX_TOKENS.into());
    all.insert("max_tokens".to_owned(), limit);
    for name in [
        "top_p",
        "top_k",
        "metadata",
        "service_tier",
        "output_config",
    ] {
        if let Some(value) = given(name) {
            all.insert(name.to_owned(), value.clone());
        }
    }
    if let Some(temperature) = given("temperature").and_then(Value::as_f64) {
        all.insert("temperature".to_owned(), temperature.clamp(0.0, 1.0).into());
    }
    match given("stop") {
        Some(Value::String(one)) => {
            all.insert("stop_sequences".to_owned(), json!([one]));
        }
        Some(several) => {
            all.insert("stop_sequences".to_owned(), several.clone());
        }
        None => (),
    }
    if let Some(user) = given("user").filter(|_| given("metadata").is_none()) {
        all.insert("metadata".to_owned(), json!({"user_id": user}));
    }
    let requested = other.get("response_format");
    let requested = requested.and_then(|it| it.pointer("/json_schema/schema"));
    if let Some(schema) = form.or(requested) {
        let format = json!({"type": "json_schema", "schema": schema});
        let output = all.entry("output_config").or_insert_with(|| json!({}));
        output["format"] = format;
    }
}

/// Thinking as it was asked for, or by `reasoning_effort`. It is left out where the API would
/// refuse the request: with a forced call, and after calls whose thinking was lost.
fn insert_thinking(request: &ChatRequest, turns: &[Value], all: &mut Map<String, Value>) {
    let effort = request
        .other
        .get("reasoning_effort")
        .and_then(Value::as_str);
    let own = request.anthropic_members.get("thinking");
    let thinking = match (request.other.get("thinking").or(own), effort) {
        (Some(given @ Value::Object(_)), _) => given.clone(),
        (_, Some("low")) => enabled(2 * MIN_THINKING_TOKENS),
        (_, Some("medium")) => enabled(8 * MIN_THINKING_TOKENS),
        (_, Some("high" | "xhigh" | "max")) => enabled(24 * MIN_THINKING_TOKENS),
        _ => return,
    };
    let is_forced = matches!(
        request.tool_choice,
        ToolChoice::Required | ToolChoice::Named(_)
    );
    if thinking["type"] == "disabled" || is_forced || is_thinking_lost(turns) {
        return;
    }
    // The limit includes thinking and must be higher.
    let budget = thinking["budget_tokens"].as_u64().unwrap_or(0);
    let limit = all.get("max_tokens").and_then(Value::as_u64).unwrap_or(0);
    if limit <= budget {
        all.insert("max_tokens".to_owned(), limit.saturating_add(budget).into());
    }
    for name in ["temperature", "top_k", "top_p"] {
        all.remove(name);
    }
    all.insert("thinking".to_owned(), thinking);
}

fn enabled(budget: u64) -> Value {
    json!({"type": "enabled", "budget_tokens": budget})
}

/// Whether the model waits for results of calls whose thinking the client did not keep.
fn is_thinking_lost(turns: &[Value]) -> bool {
    let is_result = turns
        .last()
        .is_some_and(|it| it["content"][0]["type"] == "tool_result");
    let asked = turns.iter().rev().find(|it| it["role"] == "assistant");
    let first = asked.and_then(|it| it["content"][0]["type"].as_str());
    is_result && !matches!(first, Some("thinking" | "redacted_thinking"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(role: ChatRole, members: Value) -> ChatMessage {
        let Value::Object(extra_members) = members else {
            panic!("not an object")
        };
        ChatMessage {
            role,
            extra_members,
            written: None,
        }
    }

    fn encoded(request: &ChatRequest) -> Value {
        serde_json::from_slice(&encode_request(request, "claude", None, false)).unwrap()
    }

    #[test]
    fn conversation_keeps_the_rules_of_the_api() {
        let call = json!({"id": "call.1", "type": "function", "function": {"name": "f", "arguments": "{\"a\":1}"}});
        let request = ChatRequest {
            messages: vec![
                message(ChatRole::System, json!({"content": "Be brief."})),
                message(
                    ChatRole::Assistant,
                    json!({"content": "", "tool_calls": [call]}),
                ),
                message(
                    ChatRole::Tool,
                    json!({"tool_call_id": "call.1", "content": "42"}),
                ),
                message(
                    ChatRole::User,
                    json!({"content": [{"type": "text", "text": " "},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]}),
                ),
                message(ChatRole::Assistant, json!({"content": "So: "})),
            ],
            other: json!({"temperature": 1.5, "stop": "x", "max_tokens": 7})
                .as_object()
                .unwrap()
                .clone(),
            ..ChatRequest::default()
        };
        let expected = json!({
            "model": "claude",
            "system": "Be brief.",
            "max_tokens": 7,
            "temperature": 1.0,
            "stop_sequences": ["x"],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "(The conversation begins.)"}]},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "call_1", "name": "f", "input": {"a": 1}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "call_1", "content": "42"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
                ]},
                {"role": "assistant", "content": [{"type": "text", "text": "So:"}]},
            ],
        });
        assert_eq!(encoded(&request), expected);
    }

    #[test]
    fn thinking_is_sent_with_its_signature_or_left_out() {
        let call = |extra: &Value| json!({"id": "c", "function": {"name": "f", "arguments": "{}"}, "extra_content": extra});
        let block = json!({"type": "thinking", "thinking": "hm", "signature": "s"});
        let request = |extra: &Value| ChatRequest {
            messages: vec![
                message(ChatRole::User, json!({"content": "?"})),
                message(ChatRole::Assistant, json!({"tool_calls": [call(extra)]})),
                message(ChatRole::Tool, json!({"tool_call_id": "c", "content": "1"})),
            ],
            other: json!({"reasoning_effort": "low", "temperature": 0.5, "max_tokens": 100})
                .as_object()
                .unwrap()
                .clone(),
            ..ChatRequest::default()
        };
        let kept = encoded(&request(
            &json!({"anthropic": {"reasoning_blocks": [block]}}),
        ));
        assert_eq!(kept["messages"][1]["content"][0], block);
        assert_eq!(kept["thinking"]["budget_tokens"], 2048);
        assert_eq!(kept["max_tokens"], 2148);
        assert!(kept.get("temperature").is_none());
        let lost = encoded(&request(&Value::Null));
        assert!(lost.get("thinking").is_none());
        assert_eq!(lost["temperature"], 0.5);
    }
}
