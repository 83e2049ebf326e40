//! Requests of Ollama's API as those of OpenAI's, which are then checked as such.

use std::collections::VecDeque;

use serde_json::{Map, Value, json};

use super::super::model_api::{ApiError, MAX_MESSAGES, check_members, parse_stream};

/// A request in the form of one of OpenAI's APIs.
#[derive(Debug)]
pub(super) struct TranslatedRequest {
    pub(super) target: TargetApi,
    pub(super) body: Value,
    pub(super) model: String,
    pub(super) stream: bool,
    /// Whether the client wants the reasoning.
    pub(super) shows_thinking: bool,
}

/// What a request becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TargetApi {
    /// A request of `/v1/chat/completions`.
    Chat,
    /// A request of `/v1/completions`.
    Text,
    /// Nothing: it only asks for the model to be loaded, which is the backend's business, or
    /// (with `keep_alive: 0`) not to be kept.
    Load { unload: bool },
}

/// Options with the same meaning, and their names.
const OPTION_NAMES: [(&str, &str); 9] = [
    ("temperature", "temperature"),
    ("top_p", "top_p"),
    ("top_k", "top_k"),
    ("min_p", "min_p"),
    ("seed", "seed"),
    ("stop", "stop"),
    ("presence_penalty", "presence_penalty"),
    ("frequency_penalty", "frequency_penalty"),
    ("num_predict", "max_tokens"),
];

/// Translates the body of `/api/chat`.
pub(super) fn translate_chat(body: Value) -> Result<TranslatedRequest, ApiError> {
    let mut body = check_members(body)?;
    let given = match body.remove("messages") {
        Some(Value::Array(given)) => given,
        None | Some(Value::Null) => Vec::new(),
        Some(_) => return Err(ApiError::invalid("messages", "messages must be a list")),
    };
    if given.is_empty() {
        let target = load_target(&body);
        return translate_options(body, target, Map::new());
    }
    if given.len() > MAX_MESSAGES {
        let reason = format!("messages may have {MAX_MESSAGES} entries at most");
        return Err(ApiError::invalid("messages", reason));
    }
    let mut messages = Vec::with_capacity(given.len());
    let mut calls = OpenCalls::default();
    for (at, message) in given.into_iter().enumerate() {
        let Value::Object(message) = message else {
            let param = format!("messages[{at}]");
            return Err(ApiError::invalid(&param, "a message must be an object"));
        };
        messages.push(translate_message(message, &mut calls));
    }
    let tools = body.remove("tools");
    let mut translated = translate_options(body, TargetApi::Chat, with_messages(messages))?;
    if let Some(tools) = tools {
        translated.body["tools"] = tools;
    }
    Ok(translated)
}

/// Translates the body of `/api/generate`.
pub(super) fn translate_generate(body: Value) -> Result<TranslatedRequest, ApiError> {
    let mut body = check_members(body)?;
    let prompt = match body.remove("prompt") {
        Some(Value::String(prompt)) => prompt,
        None | Some(Value::Null) => String::new(),
        Some(_) => return Err(ApiError::invalid("prompt", "prompt must be text")),
    };
    let images = body.remove("images").filter(|it| *it != json!([]));
    let suffix = body.remove("suffix").filter(|it| *it != "");
    if suffix.is_some() || body.get("raw") == Some(&Value::Bool(true)) {
        let mut text = Map::new();
        text.insert("prompt".to_owned(), prompt.into());
        text.insert("suffix".to_owned(), suffix.unwrap_or_default());
        return translate_options(body, TargetApi::Text, text);
    }
    if prompt.is_empty() && images.is_none() {
        let target = load_target(&body);
        return translate_options(body, target, Map::new());
    }
    let mut messages = Vec::new();
    if let Some(Value::String(system)) = body.remove("system")
        && !system.is_empty()
    {
        messages.push(json!({"role": "system", "content": system}));
    }
    messages.push(json!({"role": "user", "content": content(&prompt, images.as_ref())}));
    translate_options(body, TargetApi::Chat, with_messages(messages))
}

fn with_messages(messages: Vec<Value>) -> Map<String, Value> {
    let mut members = Map::new();
    members.insert("messages".to_owned(), messages.into());
    members
}

fn load_target(body: &Map<String, Value>) -> TargetApi {
    let keep_alive = body.get("keep_alive").unwrap_or(&Value::Null);
    let unload = keep_alive.as_i64() == Some(0) || matches!(keep_alive.as_str(), Some("0" | "0s"));
    TargetApi::Load { unload }
}

/// How many calls may wait for their results; those of older ones are not looked for.
const MAX_OPEN_CALLS: usize = 256;

/// Calls whose results are to come: Ollama's have no ids.
#[derive(Debug, Default)]
struct OpenCalls {
    count: usize,
    /// Name and id, in their order.
    waiting: VecDeque<(String, String)>,
}

impl OpenCalls {
    fn add(&mut self, name: &str, id: Option<&str>) -> String {
        self.count += 1;
        let id = id.map_or_else(|| format!("call_{}", self.count), str::to_owned);
        if self.waiting.len() == MAX_OPEN_CALLS {
            self.waiting.pop_front();
        }
        self.waiting.push_back((name.to_owned(), id.clone()));
        id
    }

    /// The call that a result belongs to: by its id, by its name, or the first one.
    fn take(&mut self, id: Option<&str>, name: Option<&str>) -> String {
        if let Some(id) = id {
            self.waiting.retain(|it| it.1 != id);
            return id.to_owned();
        }
        let named = name.and_then(|name| self.waiting.iter().position(|it| it.0 == name));
        match self.waiting.remove(named.unwrap_or(0)) {
            Some((_, id)) => id,
            None => "call_0".to_owned(),
        }
    }
}

