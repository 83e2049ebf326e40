//! Reads the messages of a request: content is text or a list of blocks. Blocks that no
//! model behind maru could read are skipped.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::super::model_api::{
    ApiError, AssistantItems, ConversationBuilder, MAX_MESSAGES, ResultContent, call_json,
    image_part, text_part,
};
use super::message_writer::OWN_SIGNATURE_PREFIX;
use maru_llm::ChatMessage;

/// Claude Code counts its requests in a block of the instructions, which changes with each
/// of them; a backend could then reuse nothing that it has computed.
const BILLING_HEADER: &str = "x-anthropic-billing-header:";

/// The messages of a request.
#[derive(Debug)]
pub(super) struct ParsedMessages {
    pub(super) messages: Vec<ChatMessage>,
    /// Tools that a `tool_reference` names or a call used.
    pub(super) loaded_tools: HashSet<String>,
}

/// Parses `system` and `messages`.
pub(super) fn parse_messages(
    system: Option<Value>,
    given: Option<Value>,
) -> Result<ParsedMessages, ApiError> {
    let Some(Value::Array(given)) = given else {
        return Err(ApiError::invalid("messages", "messages must be a list"));
    };
    if given.is_empty() || given.len() > MAX_MESSAGES {
        let reason = format!("messages must have 1 to {MAX_MESSAGES} entries");
        return Err(ApiError::invalid("messages", reason));
    }
    let mut reader = MessageReader::default();
    let system = Content::parse(system.unwrap_or(Value::Null))
        .map_err(|reason| ApiError::invalid("system", reason))?;
    reader.read_system(&system);
    for (at, message) in given.into_iter().enumerate() {
        reader
            .read_message(message)
            .map_err(|reason| ApiError::invalid(&format!("messages[{at}]"), reason))?;
    }
    Ok(ParsedMessages {
        messages: reader.conversation.finish(),
        loaded_tools: reader.loaded_tools,
    })
}

/// Text or blocks.
struct Content(Vec<Map<String, Value>>);

impl Content {
    fn parse(given: Value) -> Result<Self, &'static str> {
        const FORM: &str = "content must be text or a list of blocks";
        let text_block = |text: String| {
            let mut block = Map::new();
            block.insert("type".to_owned(), "text".into());
            block.insert("text".to_owned(), text.into());
            block
        };
        match given {
            Value::Null => Ok(Self(Vec::new())),
            Value::String(text) => Ok(Self(vec![text_block(text)])),
            Value::Array(blocks) => {
                let blocks = blocks.into_iter().map(|it| match it {
                    Value::Object(block) => Ok(block),
                    Value::String(text) => Ok(text_block(text)),
                    _ => Err(FORM),
                });
                blocks.collect::<Result<_, _>>().map(Self)
            }
            _ => Err(FORM),
        }
    }
}

#[derive(Default)]
struct MessageReader {
    conversation: ConversationBuilder,
    loaded_tools: HashSet<String>,
}

impl MessageReader {
    fn read_system(&mut self, content: &Content) {
        let texts = content.0.iter().filter_map(|it| text_member(it, "text"));
        for text in texts.filter(|it| !it.starts_with(BILLING_HEADER)) {
            self.conversation.push_system(text);
        }
    }