fn translate_message(mut message: Map<String, Value>, calls: &mut OpenCalls) -> Value {
    let text = message.remove("content").unwrap_or(Value::Null);
    let images = message.remove("images");
    let mut translated = json!({"role": message.get("role")});
    translated["content"] = match (&text, &images) {
        (Value::String(text), _) => content(text, images.as_ref()),
        (Value::Null, Some(Value::Array(_))) => content("", images.as_ref()),
        _ => text,
    };
    let given = |name: &str| message.get(name).and_then(Value::as_str);
    if given("role") == Some("tool") {
        let name = given("tool_name").or(given("name"));
        translated["tool_call_id"] = calls.take(given("tool_call_id"), name).into();
    }
    if let Some(thinking) = given("thinking").filter(|it| !it.is_empty()) {
        translated["reasoning_content"] = thinking.into();
    }
    if let Some(Value::Array(made)) = message.get("tool_calls") {
        let made = made.iter().map(|it| {
            let name = it["function"]["name"].as_str().unwrap_or_default();
            let id = calls.add(name, it["id"].as_str());
            let arguments = match &it["function"]["arguments"] {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
        });
        translated["tool_calls"] = made.collect();
    }
    translated
}

/// Text, with images as parts.
fn content(text: &str, images: Option<&Value>) -> Value {
    let images = images.and_then(Value::as_array);
    let Some(images) = images.filter(|it| !it.is_empty()) else {
        return text.into();
    };
    let mut parts = vec![json!({"type": "text", "text": text})];
    parts.extend(images.iter().filter_map(Value::as_str).map(|image| {
        let url = format!("data:{};base64,{image}", media_type(image));
        json!({"type": "image_url", "image_url": {"url": url}})
    }));
    parts.into()
}

/// By how an image begins in base64.
fn media_type(image: &str) -> &'static str {
    const BEGINNINGS: [(&str, &str); 3] = [
        ("/9j/", "image/jpeg"),
        ("R0lG", "image/gif"),
        ("UklG", "image/webp"),
    ];
    let found = BEGINNINGS.iter().find(|it| image.starts_with(it.0));
    found.map_or("image/png", |it| it.1)
}

fn translate_options(
    mut body: Map<String, Value>,
    target: TargetApi,
    mut translated: Map<String, Value>,
) -> Result<TranslatedRequest, ApiError> {
    let stream = match body.get("stream") {
        None | Some(Value::Null) => true,
        given => parse_stream(given)?,
    };
    if let Some(model) = body.remove("model") {
        translated.insert("model".to_owned(), model);
    }
    let options = body.get("options").unwrap_or(&Value::Null);
    if !options.is_object() && !options.is_null() {
        return Err(ApiError::invalid("options", "options must be an object"));
    }
    for (theirs, ours) in OPTION_NAMES {
        let value = &options[theirs];
        // A limit below 1 is none.
        let is_unlimited = theirs == "num_predict" && value.as_i64().is_some_and(|it| it < 1);
        if !value.is_null() && !is_unlimited {
            translated.insert(ours.to_owned(), value.clone());
        }
    }
    match body.get("format") {
        Some(Value::String(name)) if name == "json" => {
            let format = json!({"type": "json_object"});
            translated.insert("response_format".to_owned(), format);
        }
        Some(schema @ Value::Object(_)) => {
            let schema = json!({"name": "reply", "strict": true, "schema": schema});
            let format = json!({"type": "json_schema", "json_schema": schema});
            translated.insert("response_format".to_owned(), format);
        }
        None | Some(Value::Null) => (),
        Some(Value::String(text)) if text.is_empty() => (),
        Some(_) => {
            let reason = "format must be \"json\" or a JSON Schema";
            return Err(ApiError::invalid("format", reason));
        }
    }
    let think = body.get("think").unwrap_or(&Value::Null);
    if let Some(effort) = think.as_str() {
        translated.insert("reasoning_effort".to_owned(), effort.into());
    }
    if stream {
        translated.insert("stream".to_owned(), true.into());
    }
    let model = translated.get("model").and_then(Value::as_str);
    Ok(TranslatedRequest {
        target,
        model: model.unwrap_or_default().to_owned(),
        stream,
        shows_thinking: think != &Value::Bool(false),
        body: translated.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_find_their_calls_by_name_or_order() {
        let call = |name: &str| json!({"function": {"name": name, "arguments": {"a": 1}}});
        let body = json!({"model": "m", "options": {"num_predict": -1, "top_k": 3}, "think": false, "messages": [
            {"role": "user", "content": "?", "images": ["/9j/AA"]},
            {"role": "assistant", "content": "", "tool_calls": [call("f"), call("g"), call("h")]},
            {"role": "tool", "tool_name": "g", "content": "2"},
            {"role": "tool", "content": "1"},
            {"role": "tool", "tool_name": "h", "content": "3"},
        ]});
        let translated = translate_chat(body).unwrap();
        let messages = &translated.body["messages"];
        let url = "data:image/jpeg;base64,/9j/AA";
        assert_eq!(messages[0]["content"][1]["image_url"]["url"], url);
        assert_eq!(
            messages[1]["tool_calls"][0]["function"]["arguments"],
            "{\"a\":1}"
        );
        for (at, call) in [(2, 1), (3, 0), (4, 2)] {
            let id = &messages[1]["tool_calls"][call]["id"];
            assert_eq!(&messages[at]["tool_call_id"], id);
        }
        assert_eq!(translated.body["top_k"], 3);
        assert!(translated.body.get("max_tokens").is_none());
        assert!(translated.stream && !translated.shows_thinking);
    }
}