    fn read_message(&mut self, given: Value) -> Result<(), &'static str> {
        let Value::Object(mut message) = given else {
            return Err("a message must be an object");
        };
        let role = message.remove("role");
        let content = match message.remove("content") {
            None | Some(Value::Null) => return Err("content is missing"),
            Some(content) => Content::parse(content)?,
        };
        match role.as_ref().and_then(Value::as_str) {
            Some("user") => self.read_user(content),
            Some("assistant") => self.read_assistant(content),
            Some("system") => {
                self.read_system(&content);
                Ok(())
            }
            _ => Err("role must be user, assistant or system"),
        }
    }

    /// Results come before what the user says.
    fn read_user(&mut self, content: Content) -> Result<(), &'static str> {
        let mut parts = Vec::new();
        let mut has_results = false;
        for block in content.0 {
            if text_member(&block, "type") == Some("tool_result") {
                has_results = true;
                self.read_result(&block)?;
            } else {
                parts.extend(user_parts(&block)?);
            }
        }
        if !has_results || !parts.is_empty() {
            self.conversation.push_user(parts);
        }
        Ok(())
    }

    fn read_result(&mut self, block: &Map<String, Value>) -> Result<(), &'static str> {
        let Some(id) = text_member(block, "tool_use_id") else {
            return Err("a tool_result needs tool_use_id");
        };
        let content = block.get("content").cloned().unwrap_or(Value::Null);
        let mut result = ResultContent {
            is_error: block.get("is_error") == Some(&Value::Bool(true)),
            ..ResultContent::default()
        };
        for block in Content::parse(content)?.0 {
            if let (Some("tool_reference"), Some(name)) = (
                text_member(&block, "type"),
                text_member(&block, "tool_name"),
            ) {
                result.push_text(&format!("The tool {name} is available now."));
                self.loaded_tools.insert(name.to_owned());
                continue;
            }
            for part in user_parts(&block)? {
                match part["text"].as_str() {
                    Some(text) => result.push_text(text),
                    None => result.images.push(part),
                }
            }
        }
        self.conversation.push_result(id, result);
        Ok(())
    }

    fn read_assistant(&mut self, content: Content) -> Result<(), &'static str> {
        let mut items = AssistantItems::default();
        for mut block in content.0 {
            match text_member(&block, "type") {
                Some("text") => items
                    .text
                    .push_str(text_member(&block, "text").unwrap_or_default()),
                Some("tool_use") => items.calls.push(self.read_call(&mut block)?),
                Some("thinking") => {
                    let text = text_member(&block, "thinking").unwrap_or_default();
                    items.reasoning.push_str(text);
                    let signature = text_member(&block, "signature").unwrap_or_default();
                    if !signature.is_empty() && !signature.starts_with(OWN_SIGNATURE_PREFIX) {
                        let block =
                            json!({"type": "thinking", "thinking": text, "signature": signature});
                        items.reasoning_blocks.push(block);
                    }
                }
                Some("redacted_thinking") => {
                    if let Some(data) = text_member(&block, "data") {
                        let block = json!({"type": "redacted_thinking", "data": data});
                        items.reasoning_blocks.push(block);
                    }
                }
                _ => (),
            }
        }
        self.conversation.push_assistant(items);
        Ok(())
    }

    fn read_call(&mut self, block: &mut Map<String, Value>) -> Result<Value, &'static str> {
        let (Some(id), Some(name)) = (text_member(block, "id"), text_member(block, "name")) else {
            return Err("a tool_use needs id and name");
        };
        self.loaded_tools.insert(name.to_owned());
        let input = match block.get("input") {
            Some(Value::String(text)) => text.clone(),
            Some(input) => input.to_string(),
            None => "{}".to_owned(),
        };
        Ok(call_json(id, name, &input))
    }
}

/// The parts that a block becomes in a message of the user.
fn user_parts(block: &Map<String, Value>) -> Result<Vec<Value>, &'static str> {
    let text = |name: &str| text_member(block, name);
    let mut parts = Vec::new();
    match text("type") {
        Some("text") => match text("text") {
            Some(text) => parts.push(text_part(text)),
            None => return Err("a text block needs text"),
        },
        Some("image") => {
            let source = block.get("source").unwrap_or(&Value::Null);
            match source_url(source) {
                Some(url) => parts.push(image_part(&url)),
                None => return Err("the source of an image must be base64 or url"),
            }
        }
        Some("document") => {
            let source = block.get("source").unwrap_or(&Value::Null);
            let title = text("title").unwrap_or("document");
            parts.extend(document_parts(title, source)?);
        }
        Some("search_result") => {
            let (title, source) = (text("title"), text("source"));
            let heading = format!(
                "{}\n{}",
                title.unwrap_or_default(),
                source.unwrap_or_default()
            );
            parts.push(text_part(heading));
            let content = block.get("content").cloned().unwrap_or(Value::Null);
            let content = Content::parse(content)?.0;
            let texts = content.iter().filter_map(|it| text_member(it, "text"));
            parts.extend(texts.map(text_part));
        }
        _ => (),
    }
    Ok(parts)
}

/// A document in text goes in as text; other kinds are named, because no model behind the
/// chat API takes them.
fn document_parts(title: &str, source: &Value) -> Result<Vec<Value>, &'static str> {
    match source["type"].as_str() {
        Some("text") => {
            let text = source["data"].as_str().unwrap_or_default();
            Ok(vec![text_part(format!("{title}:\n{text}"))])
        }
        Some("content") => {
            let mut parts = vec![text_part(format!("{title}:"))];
            for block in Content::parse(source["content"].clone())?.0 {
                // A document in a document would have no end.
                if matches!(text_member(&block, "type"), Some("text" | "image")) {
                    parts.extend(user_parts(&block)?);
                }
            }
            Ok(parts)
        }
        _ => {
            let kind = source["media_type"].as_str().unwrap_or("unknown type");
            let note = format!("[{title} ({kind}) is left out: only text and images are read]");
            Ok(vec![text_part(note)])
        }
    }
}

/// The URL of an image.
fn source_url(source: &Value) -> Option<String> {
    match source["type"].as_str()? {
        "base64" => {
            let (kind, data) = (source["media_type"].as_str()?, source["data"].as_str()?);
            Some(format!("data:{kind};base64,{data}"))
        }
        "url" => Some(source["url"].as_str()?.to_owned()),
        _ => None,
    }
}

fn text_member<'a>(block: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    block.get(name).and_then(Value::as_str)
}
